//! The `zipkin` plugin: spans of requests go to a Zipkin server.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue, Method, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value, json};
use url::Url;

use super::context::Format;
use super::ids::random_id;
use super::propagation::{HeaderType, Propagation, PropagationConfig, propagation_type};
use super::{Beginning, MILLIS, Trace, begin, noted};
use crate::delivery::{Older, Queue, QueueConfig, queue_type};
use crate::logging::OBSERVES;
use crate::logging::http_log::{HttpSender, endpoint};
use doorward_core::hex;
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::outbound::Options;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::{RequestRecord, Try};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, words};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "zipkin",
    priority: 100_000,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// Names of tags that the plugin writes itself.
const RESERVED: &[&str] = &[
    "error",
    "http.method",
    "http.path",
    "http.status_code",
    "kong.balancer.state",
    "kong.balancer.try",
    "kong.consumer",
    "kong.credential",
    "kong.node.id",
    "kong.route",
    "kong.service",
    "lc",
    "peer.hostname",
];
/// Most tags that a request may bring.
const TAGS: usize = 64;

words! {
    /// What spans are called.
    enum SpanName {
        /// By the method.
        Method = "method",
        /// By the method and the path.
        MethodPath = "method_path",
    }
}

words! {
    /// How it is told when phases began and ended.
    enum PhaseFlavor {
        /// By annotations.
        Annotations = "annotations",
        /// By tags.
        Tags = "tags",
    }
}

config! {
    /// A tag that all spans of requests have.
    struct StaticTag {
        /// The name of the tag, which is none that the plugin writes itself.
        #[field(kind(Type::checked(check_tag_name)), required)]
        name: String,
        /// What the tag says.
        #[field(required)]
        value: Box<str>,
    }
}

config! {
    /// The fields of `config`.
    struct Config {
        /// What spans call this gateway.
        #[field(default("kong"), required)]
        local_service_name: Box<str>,
        /// Where lists of spans are posted. Null: traces are carried on, and no spans kept.
        http_endpoint: Option<Url>,
        /// The share of requests whose spans are kept, where the caller has not decided.
        /// Null: 0.001.
        #[field(kind(Type::Between(0, 1)), default(0.001))]
        sample_ratio: Option<f64>,
        /// What spans call upstreams whose service has no name.
        default_service_name: Option<Box<str>>,
        /// Whether spans tell the id of the credential.
        #[field(default(true), required)]
        include_credential: bool,
        /// Bytes of the ids of new traces.
        #[field(kind(Type::Choice(&[8, 16])), default(16), required)]
        traceid_byte_count: usize,
        /// Counts where propagation has a default_format alone. A format: it is written,
        /// too. ignore: nothing is read.
        #[field(default("preserve"), required)]
        header_type: HeaderType,
        /// Counts where propagation says nothing: the format where none was read.
        #[field(default("b3"), required)]
        default_header_type: Format,
        /// A header of requests with tags of their spans, such as a=b; c=d.
        #[field(default("Zipkin-Tags"), required)]
        tags_header: String,
        /// Tags of all spans of requests.
        static_tags: Vec<StaticTag>,
        /// What spans are called: by the method, or by the method and the path.
        #[field(default("method"), required)]
        http_span_name: SpanName,
        /// Milliseconds for a connection. The three timeouts together bound a try.
        #[field(kind(MILLIS), default(2000), required)]
        connect_timeout: u32,
        /// Milliseconds for sending. The three timeouts together bound a try.
        #[field(kind(MILLIS), default(5000), required)]
        send_timeout: u32,
        /// Milliseconds for the answer. The three timeouts together bound a try.
        #[field(kind(MILLIS), default(5000), required)]
        read_timeout: u32,
        /// A header that tells clients the id of the trace. Null: none.
        http_response_header_for_traceid: Option<HeaderName>,
        /// Whether annotations or tags tell how long phases took.
        #[field(default("annotations"), required)]
        phase_duration_flavor: PhaseFlavor,
        /// What waits, for how long, and how often it is sent again.
        #[field(kind(queue_type(1)), required)]
        queue: QueueConfig,
        /// In which headers traces are read and written.
        #[field(kind(propagation_type("b3")), required)]
        propagation: PropagationConfig,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(Config::fields()).check(check_tags));
    &SCHEMA
}

fn check_tag_name(name: &str) -> Result<(), String> {
    if RESERVED.contains(&name) {
        return Err(format!("must not be one of: {}", RESERVED.join(", ")));
    }
    Ok(())
}

fn check_tags(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    let mut names = HashSet::new();
    for StaticTag { name, .. } in &config.static_tags {
        if !names.insert(name) {
            violations.put(
                "static_tags",
                format!("repeated tags are not allowed: {name}"),
            );
        }
    }
}

