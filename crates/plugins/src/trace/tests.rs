#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ScopeSpans, Span};
use prost::Message;
use serde_json::{Value, json};

use super::context::Format;
use super::propagation::{HeaderType, PropagationConfig, propagation_type};
use super::*;
use crate::logging::tests::with_record;
use crate::testing::{decide, plugin, session};
use doorward_core::calls::{Call, Callee};
use doorward_core::hex;
use doorward_core::model::schema::Schema;
use doorward_net::telemetry::attributes;
use doorward_plugin_api::config;
use doorward_plugin_api::config::FieldValue;
use doorward_plugin_api::record::{RequestFacts, RequestRecord, Try, UpstreamFacts, Wait, Waiter};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let fields = fields.iter().map(|(name, value)| {
        let name = HeaderName::try_from(*name).unwrap();
        (name, HeaderValue::try_from(*value).unwrap())
    });
    fields.collect()
}

/// Trace, span and decision that a format reads.
fn read(format: &str, fields: &[(&str, &str)]) -> Option<(String, Option<String>, Option<bool>)> {
    let format = <Format as FieldValue>::read(&json!(format)).unwrap();
    let fields = headers(fields);
    let context = format.extract(&fields)?;
    assert!(fields.keys().any(context::is_of_trace), "{fields:?}");
    let id = context.id_text(Format::B3);
    let span = context.span_id.map(hex::encode);
    Some((id, span, context.sampled))
}

#[test]
fn each_format_is_read() {
    let half = "8448eb211c80319c";
    let number = u64::from_str_radix(half, 16).unwrap().to_string();
    let span_number = u64::from_str_radix(SPAN, 16).unwrap().to_string();
    let aws = format!(
        "Root=1-{}-{};Parent={SPAN};Sampled=1",
        &TRACE[..8],
        &TRACE[8..]
    );
    let ids = |id: &str, sampled| Some((id.to_owned(), Some(SPAN.to_owned()), sampled));
    for (format, fields, expected) in [
        (
            "w3c",
            vec![("traceparent", format!("00-{TRACE}-{SPAN}-01"))],
            ids(TRACE, Some(true)),
        ),
        (
            "w3c",
            vec![("traceparent", format!("00-{TRACE}-{SPAN}-00"))],
            ids(TRACE, Some(false)),
        ),
        (
            "b3",
            vec![("b3", format!("{TRACE}-{SPAN}-1-{SPAN}"))],
            ids(TRACE, Some(true)),
        ),
        (
            "b3",
            vec![("b3", format!("{half}-{SPAN}"))],
            ids(half, None),
        ),
        (
            "b3",
            vec![("tracestate", format!("x=1, b3={half}-{SPAN}-d"))],
            ids(half, Some(true)),
        ),
        (
            "b3",
            vec![
                ("x-b3-traceid", TRACE.to_owned()),
                ("x-b3-spanid", SPAN.to_owned()),
                ("x-b3-sampled", "0".to_owned()),
            ],
            ids(TRACE, Some(false)),
        ),
        (
            "jaeger",
            vec![("uber-trace-id", format!("{TRACE}:{SPAN}:0:1"))],
            ids(TRACE, Some(true)),
        ),
        (
            "ot",
            vec![
                ("ot-tracer-traceid", half.to_owned()),
                ("ot-tracer-spanid", SPAN.to_owned()),
                ("ot-tracer-sampled", "true".to_owned()),
            ],
            ids(half, Some(true)),
        ),
        (
            "datadog",
            vec![
                ("x-datadog-trace-id", number),
                ("x-datadog-parent-id", span_number.clone()),
                ("x-datadog-sampling-priority", "-1".to_owned()),
            ],
            ids(half, Some(false)),
        ),
        (
            "aws",
            vec![("x-amzn-trace-id", aws)],
            ids(TRACE, Some(true)),
        ),
        (
            "gcp",
            vec![(
                "x-cloud-trace-context",
                format!("{TRACE}/{span_number};o=0"),
            )],
            ids(TRACE, Some(false)),
        ),
    ] {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(read(format, &fields), expected, "{fields:?}");
    }
    let only = Format::B3.extract(&headers(&[("b3", "0")])).unwrap();
    assert_eq!((only.trace_id, only.sampled), (None, Some(false)));
}

