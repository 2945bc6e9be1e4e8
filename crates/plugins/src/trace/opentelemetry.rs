//! The `opentelemetry` plugin: spans and records of requests go to a collector.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use super::context::Format;
use super::propagation::{self, Propagation};
use super::spans::{nanos, spans};
use super::{Beginning, Trace, begin, noted};
use crate::delivery::{LEGACY_SPANS, Limits, Queue, Sender, queue_field};
use crate::logging::{OBSERVES, record};
use crate::settings::{Settings, header_name, url_text, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::http::outbound::Outbound;
use doorward_net::http::session::Session;
use doorward_net::telemetry::collector::{Collector, CollectorError, Endpoint, Signal};
use doorward_net::telemetry::{Metrics, protobuf};
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "opentelemetry",
    priority: 14,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// The share of requests by default, as in the imitated gateway.
const RATIO: f64 = 0.01;

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let millis = |name, usual: i64| {
            let field = Field::new(name, Type::Integer(0, 2_147_483_646));
            field.default(usual)
        };
        let count = |name| Field::new(name, Type::Integer(i64::MIN, i64::MAX));
        let texts = |check| Type::Map(Box::new(Type::checked(check)));
        Schema::new(vec![
            Field::new("traces_endpoint", Type::checked(url_text)).aliases(&["endpoint"]),
            Field::new("logs_endpoint", Type::checked(url_text)),
            Field::new("headers", Type::Map(Box::new(Type::some_text()))),
            Field::new("resource_attributes", texts(check_attribute)),
            queue_field(200),
            count("batch_span_count"),
            count("batch_flush_delay"),
            millis("connect_timeout", 1000),
            millis("send_timeout", 5000),
            millis("read_timeout", 5000),
            Field::new(
                "http_response_header_for_traceid",
                Type::checked(header_name),
            ),
            propagation::header_type(),
            Field::new("sampling_rate", Type::Between(0, 1)),
            propagation::field("w3c"),
        ])
        .check(check_endpoints)
        .check(check_headers)
    });
    &SCHEMA
}

fn check_attribute(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("length must be at least 1".to_owned());
    }
    Ok(())
}

fn check_endpoints(config: &Map<String, Value>, violations: &mut Violations) {
    let config = Settings(config);
    let mut fields = ["traces_endpoint", "logs_endpoint"].into_iter();
    if fields.all(|field| config.get(field).is_none()) {
        violations.put_holder(
            "at least one of these fields must be non-empty: 'config.traces_endpoint', \
             'config.logs_endpoint'",
        );
    }
}

fn check_headers(config: &Map<String, Value>, violations: &mut Violations) {
    let headers = config.get("headers").and_then(Value::as_object);
    for name in headers.into_iter().flat_map(Map::keys) {
        if let Err(message) = header_name(name) {
            violations.put("headers", message);
        }
    }
}

/// Severities of log records (OpenTelemetry logs data model).
const INFO: (u64, &str) = (9, "INFO");
const WARN: (u64, &str) = (13, "WARN");
const ERROR: (u64, &str) = (17, "ERROR");

/// Sends spans, or records.
struct OtlpSender {
    outbound: Arc<Outbound>,
    metrics: Arc<Metrics>,
    collector: Collector,
    attributes: Vec<(Box<str>, Box<str>)>,
}

impl OtlpSender {
    /// A request with these entries, each a field of its scope. Those of spans and of
    /// records have the same numbers.
    fn body(&self, entries: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        protobuf::message(&mut out, 1, |out| {
            protobuf::message(out, 1, |out| self.resource(out));
            protobuf::message(out, 2, |out| {
                protobuf::message(out, 1, |out| {
                    protobuf::bytes(out, 1, b"kong-internal");
                    protobuf::bytes(out, 2, b"0.1.0");
                });
                entries
                    .iter()
                    .for_each(|entry| out.extend_from_slice(entry));
            });
        });
        out
    }

    /// What is the same for all entries. Attributes of the configuration go before.
    fn resource(&self, out: &mut Vec<u8>) {
        let (node, version) = self.metrics.kong.node();
        let own = [
            ("service.name", "kong"),
            ("service.instance.id", node),
            ("service.version", version),
        ];
        protobuf::resource(out, &own, &self.attributes);
    }
}

