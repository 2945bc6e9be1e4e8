//! The throttling filter: what passes, what is told to come back, and when.

use crate::support::{Door, Reply, Setup, Upstream, http};

/// A door with the service `api` for host `api.test`, throttled.
async fn throttled(upstream: &Upstream, config: &str) -> Door {
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: throttling, config: {{{config}}}}}\n",
        upstream.url("")
    );
    Setup::new().services(&service).start().await
}

async fn upstream() -> Upstream {
    Upstream::start(|_| Reply::Json(200, serde_json::json!({}))).await
}

/// How many of `count` requests at once pass, with `X-User: user`.
async fn passing(door: &Door, user: &str, count: usize) -> usize {
    let requests = (0..count).map(|_| {
        let request = http::client().get(door.proxy_url("/"));
        http::send(request.header("host", "api.test").header("x-user", user))
    });
    let answers = futures_util::future::join_all(requests).await;
    answers.iter().filter(|answer| answer.status == 200).count()
}

// A token an hour: nothing comes back while a test runs, however slow the machine.
const SIX: &str = "rate: {numberOfRequests: 6, duration: 6 hours}";

#[tokio::test]
async fn the_seventh_request_is_told_when_to_come_back() {
    let upstream = upstream().await;
    let door = throttled(&upstream, "rate: {numberOfRequests: 6, duration: 10 s}").await;
    let mut waits = Vec::new();
    // Two more than the bucket holds, and what may drip in meanwhile.
    for _ in 0..40 {
        let answer = door.get("api.test", "/").await;
        if answer.status == 429 {
            assert_eq!(answer.body, "");
            waits.push(answer.header("retry-after").to_owned());
        } else {
            assert_eq!(answer.status, 200);
        }
    }
    assert!(!waits.is_empty());
    // A token comes every 1.67 s, rounded up to whole seconds.
    assert!(
        waits.iter().all(|wait| wait == "2" || wait == "1"),
        "{waits:?}"
    );
}

#[tokio::test]
async fn exactly_the_rate_passes_at_once_even_in_parallel() {
    let upstream = upstream().await;
    let door = throttled(&upstream, SIX).await;
    assert_eq!(passing(&door, "", 50).await, 6);
    assert_eq!(
        upstream.seen().len(),
        6,
        "a refused request never reaches the upstream"
    );
}

#[tokio::test]
async fn partitions_do_not_touch_each_other() {
    let upstream = upstream().await;
    let policy = "requestGroupingPolicy: \"${request.headers['X-User'][0]}\"";
    let door = throttled(&upstream, &format!("{policy}, {SIX}")).await;
    assert_eq!(passing(&door, "ada", 10).await, 6);
    assert_eq!(passing(&door, "bob", 10).await, 6);
    assert_eq!(passing(&door, "ada", 10).await, 0);
}

