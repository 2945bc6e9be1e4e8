//! `loggly`: records are datagrams of syslog for Loggly.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::LogFilter;
use super::custom_fields::{CustomFields, RecordConfig};
use super::syslog::{Severities, SeverityConfig, USER};
use super::udp_log::UdpSender;
use crate::delivery::{Limits, Queue};
use crate::settings::wrong;
use doorward_core::model::audit::instant;
use doorward_core::model::schema::{Schema, Type};
use doorward_net::host;
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "loggly",
    priority: 6,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// Most datagrams that are sent for one look-up of the host.
const DATAGRAMS: usize = 1000;

config! {
    /// The fields of `config`.
    struct Config {
        /// The host that records are sent to.
        #[field(default("logs-01.loggly.com"))]
        host: Option<Box<str>>,
        /// Its port of UDP.
        #[field(default(514))]
        port: Option<u16>,
        /// The customer's token: letters, digits and dashes. It is sent without encryption.
        #[field(required)]
        key: String,
        /// Tags of each message.
        #[field(kind(Type::set(Type::some_text())), default(json!(["kong"])))]
        tags: Vec<String>,
        severities as ..: SeverityConfig,
        /// Has no effect: a datagram is sent at once.
        #[field(default(10_000))]
        _timeout as "timeout": Option<f64>,
        record as ..: RecordConfig,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// A text between quotes, in which nothing else can begin (RFC 5424 §6.3.3).
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for c in text.chars() {
        if matches!(c, '"' | '\\' | ']') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let key = config.key;
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(wrong("key", "expected letters, digits and dashes"));
    }
    let tags = config.tags.iter();
    let tags = tags.map(|tag| format!(" tag=\"{}\"", quoted(tag)));
    let data = format!("[{key}@41058{}]", tags.collect::<String>());
    let severities = Severities::new(&config.severities, USER);
    let fields = CustomFields::new(&config.record)?;
    let node = host::name();
    let sender = UdpSender {
        host: config.host.unwrap_or_default(),
        port: config.port.unwrap_or_default(),
    };
    let queue = Queue::new(KIND.name, parts, Limits::streaming(DATAGRAMS), sender);
    let mut filter = LogFilter::new(queue, fields, "");
    let clock = parts.clock.clone();
    filter.framing = Box::new(move |record, text| {
        let priority = severities.priority(record.response.status)?;
        let time = instant(clock.now_ms());
        Some(format!("<{priority}>1 {time} {node} kong - - {data} {text}").into_bytes())
    });
    Ok(filter.shared())
}
