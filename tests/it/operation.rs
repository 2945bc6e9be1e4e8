//! Running it: metrics, status, log, signals, exit codes, the command line.

use std::time::Duration;

use serde_json::json;

use crate::support::raw::Connection;
use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

async fn door_to(upstream: &Upstream) -> Door {
    let service = format!(
        "- {{name: api, url: '{}', routes: [{{name: api-route, hosts: [api.test]}}]}}\n",
        upstream.url("")
    );
    Setup::new().services(&service).start().await
}

/// The value of the first metric line that contains all of `parts`.
fn metric(text: &str, parts: &[&str]) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| parts.iter().all(|part| line.contains(part)))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn requests_are_counted_by_service_route_and_status() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    for _ in 0..3 {
        door.get("api.test", "/").await.expect(200);
    }
    door.get("nowhere.test", "/").await.expect(404);
    let labels = [
        "doorward_requests_total{",
        "service=\"api\"",
        "route=\"api-route\"",
        "2",
    ];
    // They are counted when they have been answered.
    let text = eventually("three requests counted", async || {
        let answer = door.admin_get("/metrics").await.expect(200);
        assert!(answer.header("content-type").starts_with("text/plain"));
        (metric(&answer.body, &labels) == Some(3.0)).then_some(answer.body)
    })
    .await;
    for name in [
        "doorward_request_duration_seconds_bucket",
        "doorward_upstream_duration_seconds_bucket",
        "doorward_reloads_total",
        "doorward_connections",
        "doorward_throttle_partitions",
        "process_resident_memory_bytes",
    ] {
        assert!(text.contains(name), "{name} is missing:\n{text}");
    }
    assert!(
        !text.contains("nowhere.test"),
        "no label is the client's to choose"
    );
}

#[tokio::test]
async fn a_switch_leaves_series_by_route_out() {
    let upstream = Upstream::echo().await;
    let services = format!(
        "- {{name: api, url: '{}', routes: [{{name: a, paths: [/a]}}, {{name: b, paths: [/b]}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&services).lay_out();
    let both = "metrics: true, route_series: false}";
    door.edit("doorward.yaml", "metrics: true}", both);
    let mut door = door;
    door.start().await;
    for path in ["/a", "/b"] {
        door.get("api.test", path).await.expect(200);
    }
    let series = "doorward_requests_total{service=\"api\",route=\"\",status=\"2xx\"} 2";
    eventually("one series", || async {
        let metrics = door.admin_get("/metrics").await.body;
        metrics.contains(series).then_some(())
    })
    .await;
}

#[tokio::test]
async fn status_says_that_it_runs() {
    let door = Setup::new().start().await;
    let status = door.admin_get("/status").await.expect(200).json();
    assert_eq!(status["database"]["reachable"], true);
    assert!(status["server"]["total_requests"].is_number());
}

#[tokio::test]
async fn the_access_log_has_a_line_for_each_request() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    door.get("api.test", "/things?secret=hush")
        .await
        .expect(200);
    let line = door
        .wait_log("the line", |line| line.contains("/things"))
        .await;
    for part in ["api.test", "GET", "200", "127.0.0.1", "api-route"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let parsed: serde_json::Value = serde_json::from_str(&line).expect("a JSON line");
    assert!(parsed.is_object());
    door.get("nowhere.test", "/lost").await.expect(404);
    door.wait_log("the refusal", |line| {
        line.contains("/lost") && line.contains("404")
    })
    .await;
}

#[tokio::test]
async fn control_characters_cannot_forge_log_lines() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let path = "/x%0a%7b%22forged%22%3atrue%7d";
    door.get("api.test", path).await;
    let request = http::client()
        .get(door.proxy_url("/y"))
        .header("host", "api.test");
    http::send(request.header("user-agent", "a\"b\\c")).await;
    door.wait_log("the line", |line| line.contains("/y")).await;
    assert!(
        !door
            .log_text()
            .lines()
            .any(|line| line.starts_with("{\"forged\""))
    );
}

#[tokio::test]
async fn sigterm_lets_requests_finish_and_exits_with_zero() {
    let upstream = Upstream::start(|_| {
        let soon = Duration::from_millis(800);
        Reply::Later(soon, Box::new(Reply::Json(200, json!({"late": true}))))
    })
    .await;
    let mut door = door_to(&upstream).await;
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("host", "api.test");
    let request = tokio::spawn(http::try_send(request));
    eventually("the request to arrive", || async {
        (!upstream.seen().is_empty()).then_some(())
    })
    .await;
    door.signal("TERM");
    let answer = request
        .await
        .expect("no panic")
        .expect("the request is answered");
    assert_eq!(answer.status, 200);
    assert_eq!(
        door.wait_exit().await.code(),
        Some(0),
        "{}",
        door.log_text()
    );
}

#[tokio::test]
async fn sigterm_on_an_idle_door_does_not_wait_long() {
    let mut door = Setup::new().start().await;
    let mut idle = Connection::open(&door.proxy()).await;
    idle.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    idle.response().await;
    door.signal("TERM");
    assert_eq!(door.wait_exit().await.code(), Some(0));
    assert!(idle.is_closed().await);
}