#[test]
fn what_is_not_of_its_format_is_treated_as_absent() {
    let zeros = "0".repeat(32);
    for (format, name, value) in [
        ("w3c", "traceparent", format!("01-{TRACE}-{SPAN}-01")),
        ("w3c", "traceparent", format!("00-{zeros}-{SPAN}-01")),
        ("w3c", "traceparent", format!("00-{TRACE}-{SPAN}-01-more")),
        (
            "w3c",
            "traceparent",
            format!("00-{}g-{SPAN}-01", &TRACE[1..]),
        ),
        ("b3", "b3", format!("{TRACE}-{SPAN}-2")),
        ("b3", "b3", format!("{}-{SPAN}", &TRACE[1..])),
        ("jaeger", "uber-trace-id", format!("{TRACE}:{SPAN}:0")),
        ("jaeger", "uber-trace-id", format!("{TRACE}0:{SPAN}:0:1")),
        ("datadog", "x-datadog-trace-id", "0".to_owned()),
        ("aws", "x-amzn-trace-id", format!("Root=1-{TRACE}")),
        ("gcp", "x-cloud-trace-context", SPAN.to_owned()),
    ] {
        assert_eq!(read(format, &[(name, &value)]), None, "{value}");
    }
}

config! {
    /// The fields of `zipkin` that say what is read and written.
    struct Fields {
        #[field(default("preserve"), required)]
        header_type: HeaderType,
        #[field(default("b3"), required)]
        default_header_type: Format,
        #[field(kind(propagation_type("b3")), required)]
        propagation: PropagationConfig,
    }
}

/// What these fields say.
fn propagation(fields: &Value) -> Propagation {
    let schema = Schema::new(Fields::fields());
    let fields = schema.complete(fields.as_object().unwrap().clone());
    let fields = Fields::read(&fields.unwrap()).unwrap();
    let older = (fields.header_type, Some(fields.default_header_type));
    Propagation::new(fields.propagation, older, Format::B3).unwrap()
}

/// What the upstream gets for a request with these headers.
async fn carried(fields: Value, lines: &str) -> HeaderMap {
    let propagation = propagation(&fields);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let (session, _client) = session(&request).await;
    let beginning = Beginning {
        id_size: 16,
        ratio: 1.0,
        is_final: true,
        shares_spans: true,
    };
    let trace = begin("zipkin", &propagation, beginning, session.req_header());
    let mut upstream = session.req_header().headers.clone();
    propagation.inject(&trace, &mut upstream);
    upstream
}

