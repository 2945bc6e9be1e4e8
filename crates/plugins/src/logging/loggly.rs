//! `loggly`: records are datagrams of syslog for Loggly.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::LogFilter;
use super::custom_fields::{self, CustomFields};
use super::syslog::{Severities, severity_fields};
use super::udp_log::{UdpSender, port};
use crate::delivery::{Limits, Queue};
use crate::settings::{Settings, wrong};
use doorward_core::model::audit::instant;
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_net::host;
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts};

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
/// The facility of all messages: `user`.
const USER: u8 = 1;

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = vec![
            Field::new("host", Type::some_text()).default("logs-01.loggly.com"),
            Field::new("port", Type::Integer(0, 65_535)).default(514),
            Field::new("key", Type::some_text()).required(),
            Field::new("tags", Type::set(Type::some_text())).default(json!(["kong"])),
        ];
        fields.extend(severity_fields(false));
        fields.extend([
            Field::new("timeout", Type::Number).default(10_000),
            custom_fields::field(),
        ]);
        Schema::new(fields)
    });
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
    let config = Settings(config);
    let key = config.text("key").unwrap_or_default();
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(wrong("key", "expected letters, digits and dashes"));
    }
    let tags = config
        .texts("tags")
        .map(|tag| format!(" tag=\"{}\"", quoted(tag)));
    let data = format!("[{key}@41058{}]", tags.collect::<String>());
    let host = host::name();
    let severities = Severities::read(config, USER)?;
    let fields = CustomFields::read(config)?;
    let sender = UdpSender {
        host: config.text("host").unwrap_or_default().into(),
        port: port(config),
    };
    let queue = Queue::new(KIND.name, parts, Limits::streaming(DATAGRAMS), sender);
    let mut filter = LogFilter::new(queue, fields, "");
    let clock = parts.clock.clone();
    filter.framing = Box::new(move |record, text| {
        let priority = severities.priority(record.response.status)?;
        let time = instant(clock.now_ms());
        Some(format!("<{priority}>1 {time} {host} kong - - {data} {text}").into_bytes())
    });
    Ok(filter.shared())
}
