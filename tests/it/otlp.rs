//! Metrics that the program sends to a collector: a receiver on loopback gets what
//! `/metrics` shows.

use serde_json::json;

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
