//! What is told about a request: by the admin listener and by the command line.

use std::process::Output;

use serde_json::{Value, json};

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
    assert_eq!(offline.stdout, running.stdout);
}

#[tokio::test]
async fn no_route_is_exit_status_1() {
    let door = Setup::new().start().await;
    let output = explain(&door, &["GET", "http://nowhere.test/none"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no Route matched"));
}