#[tokio::test]
async fn an_expression_that_gives_nothing_answers_500() {
    let upstream = upstream().await;
    let policy = "requestGroupingPolicy: \"${request.headers['X-Absent'][0]}\"";
    let door = throttled(&upstream, &format!("{policy}, {SIX}")).await;
    door.get("api.test", "/").await.expect(500);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn the_clients_address_is_a_partition() {
    let upstream = upstream().await;
    let policy = "requestGroupingPolicy: '${contexts.client.remoteAddress}'";
    let door = throttled(&upstream, &format!("{policy}, {SIX}")).await;
    assert_eq!(passing(&door, "", 10).await, 6);
}

#[tokio::test]
async fn the_listeners_address_is_known_to_expressions() {
    let upstream = upstream().await;
    let policy = "requestGroupingPolicy: '${contexts.client.localAddress}'";
    let door = throttled(&upstream, &format!("{policy}, {SIX}")).await;
    assert_eq!(passing(&door, "", 10).await, 6);
}

#[tokio::test]
async fn each_request_has_a_transaction_of_its_own() {
    let upstream = upstream().await;
    let policy = "requestGroupingPolicy: '${contexts.transactionId.transactionId.value}'";
    let door = throttled(&upstream, &format!("{policy}, {SIX}")).await;
    assert_eq!(passing(&door, "", 10).await, 10);
}

#[tokio::test]
async fn subjects_of_tokens_are_partitions() {
    let upstream = upstream().await;
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2'}}}}\n  \
         - {{name: throttling, config: {{requestGroupingPolicy: \
         \"${{contexts.oauth2.accessToken.info.sub}}\", {SIX}}}}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    let demo = door.user_token("demo", "openid").await;
    let alice = door.user_token("alice", "openid").await;
    for _ in 0..6 {
        door.get_as(&demo, "api.test", "/").await.expect(200);
    }
    let refused = door.get_as(&demo, "api.test", "/").await.expect(429);
    let wait: u64 = refused.header("retry-after").parse().expect("seconds");
    assert!((3500..=3600).contains(&wait), "{wait}");
    // Another token of the same subject is the same partition.
    let again = door.user_token("demo", "openid").await;
    door.get_as(&again, "api.test", "/").await.expect(429);
    door.get_as(&alice, "api.test", "/").await.expect(200);
    // Who has no token is refused by the plugin before.
    door.get("api.test", "/").await.expect(401);
}

#[tokio::test]
async fn refused_clients_pass_again_after_the_time_they_were_told() {
    let upstream = upstream().await;
    let door = throttled(&upstream, "rate: {numberOfRequests: 1, duration: 1 s}").await;
    door.get("api.test", "/").await.expect(200);
    let wait = crate::support::eventually("a refusal", || async {
        let answer = door.get("api.test", "/").await;
        (answer.status == 429).then(|| answer.header("retry-after").parse::<u64>())
    })
    .await
    .expect("whole seconds");
    tokio::time::sleep(std::time::Duration::from_secs(wait)).await;
    door.get("api.test", "/").await.expect(200);
}

#[tokio::test]
async fn partitions_are_counted_and_decisions_shown() {
    let upstream = upstream().await;
    let policy = "requestGroupingPolicy: \"${request.headers['X-User'][0]}\"";
    let door = throttled(&upstream, &format!("{policy}, {SIX}")).await;
    for user in ["a", "b", "c"] {
        passing(&door, user, 7).await;
    }
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    assert!(
        metrics.contains("doorward_throttle_partitions 3"),
        "{metrics}"
    );
    assert!(
        metrics.contains("doorward_plugin_decisions_total{"),
        "{metrics}"
    );
}

#[tokio::test]
async fn several_rates_hold_at_once_and_clients_are_told_what_is_left() {
    let upstream = upstream().await;
    let config =
        "rates: [2/2 h, {name: daily, numberOfRequests: 10, duration: 10 days}], headers: draft";
    let door = throttled(&upstream, config).await;
    let first = door.get("api.test", "/").await.expect(200);
    assert_eq!(
        first.header("ratelimit-policy"),
        "\"2/2h\";q=2;w=7200, \"daily\";q=10;w=864000"
    );
    assert_eq!(
        first.header("ratelimit"),
        "\"2/2h\";r=1;t=3600, \"daily\";r=9;t=86400"
    );
    door.get("api.test", "/").await.expect(200);
    let refused = door.get("api.test", "/").await.expect(429);
    let wait = refused.header("retry-after");
    assert_eq!(
        refused.header("ratelimit"),
        format!("\"2/2h\";r=0;t={wait}, \"daily\";r=8;t={wait}")
    );
}

#[tokio::test]
async fn a_shadow_refuses_nobody_and_logs_whom_it_would_have_refused() {
    let upstream = upstream().await;
    let door = throttled(&upstream, &format!("shadow: true, {SIX}")).await;
    assert_eq!(passing(&door, "", 10).await, 10);
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let line = "doorward_plugin_decisions_total{plugin=\"throttling\",decision=\"would_refuse\"} 4";
    assert!(metrics.contains(line), "{metrics}");
    door.wait_log("the access log", |line| line.contains("would_throttle"))
        .await;
}

#[tokio::test]
async fn operators_see_who_is_hot_without_names_and_reset_one() {
    let upstream = upstream().await;
    let policy = "requestGroupingPolicy: \"${request.headers['X-User'][0]}\"";
    let door = throttled(&upstream, &format!("{policy}, {SIX}")).await;
    assert_eq!(passing(&door, "ada", 10).await, 6);
    assert_eq!(passing(&door, "bob", 3).await, 3);
    let list = door.admin_get("/throttling").await.expect(200).body;
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let plugin = list["data"][0]["plugin"]["id"].as_str().expect("an id");
    let shown = door
        .admin_get(&format!("/throttling/{plugin}"))
        .await
        .expect(200)
        .body;
    assert!(!shown.contains("ada"), "{shown}");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let hottest = &shown["hottest"][0];
    assert_eq!(hottest["passed"], 6);
    assert_eq!(hottest["refused"], 4);
    let id = hottest["id"].as_str().expect("an id");
    door.admin_delete(&format!("/throttling/{plugin}/{id}"))
        .await
        .expect(204);
    assert_eq!(passing(&door, "ada", 10).await, 6);
    door.admin_delete(&format!("/throttling/{plugin}/bob"))
        .await
        .expect(204);
    assert_eq!(passing(&door, "bob", 10).await, 6);
}
