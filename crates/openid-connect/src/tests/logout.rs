//! Logouts that meet trouble: of the storage, of the provider, of both.

use super::browser::{Browser, location};
use super::refresh::hold_back;
use super::server_side_sessions::{Node, is_out, logout_token, posted};
use super::*;
use doorward_net::shared::testing::Server;

#[tokio::test]
async fn a_copy_is_of_no_use_while_the_provider_revokes() {
    for storage in ["cookie", "store"] {
        let config = json!({"session_storage": storage, "logout_revoke": true,
            "logout_redirect_uri": ["https://app.test/bye"]});
        let node = Node::new(config).await;
        let mut browser = Browser::signed_in(&node.world).await;
        let copy = browser.clone();
        let (asked, go) = hold_back(&node, false);
        let meanwhile = async {
            asked.notified().await;
            assert!(is_out(&copy, &node.world).await, "{storage}");
            go.notify_one();
        };
        let logout = browser.get(&node.world, "/orders?logout=1");
        let (outcome, ()) = tokio::join!(logout, meanwhile);
        assert_eq!(location(&outcome), "https://app.test/bye");
        assert!(!browser.0.contains_key("session"));
    }
}

#[tokio::test]
async fn a_logout_without_the_storage_is_told_so_and_can_be_asked_for_again() {
    let mut node = Node::new(json!({})).await;
    let mut browser = Browser::signed_in(&node.world).await;
    let copy = browser.clone();
    // A node that has nothing in memory, and no store either.
    let mut parts = node.world.parts.clone();
    parts.slots = parts.slots.copy();
    parts.slots.put(Arc::<Storages>::default());
    let lost = filter(&parts, node.config.clone()).expect("valid");
    let found = std::mem::replace(&mut node.world.filter, lost);
    let outcome = browser.get(&node.world, "/orders?logout=1").await;
    assert_eq!(outcome.code(), (503, "session_store_unavailable"));
    assert!(browser.0.contains_key("session"), "to come again with it");
    node.world.filter = found;
    let outcome = browser.get(&node.world, "/orders?logout=1").await;
    assert_eq!(outcome.reply.as_ref().expect("an answer").status, 200);
    assert!(!browser.0.contains_key("session"));
    assert!(is_out(&copy, &node.world).await);
    assert!(node.rows().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_while_a_redis_hangs_is_done_when_it_is_asked_for_again() {
    let server = Server::start();
    let node = Node::new(
        json!({"session_storage": "redis", "session_redis_port": server.port,
        "session_redis_read_timeout": 1000, "session_redis_send_timeout": 1000,
        "session_redis_connect_timeout": 10_000}),
    )
    .await;
    // The server measures by a clock of its own.
    let now_ms = Clock::system().now_ms();
    node.world.clock.advance(now_ms - NOW * 1000);
    let mut browser = Browser::signed_in(&node.world).await;
    let copy = browser.clone();
    assert!(!is_out(&copy, &node.world).await);
    server.freeze(true);
    // What was read of it is in memory; that it has ended can't be written.
    let outcome = browser.get(&node.world, "/orders?logout=1").await;
    assert_eq!(outcome.code(), (503, "session_store_unavailable"));
    assert!(browser.0.contains_key("session"));
    server.freeze(false);
    let outcome = browser.get(&node.world, "/orders?logout=1").await;
    assert_eq!(outcome.reply.as_ref().expect("an answer").status, 200);
    let other = node.other().await;
    assert!(is_out(&copy, &other).await, "nowhere is it left");
}

#[tokio::test]
async fn a_logout_of_a_user_that_comes_again_ends_nothing_that_began_since() {
    for storage in ["cookie", "store"] {
        let node = Node::new(json!({"session_storage": storage})).await;
        let before = Browser::signed_in(&node.world).await;
        let told = |id: &str| {
            let of_user = json!({"jti": id, "sid": null, "sub": "anna"});
            posted(&format!("logout_token={}", logout_token(&node, of_user)))
        };
        // Asked for now, heard when she has signed in again.
        node.world.clock.advance(30_000);
        let since = Browser::signed_in(&node.world).await;
        let outcome = node.world.ask(&told("j-1")).await;
        assert_eq!(outcome.code(), (200, "provider_logout"));
        assert!(is_out(&before, &node.world).await, "{storage}");
        assert!(!is_out(&since, &node.world).await, "{storage}");
        assert_eq!(node.rows().await.len(), usize::from(storage == "store"));
        let now = node.world.clock.now_secs();
        let of_now = json!({"jti": "j-2", "sid": null, "sub": "anna", "iat": now,
            "exp": now + 120});
        let request = posted(&format!("logout_token={}", logout_token(&node, of_now)));
        assert_eq!(node.world.ask(&request).await.code().0, 200);
        assert!(is_out(&since, &node.world).await, "{storage}");
    }
}

#[tokio::test]
async fn a_body_asks_for_a_logout_by_the_name_alone() {
    let form = "application/x-www-form-urlencoded";
    let config = json!({"logout_post_arg": "logout", "logout_methods": ["POST"]});
    let (world, _) = super::browser::world(config);
    for (media_type, body, is_out) in [
        (form, "logout=", true),
        (form, "a=b&logout", true),
        (form, "logout=1&logout=2", true),
        (form, "a=logout&logouts=1", false),
        ("application/json", r#"{"logout": true}"#, true),
        ("application/json", r#"{"logout": null}"#, true),
        ("application/json", r#"{"logout": {}}"#, true),
        ("application/json", r#"{"logout": ""}"#, true),
        ("application/json", r#"{"a": {"logout": true}}"#, false),
        ("application/json", r#"["logout"]"#, false),
    ] {
        let length = body.len();
        let more = format!("Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n{body}");
        let mut browser = Browser::signed_in(&world).await;
        let request = browser.request("/orders").replace("GET ", "POST ");
        let request = format!("{}\r\n{more}", request.trim_end_matches("\r\n"));
        let outcome = world.ask(&request).await;
        browser.take(&outcome);
        assert_eq!(outcome.reply.is_some(), is_out, "{body}");
        assert_eq!(browser.0.contains_key("session"), !is_out, "{body}");
    }
}

/// The refresh tokens that the provider was told to revoke.
fn revoked(node: &Node) -> Vec<String> {
    let asked = node.provider.asked.lock().unwrap();
    let of_refresh = asked.iter().filter(|form| {
        let hint = form.get("token_type_hint");
        hint.is_some_and(|hint| hint == "refresh_token")
    });
    of_refresh.map(|form| form["token"].clone()).collect()
}

#[tokio::test]
async fn a_logout_revokes_the_tokens_that_another_node_has_got() {
    let config = json!({"logout_revoke": true, "logout_revoke_refresh_token": true});
    let node = Node::new(config).await;
    let other = node.with(json!({"leeway": 20}));
    let mut browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(280_000);
    assert!(!is_out(&browser, &node.world).await);
    node.world.clock.advance(5_000);
    assert!(!is_out(&browser, &other).await);
    assert_eq!(node.provider.asked("refresh_token"), 1);
    browser.get(&node.world, "/orders?logout=1").await;
    assert_eq!(revoked(&node), ["r1"]);
}

#[tokio::test]
async fn tokens_that_come_when_their_user_has_signed_out_are_revoked() {
    let config = json!({"logout_revoke": true, "logout_revoke_refresh_token": true});
    let node = Node::new(config).await;
    let other = node.other().await;
    let browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(300_000);
    let (asked, go) = hold_back(&node, false);
    let request = browser.request("/orders");
    let leaves = async {
        asked.notified().await;
        browser.clone().get(&other, "/orders?logout=1").await;
        go.notify_one();
    };
    let (outcome, ()) = tokio::join!(node.world.ask(&request), leaves);
    assert_ne!(outcome.code(), (200, "pass"));
    assert_eq!(revoked(&node), ["r0", "r1"]);
}

/// A node whose sessions are in a Redis, at the time of that, and another one
/// with a store of its own: it learns by the Redis alone what has ended.
async fn apart(server: &Server, config: Value) -> (Node, World) {
    let mut config = config;
    config["session_storage"] = json!("redis");
    config["session_redis_port"] = json!(server.port);
    for name in ["connect", "read", "send"] {
        config[format!("session_redis_{name}_timeout")] = json!(10_000);
    }
    let node = Node::new(config).await;
    let now_ms = Clock::system().now_ms();
    node.world.clock.advance(now_ms - NOW * 1000);
    let mut other = node.other().await;
    other.parts.slots = other.parts.slots.copy();
    other.parts.slots.put(Arc::<Storages>::default());
    other.filter = filter(&other.parts, node.config.clone()).expect("valid");
    (node, other)
}

async fn told_by_the_provider(node: &Node) {
    let now = node.world.clock.now_secs();
    let of_user = json!({"sid": null, "sub": "anna", "iat": now, "exp": now + 120});
    let request = posted(&format!("logout_token={}", logout_token(node, of_user)));
    let outcome = node.world.ask(&request).await;
    assert_eq!(outcome.code(), (200, "provider_logout"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_keeps_no_session_that_the_provider_has_ended_elsewhere() {
    let server = Server::start();
    let (node, other) = apart(&server, json!({"session_idling_timeout": 100})).await;
    let browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(2_000);
    assert!(!is_out(&browser, &other).await);
    told_by_the_provider(&node).await;
    // It is renewed now, and was read less than five seconds ago.
    node.world.clock.advance(4_000);
    other.ask(&browser.request("/orders")).await;
    node.world.clock.advance(2_000);
    assert!(is_out(&browser, &other).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_keeps_no_session_that_the_provider_has_ended_meanwhile() {
    let server = Server::start();
    let (node, other) = apart(&server, json!({})).await;
    let browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(300_000);
    let (asked, go) = hold_back(&node, false);
    let request = browser.request("/orders");
    let ends = async {
        asked.notified().await;
        told_by_the_provider(&node).await;
        go.notify_one();
    };
    let (outcome, ()) = tokio::join!(other.ask(&request), ends);
    assert_ne!(outcome.code(), (200, "pass"));
    assert_eq!(node.provider.asked("refresh_token"), 1);
}
