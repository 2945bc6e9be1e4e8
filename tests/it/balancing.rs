//! Upstreams and their targets: who gets a request, and what happens when
//! targets fail, return and change (gateway-admin-api §2, §5).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::ports::Port;
use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually, http};

/// A door with an upstream `group`, these targets (address and weight), and a
/// service and route that lead to it.
async fn door(fields: Value, targets: &[(SocketAddr, u16)]) -> Door {
    let door = Setup::new().start().await;
    let mut group = json!({"name": "group"});
    let map = group.as_object_mut().expect("is an object");
    map.extend(fields.as_object().expect("is an object").clone());
    door.admin_post("/upstreams", &group).await.expect(201);
    for (address, weight) in targets {
        add(&door, *address, *weight).await;
    }
    door.expose("web", "http://group", "a.test").await;
    door
}

async fn add(door: &Door, address: SocketAddr, weight: u16) {
    let target = json!({"target": address.to_string(), "weight": weight});
    door.admin_post("/upstreams/group/targets", &target)
        .await
        .expect(201);
}

/// A server that says who it is.
async fn named(name: &'static str) -> Upstream {
    Upstream::start(move |_| Reply::Json(200, json!(name))).await
}

/// A server that answers with the status that the handle holds.
async fn switchable() -> (Upstream, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let own = status.clone();
    let server = Upstream::start(move |_| Reply::Json(own.load(Ordering::SeqCst), json!({}))).await;
    (server, status)
}

async fn counts(door: &Door, n: usize) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for _ in 0..n {
        let answer = door.get("a.test", "/").await.expect(200);
        *counts.entry(answer.json().to_string()).or_insert(0) += 1;
    }
    counts
}

/// The health of a target as `/health` tells it.
async fn health(door: &Door, target: SocketAddr) -> String {
    let about = door.admin_get("/upstreams/group/health").await.expect(200);
    let all = about.json()["data"].as_array().cloned().unwrap_or_default();
    let one = all.iter().find(|t| t["target"] == target.to_string());
    one.expect("is listed")["health"]
        .as_str()
        .unwrap_or("")
        .to_owned()
}

async fn becomes(door: &Door, target: SocketAddr, wanted: &str) {
    let what = format!("{target} to be {wanted}");
    eventually(&what, || async {
        (health(door, target).await == wanted).then_some(())
    })
    .await;
}

fn passive(unhealthy: Value) -> Value {
    json!({"healthchecks": {"passive": {"unhealthy": unhealthy}}})
}

#[tokio::test]
async fn requests_are_spread_by_weight() {
    let (one, two, off) = (named("one").await, named("two").await, named("off").await);
    let targets = [
        (one.address(), 100),
        (two.address(), 200),
        (off.address(), 0),
    ];
    let door = door(json!({}), &targets).await;
    let counts = counts(&door, 30).await;
    assert_eq!(counts["\"one\""], 10);
    assert_eq!(counts["\"two\""], 20);
    assert_eq!(counts.len(), 2);
}

#[tokio::test]
async fn a_refused_connection_is_retried_at_another_target() {
    let (dead, alive) = (Port::reserve(), named("alive").await);
    let dead: SocketAddr = dead.authority().parse().expect("an address");
    let door = door(json!({}), &[(dead, 100), (alive.address(), 100)]).await;
    assert_eq!(counts(&door, 20).await["\"alive\""], 20);
    assert_eq!(health(&door, dead).await, "HEALTHCHECKS_OFF");
    let change = passive(json!({"tcp_failures": 2}));
    door.admin_json(Method::PATCH, "/upstreams/group", &change)
        .await
        .expect(200);
    assert_eq!(counts(&door, 6).await["\"alive\""], 6);
    assert_eq!(health(&door, dead).await, "UNHEALTHY");
}

#[tokio::test]
async fn an_upstream_without_available_target_answers_503() {
    let door = door(json!({}), &[]).await;
    let wanted = "failure to get a peer from the ring-balancer";
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("host", "a.test")
        .header("accept", "application/json");
    let answer = http::send(request).await.expect(503);
    assert_eq!(answer.json()["message"], wanted);
}

