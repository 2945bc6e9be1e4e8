//! Names of upstreams: what the records say is used, for as long as they say.

use std::net::IpAddr;

use crate::support::dns::{Mood, NameServer, Record};
use crate::support::{Door, Reply, Setup, Upstream, eventually};
use serde_json::json;

async fn named(name: &'static str) -> Upstream {
    upstream_at("127.0.0.1:0", name).await
}

async fn upstream_at(address: &str, name: &'static str) -> Upstream {
    Upstream::at(address, move |_| Reply::Json(200, json!({"name": name}))).await
}

fn address(text: &str) -> Record {
    Record::Address(text.parse::<IpAddr>().expect("an address"))
}

async fn door_to(dns: &NameServer, more: &str, host: &str, port: u16, fields: &str) -> Door {
    let service =
        format!("- {{name: web, host: {host}, port: {port}, routes: [{{paths: [/]}}]{fields}}}\n");
    Setup::new()
        .proxy(&dns.section(more))
        .services(&service)
        .start()
        .await
}

async fn answers(door: &Door, name: &str) {
    eventually(&format!("an answer of {name}"), async || {
        let answer = door.get("a.test", "/").await;
        (answer.status == 200 && answer.json()["name"] == name).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_address_is_used_until_its_time_is_up_and_then_the_new_one() {
    let dns = NameServer::start().await;
    let one = upstream_at("127.0.0.1:0", "one").await;
    let port = one.address().port();
    let _two = upstream_at(&format!("127.0.0.2:{port}"), "two").await;
    dns.set(&[("web.test", 1, address("127.0.0.1"))]);
    let door = door_to(&dns, "", "web.test", port, "").await;
    answers(&door, "one").await;
    dns.set(&[("web.test", 600, address("127.0.0.2"))]);
    answers(&door, "two").await;
    let asked = dns.asked("web.test");
    for _ in 0..5 {
        answers(&door, "two").await;
    }
    assert_eq!(dns.asked("web.test"), asked, "the record lives for long");
}

#[tokio::test]
async fn expired_addresses_are_kept_while_no_server_answers() {
    let dns = NameServer::start().await;
    let one = named("one").await;
    dns.set(&[("web.test", 1, address("127.0.0.1"))]);
    let door = door_to(&dns, "", "web.test", one.address().port(), "").await;
    answers(&door, "one").await;
    dns.turn(Mood::Failing);
    eventually("stale addresses in the metrics", async || {
        door.get("a.test", "/").await.expect(200);
        let metrics = door.admin_get("/metrics").await.body;
        metrics.contains("doorward_dns_stale_names 1").then_some(())
    })
    .await;
    door.wait_log("the warning", |line| {
        line.contains("keeping the last addresses")
    })
    .await;
    let log = door.log_text();
    assert_eq!(
        log.matches("keeping the last addresses").count(),
        1,
        "{log}"
    );
    dns.turn(Mood::Fine);
    eventually("fresh addresses", async || {
        door.get("a.test", "/").await.expect(200);
        let metrics = door.admin_get("/metrics").await.body;
        metrics.contains("doorward_dns_stale_names 0").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_name_that_is_unknown_gives_503_and_is_not_asked_for_each_time() {
    let dns = NameServer::start().await;
    let door = door_to(&dns, "", "nowhere.test", 80, ", retries: 0").await;
    for _ in 0..10 {
        let answer = door.get("a.test", "/").await.expect(503);
        assert_eq!(answer.json()["message"], "name resolution failed");
    }
    // SRV, A and AAAA, perhaps again after a second.
    let asked = dns.asked("nowhere.test");
    assert!(asked < 15, "{asked} questions");
}

#[tokio::test]
async fn srv_records_give_ports_and_the_best_priority_is_used() {
    let dns = NameServer::start().await;
    let (one, two) = (named("one").await, named("two").await);
    let (one_port, two_port) = (one.address().port(), two.address().port());
    dns.set(&[
        ("web.test", 60, Record::Service(10, 1, one_port, "a.test")),
        ("web.test", 60, Record::Service(20, 9, two_port, "a.test")),
        ("a.test", 60, address("127.0.0.1")),
    ]);
    let door = door_to(&dns, "", "web.test", 9, "").await;
    for _ in 0..5 {
        assert_eq!(
            door.get("a.test", "/").await.expect(200).json()["name"],
            "one"
        );
    }
    drop(one);
    assert_eq!(
        door.get("a.test", "/").await.expect(200).json()["name"],
        "two"
    );
}

#[tokio::test]
async fn an_address_that_cannot_be_reached_gives_way_to_the_next_without_retries() {
    let dns = NameServer::start().await;
    let one = named("one").await;
    // Nobody listens on the other two.
    dns.set(&[
        ("web.test", 60, address("127.0.0.9")),
        ("web.test", 60, address("::1")),
        ("web.test", 60, address("127.0.0.1")),
    ]);
    let port = one.address().port();
    let door = door_to(&dns, "", "web.test", port, ", retries: 1").await;
    for _ in 0..12 {
        door.get("a.test", "/").await.expect(200);
    }
}

#[tokio::test]
async fn a_server_that_leaves_questions_unanswered_is_waited_for_no_longer_than_the_client() {
    let dns = NameServer::start().await;
    dns.turn(Mood::Silent);
    let fields = ", retries: 0, connect_timeout: 300";
    let door = door_to(&dns, "", "web.test", 80, fields).await;
    let answer = door.get("a.test", "/").await.expect(503);
    assert_eq!(answer.json()["message"], "name resolution failed");
}

#[tokio::test]
async fn a_target_with_srv_records_is_each_of_its_addresses() {
    let dns = NameServer::start().await;
    let (one, two) = (named("one").await, named("two").await);
    let (one_port, two_port) = (one.address().port(), two.address().port());
    dns.set(&[
        ("web.test", 60, Record::Service(1, 1, one_port, "a.test")),
        ("web.test", 60, Record::Service(1, 1, two_port, "a.test")),
        ("a.test", 60, address("127.0.0.1")),
    ]);
    let door = Setup::new().proxy(&dns.section("")).start().await;
    let made = door
        .admin_post("/upstreams", &json!({"name": "pool"}))
        .await;
    made.expect(201);
    let target = json!({"target": "web.test:80"});
    door.admin_post("/upstreams/pool/targets", &target)
        .await
        .expect(201);
    door.expose("web", "http://pool", "a.test").await;
    answers(&door, "one").await;
    answers(&door, "two").await;
}
