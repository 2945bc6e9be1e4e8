//! The spans of a request as messages of OTLP (opentelemetry-proto,
//! `trace/v1/trace.proto`), named as the imitated gateway names them.

use std::time::Duration;

use http::Version;

use super::Trace;
use super::ids::random_id;
use doorward_core::calls::Callee;
use doorward_net::telemetry::protobuf;
use doorward_plugin_api::record::{RequestRecord, Try, Wait, Waiter};

/// Kinds of spans.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// The code of a span's status that says that it failed.
const FAILED: u64 = 2;

/// Nanoseconds since the epoch.
pub(super) fn nanos(start_ms: i64, after: Duration) -> u64 {
    let start = u64::try_from(start_ms).unwrap_or_default();
    let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    start.saturating_mul(1_000_000).saturating_add(after)
}

/// What a span begins with.
struct Span<'a> {
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    name: &'a str,
    kind: u64,
    /// From when to when, in nanoseconds since the epoch.
    times: (u64, u64),
}

/// The spans of a request, each a field of its scope: of itself, of whoever had to wait
/// inside the process and what they asked of others and of the store, and of each try
/// at an upstream.
pub(super) fn spans(trace: &Trace, record: &RequestRecord<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::message(&mut out, 2, |out| root(out, trace, record));
    for wait in record.waits {
        waiter(&mut out, trace, record, wait);
    }
    let tries = record.upstream.tries.unwrap_or_default();
    for (at, this) in tries.iter().enumerate() {
        let next = tries.get(at + 1);
        protobuf::message(&mut out, 2, |out| {
            balancer(out, trace, record, (at, this, next));
        });
    }
    out
}

/// The span of a filter or an upstream inside that waited, and those of what it asked.
fn waiter(out: &mut Vec<u8>, trace: &Trace, record: &RequestRecord<'_>, wait: &Wait) {
    let id = random_id();
    let at = |after| nanos(record.started_ms, wait.after + after);
    let name = match &wait.waiter {
        Waiter::Filter(label) => &*format!("kong.access.plugin.{label}"),
        Waiter::Upstream => "kong.internal.upstream",
    };
    protobuf::message(out, 2, |out| {
        let span = Span {
            id,
            parent: Some(trace.root),
            name,
            kind: INTERNAL,
            times: (at(Duration::ZERO), at(wait.took)),
        };
        head(out, trace, &span);
    });
    for call in &wait.calls {
        protobuf::message(out, 2, |out| {
            let span = Span {
                id: random_id(),
                parent: Some(id),
                name: match call.what {
                    Callee::Server { .. } => "kong.internal.request",
                    Callee::Store { .. } => "kong.database.query",
                },
                kind: CLIENT,
                times: (at(call.after), at(call.after + call.took)),
            };
            head(out, trace, &span);
            callee(out, &call.what);
        });
    }
}

fn callee(out: &mut Vec<u8>, what: &Callee) {
    let mut text = |name, value: &str| protobuf::text_attribute(out, 9, name, value);
    match what {
        Callee::Server {
            method,
            url,
            status,
        } => {
            text("http.method", method.as_str());
            text("http.url", url);
            if let Some(status) = status {
                protobuf::number_attribute(out, 9, "http.status_code", u64::from(*status));
            }
        }
        Callee::Store {
            system,
            resource,
            writes,
            ..
        } => {
            text("db.system", system);
            text("db.operation", if *writes { "write" } else { "read" });
            text("db.collection.name", resource);
        }
    }
    if what.failed() {
        failed(out);
    }
}

fn root(out: &mut Vec<u8>, trace: &Trace, record: &RequestRecord<'_>) {
    let span = Span {
        id: trace.root,
        parent: trace.context.span_id,
        name: "kong",
        kind: SERVER,
        times: (
            nanos(record.started_ms, Duration::ZERO),
            nanos(record.started_ms, record.latencies.request),
        ),
    };
    head(out, trace, &span);
    let facts = &record.request;
    let scheme = if facts.secure { "https" } else { "http" };
    // Without the query, which may hold a secret.
    let path = facts.target.split('?').next().unwrap_or_default();
    let client = record.exchange.client.ip().to_canonical().to_string();
    let version = match facts.version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    let url = format!("{scheme}://{}:{}{path}", facts.host(), facts.port);
    let mut text = |name, value: &str| protobuf::text_attribute(out, 9, name, value);
    text("http.method", facts.method.as_str());
    text("http.url", &url);
    text("http.host", facts.host());
    text("http.scheme", scheme);
    text("http.flavor", version);
    text("http.client_ip", &client);
    text("net.peer.ip", &client);
    if let Some(id) = facts.id {
        text("kong.request.id", id);
    }
    let paths = record.route.and_then(|route| route.paths.as_ref());
    if let Some(path) = paths.and_then(|paths| paths.first()) {
        text("http.route", path);
    }
    let status = record.response.status;
    protobuf::number_attribute(out, 9, "http.status_code", u64::from(status));
    if status >= 500 {
        failed(out);
    }
}

/// The span of a try. The upstream knows the last one as its parent: it is the one
/// that the request names.
fn balancer(
    out: &mut Vec<u8>,
    trace: &Trace,
    record: &RequestRecord<'_>,
    (at, this, next): (usize, &Try, Option<&Try>),
) {
    let latencies = &record.latencies;
    let began = match at {
        0 => nanos(record.started_ms, latencies.gateway),
        _ => nanos(this.started_ms, Duration::ZERO),
    };
    let ended = match next {
        Some(next) => nanos(next.started_ms, Duration::ZERO),
        None => nanos(record.started_ms, latencies.request),
    };
    let span = Span {
        id: match next {
            Some(_) => random_id(),
            None => trace.proxy,
        },
        parent: Some(trace.root),
        name: "kong.balancer",
        kind: CLIENT,
        times: (began, ended.max(began)),
    };
    head(out, trace, &span);
    let ip = this.address.ip().to_canonical().to_string();
    protobuf::number_attribute(out, 9, "try_count", at as u64 + 1);
    protobuf::text_attribute(out, 9, "net.peer.ip", &ip);
    protobuf::number_attribute(out, 9, "net.peer.port", u64::from(this.address.port()));
    if let Some(service) = record.service {
        protobuf::text_attribute(out, 9, "net.peer.name", &service.host);
    }
    if let Some(status) = this.failure {
        protobuf::number_attribute(out, 9, "http.status_code", u64::from(status));
        failed(out);
    }
}

/// Says that a span failed.
fn failed(out: &mut Vec<u8>) {
    protobuf::message(out, 15, |out| protobuf::number(out, 3, FAILED));
}

/// What all spans begin with.
fn head(out: &mut Vec<u8>, trace: &Trace, span: &Span<'_>) {
    if let Some((trace_id, _)) = trace.context.trace_id {
        protobuf::bytes(out, 1, &trace_id);
    }
    protobuf::bytes(out, 2, &span.id);
    if let Some(parent) = span.parent {
        protobuf::bytes(out, 4, &parent);
    }
    protobuf::bytes(out, 5, span.name.as_bytes());
    protobuf::number(out, 6, span.kind);
    protobuf::fixed64(out, 7, span.times.0);
    protobuf::fixed64(out, 8, span.times.1);
}