#[tokio::test]
async fn the_format_of_the_caller_is_preserved_and_others_are_added() {
    let line = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\n");
    let upstream = carried(json!({}), &line).await;
    let sent = upstream["traceparent"].to_str().unwrap();
    assert!(
        sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01"),
        "{sent}"
    );
    assert!(
        !sent.contains(SPAN),
        "the upstream's parent is a span of here"
    );
    assert!(!upstream.contains_key("x-b3-traceid"));
    let single = format!("b3: {TRACE}-{SPAN}-0\r\n");
    let upstream = carried(json!({}), &single).await;
    assert!(upstream["b3"].to_str().unwrap().contains("-0-"));
    let upstream = carried(json!({"header_type": "w3c"}), &single).await;
    assert!(upstream.contains_key("b3") && upstream.contains_key("traceparent"));
    let fields = json!({"propagation": {"extract": ["w3c"], "inject": ["preserve", "datadog", "aws", "gcp", "jaeger", "ot"]}});
    let upstream = carried(fields, &line).await;
    let low = u64::from_str_radix(&TRACE[16..], 16).unwrap().to_string();
    assert_eq!(upstream["x-datadog-trace-id"], low.as_str());
    for name in [
        "x-amzn-trace-id",
        "x-cloud-trace-context",
        "uber-trace-id",
        "ot-tracer-traceid",
    ] {
        assert!(upstream.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn callers_are_not_believed_where_that_is_configured() {
    let line = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\nx-old: 1\r\n");
    let ignored = carried(
        json!({"header_type": "ignore", "default_header_type": "w3c"}),
        &line,
    );
    let ignored = ignored.await;
    assert!(!ignored["traceparent"].to_str().unwrap().contains(TRACE));
    let fields = json!({"propagation": {
        "extract": ["b3"], "inject": ["b3-single"], "clear": ["traceparent", "x-old"],
    }});
    let upstream = carried(fields, &line).await;
    assert!(!upstream.contains_key("traceparent") && !upstream.contains_key("x-old"));
    let single = upstream["b3"].to_str().unwrap();
    assert!(
        !single.contains(TRACE) && single.len() == 32 + 16 + 1 + 16 + 3,
        "{single}"
    );
    let silent = json!({"propagation": {"extract": ["w3c"]}});
    let upstream = carried(silent, &line).await;
    assert_eq!(
        upstream["traceparent"],
        format!("00-{TRACE}-{SPAN}-01").as_str()
    );
    assert!(!upstream.contains_key("x-b3-traceid"));
}

#[tokio::test]
async fn a_client_learns_the_id_of_the_trace_and_without_an_endpoint_nothing_is_kept() {
    let config = json!({"http_response_header_for_traceid": "x-trace"});
    let filter = plugin(&zipkin::KIND, &config).unwrap();
    assert!(!filter.observes());
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nb3: {TRACE}-{SPAN}-1\r\n\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    assert!(
        decide(&*filter, &mut session, &mut exchange)
            .await
            .is_none()
    );
    let (name, value) = &exchange.response_headers[0];
    assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-trace", TRACE));
    assert_eq!(
        traces(&exchange).next().unwrap().ids(),
        [("b3", TRACE.to_owned())]
    );
}

#[test]
fn wrong_tags_and_endpoints_are_refused() {
    let refused = |config: Value| plugin(&zipkin::KIND, &config).err().unwrap();
    let tag = |name: &str| json!({"name": name, "value": "1"});
    let message = refused(json!({"static_tags": [tag("a"), tag("a")]}));
    assert!(
        message.contains("repeated tags are not allowed: a"),
        "{message}"
    );
    let message = refused(json!({"static_tags": [tag("http.path")]}));
    assert!(message.contains("http.path"), "{message}");
    let message = refused(json!({"http_endpoint": "ftp://a.test/"}));
    assert!(
        message.contains("expected the scheme http or https"),
        "{message}"
    );
    let message = refused(json!({"sample_ratio": 2}));
    assert!(
        message.contains("value should be between 0 and 1"),
        "{message}"
    );
}

#[test]
fn opentelemetry_wants_an_endpoint() {
    let refused = |config: Value| plugin(&opentelemetry::KIND, &config).err().unwrap();
    let message = refused(json!({}));
    assert!(
        message.contains("at least one of these fields must be non-empty"),
        "{message}"
    );
    let message = refused(json!({"logs_endpoint": "/v1/logs"}));
    assert!(message.contains("missing host in url"), "{message}");
    let message = refused(json!({"traces_endpoint": "/v1/traces"}));
    assert!(message.contains("missing host in url"), "{message}");
    assert!(
        plugin(
            &opentelemetry::KIND,
            &json!({"endpoint": "http://a.test/v1"})
        )
        .is_ok()
    );
}

#[test]
fn a_request_has_the_callers_span_where_the_format_lets_both_sides_have_one() {
    let propagation = propagation(&json!({}));
    let spans = |shares_spans, name: &str, value: &str| {
        let beginning = Beginning {
            id_size: 16,
            ratio: 1.0,
            is_final: true,
            shares_spans,
        };
        let headers = headers(&[(name, value)]);
        let trace = begin_from("a", &propagation, beginning, &headers);
        (hex::encode(trace.root), trace.parent.map(hex::encode))
    };
    let parent = "00f067aa0ba902b7";
    let (of_parent, of_caller) = (Some(parent.to_owned()), Some(SPAN.to_owned()));
    for (name, value, above) in [
        ("b3", format!("{TRACE}-{SPAN}-1-{parent}"), &of_parent),
        ("b3", format!("{TRACE}-{SPAN}"), &None),
        (
            "uber-trace-id",
            format!("{TRACE}:{SPAN}:{parent}:1"),
            &of_parent,
        ),
        ("uber-trace-id", format!("{TRACE}:{SPAN}:0:1"), &None),
    ] {
        let shared = spans(true, name, &value);
        assert_eq!(shared, (SPAN.to_owned(), above.clone()), "{value}");
        let (own, above) = spans(false, name, &value);
        assert!(own != SPAN && above == of_caller, "{value}");
    }
    let (own, above) = spans(true, "traceparent", &format!("00-{TRACE}-{SPAN}-01"));
    assert!(own != SPAN && above == of_caller);
}

#[test]
fn a_caller_decides_for_zipkin_and_a_no_decides_for_all() {
    let propagation = propagation(&json!({}));
    let sampled = |is_final, ratio, state: &str| {
        let beginning = Beginning {
            id_size: 16,
            ratio,
            is_final,
            shares_spans: true,
        };
        let headers = headers(&[("b3", &format!("{TRACE}-{SPAN}-{state}"))]);
        begin_from("a", &propagation, beginning, &headers).sampled
    };
    assert!(sampled(true, 0.0, "1") && !sampled(true, 1.0, "0"));
    assert!(!sampled(false, 0.0, "1") && !sampled(false, 1.0, "0"));
    assert!(sampled(false, 1.0, "1"));
}

#[test]
fn each_try_and_each_wait_and_what_was_asked_meanwhile_has_a_span() {
    let propagation = propagation(&json!({}));
    let beginning = Beginning {
        id_size: 16,
        ratio: 1.0,
        is_final: false,
        shares_spans: false,
    };
    let trace = begin_from("a", &propagation, beginning, &HeaderMap::new());
    with_record(&[], 200, |record| {
        let first = record.upstream.tries.unwrap()[0];
        let tries = [
            first,
            Try {
                failure: None,
                ..first
            },
        ];
        let call = |what| Call {
            what,
            after: Duration::from_millis(1),
            took: Duration::from_millis(2),
        };
        let keys = Callee::Server {
            method: Method::GET,
            url: "https://idp.test/keys".to_owned(),
            status: None,
        };
        let sessions = Callee::Store {
            system: "sqlite",
            resource: "sessions",
            writes: false,
            done: true,
        };
        let wait = |waiter, calls| Wait {
            waiter,
            after: Duration::from_millis(1),
            took: Duration::from_millis(5),
            calls,
        };
        let waits = [
            wait(
                Waiter::Filter("key-auth".into()),
                vec![call(keys), call(sessions)],
            ),
            wait(Waiter::Upstream, Vec::new()),
        ];
        let upstream = UpstreamFacts {
            tries: Some(&tries),
            ..record.upstream
        };
        let RequestRecord {
            request,
            response,
            latencies,
            exchange,
            ..
        } = record;
        let record = RequestRecord {
            request: RequestFacts {
                tls: None,
                ..*request
            },
            upstream,
            response: *response,
            latencies: *latencies,
            waits: &waits,
            exchange,
            route: None,
            service: None,
            started_ms: record.started_ms,
            secret_fields: &[],
        };
        let spans = spans::spans(&trace, &record);
        let names = spans.iter().map(|span| &*span.name);
        let expected = [
            "kong",
            "kong.access.plugin.key-auth",
            "kong.internal.request",
            "kong.database.query",
            "kong.internal.upstream",
            "kong.balancer",
            "kong.balancer",
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let has = |at: usize, name: &str, value: &str| {
            let expected = attributes::text(name, value);
            assert!(spans[at].attributes.contains(&expected), "{:?}", spans[at]);
        };
        has(2, "http.url", "https://idp.test/keys");
        has(3, "db.operation", "read");
        has(3, "db.collection.name", "sessions");
        // What could not be asked failed, and so did the first try.
        let failed = spans.iter().map(|span| span.status.is_some());
        let expected = [false, false, true, false, false, true, false];
        assert_eq!(failed.collect::<Vec<_>>(), expected);
        let (root, filter) = (trace.root.to_vec(), spans[1].span_id.clone());
        let parents = spans.iter().map(|span| span.parent_span_id.clone());
        let expected = [
            Vec::new(),
            root.clone(),
            filter.clone(),
            filter,
            root.clone(),
            root.clone(),
            root,
        ];
        assert_eq!(parents.collect::<Vec<_>>(), expected);
        // The upstream knows the last try alone.
        let known = spans.iter().map(|span| span.span_id == trace.proxy);
        assert_eq!(known.filter(|is_known| *is_known).count(), 1);
        assert_eq!(spans[6].span_id, trace.proxy);
        let of_trace = trace.context.trace_id.map(|(id, _)| id.to_vec()).unwrap();
        assert!(spans.iter().all(|span| span.trace_id == of_trace));
    });
}

#[test]
fn what_was_encoded_before_goes_to_a_collector_as_one_message() {
    let span = |name: &str| Span {
        name: name.to_owned(),
        ..Span::default()
    };
    let entry = |names: &[&str]| {
        let entry = ScopeSpans {
            spans: names.iter().map(|name| span(name)).collect(),
            ..ScopeSpans::default()
        };
        entry.encode_to_vec()
    };
    let resource = attributes::resource::<&str>(&[("service.name", "a")], &[]);
    let entries = [entry(&["one", "two"]), entry(&[]), entry(&["three"])];
    let request = opentelemetry::export_request(resource.clone(), &entries);
    let request = ExportTraceServiceRequest::decode(&*request).expect("a request");
    let [of_resource] = &request.resource_spans[..] else {
        panic!("{request:?}");
    };
    assert_eq!(of_resource.resource.as_ref(), Some(&resource));
    let [of_scope] = &of_resource.scope_spans[..] else {
        panic!("{request:?}");
    };
    let scope = of_scope.scope.as_ref().map(|scope| scope.name.as_str());
    assert_eq!(scope, Some("kong-internal"));
    let names: Vec<_> = of_scope
        .spans
        .iter()
        .map(|span| span.name.as_str())
        .collect();
    assert_eq!(names, ["one", "two", "three"]);
}
