//! The access log by a template, its conditions, and what clients may write into it.

use serde_json::Value;

use crate::support::{Door, Setup, Upstream, http};

/// A door to `upstream` whose access log is configured by `section`.
async fn door_with(upstream: &Upstream, section: &str) -> Door {
    let services = format!(
        "- {{name: api, url: '{}', routes: [{{name: api, paths: [/api]}}]}}\n\
         - {{name: gone, url: 'http://127.0.0.1:1', retries: 1, routes: [{{name: gone, paths: [/gone]}}]}}\n",
        upstream.url("")
    );
    let mut door = Setup::new().services(&services).lay_out();
    door.edit(
        "doorward.yaml",
        "access_log: stdout",
        &format!("access_log: {section}"),
    );
    door.start().await;
    door
}

#[tokio::test]
async fn a_template_shows_who_asked_for_what_and_who_answered() {
    let upstream = Upstream::echo().await;
    let section = "{template: 'LINE {client_ip} {route} {trace_id} {upstream_address} {retries} {status} {tls_version}'}";
    let door = door_with(&upstream, section).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = http::client()
        .get(door.proxy_url("/api?secret=hush"))
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
    http::send(request).await.expect(200);
    let address = upstream.url("").replace("http://", "");
    let address = address.trim_end_matches('/');
    let expected = format!("LINE 127.0.0.1 api {trace} {address} 0 200 -");
    door.wait_log("the line", |line| line == expected).await;
    door.get("a.test", "/gone").await.expect(502);
    let failed = "LINE 127.0.0.1 gone - 127.0.0.1:1 1 502 -";
    door.wait_log("the failure", |line| line == failed).await;
}

#[tokio::test]
async fn a_line_in_json_has_the_trace_and_the_upstream() {
    let upstream = Upstream::echo().await;
    let door = door_with(&upstream, "stdout").await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = http::client()
        .get(door.proxy_url("/api"))
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
    http::send(request).await.expect(200);
    let address = upstream.url("").replace("http://", "");
    let address = address.trim_end_matches('/');
    let line = async |route: &str| {
        let part = format!("\"route\":\"{route}\"");
        let line = door.wait_log(route, |line| line.contains(&part)).await;
        serde_json::from_str::<Value>(&line).expect("JSON")
    };
    let served = line("api").await;
    assert_eq!(served["trace_id"], trace);
    assert_eq!(served["upstream_address"], address);
    assert_eq!(served["retries"], Value::Null, "there were none");
    door.get("a.test", "/gone").await.expect(502);
    let failed = line("gone").await;
    assert_eq!(failed["trace_id"], Value::Null);
    assert_eq!(failed["upstream_address"], "127.0.0.1:1");
    assert_eq!(failed["retries"], 1);
}

#[tokio::test]
async fn header_values_forge_neither_lines_nor_fields_of_the_combined_format() {
    let upstream = Upstream::echo().await;
    let door = door_with(&upstream, "{format: combined}").await;
    let forged = "x\" 200 1 \"-\" \"-\\";
    let request = http::client()
        .get(door.proxy_url("/api/%0aforged%20line\"/%22?token=hush"))
        .header("user-agent", forged)
        .header("referer", "https://a.test/\" 200 \"?code=hush");
    // The encoded line break is refused, and the refusal is logged.
    http::send(request).await.expect(400);
    let line = door
        .wait_log("the line", |line| line.contains("forged"))
        .await;
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert_eq!(line.matches('"').count(), 6, "{line}");
    assert!(line.contains("] \"GET /api/"), "{line}");
    assert!(line.contains("\\x22"), "{line}");
    assert!(!door.log_text().contains("hush"));
}

#[tokio::test]
async fn a_sample_of_nothing_has_the_errors_all_the_same() {
    let upstream = Upstream::echo().await;
    let section = "{template: 'LINE {status}', sample: 0, statuses: [2xx, 4xx, 5xx]}";
    let door = door_with(&upstream, section).await;
    door.get("a.test", "/api").await.expect(200);
    door.get("a.test", "/nowhere").await.expect(404);
    door.get("a.test", "/gone").await.expect(502);
    door.wait_log("the error", |line| line == "LINE 502").await;
    let log = door.log_text();
    assert!(
        !log.contains("LINE 200") && !log.contains("LINE 404"),
        "{log}"
    );
}

#[tokio::test]
async fn a_template_that_can_not_be_read_is_refused_at_its_key() {
    let upstream = Upstream::echo().await;
    let services = format!("- {{name: api, url: '{}'}}\n", upstream.url(""));
    let mut door = Setup::new().services(&services).lay_out();
    door.edit(
        "doorward.yaml",
        "access_log: stdout",
        "access_log: {template: '{clientip}'}",
    );
    door.spawn();
    assert_eq!(door.wait_exit().await.code(), Some(2));
    let log = door.log_text();
    for part in ["telemetry.access_log.template", "did you mean {client_ip}?"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}
