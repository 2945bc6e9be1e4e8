//! `syslog`: records go to the system's log.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::net::UnixDatagram;

use super::LogFilter;
use super::custom_fields::{self, CustomFields};
use crate::delivery::{Limits, Queue, Sender};
use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts};

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
/// Most messages that are sent over one socket.
const MESSAGES: usize = 1000;

/// Severities, from the least grave one; the number of each is 7 less its position.
const SEVERITIES: &[&str] = &[
    "debug", "info", "notice", "warning", "err", "crit", "alert", "emerg",
];

/// Facilities, and their numbers.
const FACILITIES: &[(&str, u8)] = &[
    ("auth", 4),
    ("authpriv", 10),
    ("cron", 9),
    ("daemon", 3),
    ("ftp", 11),
    ("kern", 0),
    ("lpr", 6),
    ("mail", 2),
    ("news", 7),
    ("syslog", 5),
    ("user", 1),
    ("uucp", 8),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

const FACILITY_NAMES: &[&str] = &[
    "auth", "authpriv", "cron", "daemon", "ftp", "kern", "lpr", "mail", "news", "syslog", "user",
    "uucp", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// The fields that say how grave requests are.
pub(super) fn severity_fields(required: bool) -> [Field; 4] {
    [
        "log_level",
        "successful_severity",
        "client_errors_severity",
        "server_errors_severity",
    ]
    .map(|name| {
        let field = Field::new(name, Type::word(SEVERITIES)).default("info");
        if required { field.required() } else { field }
    })
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = Vec::from(severity_fields(true));
        fields.extend([
            custom_fields::field(),
            Field::new("facility", Type::word(FACILITY_NAMES))
                .default("user")
                .required(),
        ]);
        Schema::new(fields)
    });
    &SCHEMA
}

/// How grave requests are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Severities {
    success: usize,
    client_errors: usize,
    server_errors: usize,
    /// The least grave one that is logged.
    level: usize,
    facility: u8,
}

impl Severities {
    /// Reads a complete `config`, for messages of this facility.
    pub(super) fn read(config: Settings<'_>, facility: u8) -> Result<Self, ConfigError> {
        let severity = |field: &str| {
            let name = config.text(field).unwrap_or("info");
            let position = SEVERITIES.iter().position(|one| *one == name);
            position.ok_or_else(|| wrong(field, "expected a severity"))
        };
        Ok(Self {
            success: severity("successful_severity")?,
            client_errors: severity("client_errors_severity")?,
            server_errors: severity("server_errors_severity")?,
            level: severity("log_level")?,
            facility,
        })
    }

    /// The priority of a request with this status; `None`: it is not logged.
    pub(super) fn priority(self, status: u16) -> Option<u8> {
        let severity = match status {
            500.. => self.server_errors,
            400..=499 => self.client_errors,
            _ => self.success,
        };
        let number = u8::try_from(7_usize.saturating_sub(severity)).ok()?;
        (severity >= self.level).then_some(self.facility * 8 + number)
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
    filter(Settings(config), parts, Path::new(SOCKET))
}

/// The filter of a complete `config` whose messages go to `socket`.
pub(super) fn filter(
    config: Settings<'_>,
    parts: &Parts,
    socket: &Path,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let name = config.text("facility");
    let facility = FACILITIES.iter().find(|(one, _)| Some(*one) == name);
    let facility = facility.map_or(1, |(_, number)| *number);
    let severities = Severities::read(config, facility)?;
    let fields = CustomFields::read(config)?;
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