/// A running filter.
struct Zipkin {
    propagation: Propagation,
    beginning: Beginning,
    service: Box<str>,
    upstream_service: Option<Box<str>>,
    include_credential: bool,
    static_tags: Vec<StaticTag>,
    tags_header: Option<HeaderName>,
    path_in_name: bool,
    phases_as_tags: bool,
    id_header: Option<HeaderName>,
    /// Where spans go; `None`: requests only carry the context on.
    queue: Option<Queue>,
    metrics: Arc<Metrics>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let queue = match config.http_endpoint {
        None => None,
        Some(url) => {
            let (url, mut headers) = endpoint("http_endpoint", url)?;
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
            let timeouts = [
                config.connect_timeout,
                config.send_timeout,
                config.read_timeout,
            ];
            let timeout: u64 = timeouts.into_iter().map(u64::from).sum();
            let options = Options {
                timeout: Duration::from_millis(timeout.max(1)),
                ..Options::default()
            };
            let sender = HttpSender::new(parts, (Method::POST, url, headers), options, true);
            let limits = config.queue.limits(Older::default());
            Some(Queue::new(KIND.name, parts, limits, sender))
        }
    };
    let older = (config.header_type, Some(config.default_header_type));
    Ok(Arc::new(Zipkin {
        propagation: Propagation::new(config.propagation, older, Format::B3)?,
        beginning: Beginning {
            id_size: config.traceid_byte_count,
            ratio: config.sample_ratio.unwrap_or(0.001),
            is_final: true,
            shares_spans: true,
        },
        service: config.local_service_name,
        upstream_service: config.default_service_name,
        include_credential: config.include_credential,
        static_tags: config.static_tags,
        tags_header: HeaderName::try_from(config.tags_header).ok(),
        path_in_name: config.http_span_name == SpanName::MethodPath,
        phases_as_tags: config.phase_duration_flavor == PhaseFlavor::Tags,
        id_header: config.http_response_header_for_traceid,
        queue,
        metrics: parts.metrics.clone(),
    }))
}

