//! What is told about a request: by the admin listener and by the command line.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::http::{client, send};
use crate::support::{Door, Setup, Upstream};

/// Routes with something of everything, in the file `entities.yaml`.
async fn door(upstream: &Upstream) -> Door {
    let services = format!(
        "- name: web
  url: {}
  read_timeout: 1234
  plugins:
  - name: openid-connect
    config: {{issuer: 'http://127.0.0.1:9/x', client_id: [me], client_secret: [hush-hush]}}
  routes:
  - name: get-orders
    hosts: ['*.example.com']
    paths: [/orders]
    methods: [GET]
    plugins:
    - name: openid-connect
      config: {{issuer: 'http://127.0.0.1:9/y', client_id: [me], client_secret: [hush-hush]}}
  - name: post-orders
    hosts: [api.example.com]
    paths: [/orders]
    methods: [POST]
  - name: staging
    hosts: [api.example.com]
    paths: [/orders]
    headers: {{x-env: [dev]}}
  - name: all
    paths: [/]
  - name: secure
    paths: [/secure]
    protocols: [https]
- name: off
  url: {0}
  enabled: false
  routes:
  - {{name: sleeping, hosts: [api.example.com], paths: [/orders/9]}}
",
        upstream.url("/base")
    );
    Setup::new().services(&services).start().await
}

async fn ask(door: &Door, question: Value) -> Value {
    door.admin_post("/explain", &question)
        .await
        .expect(200)
        .json()
}

fn reasons(answer: &Value, route: &str) -> String {
    let misses = answer["near_misses"].as_array().expect("a list");
    let miss = misses.iter().find(|miss| miss["name"] == route);
    let miss = miss.unwrap_or_else(|| panic!("no {route} in {answer:#}"));
    let reasons = miss["reasons"].as_array().expect("a list").iter();
    reasons
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("; ")
}

#[tokio::test]
async fn the_route_its_filters_and_its_peer_are_told() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let question = json!({
        "method": "GET", "url": "http://api.example.com/orders/7?a=b%2Fc", "headers": {"x-env": "prod"},
    });
    let answer = ask(&door, question).await;
    assert_eq!(answer["route"]["name"], "get-orders", "{answer:#}");
    let origin = &answer["route"]["origin"];
    assert_eq!(origin["source"], "file");
    assert!(
        origin["file"]
            .as_str()
            .is_some_and(|file| file.ends_with(".yaml"))
    );
    assert!(
        origin["line"].as_u64().is_some_and(|line| line > 1),
        "{origin}"
    );
    assert_eq!(answer["upstream"]["name"], "web");
    assert_eq!(answer["upstream"]["path"], "/base/7?a=b%2Fc");
    assert_eq!(answer["upstream"]["host"], upstream.address().to_string());
    assert_eq!(answer["upstream"]["read_timeout"], 1234);
    assert_eq!(answer["refusal"], Value::Null);

    let filters = answer["filters"].as_array().expect("a list");
    assert_eq!(filters.len(), 1);
    assert_eq!(filters[0]["scope"], "route");
    assert_eq!(filters[0]["config"]["issuer"], "http://127.0.0.1:9/y");
    assert_eq!(filters[0]["config"]["client_secret"], "[redacted]");
    assert!(!answer.to_string().contains("hush-hush"));
    let shadowed = &answer["shadowed"][0];
    assert_eq!(shadowed["scope"], "service");
    assert!(
        shadowed["reason"]
            .as_str()
            .is_some_and(|r| r.contains("more specific"))
    );
}

#[tokio::test]
async fn near_misses_say_why() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let answer = ask(
        &door,
        json!({
            "url": "http://api.example.com/orders/9", "headers": ["X-Env: prod"], "limit": 20,
        }),
    )
    .await;
    assert_eq!(answer["route"]["name"], "get-orders");
    assert_eq!(
        reasons(&answer, "post-orders"),
        "method is GET, route allows POST"
    );
    assert_eq!(
        reasons(&answer, "staging"),
        "header x-env is 'prod', route wants one of 'dev'"
    );
    assert!(reasons(&answer, "all").starts_with("lower precedence than get-orders: "));
    assert_eq!(reasons(&answer, "sleeping"), "its service is disabled");
    let elsewhere = ask(
        &door,
        json!({"url": "http://other.test/orders", "limit": 20}),
    )
    .await;
    assert_eq!(elsewhere["route"]["name"], "all");
    assert!(reasons(&elsewhere, "get-orders").contains("route matches only *.example.com"));
}

