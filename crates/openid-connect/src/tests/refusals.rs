//! Sessions whose tokens are not refreshed.

use super::browser::Browser;
use super::server_side_sessions::{Node, is_out};
use super::*;
use doorward_core::model::login::LoginQuery;

/// Signs in, and lets the access token end.
async fn ended(storage: &str) -> (Node, Browser) {
    let node = Node::new(json!({"session_storage": storage})).await;
    let browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(300_000);
    (node, browser)
}

fn refuse(node: &Node, status: usize, body: Value) {
    node.provider.refuses.store(status, Ordering::SeqCst);
    *node.provider.refusal.lock().unwrap() = body;
}

#[tokio::test]
async fn a_refresh_that_is_refused_ends_the_session_whatever_the_words() {
    for (status, body) in [
        (400, json!({"error": "interaction_required"})),
        (400, json!({"error": "unauthorized_client"})),
        (401, json!({"error": "access_denied"})),
        (403, json!("<html>")),
        (200, json!({"error": "bad_refresh_token"})),
    ] {
        for storage in ["cookie", "store"] {
            let (node, mut browser) = ended(storage).await;
            refuse(&node, status, body.clone());
            let outcome = browser.get(&node.world, "/orders").await;
            assert_eq!(outcome.code(), (401, "session_over"), "{body} {storage}");
            assert!(is_out(&browser, &node.world).await, "{body} {storage}");
        }
    }
}

#[tokio::test]
async fn a_refresh_that_is_refused_for_the_gateways_sake_or_put_off_ends_no_session() {
    for (status, body, code) in [
        (401, json!({"error": "invalid_client"}), "client_refused"),
        (429, json!({"error": "slow_down"}), "provider_error"),
        (503, json!({}), "provider_error"),
        // What stands before a provider that is changed over may say so.
        (404, json!("<html>"), "provider_malformed"),
        (200, json!("<html>"), "provider_malformed"),
    ] {
        for storage in ["cookie", "store"] {
            let (node, mut browser) = ended(storage).await;
            refuse(&node, status, body.clone());
            let outcome = browser.get(&node.world, "/orders").await;
            assert_eq!(outcome.code(), (500, code), "{storage}");
            refuse(&node, 0, json!({}));
            let outcome = browser.get(&node.world, "/orders").await;
            assert_eq!(outcome.code(), (200, "pass"), "{code} {storage}");
        }
    }
}

#[tokio::test]
async fn a_session_that_ended_elsewhere_does_not_last_until_its_token_ends() {
    for refreshes in [true, false] {
        let node = Node::new(json!({"leeway": 60, "refresh_tokens": refreshes})).await;
        let mut browser = Browser::signed_in(&node.world).await;
        let other = node.other().await;
        node.world.clock.advance(239_000);
        let outcome = browser.get(&other, "/orders").await;
        assert_eq!(outcome.code(), (200, "pass"));
        if refreshes {
            assert_eq!(node.ended_by(LoginQuery::default()).await, 1);
        }
        node.world.clock.advance(2_000);
        let outcome = browser.get(&other, "/orders").await;
        match outcome.code() {
            // The refresh finds the end, or the node has heard of it before.
            (401, "session_over") | (302, "login") => assert!(refreshes),
            code => assert_eq!(
                (code, refreshes),
                ((200, "pass"), false),
                "the token is good"
            ),
        }
    }
}