#[async_trait]
impl Sender for OtlpSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let sent = self.collector.export(&self.outbound, self.body(batch));
        match sent.await {
            Ok(()) => Ok(()),
            // What was refused would be refused again.
            Err(error @ CollectorError::Partial) => {
                tracing::debug!(collector = self.collector.endpoint.origin(), %error);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A running filter.
struct OpenTelemetry {
    propagation: Propagation,
    beginning: Beginning,
    id_header: Option<HeaderName>,
    spans: Option<Queue>,
    records: Option<Queue>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let queue = |field, signal| -> Result<Option<Queue>, ConfigError> {
        let sender = sender(field, signal, config, parts)?;
        let limits = Limits::read(config, &LEGACY_SPANS);
        Ok(sender.map(|sender| Queue::new(KIND.name, parts, limits, sender)))
    };
    Ok(Arc::new(OpenTelemetry {
        propagation: Propagation::read(config, Format::W3c)?,
        beginning: Beginning {
            id_size: 16,
            ratio: config.number("sampling_rate").unwrap_or(RATIO),
            is_final: false,
        },
        id_header: config.header("http_response_header_for_traceid")?,
        spans: queue("traces_endpoint", Signal::Traces)?,
        records: queue("logs_endpoint", Signal::Logs)?,
    }))
}

/// What sends to the endpoint in this field, if there is one.
fn sender(
    field: &'static str,
    signal: Signal,
    config: Settings<'_>,
    parts: &Parts,
) -> Result<Option<OtlpSender>, ConfigError> {
    let Some(text) = config.text(field) else {
        return Ok(None);
    };
    let endpoint = Endpoint::parse(text, signal);
    let mut endpoint = endpoint.map_err(|error| wrong(field, error.to_string()))?;
    let mut headers = HeaderMap::new();
    headers.extend((endpoint.take_credentials()).map(|value| (header::AUTHORIZATION, value)));
    config.put_headers("headers", &mut headers)?;
    let millis = |field| config.integer(field).and_then(|n| u64::try_from(n).ok());
    let timeouts = ["connect_timeout", "send_timeout", "read_timeout"];
    let timeout: u64 = timeouts.into_iter().filter_map(millis).sum();
    let attributes = config.get("resource_attributes").and_then(Value::as_object);
    let attributes = attributes.into_iter().flatten();
    Ok(Some(OtlpSender {
        outbound: parts.outbound.clone(),
        metrics: parts.metrics.clone(),
        collector: Collector {
            endpoint,
            headers,
            timeout: Duration::from_millis(timeout.max(1)),
        },
        attributes: attributes
            .filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
            .collect(),
    }))
}

/// The record of a request, as a field of its scope: the object that log plugins
/// write, without secrets, and the span that it belongs to.
fn log_record(trace: &Trace, record: &RequestRecord<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::message(&mut out, 2, |out| {
        let end = nanos(record.started_ms, record.latencies.request);
        protobuf::fixed64(out, 1, end);
        let (number, text) = match record.response.status {
            500.. => ERROR,
            400.. => WARN,
            _ => INFO,
        };
        protobuf::number(out, 2, number);
        protobuf::bytes(out, 3, text.as_bytes());
        let object = Value::Object(record::object(record)).to_string();
        protobuf::message(out, 5, |out| protobuf::bytes(out, 1, object.as_bytes()));
        if let Some(id) = record.request.id {
            protobuf::text_attribute(out, 6, "request.id", id);
        }
        if let Some((trace_id, _)) = trace.context.trace_id {
            protobuf::bytes(out, 9, &trace_id);
        }
        protobuf::bytes(out, 10, &trace.root);
        protobuf::fixed64(out, 11, end);
    });
    out
}

#[async_trait]
impl Filter for OpenTelemetry {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        let trace = begin(KIND.name, &self.propagation, self.beginning, request);
        if let Some(name) = &self.id_header
            && let Ok(value) = HeaderValue::try_from(trace.context.id_text(Format::W3c))
        {
            exchange.response_headers.push((name.clone(), value));
        }
        exchange.notes.push(Box::new(trace));
        Verdict::Now(Flow::Continue)
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::passes(OBSERVES))
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut RequestHeader) {
        if let Some(trace) = noted(KIND.name, exchange) {
            self.propagation.inject(trace, request);
        }
    }

    fn on_response(&self, exchange: &Exchange, response: &mut ResponseHeader) {
        let trace = noted(KIND.name, exchange);
        if let (Some(name), Some(trace)) = (&self.id_header, trace) {
            // A name and a value of a message.
            let _ = response.insert_header(name.clone(), trace.context.id_text(Format::W3c));
        }
    }

    fn observes(&self) -> bool {
        true
    }

    /// What was over before this plugin ran begins its trace here.
    fn on_end(&self, record: &RequestRecord<'_>) {
        let mut late = None;
        let trace = noted(KIND.name, record.exchange).unwrap_or_else(|| {
            let headers = record.request.headers;
            late.insert(super::begin_from(
                KIND.name,
                &self.propagation,
                self.beginning,
                headers,
            ))
        });
        if let Some(queue) = self.spans.as_ref().filter(|_| trace.sampled) {
            queue.push(spans(trace, record));
        }
        if let Some(queue) = &self.records {
            queue.push(log_record(trace, record));
        }
    }
}
