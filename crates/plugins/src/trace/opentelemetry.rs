//! The `opentelemetry` plugin: spans and records of requests go to a collector.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::ScopeSpans;
use pingora::http::{RequestHeader, ResponseHeader};
use prost::Message;
use serde_json::{Map, Value};

use super::context::Format;
use super::propagation::{HeaderType, Propagation, PropagationConfig, propagation_type};
use super::spans::{nanos, spans};
use super::{Beginning, MILLIS, Trace, begin, noted};
use crate::delivery::{Older, Queue, QueueConfig, Sender, queue_type};
use crate::logging::http_log::put_headers;
use crate::logging::{OBSERVES, record};
use crate::settings::{header_name, url_text, wrong};
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::outbound::Outbound;
use doorward_net::http::session::Session;
use doorward_net::telemetry::collector::{Collector, CollectorError, Endpoint, Signal};
use doorward_net::telemetry::{Metrics, attributes};
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::RequestRecord;
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

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

config! {
    /// The fields of `config`.
    struct Config {
        /// Where spans are sent: a URL of http or https, or one of grpc or grpcs without a
        /// path.
        #[field(kind(Type::checked(url_text)), aliases(&["endpoint"]))]
        traces_endpoint: Option<String>,
        /// Where records of requests are sent as logs. Null: nowhere.
        #[field(kind(Type::checked(url_text)))]
        logs_endpoint: Option<String>,
        /// Headers of requests to the collector.
        headers: BTreeMap<String, String>,
        /// Attributes of the resource, in the place of the gateway's own or beside them.
        resource_attributes: BTreeMap<String, String>,
        /// What waits, for how long, and how often it is sent again.
        #[field(kind(queue_type(200)), required)]
        queue: QueueConfig,
        /// Stands for max_batch_size of the queue, unless it is 200 or null.
        batch_span_count: Option<i64>,
        /// Stands for max_coalescing_delay of the queue, unless it is 3 or null.
        batch_flush_delay: Option<i64>,
        /// Milliseconds for a connection. The three timeouts together bound a try.
        #[field(kind(MILLIS), default(1000))]
        connect_timeout: Option<u32>,
        /// Milliseconds for sending. The three timeouts together bound a try.
        #[field(kind(MILLIS), default(5000))]
        send_timeout: Option<u32>,
        /// Milliseconds for the answer. The three timeouts together bound a try.
        #[field(kind(MILLIS), default(5000))]
        read_timeout: Option<u32>,
        /// A header that tells clients the id of the trace. Null: none.
        http_response_header_for_traceid: Option<HeaderName>,
        /// Counts where propagation has a default_format alone. A format: it is written,
        /// too. ignore: nothing is read.
        #[field(default("preserve"), required)]
        header_type: HeaderType,
        /// The share of traces whose spans are kept. Null: 0.01.
        #[field(kind(Type::Between(0, 1)))]
        sampling_rate: Option<f64>,
        /// In which headers traces are read and written.
        #[field(kind(propagation_type("w3c")), required)]
        propagation: PropagationConfig,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(Config::fields())
            .check(check_endpoints)
            .check(check_headers)
    });
    &SCHEMA
}

fn check_endpoints(config: &Map<String, Value>, violations: &mut Violations) {
    let none = |config: Config| config.traces_endpoint.is_none() && config.logs_endpoint.is_none();
    if read_for_check(config).is_some_and(none) {
        violations.put_holder(
            "at least one of these fields must be non-empty: 'config.traces_endpoint', \
             'config.logs_endpoint'",
        );
    }
}

fn check_headers(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    for name in config.headers.keys() {
        if let Err(message) = header_name(name) {
            violations.put("headers", message);
        }
    }
}

/// Sends spans, or records.
struct OtlpSender {
    outbound: Arc<Outbound>,
    metrics: Arc<Metrics>,
    collector: Collector,
    attributes: Vec<(Box<str>, Box<str>)>,
}

impl OtlpSender {
    /// What is the same for all entries. Attributes of the configuration go before.
    fn resource(&self) -> Resource {
        let (node, version) = self.metrics.kong.node();
        let own = [
            ("service.name", "kong"),
            ("service.instance.id", node),
            ("service.version", version),
        ];
        attributes::resource(&own, &self.attributes)
    }
}

/// The scope that the imitated gateway names.
fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "kong-internal".to_owned(),
        version: "0.1.0".to_owned(),
        ..InstrumentationScope::default()
    }
}

/// A request with what the entries of a queue hold, each an encoded `ScopeSpans` or
/// `ScopeLogs` with its list alone.
pub(super) fn export_request(resource: Resource, entries: &[Vec<u8>]) -> Vec<u8> {
    let scope = EncodedScope {
        scope: Some(scope()),
    };
    let resource = EncodedResource {
        resource: Some(resource),
        // One message after the other is a message with the lists of all.
        scope: [&[scope.encode_to_vec()], entries].concat().concat(),
    };
    let request = EncodedRequest {
        resource: resource.encode_to_vec(),
    };
    request.encode_to_vec()
}

/// `ExportTraceServiceRequest` and `ExportLogsServiceRequest`, which have the same fields.
///
/// A message is written like bytes, so what was encoded before goes on as it is.
#[derive(Clone, PartialEq, Message)]
struct EncodedRequest {
    /// `ResourceSpans` or `ResourceLogs`.
    #[prost(bytes = "vec", tag = "1")]
    resource: Vec<u8>,
}