#[tokio::test]
async fn what_is_refused_is_told_with_its_answer() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let answer = ask(&door, json!({"url": "http://a.test/secure"})).await;
    assert_eq!(answer["refusal"]["status"], 426);
    assert_eq!(answer["route"]["name"], "secure");
    let answer = ask(&door, json!({"url": "https://a.test/secure"})).await;
    assert_eq!(answer["refusal"], Value::Null);
    assert_eq!(answer["request"]["sni"], "a.test");
    let answer = ask(&door, json!({"url": "http://a.test/x/%00"})).await;
    assert_eq!(answer["refusal"]["status"], 400);
    assert_eq!(answer["route"], Value::Null);
    assert!(
        answer["refusal"]["reason"]
            .as_str()
            .is_some_and(|r| r.contains("control"))
    );
    let answer = ask(&door, json!({"url": "/", "headers": {"host": "a b"}})).await;
    assert_eq!(answer["refusal"]["status"], 400);
}

#[tokio::test]
async fn a_question_that_is_none_gets_400() {
    let door = Setup::new().start().await;
    for question in [
        json!({}),
        json!({"url": "ftp://x/"}),
        json!({"url": "/", "headers": 5}),
        json!({"url": "/", "method": "G E T"}),
        json!({"url": "/", "color": 1}),
        json!({"url": "/", "client": "nobody"}),
    ] {
        let answer = door.admin_post("/explain", &question).await.expect(400);
        assert_eq!(answer.json()["code"], 2, "{question}");
    }
}

fn explain(door: &Door, arguments: &[&str]) -> Output {
    let arguments = [&["explain"], arguments, &["-c", "doorward.yaml"]].concat();
    door.command(&arguments).output().expect("it runs")
}

