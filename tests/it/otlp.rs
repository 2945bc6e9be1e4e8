//! Metrics that the program sends to a collector: a receiver on loopback gets what
//! `/metrics` shows.

use std::sync::Mutex;

use ::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use serde_json::json;

use crate::grpc;
use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

async fn door_with(upstream: &Upstream, section: &str) -> Door {
    let services = format!(
        "- {{name: orders, url: '{}', routes: [{{name: orders, paths: [/orders]}}]}}\n",
        upstream.url("")
    );
    let mut door = Setup::new().services(&services).lay_out();
    door.edit(
        "doorward.yaml",
        "metrics: true",
        &format!("metrics: true, otlp: {section}"),
    );
    door.set_env("OTLP_KEY", "s3cret-key");
    door.start().await;
    door
}

fn has(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

async fn metric(door: &Door, line: &str) -> Option<()> {
    let request = http::client().get(door.admin_url("/metrics"));
    let shown = http::send(request).await.expect(200).body;
    shown.contains(line).then_some(())
}

#[tokio::test]
async fn a_collector_gets_what_metrics_shows() {
    let upstream = Upstream::echo().await;
    let collector = Upstream::start(|_| Reply::Json(200, json!({}))).await;
    let section = format!(
        "{{metrics_endpoint: '{}', interval: 1 s, timeout: 1 s, \
          headers: {{X-Key: '&{{otlp.key}}'}}, resource_attributes: {{deployment.environment: test}}}}",
        collector.url("/v1/metrics")
    );
    let mut door = door_with(&upstream, &section).await;
    door.get("a.test", "/orders/1?token=hush").await.expect(200);
    let body = eventually("an export that has the request", || async {
        let with = |part: &[u8]| {
            let mut seen = collector.seen().into_iter();
            seen.find(|seen| has(&seen.body, part))
        };
        let seen = with(b"doorward_requests_total")?;
        assert_eq!((&*seen.method, &*seen.target), ("POST", "/v1/metrics"));
        assert_eq!(seen.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(seen.header("x-key"), Some("s3cret-key"));
        Some(seen.body)
    })
    .await;
    for text in [
        "service.name",
        "doorward",
        "deployment.environment",
        "doorward_request_duration_seconds",
        "process_resident_memory_bytes",
        "orders",
    ] {
        assert!(has(&body, text.as_bytes()), "{text}");
    }
    assert!(!has(&body, b"hush"));
    let exported = "doorward_otlp_exports_total{result=\"done\"}";
    eventually("exports to be counted", || metric(&door, exported)).await;
    // What happened last is sent at the end.
    let request = http::client().get(door.proxy_url("/nowhere"));
    http::send(request).await.expect(404);
    let before = collector.seen().len();
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
    assert!(collector.seen().len() > before, "the last export");
    assert!(!door.log_text().contains("s3cret-key"));
}

#[tokio::test]
async fn a_collector_that_refuses_is_told_once_and_holds_nothing_up() {
    let upstream = Upstream::echo().await;
    let collector = Upstream::start(|_| Reply::Json(503, json!({}))).await;
    let section = format!(
        "{{metrics_endpoint: '{}', interval: 1 s, timeout: 500 ms}}",
        collector.url("/secret-path/v1/metrics")
    );
    let mut door = door_with(&upstream, &section).await;
    let failed = "doorward_otlp_exports_total{result=\"failed\"} 3";
    eventually("three failures", || metric(&door, failed)).await;
    door.get("a.test", "/orders").await.expect(200);
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
    let log = door.log_text();
    assert_eq!(log.matches("metrics can't be sent").count(), 1, "{log}");
    assert!(!log.contains("secret-path"), "{log}");
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_nothing_up() {
    let upstream = Upstream::echo().await;
    let collector = Upstream::start(|_| Reply::Unended(Vec::new())).await;
    let section = format!(
        "{{metrics_endpoint: '{}', interval: 1 s, timeout: 300 ms}}",
        collector.url("/v1/metrics")
    );
    let mut door = door_with(&upstream, &section).await;
    let failed = "doorward_otlp_exports_total{result=\"failed\"} 2";
    eventually("two failures", || metric(&door, failed)).await;
    door.get("a.test", "/orders").await.expect(200);
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
}

#[test]
fn a_collector_that_can_not_be_asked_is_refused_at_its_key() {
    let door = Setup::new().lay_out();
    let section = "metrics: true, otlp: {metrics_endpoint: 'http://127.0.0.1:4318'}";
    door.edit("doorward.yaml", "metrics: true", section);
    let output = door.run(&["check", "-c", "doorward.yaml"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("telemetry.otlp.metrics_endpoint") && said.contains("/v1/metrics"),
        "{said}"
    );
}

/// What a collector of gRPC was called with.
type Calls = &'static Mutex<Vec<(String, Vec<u8>)>>;

/// Takes a message, and says so.
async fn take(
    calls: Calls,
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let path = request.uri().path().to_owned();
    let (mut body, mut message) = (request.into_body(), Vec::new());
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
        message.extend_from_slice(&piece);
    }
    calls.lock().expect("not poisoned").push((path, message));
    let head = Response::builder().header("content-type", "application/grpc");
    let mut send = respond.send_response(head.body(()).ok()?, false).ok()?;
    // A message of no bytes.
    send.send_data(Bytes::from_static(&[0; 5]), false).ok()?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    send.send_trailers(trailers).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_of_grpc_gets_metrics_spans_and_records() {
    let calls: Calls = Box::leak(Box::default());
    let collector = grpc::origin(move |request, respond| take(calls, request, respond)).await;
    let upstream = Upstream::echo().await;
    let services = format!(
        "- {{name: orders, url: '{}', routes: [{{name: orders, paths: [/orders]}}]}}\nplugins:\n\
         - name: opentelemetry\n  config: {{traces_endpoint: 'grpc://{collector}', \
         logs_endpoint: 'grpc://{collector}', sampling_rate: 1}}\n",
        upstream.url("")
    );
    let mut door = Setup::new().services(&services).lay_out();
    let section = format!(
        "metrics: true, otlp: {{metrics_endpoint: 'grpc://{collector}', interval: 1 s, timeout: 1 s}}"
    );
    door.edit("doorward.yaml", "metrics: true", &section);
    door.start().await;
    door.get("a.test", "/orders/1?token=hush").await.expect(200);
    for (service, part) in [
        ("metrics.v1.MetricsService", "doorward_requests_total"),
        ("trace.v1.TraceService", "kong.balancer"),
        ("logs.v1.LogsService", "token=REDACTED"),
    ] {
        let path = format!("/opentelemetry.proto.collector.{service}/Export");
        let message = eventually(service, || async {
            let calls = calls.lock().expect("not poisoned");
            let mut calls = calls.iter();
            let call = calls.find(|(at, body)| *at == path && has(body, part.as_bytes()));
            call.map(|(_, message)| message.clone())
        })
        .await;
        assert!(!has(&message, b"hush"), "{service}");
    }
    let output = door.run(&["check", "--online", "-c", "doorward.yaml"]);
    let told = String::from_utf8_lossy(&output.stdout);
    let line = "telemetry.otlp.metrics_endpoint: takes metrics";
    assert!(told.contains(line), "{told}");
    let exported = "doorward_otlp_exports_total{result=\"done\"}";
    eventually("exports to be counted", || metric(&door, exported)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_does_not_take_metrics_is_a_finding() {
    let collector = Upstream::start(|_| Reply::Json(401, json!({}))).await;
    let door = Setup::new().lay_out();
    let endpoint = collector.url("/v1/metrics");
    let section = format!("metrics: true, otlp: {{metrics_endpoint: '{endpoint}'}}");
    door.edit("doorward.yaml", "metrics: true", &section);
    let output = door.run(&["check", "--online", "-c", "doorward.yaml"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("telemetry.otlp.metrics_endpoint") && said.contains("401"),
        "{said}"
    );
}
