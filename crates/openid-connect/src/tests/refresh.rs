//! Sessions whose tokens were refreshed: nothing is lost, whatever became of the
//! request.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use tokio::sync::Notify;

use super::browser::{Browser, location};
use super::server_side_sessions::{Node, is_out, logout_token, posted};
use super::*;

fn with_sessions_in(storage: &str, mut config: Value) -> Value {
    config["session_storage"] = json!(storage);
    config
}

/// Signs in at a node whose sessions are in `storage`, and lets the access token
/// end.
async fn ended(storage: &str, config: Value) -> (Node, Browser) {
    let node = Node::new(with_sessions_in(storage, config)).await;
    let browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(300_000);
    (node, browser)
}

/// That the tokens of the one refresh are there, and are the browser's: the spent
/// refresh token is not shown again when nobody remembers any more.
async fn are_kept(node: &Node, browser: &mut Browser) {
    assert_eq!(node.provider.asked("refresh_token"), 1);
    node.world.clock.advance(61_000);
    let outcome = browser.get(&node.world, "/orders").await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(node.provider.asked("refresh_token"), 1);
}

#[tokio::test]
async fn refreshed_tokens_are_kept_although_userinfo_fails() {
    for storage in ["cookie", "store"] {
        let config = json!({"search_user_info": true,
            "userinfo_endpoint": "http://id.test/oauth2/userinfo"});
        let up = Arc::new(AtomicBool::new(true));
        let node = Node::new(with_sessions_in(storage, config)).await;
        let told = Arc::clone(&up);
        let userinfo = move || {
            let up = told.load(Ordering::SeqCst);
            async move {
                if up {
                    Ok(Json(json!({"sub": "anna"})))
                } else {
                    Err(StatusCode::SERVICE_UNAVAILABLE)
                }
            }
        };
        let router = node.world.issuer.router().merge(node.provider.router());
        let router = router.route("/oauth2/userinfo", get(userinfo));
        let base = Url::parse("http://id.test").unwrap();
        node.world.parts.outbound.register_local(&base, router);
        let mut browser = Browser::signed_in(&node.world).await;
        node.world.clock.advance(300_000);
        up.store(false, Ordering::SeqCst);
        let outcome = browser.get(&node.world, "/orders").await;
        assert_eq!(outcome.code(), (500, "provider_error"), "{storage}");
        up.store(true, Ordering::SeqCst);
        are_kept(&node, &mut browser).await;
    }
}

#[tokio::test]
async fn refreshed_tokens_are_kept_although_they_lack_what_a_route_requires() {
    for storage in ["cookie", "store"] {
        let (node, mut browser) = ended(storage, json!({})).await;
        let admin = node.with(with_sessions_in(
            storage,
            json!({"scopes_required": ["admin"], "forbidden_destroy_session": false}),
        ));
        let outcome = browser.get(&admin, "/orders").await;
        assert_eq!(outcome.code(), (403, "missing_scope"), "{storage}");
        are_kept(&node, &mut browser).await;
    }
}

#[tokio::test]
async fn a_refusal_ends_the_session_as_well_where_a_redirect_takes_its_place() {
    for (rule, redirect, ends) in [
        (json!({"scopes_required": ["admin"]}), "forbidden", true),
        (json!({"consumer_claims": [["sub"]]}), "forbidden", true),
        (json!({"consumer_claims": [["sub"]]}), "forbidden", false),
        (
            json!({"consumer_claims": [["sub"]], "anonymous": "nobody"}),
            "unauthorized",
            true,
        ),
    ] {
        let node = Node::new(json!({})).await;
        let mut browser = Browser::signed_in(&node.world).await;
        let mut config = with_sessions_in("store", rule.clone());
        config[format!("{redirect}_redirect_uri")] = json!(["https://app.test/no"]);
        config[format!("{redirect}_destroy_session")] = json!(ends);
        let outcome = browser.get(&node.with(config), "/orders").await;
        assert_eq!(location(&outcome), "https://app.test/no", "{rule}");
        assert_eq!(browser.0.contains_key("session"), !ends, "{rule}");
    }
}

#[tokio::test]
async fn a_session_that_a_refusal_ends_is_not_given_out_again() {
    let (node, mut browser) = ended("cookie", json!({})).await;
    let admin = node.with(with_sessions_in(
        "cookie",
        json!({"scopes_required": ["admin"]}),
    ));
    let outcome = browser.get(&admin, "/orders").await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
    assert!(!browser.0.contains_key("session"));
    let words = &outcome.exchange.response_headers;
    let words = words.iter().filter(|(name, _)| name == "set-cookie");
    assert_eq!(words.count(), 1, "{:?}", outcome.exchange.response_headers);
}

#[tokio::test]
async fn refreshed_tokens_are_kept_although_they_are_the_answer() {
    for storage in ["cookie", "store"] {
        let config = json!({"login_action": "response", "login_methods": ["session"]});
        let (node, mut browser) = ended(storage, config).await;
        let outcome = browser.get(&node.world, "/orders").await;
        assert_eq!(outcome.reply.as_ref().expect("tokens").status, 200);
        assert_eq!(node.provider.asked("refresh_token"), 1);
        node.world.clock.advance(61_000);
        let outcome = browser.get(&node.world, "/orders").await;
        assert_eq!(outcome.reply.as_ref().expect("tokens").status, 200);
        assert_eq!(node.provider.asked("refresh_token"), 1, "{storage}");
    }
}

