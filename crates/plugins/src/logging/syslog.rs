//! `syslog`: records go to the system's log.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::net::UnixDatagram;

use super::LogFilter;
use super::custom_fields::{CustomFields, RecordConfig};
use crate::delivery::{Limits, Queue, Sender};
use doorward_core::model::schema::{Field, Schema};
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts, config, words};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "syslog",
    priority: 4,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// Where the system takes what is to be logged.
const SOCKET: &str = "/dev/log";
/// The number of the facility `user`.
pub(super) const USER: u8 = 1;
/// Most messages that are sent over one socket.
const MESSAGES: usize = 1000;

words! {
    /// How grave something is, from the least grave on.
    #[derive(PartialOrd, Ord)]
    pub(super) enum Severity {
        /// For who looks for errors.
        Debug = "debug",
        /// For who wants to know.
        Info = "info",
        /// Usual, but worth a look.
        Notice = "notice",
        /// May become an error.
        Warning = "warning",
        /// An error.
        Err = "err",
        /// A part has failed.
        Crit = "crit",
        /// Somebody has to act at once.
        Alert = "alert",
        /// Nothing works.
        Emerg = "emerg",
    }
}

words! {
    /// What kind of program a message comes from.
    enum Facility {
        /// 4.
        Auth = "auth",
        /// 10.
        Authpriv = "authpriv",
        /// 9.
        Cron = "cron",
        /// 3.
        Daemon = "daemon",
        /// 11.
        Ftp = "ftp",
        /// 0.
        Kern = "kern",
        /// 6.
        Lpr = "lpr",
        /// 2.
        Mail = "mail",
        /// 7.
        News = "news",
        /// 5.
        Syslog = "syslog",
        /// 1.
        User = "user",
        /// 8.
        Uucp = "uucp",
        /// 16.
        Local0 = "local0",
        /// 17.
        Local1 = "local1",
        /// 18.
        Local2 = "local2",
        /// 19.
        Local3 = "local3",
        /// 20.
        Local4 = "local4",
        /// 21.
        Local5 = "local5",
        /// 22.
        Local6 = "local6",
        /// 23.
        Local7 = "local7",
    }
}

impl Severity {
    /// Its number (RFC 5424 §6.2.1).
    fn number(self) -> u8 {
        match self {
            Self::Debug => 7,
            Self::Info => 6,
            Self::Notice => 5,
            Self::Warning => 4,
            Self::Err => 3,
            Self::Crit => 2,
            Self::Alert => 1,
            Self::Emerg => 0,
        }
    }
}

impl Facility {
    /// Its number (RFC 5424 §6.2.1).
    fn number(self) -> u8 {
        match self {
            Self::Kern => 0,
            Self::User => USER,
            Self::Mail => 2,
            Self::Daemon => 3,
            Self::Auth => 4,
            Self::Syslog => 5,
            Self::Lpr => 6,
            Self::News => 7,
            Self::Uucp => 8,
            Self::Cron => 9,
            Self::Authpriv => 10,
            Self::Ftp => 11,
            Self::Local0 => 16,
            Self::Local1 => 17,
            Self::Local2 => 18,
            Self::Local3 => 19,
            Self::Local4 => 20,
            Self::Local5 => 21,
            Self::Local6 => 22,
            Self::Local7 => 23,
        }
    }
}

config! {
    /// How grave requests are.
    pub(super) struct SeverityConfig {
        /// The least grave severity that is sent.
        #[field(default("info"))]
        log_level: Option<Severity>,
        /// The severity of requests with a status below 400.
        #[field(default("info"))]
        successful_severity: Option<Severity>,
        /// The severity of requests with a status from 400 to 499.
        #[field(default("info"))]
        client_errors_severity: Option<Severity>,
        /// The severity of requests with a status from 500 on.
        #[field(default("info"))]
        server_errors_severity: Option<Severity>,
    }
}

config! {
    /// The fields of `config` besides those of severities.
    struct Config {
        record as ..: RecordConfig,
        /// The facility of all messages.
        #[field(default("user"), required)]
        facility: Facility,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let severities = SeverityConfig::fields().into_iter();
        let mut fields: Vec<_> = severities.map(Field::required).collect();
        fields.extend(Config::fields());
        Schema::new(fields)
    });
    &SCHEMA
}

/// How grave requests are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Severities {
    success: Severity,
    client_errors: Severity,
    server_errors: Severity,
    /// The least grave one that is logged.
    level: Severity,
    /// The number of the facility.
    facility: u8,
}

impl Severities {
    /// Those of messages of this facility.
    pub(super) fn new(config: &SeverityConfig, facility: u8) -> Self {
        let severity = |severity: Option<Severity>| severity.unwrap_or(Severity::Info);
        Self {
            success: severity(config.successful_severity),
            client_errors: severity(config.client_errors_severity),
            server_errors: severity(config.server_errors_severity),
            level: severity(config.log_level),
            facility,
        }
    }

    /// The priority of a request with this status; `None`: it is not logged.
    pub(super) fn priority(self, status: u16) -> Option<u8> {
        let severity = match status {
            500.. => self.server_errors,
            400..=499 => self.client_errors,
            _ => self.success,
        };
        (severity >= self.level).then_some(self.facility * 8 + severity.number())
    }
}

/// Sends entries to the system's log.
pub(super) struct SyslogSender(pub(super) PathBuf);

#[async_trait]
impl Sender for SyslogSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let socket = UnixDatagram::unbound().map_err(text)?;
        socket.connect(&self.0).map_err(text)?;
        let mut outcome = Ok(());
        for entry in batch {
            // One that is too long keeps no other one.
            if let Err(error) = socket.send(entry).await {
                outcome = Err(error.to_string());
            }
        }
        outcome
    }
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    filter(config, parts, Path::new(SOCKET))
}

/// The filter of a complete `config` whose messages go to `socket`.
pub(super) fn filter(
    config: &Map<String, Value>,
    parts: &Parts,
    socket: &Path,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let severities = SeverityConfig::read(config)?;
    let config = Config::read(config)?;
    let severities = Severities::new(&severities, config.facility.number());
    let fields = CustomFields::new(&config.record)?;
    let sender = SyslogSender(socket.to_owned());
    let queue = Queue::new(KIND.name, parts, Limits::streaming(MESSAGES), sender);
    let mut filter = LogFilter::new(queue, fields, "");
    filter.framing = Box::new(move |record, text| {
        let priority = severities.priority(record.response.status)?;
        // Who receives it writes the time.
        Some(format!("<{priority}>kong[{}]: {text}", process::id()).into_bytes())
    });
    Ok(filter.shared())
}