/// Microseconds.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Zipkin {
    /// The spans of a request: of itself, of its way to the upstream, of each try.
    fn spans(&self, trace: &Trace, record: &RequestRecord<'_>) -> Vec<Value> {
        let name = self.span_name(record);
        let mut spans = vec![self.root(trace, record, &name)];
        if let Some(tries) = record.upstream.tries {
            spans.push(self.proxy(trace, record, &name));
            let end = record.started_ms * 1000 + micros(record.latencies.request);
            for (i, one) in tries.iter().enumerate() {
                let end = tries.get(i + 1).map_or(end, |next| next.started_ms * 1000);
                spans.push(self.attempt(trace, (i + 1, one), end, &name));
            }
        }
        spans
    }

    fn span_name(&self, record: &RequestRecord<'_>) -> String {
        let method = record.request.method.as_str();
        if self.path_in_name {
            let path = path(record.request.target);
            format!("{method} {path}")
        } else {
            method.to_owned()
        }
    }

    /// What all spans have.
    fn span(&self, trace: &Trace, id: [u8; 8], name: String, kind: &str) -> Value {
        json!({
            "traceId": trace.context.id_text(Format::B3),
            "id": hex::encode(id),
            "name": name,
            "kind": kind,
            "localEndpoint": {"serviceName": &*self.service},
        })
    }

    fn root(&self, trace: &Trace, record: &RequestRecord<'_>, name: &str) -> Value {
        let mut span = self.span(trace, trace.root, name.to_owned(), "SERVER");
        let start = record.started_ms * 1000;
        span["timestamp"] = start.into();
        span["duration"] = micros(record.latencies.request).max(1).into();
        if let Some(parent) = trace.parent {
            span["parentId"] = hex::encode(parent).into();
        }
        if trace.context.span_id == Some(trace.root) {
            // The other half of it is the caller's to tell.
            span["shared"] = true.into();
        }
        let client = record.exchange.client;
        span["remoteEndpoint"] = json!({address_kind(client.ip()): client.ip().to_canonical().to_string(),
            "port": client.port()});
        let facts = &record.request;
        let mut tags = json!({
            "lc": "kong",
            "http.method": facts.method.as_str(),
            "http.host": facts.host(),
            "http.path": path(facts.target),
            "http.protocol": match facts.version {
                Version::HTTP_2 => "HTTP/2",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            },
            "http.status_code": record.response.status.to_string(),
        });
        if let Some(consumer) = record.consumer() {
            tags["kong.consumer"] = consumer.id.to_string().into();
        }
        if let Some(id) = record.credential().filter(|_| self.include_credential) {
            tags["kong.credential"] = id.to_string().into();
        }
        let node = self.metrics.kong.node_id();
        if !node.is_empty() {
            tags["kong.node.id"] = node.into();
        }
        for StaticTag { name, value } in &self.static_tags {
            tags[name] = (&**value).into();
        }
        for (name, value) in self.tags_of_request(record) {
            tags[name] = value.into();
        }
        self.phases(&mut span, &mut tags, &[("kr", "rewrite", start, start)]);
        span["tags"] = tags;
        span
    }

    /// What the request says in the header for that.
    fn tags_of_request<'a>(
        &self,
        record: &'a RequestRecord<'_>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let header = self.tags_header.as_ref();
        let text = header.and_then(|name| record.request.headers.get(name)?.to_str().ok());
        let pairs = text.unwrap_or_default().split(';').take(TAGS);
        let pairs = pairs.filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.trim(), value.trim()))
            .filter(|(name, _)| !name.is_empty() && !RESERVED.contains(name))
    }

    fn proxy(&self, trace: &Trace, record: &RequestRecord<'_>, name: &str) -> Value {
        let mut span = self.span(trace, trace.proxy, format!("{name} (proxy)"), "CLIENT");
        let latencies = &record.latencies;
        let start = record.started_ms * 1000;
        let asked = start + micros(latencies.gateway);
        let answered = asked + latencies.upstream.map_or(0, micros);
        let end = start + micros(latencies.request);
        span["parentId"] = hex::encode(trace.root).into();
        span["timestamp"] = start.into();
        span["duration"] = micros(latencies.request).max(1).into();
        if let Some(last) = record.upstream.tries.and_then(<[Try]>::last) {
            let mut remote = json!({address_kind(last.address.ip()): last.address.ip().to_canonical().to_string(),
                "port": last.address.port()});
            let service = record.service.and_then(|service| service.name.as_deref());
            if let Some(name) = service.or(self.upstream_service.as_deref()) {
                remote["serviceName"] = name.into();
            }
            span["remoteEndpoint"] = remote;
        }
        let mut tags = json!({});
        if let Some(service) = record.service {
            tags["kong.service"] = service.id.to_string().into();
            if let Some(name) = &service.name {
                tags["kong.service_name"] = name.as_str().into();
            }
            tags["peer.hostname"] = service.host.as_str().into();
        }
        if let Some(route) = record.route {
            tags["kong.route"] = route.id.to_string().into();
            if let Some(name) = &route.name {
                tags["kong.route_name"] = name.as_str().into();
            }
        }
        let phases = [
            ("ka", "access", start, asked),
            ("kh", "header_filter", answered, answered),
            ("kb", "body_filter", answered, end),
        ];
        self.phases(&mut span, &mut tags, &phases);
        span["tags"] = tags;
        span
    }

    /// Says when phases began and ended, in microseconds.
    fn phases(&self, span: &mut Value, tags: &mut Value, phases: &[(&str, &str, i64, i64)]) {
        if self.phases_as_tags {
            for (_, name, start, end) in phases {
                let millis = (end - start) / 1000;
                tags[format!("kong.{name}.duration_ms")] = millis.to_string().into();
            }
            return;
        }
        let annotations = phases.iter().flat_map(|(short, _, start, end)| {
            [(start, "s"), (end, "f")]
                .map(|(at, edge)| json!({"timestamp": at, "value": format!("{short}{edge}")}))
        });
        span["annotations"] = annotations.collect();
    }

    fn attempt(&self, trace: &Trace, (number, one): (usize, &Try), end: i64, name: &str) -> Value {
        let id = random_id();
        let name = format!("{name} (balancer try {number})");
        let mut span = self.span(trace, id, name, "CLIENT");
        let start = one.started_ms * 1000;
        span["parentId"] = hex::encode(trace.root).into();
        span["timestamp"] = start.into();
        span["duration"] = (end - start).max(1).into();
        span["remoteEndpoint"] = json!({address_kind(one.address.ip()): one.address.ip().to_canonical().to_string(),
            "port": one.address.port()});
        let mut tags = json!({"kong.balancer.try": number.to_string()});
        if let Some(code) = one.failure {
            tags["error"] = "true".into();
            tags["kong.balancer.state"] = "failed".into();
            tags["http.status_code"] = code.to_string().into();
        }
        span["tags"] = tags;
        span
    }
}

/// The path of a target.
fn path(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

fn address_kind(ip: std::net::IpAddr) -> &'static str {
    if ip.to_canonical().is_ipv4() {
        "ipv4"
    } else {
        "ipv6"
    }
}

#[async_trait]
impl Filter for Zipkin {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        let trace = begin(KIND.name, &self.propagation, self.beginning, request);
        if let Some(name) = &self.id_header
            && let Ok(value) = HeaderValue::try_from(trace.context.id_text(Format::B3))
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
            let _ = response.insert_header(name.clone(), trace.context.id_text(Format::B3));
        }
    }

    fn observes(&self) -> bool {
        self.queue.is_some()
    }

    /// What was over before this plugin ran has no trace.
    fn observes_request(&self, exchange: &Exchange) -> bool {
        noted(KIND.name, exchange).is_some_and(|trace| trace.sampled)
    }

    fn on_end(&self, record: &RequestRecord<'_>) {
        let Some(trace) = noted(KIND.name, record.exchange) else {
            return;
        };
        if let Some(queue) = &self.queue {
            let spans = self.spans(trace, record).into_iter();
            let spans: Vec<String> = spans.map(|span| span.to_string()).collect();
            queue.push(spans.join(",").into_bytes());
        }
    }
}