#[tokio::test]
async fn failing_answers_take_a_target_out_until_an_operator_puts_it_back() {
    let ((bad, status), good) = (switchable().await, named("good").await);
    let fields = passive(json!({"http_failures": 2, "tcp_failures": 2}));
    let door = door(fields, &[(bad.address(), 100), (good.address(), 100)]).await;
    assert_eq!(health(&door, bad.address()).await, "HEALTHY");
    status.store(500, Ordering::SeqCst);
    for _ in 0..4 {
        door.get("a.test", "/").await;
    }
    assert_eq!(health(&door, bad.address()).await, "UNHEALTHY");
    assert_eq!(health(&door, good.address()).await, "HEALTHY");
    assert_eq!(counts(&door, 10).await["\"good\""], 10);
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let line = format!(
        "doorward_upstream_target_health{{upstream=\"group\",target=\"{0}\",address=\"{0}\",state=\"unhealthy\"}} 1",
        bad.address()
    );
    assert!(metrics.contains(&line), "{metrics}");
    status.store(200, Ordering::SeqCst);
    let path = format!("/upstreams/group/targets/{}/healthy", bad.address());
    door.admin_json(Method::PUT, &path, &json!({}))
        .await
        .expect(204);
    assert_eq!(health(&door, bad.address()).await, "HEALTHY");
    let before = bad.seen().len();
    for _ in 0..4 {
        door.get("a.test", "/").await.expect(200);
    }
    assert_eq!(bad.seen().len(), before + 2);
    door.wait_log("the recovery to be logged", |line| {
        line.contains("target is healthy")
    })
    .await;
    let log = door.log_text();
    for change in ["target is unhealthy", "target is healthy"] {
        assert_eq!(log.matches(change).count(), 1, "{change}, once");
    }
}

#[tokio::test]
async fn a_target_keeps_its_health_over_changes_of_the_configuration() {
    let ((bad, status), good) = (switchable().await, named("good").await);
    let fields = passive(json!({"http_failures": 1}));
    let door = door(fields, &[(bad.address(), 100), (good.address(), 100)]).await;
    status.store(503, Ordering::SeqCst);
    for _ in 0..2 {
        door.get("a.test", "/").await;
    }
    let other = named("other").await;
    add(&door, other.address(), 50).await;
    let change = json!({"algorithm": "least-connections"});
    door.admin_json(Method::PATCH, "/upstreams/group", &change)
        .await
        .expect(200);
    door.expose("more", "http://127.0.0.1:9", "more.test").await;
    assert_eq!(health(&door, bad.address()).await, "UNHEALTHY");
    counts(&door, 6).await;
}