#[tokio::test]
async fn the_command_says_the_same_with_and_without_an_instance() {
    let upstream = Upstream::echo().await;
    let mut door = door(&upstream).await;
    let made = json!({"name": "made", "hosts": ["made.test"]});
    door.admin_post("/services/web/routes", &made)
        .await
        .expect(201);
    let ask = ["GET", "http://made.test/x", "-H", "X-A: 1", "--json"];
    let running = explain(&door, &ask);
    assert!(running.status.success(), "{running:?}");
    let text = explain(&door, &["GET", "http://made.test/x"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["made", "Admin API", "web", "/base/x", "timeouts"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hush-hush"));
    let nowhere = explain(
        &door,
        &["GET", "http://a.test/", "--admin", "http://127.0.0.1:1"],
    );
    assert_eq!(nowhere.status.code(), Some(2));
    door.signal("TERM");
    door.wait_exit().await;
    let offline = explain(&door, &ask);
    assert!(offline.status.success(), "{offline:?}");
    // What filters would do depends on what the process knows.
    let json = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).expect("JSON");
    let (mut running, offline) = (json(&running), json(&offline));
    running
        .as_object_mut()
        .expect("an object")
        .remove("answered");
    for filter in running["filters"].as_array_mut().expect("a list") {
        let outlook = filter.as_object_mut().expect("an object").remove("outlook");
        assert!(outlook.is_some());
    }
    assert_eq!(offline, running);
}

#[tokio::test]
async fn no_route_is_exit_status_1() {
    let door = Setup::new().start().await;
    let output = explain(&door, &["GET", "http://nowhere.test/none"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no Route matched"));
}

/// A service behind three plugins, with the provider of the process.
async fn guarded(upstream: &Upstream, more: &str) -> Door {
    let services = format!(
        "- name: api
  url: {}
  routes: [{{name: api, hosts: [api.test]}}]
  plugins:
  - name: request-guard
    config: {{header_names: [X-Who], values: [root], allow: [192.0.2.1/32]}}
  - name: throttling
    config: {{rate: {{numberOfRequests: 2, duration: 1 hour}}}}
  - name: openid-connect
    config: {{issuer: 'http://@PROXY@/oauth2', client_id: orders, client_secret: orders-secret,
      session_secret: s, scopes_required: [read], auth_methods: [session, bearer, password{more}]}}
",
        upstream.url("")
    );
    Setup::new().services(&services).start().await
}

async fn token(door: &Door, scope: &str) -> String {
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", scope),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ];
    let asked = client().post(door.proxy_url("/oauth2/access_token"));
    let answer = send(asked.form(&form)).await.expect(200).json();
    answer["access_token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn what_filters_would_do_is_told_and_nothing_is_done() {
    let upstream = Upstream::echo().await;
    let door = guarded(&upstream, "").await;
    let good = token(&door, "read").await;
    let narrow = token(&door, "write").await;
    let (signed, signature) = good.rsplit_once('.').expect("a signature");
    let forged = format!("{signed}.{}", "A".repeat(signature.len()));
    let cases = [
        (vec![], Some((401, "no_token"))),
        (
            vec!["Authorization: Bearer x".to_owned()],
            Some((401, "malformed_token")),
        ),
        (
            vec![format!("Authorization: Bearer {forged}")],
            Some((401, "bad_signature")),
        ),
        (
            vec![format!("Authorization: Bearer {narrow}")],
            Some((403, "missing_scope")),
        ),
        (
            vec![
                format!("Authorization: Bearer {good}"),
                format!("Authorization: Bearer {good}"),
            ],
            Some((400, "repeated_token")),
        ),
        (
            vec!["Cookie: session=1garbage".to_owned()],
            Some((401, "broken_session")),
        ),
        (vec!["X-Who: root".to_owned()], Some((403, "guarded"))),
        (vec![format!("Authorization: Bearer {good}")], None),
    ];
    // Often, and it counts for nothing.
    for _ in 0..3 {
        for (headers, expected) in &cases {
            let question = json!({"url": "http://api.test/", "headers": headers});
            let answer = ask(&door, question).await;
            let found = &answer["answered"];
            match expected {
                Some((status, code)) => {
                    assert_eq!(found["status"], *status, "{headers:?}: {answer:#}");
                    assert_eq!(found["code"], *code, "{headers:?}");
                    assert!(found["reason"].as_str().is_some_and(|why| why.len() > 15));
                }
                None => {
                    assert_eq!(*found, Value::Null, "{answer:#}");
                    for filter in answer["filters"].as_array().expect("a list") {
                        assert_eq!(filter["outlook"]["decision"], "passes", "{answer:#}");
                    }
                }
            }
        }
    }
    let metrics = door.admin_get("/metrics").await.body;
    for decision in ["no_token", "bad_signature", "guarded", "throttled", "pass"] {
        let line = format!("decision=\"{decision}\"");
        let mut lines = metrics.lines().filter(|text| text.contains(&line));
        assert!(
            lines.all(|line| line.ends_with(" 0")),
            "{decision}: {metrics}"
        );
    }
    // And requests get what was told.
    for (headers, expected) in &cases {
        let mut request = client().get(door.proxy_url("/")).header("host", "api.test");
        for header in headers {
            let (name, value) = header.split_once(": ").expect("a header");
            request = request.header(name, value);
        }
        let answer = send(request).await;
        assert_eq!(
            answer.status,
            expected.map_or(200, |(status, _)| status),
            "{headers:?}"
        );
    }
    let metrics = door.admin_get("/metrics").await.body;
    for (_, code) in cases.iter().filter_map(|(_, expected)| *expected) {
        // The guard has one word for it.
        let decision = if code == "guarded" { "refuse" } else { code };
        let line = format!("decision=\"{decision}\"");
        let mut lines = metrics.lines().filter(|text| text.contains(&line));
        assert!(lines.any(|line| line.ends_with(" 1")), "{code}: {metrics}");
    }
    let request = || {
        let request = client().get(door.proxy_url("/")).header("host", "api.test");
        send(request.bearer_auth(&good))
    };
    request().await.expect(200);
    request().await.expect(429);
    let headers = [format!("Authorization: Bearer {good}")];
    let answer = ask(
        &door,
        json!({"url": "http://api.test/", "headers": headers}),
    )
    .await;
    assert_eq!(answer["answered"]["code"], "throttled", "{answer:#}");
    assert!(!door.log_text().contains(&good));
    assert!(!answer.to_string().contains(&good));
}

#[tokio::test]
async fn what_an_explanation_may_not_do_is_told() {
    let upstream = Upstream::echo().await;
    let door = guarded(&upstream, ", authorization_code").await;
    let question = json!({"url": "http://api.test/", "headers": ["Authorization: Basic YTpi"]});
    let answer = ask(&door, question).await;
    let outlook = &answer["filters"][1]["outlook"];
    assert_eq!(outlook["decision"], "depends", "{answer:#}");
    assert!(
        outlook["reason"]
            .as_str()
            .is_some_and(|why| why.contains("password"))
    );
    let answer = ask(&door, json!({"url": "http://api.test/"})).await;
    assert_eq!(answer["answered"]["status"], 302, "{answer:#}");
    assert_eq!(answer["answered"]["code"], "login");
    assert!(
        answer["answered"]["reason"]
            .as_str()
            .is_some_and(|why| why.contains("no_token"))
    );
}

#[tokio::test]
async fn the_command_tells_refusals_and_takes_headers_from_a_file() {
    let upstream = Upstream::echo().await;
    let door = guarded(&upstream, "").await;
    std::fs::write(door.path("headers"), "Authorization: Bearer x\nX-A: 1\n").expect("written");
    let told = explain(&door, &["GET", "http://api.test/", "-H", "@headers"]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let line = "answer    401 malformed_token: the access token is malformed (openid-connect)";
    assert!(text.contains(line), "{text}");
    let missing = explain(&door, &["GET", "http://api.test/", "-H", "@nowhere"]);
    assert_eq!(missing.status.code(), Some(2));
    let all = door
        .command(&["explain", "--refusals"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&all.stdout).into_owned();
    let listed = door.admin_get("/explain/refusals").await.expect(200).json();
    for one in listed["data"].as_array().expect("a list") {
        let (code, meaning) = (one["code"].as_str(), one["meaning"].as_str());
        assert!(text.contains(code.expect("a code")), "{one}");
        assert!(text.contains(meaning.expect("a text")), "{one}");
    }
    assert!(text.lines().count() > 100, "{text}");
}