/// `ResourceSpans` and `ResourceLogs`.
#[derive(Clone, PartialEq, Message)]
struct EncodedResource {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    /// `ScopeSpans` or `ScopeLogs`.
    #[prost(bytes = "vec", tag = "2")]
    scope: Vec<u8>,
}

/// `ScopeSpans` and `ScopeLogs`, without their lists.
#[derive(Clone, PartialEq, Message)]
struct EncodedScope {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
}

#[async_trait]
impl Sender for OtlpSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let request = export_request(self.resource(), batch);
        let sent = self.collector.export(&self.outbound, request);
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
    let config = Config::read(config)?;
    let header_type = config.header_type;
    let queue = |field, endpoint: &Option<String>, signal| -> Result<Option<Queue>, ConfigError> {
        let Some(endpoint) = endpoint else {
            return Ok(None);
        };
        let endpoint = Endpoint::parse(endpoint, signal);
        let endpoint = endpoint.map_err(|error| wrong(field, error.to_string()))?;
        let sender = sender(endpoint, &config, parts)?;
        let limits = config.queue.limits(config.older());
        Ok(Some(Queue::new(KIND.name, parts, limits, sender)))
    };
    let spans = queue("traces_endpoint", &config.traces_endpoint, Signal::Traces)?;
    let records = queue("logs_endpoint", &config.logs_endpoint, Signal::Logs)?;
    Ok(Arc::new(OpenTelemetry {
        propagation: Propagation::new(config.propagation, (header_type, None), Format::W3c)?,
        beginning: Beginning {
            id_size: 16,
            ratio: config.sampling_rate.unwrap_or(RATIO),
            is_final: false,
            shares_spans: false,
        },
        id_header: config.http_response_header_for_traceid,
        spans,
        records,
    }))
}

impl Config {
    /// What the older fields of the queue say.
    fn older(&self) -> Older {
        #[expect(clippy::cast_precision_loss, reason = "beyond all bounds of a queue")]
        let number = |field: Option<i64>| field.map(|number| number as f64);
        Older::new(
            (number(self.batch_span_count), 200.0),
            (number(self.batch_flush_delay), 3.0),
        )
    }
}

/// What sends to this endpoint.
fn sender(
    mut endpoint: Endpoint,
    config: &Config,
    parts: &Parts,
) -> Result<OtlpSender, ConfigError> {
    let mut headers = HeaderMap::new();
    headers.extend((endpoint.take_credentials()).map(|value| (header::AUTHORIZATION, value)));
    put_headers(&config.headers, &mut headers)?;
    let timeouts = [
        config.connect_timeout,
        config.send_timeout,
        config.read_timeout,
    ];
    let timeout: u64 = timeouts.into_iter().flatten().map(u64::from).sum();
    let attributes = config.resource_attributes.iter();
    Ok(OtlpSender {
        outbound: parts.outbound.clone(),
        metrics: parts.metrics.clone(),
        collector: Collector {
            endpoint,
            headers,
            timeout: Duration::from_millis(timeout.max(1)),
        },
        attributes: attributes
            .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect(),
    })
}

/// The record of a request: the object that log plugins write, without secrets, and the
/// span that it belongs to.
fn log_record(trace: &Trace, record: &RequestRecord<'_>) -> LogRecord {
    let end = nanos(record.started_ms, record.latencies.request);
    let (severity, name) = match record.response.status {
        500.. => (SeverityNumber::Error, "ERROR"),
        400.. => (SeverityNumber::Warn, "WARN"),
        _ => (SeverityNumber::Info, "INFO"),
    };
    let object = Value::Object(record::object(record)).to_string();
    let id = record.request.id;
    let trace_id = trace.context.trace_id.map(|(id, _)| id.to_vec());
    LogRecord {
        time_unix_nano: end,
        observed_time_unix_nano: end,
        severity_number: severity.into(),
        severity_text: name.to_owned(),
        body: Some(attributes::text_value(object)),
        attributes: id
            .map(|id| attributes::text("request.id", id))
            .into_iter()
            .collect(),
        trace_id: trace_id.unwrap_or_default(),
        span_id: trace.root.to_vec(),
        ..LogRecord::default()
    }
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

    fn reads_heads(&self) -> bool {
        self.id_header.is_some()
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::passes(OBSERVES))
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        if let Some(trace) = noted(KIND.name, exchange) {
            self.propagation.inject(trace, request.fields());
        }
    }

    fn on_response(&self, exchange: &Exchange, response: &mut ResponseHeader) {
        if let Some(name) = &self.id_header
            && let Some(trace) = noted(KIND.name, exchange)
        {
            // A name and a value of a message.
            let _ = response.insert_header(name.clone(), trace.context.id_text(Format::W3c));
        }
    }

    fn observes(&self) -> bool {
        true
    }

    fn observes_request(&self, exchange: &Exchange) -> bool {
        let trace = noted(KIND.name, exchange);
        self.records.is_some() || trace.is_none_or(|trace| trace.sampled)
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
            let spans = spans(trace, record);
            let entry = ScopeSpans {
                spans,
                ..ScopeSpans::default()
            };
            queue.push(entry.encode_to_vec());
        }
        if let Some(queue) = &self.records {
            let entry = ScopeLogs {
                log_records: vec![log_record(trace, record)],
                ..ScopeLogs::default()
            };
            queue.push(entry.encode_to_vec());
        }
    }
}