#[tokio::test]
async fn probes_find_a_sick_target_and_its_recovery() {
    let ((server, status), good) = (switchable().await, named("good").await);
    // Whoever is slow is not sick.
    let active = json!({
        "timeout": 30, "http_path": "/health/full", "headers": {"x-probe": ["yes"]},
        "healthy": {"interval": 0.1, "successes": 2},
        "unhealthy": {"interval": 0.1, "http_failures": 2, "tcp_failures": 2, "timeouts": 2}
    });
    let fields = json!({"healthchecks": {"active": active}});
    let targets = [(server.address(), 100), (good.address(), 100)];
    let door = door(fields, &targets).await;
    status.store(500, Ordering::SeqCst);
    becomes(&door, server.address(), "UNHEALTHY").await;
    assert_eq!(counts(&door, 6).await["\"good\""], 6);
    status.store(200, Ordering::SeqCst);
    becomes(&door, server.address(), "HEALTHY").await;
    let probe = server.last();
    assert_eq!(probe.target, "/health/full");
    assert_eq!(probe.header("x-probe"), Some("yes"));
    assert_eq!(probe.header("host"), Some(&*server.address().to_string()));
    // Removed targets are left alone.
    let path = format!("/upstreams/group/targets/{}", server.address());
    door.admin_delete(&path).await.expect(204);
    eventually("probes to end", || async {
        let before = server.seen().len();
        tokio::time::sleep(Duration::from_millis(400)).await;
        (server.seen().len() == before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_is_noticed_by_connections_alone() {
    let port = Port::reserve();
    let address: SocketAddr = port.authority().parse().expect("an address");
    let answer = |_: &crate::support::upstream::ReceivedRequest| Reply::Json(200, json!("back"));
    let server = Upstream::at(&port.authority(), answer).await;
    let active = json!({
        "type": "tcp",
        "healthy": {"interval": 0.1, "successes": 1},
        "unhealthy": {"interval": 0.1, "tcp_failures": 1}
    });
    let door = door(
        json!({"healthchecks": {"active": active}}),
        &[(address, 100)],
    )
    .await;
    becomes(&door, address, "HEALTHY").await;
    drop(server);
    becomes(&door, address, "UNHEALTHY").await;
    door.get("a.test", "/").await.expect(503);
    let _server = Upstream::at(&port.authority(), answer).await;
    becomes(&door, address, "HEALTHY").await;
    door.get("a.test", "/").await.expect(200);
}

#[tokio::test]
async fn a_silent_target_fails_its_probes_by_timeout() {
    let silent = Upstream::start(|_| Reply::Hang).await;
    let active = json!({
        "timeout": 0.1,
        "healthy": {"interval": 0.1}, "unhealthy": {"interval": 1, "timeouts": 1}
    });
    let fields = json!({"healthchecks": {"active": active}});
    let door = door(fields, &[(silent.address(), 100)]).await;
    becomes(&door, silent.address(), "UNHEALTHY").await;
    let whole = door
        .admin_get("/upstreams/group/health?balancer_health=1")
        .await;
    let whole = whole.expect(200).json();
    assert_eq!(whole["data"]["health"], "UNHEALTHY");
    assert_eq!(whole["data"]["details"]["weight"]["unavailable"], 100);
}

#[tokio::test]
async fn a_breaker_opens_after_failures_and_closes_after_a_success() {
    let (server, status) = switchable().await;
    let breaker = json!({"failures": 3, "open_seconds": 5, "half_open_requests": 1});
    let door = door(
        json!({"circuit_breaker": breaker}),
        &[(server.address(), 100)],
    )
    .await;
    status.store(500, Ordering::SeqCst);
    for _ in 0..3 {
        door.get("a.test", "/").await.expect(500);
    }
    door.get("a.test", "/").await.expect(503);
    assert_eq!(
        server.seen().len(),
        3,
        "an open breaker lets nothing through"
    );
    status.store(200, Ordering::SeqCst);
    eventually("the breaker to close", || async {
        let answer = door.get("a.test", "/").await;
        (answer.status == 200).then_some(())
    })
    .await;
    door.get("a.test", "/").await.expect(200);
}

#[tokio::test]
async fn requests_in_flight_at_a_target_are_limited() {
    let slow = Upstream::start(|seen| {
        let answer = Reply::Json(200, json!({}));
        if seen.target == "/slow" {
            Reply::Hang
        } else {
            answer
        }
    })
    .await;
    let door = door(
        json!({"circuit_breaker": {"max_requests": 1}}),
        &[(slow.address(), 100)],
    )
    .await;
    let url = door.proxy_url("/slow");
    let held = tokio::spawn(async move {
        let request = http::client().get(url).header("host", "a.test");
        let _ = http::try_send(request).await;
    });
    eventually("the slow request to arrive", || async {
        (!slow.seen().is_empty()).then_some(())
    })
    .await;
    door.get("a.test", "/").await.expect(503);
    held.abort();
    eventually("room for another request", || async {
        (door.get("a.test", "/").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn targets_come_and_go_under_load_without_a_failed_request() {
    let slow = |name: &'static str| {
        Upstream::start(move |_| {
            let answer = Box::new(Reply::Json(200, json!(name)));
            Reply::Later(Duration::from_millis(5), answer)
        })
    };
    let (one, two) = (slow("one").await, slow("two").await);
    let door = Arc::new(door(json!({}), &[(one.address(), 100), (two.address(), 100)]).await);
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (door, stop) = (door.clone(), stop.clone());
            tokio::spawn(async move {
                let client = http::client();
                let mut n = 0;
                while !stop.load(Ordering::SeqCst) {
                    let request = client.get(door.proxy_url("/")).header("host", "a.test");
                    http::send(request).await.expect(200);
                    n += 1;
                }
                n
            })
        })
        .collect();
    for _ in 0..20 {
        let path = format!("/upstreams/group/targets/{}", two.address());
        door.admin_delete(&path).await.expect(204);
        add(&door, two.address(), 100).await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut n = 0;
    for worker in load {
        n += worker.await.expect("no request failed");
    }
    assert!(n > 0);
}

#[tokio::test]
async fn a_removed_target_finishes_its_requests() {
    let slow = Upstream::start(|_| {
        let answer = Box::new(Reply::Json(200, json!("late")));
        Reply::Later(Duration::from_millis(500), answer)
    })
    .await;
    let door = Arc::new(door(json!({}), &[(slow.address(), 100)]).await);
    let own = door.clone();
    let request = tokio::spawn(async move { own.get("a.test", "/").await });
    eventually("the request to arrive", || async {
        (!slow.seen().is_empty()).then_some(())
    })
    .await;
    let path = format!("/upstreams/group/targets/{}", slow.address());
    door.admin_delete(&path).await.expect(204);
    door.get("a.test", "/").await.expect(503);
    let answer = request.await.expect("no panic").expect(200);
    assert_eq!(answer.json(), "late");
}

async fn get_with(door: &Door, name: &str, value: &str) -> Answer {
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("host", "a.test")
        .header(name, value);
    http::send(request).await.expect(200)
}

#[tokio::test]
async fn a_hashed_header_always_leads_to_the_same_target() {
    let (one, two) = (named("one").await, named("two").await);
    let fields = json!({"hash_on": "header", "hash_on_header": "x-user"});
    let door = door(fields, &[(one.address(), 100), (two.address(), 100)]).await;
    let mut homes = HashMap::new();
    for round in 0..3 {
        for user in 0..20 {
            let answer = get_with(&door, "x-user", &format!("user-{user}")).await;
            let home = answer.json().to_string();
            let before = homes.insert(user, home.clone());
            assert!(round == 0 || before == Some(home));
        }
    }
    let ones = homes.values().filter(|home| *home == "\"one\"").count();
    assert!(ones > 0 && ones < 20, "both are used");
}

#[tokio::test]
async fn a_cookie_brings_a_client_back_to_its_target() {
    let (one, two) = (named("one").await, named("two").await);
    let fields = json!({
        "hash_on": "cookie", "hash_on_cookie": "stick", "hash_on_cookie_path": "/"
    });
    let door = door(fields, &[(one.address(), 100), (two.address(), 100)]).await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let first = door.get("a.test", "/").await.expect(200);
        let cookie = first.header("set-cookie").to_owned();
        assert!(
            cookie.contains("; Path=/;") && cookie.contains("HttpOnly"),
            "{cookie}"
        );
        let (pair, _) = cookie.split_once(';').expect("has attributes");
        for _ in 0..2 {
            let again = get_with(&door, "cookie", pair).await;
            assert_eq!(again.json(), first.json());
            assert!(!again.headers.contains_key("set-cookie"));
        }
        seen.insert(first.json().to_string());
    }
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn what_a_group_of_the_path_matched_can_be_hashed() {
    let (one, two) = (named("one").await, named("two").await);
    let fields = json!({"hash_on": "uri_capture", "hash_on_uri_capture": "user"});
    let door = door(fields, &[(one.address(), 100), (two.address(), 100)]).await;
    let route = json!({"hosts": ["a.test"], "paths": ["~/u/(?<user>[^/]+)"]});
    door.admin_post("/services/web/routes", &route)
        .await
        .expect(201);
    let mut homes = std::collections::HashSet::new();
    for user in 0..20 {
        let first = door
            .get("a.test", &format!("/u/{user}/a"))
            .await
            .expect(200);
        let again = door
            .get("a.test", &format!("/u/{user}/b"))
            .await
            .expect(200);
        assert_eq!(first.json(), again.json());
        homes.insert(first.json().to_string());
    }
    assert_eq!(homes.len(), 2);
}

#[tokio::test]
async fn the_host_header_is_the_targets_unless_the_upstream_names_another() {
    let server = Upstream::echo().await;
    let port = server.address().port();
    let door = door(json!({}), &[(server.address(), 100)]).await;
    door.get("a.test", "/").await.expect(200);
    assert_eq!(
        server.last().header("host"),
        Some(&*format!("127.0.0.1:{port}"))
    );
    let change = json!({"host_header": "own.test"});
    door.admin_json(Method::PATCH, "/upstreams/group", &change)
        .await
        .expect(200);
    door.get("a.test", "/").await.expect(200);
    assert_eq!(
        server.last().header("host"),
        Some(&*format!("own.test:{port}"))
    );
}

#[tokio::test]
async fn a_target_that_is_a_name_shows_its_addresses() {
    let server = named("local").await;
    let door = door(passive(json!({"tcp_failures": 1})), &[]).await;
    let name = format!("localhost:{}", server.address().port());
    let target = json!({"target": name});
    door.admin_post("/upstreams/group/targets", &target)
        .await
        .expect(201);
    assert_eq!(counts(&door, 3).await["\"local\""], 3);
    let about = eventually("the name to be resolved", || async {
        let about = door.admin_get("/upstreams/group/health").await.expect(200);
        let about = about.json()["data"][0].clone();
        (about["data"]["addresses"][0]["ip"] == "127.0.0.1").then_some(about)
    })
    .await;
    assert_eq!(about["health"], "HEALTHY");
    assert_eq!(about["data"]["dns"], "A");
    let address = format!("127.0.0.1:{}", server.address().port());
    let path = format!("/upstreams/group/targets/{name}/{address}/unhealthy");
    door.admin_json(Method::PUT, &path, &json!({}))
        .await
        .expect(204);
    door.get("a.test", "/").await.expect(503);
    let path = format!("/upstreams/group/targets/{name}/healthy");
    door.admin_json(Method::PUT, &path, &json!({}))
        .await
        .expect(204);
    door.get("a.test", "/").await.expect(200);
}

#[tokio::test]
async fn a_name_without_address_is_a_dns_error() {
    let door = door(json!({}), &[]).await;
    let target = json!({"target": "nowhere.invalid:80"});
    door.admin_post("/upstreams/group/targets", &target)
        .await
        .expect(201);
    eventually("the look-up to fail", || async {
        let about = door.admin_get("/upstreams/group/health").await.expect(200);
        (about.json()["data"][0]["health"] == "DNS_ERROR").then_some(())
    })
    .await;
    door.get("a.test", "/").await.expect(503);
}

#[tokio::test]
async fn health_is_paged_and_unknown_names_are_not_found() {
    let (one, two) = (named("one").await, named("two").await);
    let door = door(json!({}), &[(one.address(), 100), (two.address(), 100)]).await;
    let first = door
        .admin_get("/upstreams/group/health?size=1")
        .await
        .expect(200);
    let offset = first.json()["offset"].as_str().expect("more").to_owned();
    let next = format!("/upstreams/group/health?size=1&offset={offset}");
    let second = door.admin_get(&next).await.expect(200).json();
    assert_eq!(second["next"], Value::Null);
    assert_ne!(second["data"][0]["id"], first.json()["data"][0]["id"]);
    door.admin_get("/upstreams/nobody/health").await.expect(404);
    for path in ["10.0.0.1:1/healthy", "10.0.0.1:1/unhealthy"] {
        let path = format!("/upstreams/group/targets/{path}");
        door.admin_json(Method::PUT, &path, &json!({}))
            .await
            .expect(404);
    }
    let wrong = format!(
        "/upstreams/group/targets/{}/10.9.9.9:1/healthy",
        one.address()
    );
    door.admin_json(Method::PUT, &wrong, &json!({}))
        .await
        .expect(404);
}