#[tokio::test]
async fn wrong_arguments_and_files_exit_with_two_and_say_what_is_wrong() {
    let door = Setup::new().lay_out();
    for (arguments, said) in [
        (vec!["run", "--nonsense"], "--nonsense"),
        (vec!["run", "-c", "no-such-file.yaml"], "no-such-file.yaml"),
        (vec!["sing"], "sing"),
    ] {
        let output = door.run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    door.write("bad.yaml", "proxy: {listen: [\"@PROXY@\"]}\nprxy: 1\n");
    let output = door.run(&["run", "-c", "bad.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("bad.yaml:2") && error.contains("prxy"),
        "{error}"
    );
}

#[tokio::test]
async fn check_refuses_certificates_that_have_expired() {
    let old = crate::support::tls::Pair::expired("old.test");
    let listening = "{listen: [\"@PROXY@\"], tls: {listen: [\"127.0.0.1:0\"], \
                     certificate: \"@DIR@/old.pem\", key: \"@DIR@/old.key\"}}";
    let door = Setup::new().proxy(listening).lay_out();
    door.write("old.pem", &old.cert);
    door.write("old.key", &old.key);
    let told = |door: &Door| {
        let output = door.run(&["check", "-c", "doorward.yaml"]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let of_file = told(&door);
    assert!(
        of_file.contains("doorward.yaml:1: proxy.tls.certificate: "),
        "{of_file}"
    );
    assert!(
        of_file.contains("old.pem: the certificate expired on 2001-01-01"),
        "{of_file}"
    );
    let declared = serde_json::json!({
        "_format_version": "3.0", "certificates": [{"cert": old.cert, "key": old.key}]
    });
    let door = Setup::new().lay_out();
    door.write("routes.yaml", &declared.to_string());
    let of_entity = told(&door);
    assert!(
        of_entity.contains("routes.yaml:1: certificates[0].cert: "),
        "{of_entity}"
    );
    assert!(of_entity.contains("expired on 2001-01-01"), "{of_entity}");
}

#[tokio::test]
async fn check_is_content_with_the_files_that_ship() {
    let door = Setup::new().lay_out();
    let root = env!("CARGO_MANIFEST_DIR");
    for file in ["conf/doorward.yaml", "conf/demo.yaml", "conf/mcp.yaml"] {
        let output = door
            .command(&["check", "-c", file])
            .current_dir(root)
            .output();
        let output = output.expect("it starts");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file}: {said}");
    }
}

#[tokio::test]
async fn the_production_file_holds_no_credentials() {
    let text = include_str!("../../conf/doorward.yaml");
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        for word in ["password", "secret", "token"] {
            assert!(!line.contains(word) || line.contains("&{"), "{line}");
        }
    }
}

#[tokio::test]
async fn health_tells_whether_the_door_is_open() {
    let mut door = Setup::new().start().await;
    let arguments = ["health", "-c", "doorward.yaml"];
    eventually("the word that it is", async || {
        (door.run(&arguments).status.code() == Some(0)).then_some(())
    })
    .await;
    door.kill();
    assert_eq!(door.run(&arguments).status.code(), Some(1));
}

#[tokio::test]
async fn an_admin_listener_open_to_the_network_needs_a_token() {
    let mut door = Setup::new()
        .admin(r#"{listen: "0.0.0.0:@ADMIN_PORT@"}"#)
        .lay_out();
    door.spawn();
    assert_eq!(door.wait_exit().await.code(), Some(2));
    assert!(door.log_text().contains("token"), "{}", door.log_text());
}

#[tokio::test]
async fn an_admin_token_is_asked_for() {
    let mut door = Setup::new()
        .admin(r#"{listen: "@ADMIN@", token: "&{admin.token}"}"#)
        .env("ADMIN_TOKEN", "a-long-admin-token")
        .lay_out();
    door.spawn();
    let url = door.admin_url("/services");
    let answer = eventually("the listener", || async {
        http::try_send(http::client().get(&url)).await.ok()
    })
    .await;
    assert!([401, 403].contains(&answer.status), "{}", answer.status);
    for (token, status) in [("wrong", answer.status), ("a-long-admin-token", 200)] {
        let request = http::client().get(&url).header("kong-admin-token", token);
        http::send(request).await.expect(status);
    }
    assert!(!door.log_text().contains("a-long-admin-token"));
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let mut door = Setup::new()
        .proxy(&format!("{{listen: [\"{address}\"]}}"))
        .lay_out();
    door.spawn();
    assert_ne!(door.wait_exit().await.code(), Some(0));
    assert!(door.log_text().contains(&address), "{}", door.log_text());
}

#[tokio::test]
async fn completions_are_printed_for_the_shell() {
    let door = Setup::new().lay_out();
    let output = door.run(&["completions", "bash"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("doorward"));
}
