//! The `zipkin` plugin: spans of requests go to a Zipkin server.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue, Method, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value, json};

use super::context::Format;
use super::propagation::{self, Propagation};
use super::{Beginning, Trace, begin, noted};
use crate::delivery::{Limits, NO_LEGACY, Queue, queue_field};
use crate::logging::OBSERVES;
use crate::logging::http_log::{HttpSender, endpoint};
use crate::settings::{Settings, header_name, url_text};
use doorward_core::hex;
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::http::outbound::Options;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::filter::{Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::record::{RequestRecord, Try};
use doorward_plugin_api::{ConfigError, Kind, Parts};

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

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let millis = |name, usual: i64| {
            let field = Field::new(name, Type::Integer(0, 2_147_483_646));
            field.default(usual).required()
        };
        let tag = Schema::new(vec![
            Field::new("name", Type::checked(check_tag_name)).required(),
            Field::new("value", Type::some_text()).required(),
        ]);
        Schema::new(vec![
            Field::new("local_service_name", Type::some_text())
                .default("kong")
                .required(),
            Field::new("http_endpoint", Type::checked(url_text)),
            Field::new("sample_ratio", Type::Between(0, 1)).default(0.001),
            Field::new("default_service_name", Type::some_text()),
            Field::new("include_credential", Type::Boolean)
                .default(true)
                .required(),
            Field::new("traceid_byte_count", Type::Choice(&[8, 16]))
                .default(16)
                .required(),
            propagation::header_type(),
            propagation::default_header_type(),
            Field::new("tags_header", Type::some_text())
                .default("Zipkin-Tags")
                .required(),
            Field::new("static_tags", Type::array(Type::Record(tag))),
            Field::new("http_span_name", Type::word(&["method", "method_path"]))
                .default("method")
                .required(),
            millis("connect_timeout", 2000),
            millis("send_timeout", 5000),
            millis("read_timeout", 5000),
            Field::new(
                "http_response_header_for_traceid",
                Type::checked(header_name),
            ),
            Field::new(
                "phase_duration_flavor",
                Type::word(&["annotations", "tags"]),
            )
            .default("annotations")
            .required(),
            queue_field(1),
            propagation::field("b3"),
        ])
        .check(check_tags)
    });
    &SCHEMA
}

fn check_tag_name(name: &str) -> Result<(), String> {
    if RESERVED.contains(&name) {
        return Err(format!("must not be one of: {}", RESERVED.join(", ")));
    }
    Ok(())
}

fn check_tags(config: &Map<String, Value>, violations: &mut Violations) {
    let mut names = HashSet::new();
    for (name, _) in static_tags(Settings(config)) {
        if !names.insert(name) {
            violations.put(
                "static_tags",
                format!("repeated tags are not allowed: {name}"),
            );
        }
    }
}

fn static_tags(config: Settings<'_>) -> impl Iterator<Item = (&str, &str)> {
    let tags = config.get("static_tags").and_then(Value::as_array);
    let tags = tags.into_iter().flatten().filter_map(Value::as_object);
    tags.filter_map(|tag| Some((tag.get("name")?.as_str()?, tag.get("value")?.as_str()?)))
}

/// A running filter.
struct Zipkin {
    propagation: Propagation,
    beginning: Beginning,
    service: Box<str>,
    upstream_service: Option<Box<str>>,
    include_credential: bool,
    static_tags: Vec<(Box<str>, Box<str>)>,
    tags_header: Option<HeaderName>,
    path_in_name: bool,
    phases_as_tags: bool,
    id_header: Option<HeaderName>,
    /// Where spans go; `None`: requests only carry the context on.
    queue: Option<Queue>,
    metrics: Arc<Metrics>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let millis = |field| config.integer(field).and_then(|n| u64::try_from(n).ok());
    let queue = match config.text("http_endpoint") {
        None => None,
        Some(text) => {
            let (url, mut headers) = endpoint("http_endpoint", text)?;
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
            let timeouts = ["connect_timeout", "send_timeout", "read_timeout"];
            let timeout: u64 = timeouts.into_iter().filter_map(millis).sum();
            let options = Options {
                timeout: Duration::from_millis(timeout.max(1)),
                ..Options::default()
            };
            let sender = HttpSender::new(parts, (Method::POST, url, headers), options, true);
            let limits = Limits::read(config, &NO_LEGACY);
            Some(Queue::new(KIND.name, parts, limits, sender))
        }
    };
    let static_tags = static_tags(config);
    let id_size = config.integer("traceid_byte_count").unwrap_or(16);
    Ok(Arc::new(Zipkin {
        propagation: Propagation::read(config, Format::B3)?,
        beginning: Beginning {
            id_size: usize::try_from(id_size).unwrap_or(16),
            ratio: config.number("sample_ratio").unwrap_or(0.001),
            is_final: true,
        },
        service: config.text("local_service_name").unwrap_or("kong").into(),
        upstream_service: config.some_text("default_service_name").map(Box::from),
        include_credential: config.flag("include_credential"),
        static_tags: static_tags.map(|(n, v)| (n.into(), v.into())).collect(),
        tags_header: config.header("tags_header").ok().flatten(),
        path_in_name: config.text("http_span_name") == Some("method_path"),
        phases_as_tags: config.text("phase_duration_flavor") == Some("tags"),
        id_header: config.header("http_response_header_for_traceid")?,
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
        if let Some(parent) = trace.context.span_id {
            span["parentId"] = hex::encode(parent).into();
        }
        let client = record.exchange.client;
        span["remoteEndpoint"] = json!({address_kind(client.ip()): client.ip().to_canonical().to_string(),
            "port": client.port()});
        let facts = &record.request;
        let mut tags = json!({
            "lc": "kong",
            "http.method": facts.method.as_str(),
            "http.host": facts.host,
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
        for (name, value) in &self.static_tags {
            tags[&**name] = (&**value).into();
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
        let id = doorward_core::clock::random_bytes();
        let name = format!("{name} (balancer try {number})");
        let mut span = self.span(trace, id, name, "CLIENT");
        let start = one.started_ms * 1000;
        span["parentId"] = hex::encode(trace.proxy).into();
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
            let _ = response.insert_header(name.clone(), trace.context.id_text(Format::B3));
        }
    }

    fn observes(&self) -> bool {
        self.queue.is_some()
    }

    fn on_end(&self, record: &RequestRecord<'_>) {
        // What was over before this plugin ran has no trace.
        let Some(trace) = noted(KIND.name, record.exchange).filter(|trace| trace.sampled) else {
            return;
        };
        if let Some(queue) = &self.queue {
            let spans = self.spans(trace, record).into_iter();
            let spans: Vec<String> = spans.map(|span| span.to_string()).collect();
            queue.push(spans.join(",").into_bytes());
        }
    }
}
