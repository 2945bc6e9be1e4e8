//! The spans of a request as messages of OTLP (opentelemetry-proto,
//! `trace/v1/trace.proto`), named as the imitated gateway names them.

use std::time::Duration;

use http::Version;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use super::Trace;
use super::ids::random_id;
use doorward_core::calls::Callee;
use doorward_net::telemetry::attributes::{number, text};
use doorward_plugin_api::record::{RequestRecord, Try, Wait, Waiter};

/// Nanoseconds since the epoch.
pub(super) fn nanos(start_ms: i64, after: Duration) -> u64 {
    let start = u64::try_from(start_ms).unwrap_or_default();
    let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    start.saturating_mul(1_000_000).saturating_add(after)
}

/// The spans of a request: of itself, of whoever had to wait inside the process and what
/// they asked of others and of the store, and of each try at an upstream.
pub(super) fn spans(trace: &Trace, record: &RequestRecord<'_>) -> Vec<Span> {
    let mut spans = vec![root(trace, record)];
    for wait in record.waits {
        waiter(&mut spans, trace, record, wait);
    }
    let tries = record.upstream.tries.unwrap_or_default();
    for (at, this) in tries.iter().enumerate() {
        spans.push(balancer(trace, record, (at, this, tries.get(at + 1))));
    }
    spans
}

/// A span of `trace` with what all of them have.
fn span(
    trace: &Trace,
    (id, parent): ([u8; 8], Option<[u8; 8]>),
    (name, kind): (&str, SpanKind),
    (began, ended): (u64, u64),
) -> Span {
    let trace_id = trace.context.trace_id.map(|(id, _)| id.to_vec());
    Span {
        trace_id: trace_id.unwrap_or_default(),
        span_id: id.to_vec(),
        parent_span_id: parent.map(Vec::from).unwrap_or_default(),
        name: name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: began,
        end_time_unix_nano: ended,
        ..Span::default()
    }
}

/// The status of a span of what may have failed.
fn status(has_failed: bool) -> Option<Status> {
    has_failed.then(|| Status {
        code: StatusCode::Error.into(),
        ..Status::default()
    })
}

/// The span of a filter or an upstream inside that waited, and those of what it asked.
fn waiter(spans: &mut Vec<Span>, trace: &Trace, record: &RequestRecord<'_>, wait: &Wait) {
    let id = random_id();
    let at = |after| nanos(record.started_ms, wait.after + after);
    let name = match &wait.waiter {
        Waiter::Filter(label) => &*format!("kong.access.plugin.{label}"),
        Waiter::Upstream => "kong.internal.upstream",
    };
    spans.push(span(
        trace,
        (id, Some(trace.root)),
        (name, SpanKind::Internal),
        (at(Duration::ZERO), at(wait.took)),
    ));
    let calls = wait.calls.iter().map(|call| {
        let name = match call.what {
            Callee::Server { .. } => "kong.internal.request",
            Callee::Store { .. } => "kong.database.query",
        };
        Span {
            attributes: callee(&call.what),
            status: status(call.what.failed()),
            ..span(
                trace,
                (random_id(), Some(id)),
                (name, SpanKind::Client),
                (at(call.after), at(call.after + call.took)),
            )
        }
    });
    spans.extend(calls);
}

fn callee(what: &Callee) -> Vec<KeyValue> {
    match what {
        Callee::Server {
            method,
            url,
            status,
        } => {
            let status = status.map(|status| number("http.status_code", status));
            let asked = [
                text("http.method", method.as_str()),
                text("http.url", &**url),
            ];
            asked.into_iter().chain(status).collect()
        }
        Callee::Store {
            system,
            resource,
            writes,
            ..
        } => vec![
            text("db.system", *system),
            text("db.operation", if *writes { "write" } else { "read" }),
            text("db.collection.name", *resource),
        ],
    }
}

fn root(trace: &Trace, record: &RequestRecord<'_>) -> Span {
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
    let mut attributes = vec![
        text("http.method", facts.method.as_str()),
        text("http.url", url),
        text("http.host", facts.host()),
        text("http.scheme", scheme),
        text("http.flavor", version),
        text("http.client_ip", &*client),
        text("net.peer.ip", client),
    ];
    attributes.extend(facts.id.map(|id| text("kong.request.id", id)));
    let paths = record.route.and_then(|route| route.paths.as_ref());
    let path = paths.and_then(|paths| paths.first());
    attributes.extend(path.map(|path| text("http.route", &**path)));
    let code = record.response.status;
    attributes.push(number("http.status_code", code));
    Span {
        attributes,
        status: status(code >= 500),
        ..span(
            trace,
            (trace.root, trace.parent),
            ("kong", SpanKind::Server),
            (
                nanos(record.started_ms, Duration::ZERO),
                nanos(record.started_ms, record.latencies.request),
            ),
        )
    }
}

/// The span of a try. The upstream knows the last one as its parent: it is the one
/// that the request names.
fn balancer(
    trace: &Trace,
    record: &RequestRecord<'_>,
    (at, this, next): (usize, &Try, Option<&Try>),
) -> Span {
    let latencies = &record.latencies;
    let began = match at {
        0 => nanos(record.started_ms, latencies.gateway),
        _ => nanos(this.started_ms, Duration::ZERO),
    };
    let (id, ended) = match next {
        Some(next) => (random_id(), nanos(next.started_ms, Duration::ZERO)),
        None => (trace.proxy, nanos(record.started_ms, latencies.request)),
    };
    let ip = this.address.ip().to_canonical().to_string();
    let count = i64::try_from(at + 1).unwrap_or(i64::MAX);
    let mut attributes = vec![
        number("try_count", count),
        text("net.peer.ip", ip),
        number("net.peer.port", this.address.port()),
    ];
    let service = record.service;
    attributes.extend(service.map(|service| text("net.peer.name", &*service.host)));
    let failure = this.failure;
    attributes.extend(failure.map(|status| number("http.status_code", status)));
    Span {
        attributes,
        status: status(failure.is_some()),
        ..span(
            trace,
            (id, Some(trace.root)),
            ("kong.balancer", SpanKind::Client),
            (began, ended.max(began)),
        )
    }
}