#[tokio::test]
async fn what_a_refreshed_id_token_leaves_out_stays_with_the_session() {
    for storage in ["cookie", "store"] {
        let config = json!({"upstream_headers_claims": ["email"],
            "upstream_headers_names": ["x-email"]});
        let node = Node::new(with_sessions_in(storage, config)).await;
        *node.provider.twist.lock().unwrap() = json!({"sid": "s-1"});
        let mut browser = Browser::signed_in(&node.world).await;
        *node.provider.twist.lock().unwrap() = json!({"email": null});
        for _ in 0..2 {
            node.world.clock.advance(300_000);
            let outcome = browser.get(&node.world, "/orders").await;
            assert_eq!(outcome.code(), (200, "pass"));
            assert_eq!(outcome.upstream("x-email"), Some("anna@b.c"), "{storage}");
        }
        let now = node.world.clock.now_secs();
        let token = logout_token(&node, json!({"iat": now, "exp": now + 120}));
        let request = posted(&format!("logout_token={token}"));
        let outcome = node.world.ask(&request).await;
        assert_eq!(outcome.code(), (200, "provider_logout"));
        assert!(is_out(&browser, &node.world).await, "{storage}");
    }
}

/// Holds the provider's next answer back until it shall go, and says when it was
/// asked for one; with `refuses` it is a refusal.
pub(super) fn hold_back(node: &Node, refuses: bool) -> (Arc<Notify>, Arc<Notify>) {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signs = (Arc::clone(&asked), Arc::clone(&go));
    let first = Arc::new(AtomicBool::new(true));
    let hold = move |request: Request, next: Next| {
        let (asked, go) = signs.clone();
        let first = first.swap(false, Ordering::SeqCst);
        async move {
            if first {
                asked.notify_one();
                go.notified().await;
            }
            if first && refuses {
                let refusal = Json(json!({"error": "invalid_grant"}));
                return (StatusCode::BAD_REQUEST, refusal).into_response();
            }
            next.run(request).await
        }
    };
    let router = node.provider.router().layer(from_fn(hold));
    let router = node.world.issuer.router().merge(router);
    let base = Url::parse("http://id.test").unwrap();
    node.world.parts.outbound.register_local(&base, router);
    (asked, go)
}

/// Shows one session to a node, and to another world while its refresh takes so
/// many milliseconds: that waits, and both pass.
async fn one_waits_for_the_other(node: &Node, other: &World, request: &str, takes: i64) {
    let (asked, go) = hold_back(node, false);
    let others = async {
        asked.notified().await;
        node.world.clock.advance(takes);
        let mut asks = Box::pin(other.ask(request));
        let while_it_takes = std::time::Duration::from_millis(400);
        let waits = tokio::time::timeout(while_it_takes, &mut asks).await;
        assert!(waits.is_err(), "it waits for the first one");
        go.notify_one();
        asks.await
    };
    let (outcome, others) = tokio::join!(node.world.ask(request), others);
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(others.code(), (200, "pass"));
}

#[tokio::test]
async fn a_refresh_that_takes_its_time_is_not_made_by_another_node_as_well() {
    let (node, browser) = ended("store", json!({"timeout": 10_000})).await;
    let other = node.other().await;
    // The token call and the keys may take as long as that.
    one_waits_for_the_other(&node, &other, &browser.request("/orders"), 19_000).await;
    assert_eq!(node.provider.asked("refresh_token"), 1);
}

#[tokio::test]
async fn a_refresh_that_comes_too_late_goes_on_with_what_another_node_has_got() {
    let (node, browser) = ended("store", json!({})).await;
    let other = node.other().await;
    let (asked, go) = hold_back(&node, true);
    let request = browser.request("/orders");
    let others = async {
        asked.notified().await;
        node.world.clock.advance(100_000);
        let outcome = other.ask(&request).await;
        assert_eq!(outcome.code(), (200, "pass"), "the lock was over");
        go.notify_one();
    };
    let (outcome, ()) = tokio::join!(node.world.ask(&request), others);
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(node.provider.asked("refresh_token"), 1);
}

#[tokio::test]
async fn a_page_that_calls_two_plugins_at_once_does_not_show_its_refresh_token_twice() {
    let (node, browser) = ended("cookie", json!({})).await;
    let second = node.with(with_sessions_in("cookie", json!({"scopes": ["openid"]})));
    let request = browser.request("/orders");
    one_waits_for_the_other(&node, &second, &request, 0).await;
    // What takes the place of a plugin knows of it, too.
    let changed = node.with(with_sessions_in("cookie", json!({"timeout": 9_000})));
    assert_eq!(changed.ask(&request).await.code(), (200, "pass"));
    assert_eq!(node.provider.asked("refresh_token"), 1);
}
