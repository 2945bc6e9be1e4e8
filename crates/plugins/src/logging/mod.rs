//! The log plugins `http-log`, `file-log`, `tcp-log`, `udp-log`, `loggly` and `syslog`: each
//! finished request as a JSON object, to somewhere.
//!
//! [`record`] makes the object; each plugin has its own file with its schema and
//! its [`Sender`](crate::delivery::Sender).

mod custom_fields;
pub(crate) mod file_log;
pub(crate) mod http_log;
pub(crate) mod loggly;
pub(crate) mod record;
pub(crate) mod syslog;
pub(crate) mod tcp_log;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod udp_log;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::http::RequestHeader;

use crate::delivery::Queue;
use custom_fields::CustomFields;
pub use custom_fields::leaves_field_out;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
pub(crate) use record::{millis, workspace};

/// What operators are told of a filter that lets every request pass.
pub(crate) const OBSERVES: &str = "it only observes";

/// Makes an entry of a record's JSON text; `None`: the request is not logged.
type Framing = Box<dyn Fn(&RequestRecord<'_>, String) -> Option<Vec<u8>> + Send + Sync>;

/// A running filter of one of the plugins.
struct LogFilter {
    queue: Queue,
    fields: CustomFields,
    framing: Framing,
    warnings: Vec<String>,
}

impl LogFilter {
    /// A filter whose entries are JSON texts that end with `end`.
    fn new(queue: Queue, fields: CustomFields, end: &'static str) -> Self {
        Self {
            queue,
            fields,
            framing: Box::new(move |_, mut text| {
                text.push_str(end);
                Some(text.into_bytes())
            }),
            warnings: Vec::new(),
        }
    }

    fn shared(self) -> Arc<dyn Filter> {
        Arc::new(self)
    }
}

#[async_trait]
impl Filter for LogFilter {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::passes(OBSERVES))
    }

    fn observes(&self) -> bool {
        true
    }

    fn on_end(&self, record: &RequestRecord<'_>) {
        let mut object = record::object(record);
        self.fields.strip(&mut object);
        let text = serde_json::Value::Object(object).to_string();
        if let Some(entry) = (self.framing)(record, text) {
            self.queue.push(entry);
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

/// The first address of a host.
async fn address(host: &str, port: u16) -> Result<SocketAddr, String> {
    let mut found = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| error.to_string())?;
    found
        .next()
        .ok_or_else(|| "the host has no address".to_owned())
}
