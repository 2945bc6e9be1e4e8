//! Browsers that are remembered after they were closed (`session_remember`).

use http::header::SET_COOKIE;

use super::browser::Browser;
use super::server_side_sessions::{Node, is_out, logout_token, posted};
use super::*;
use doorward_core::model::login::LoginQuery;

const STORAGES: [&str; 2] = ["cookie", "store"];

async fn node(storage: &str, more: Value) -> Node {
    let mut config = json!({"session_storage": storage, "session_remember": true});
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    Node::new(config).await
}

/// What is left when a browser is closed.
fn closed(browser: &Browser) -> Browser {
    let mut left = browser.clone();
    left.0.retain(|name, _| name.starts_with("remember"));
    assert!(!left.0.is_empty());
    left
}

async fn passes(browser: &mut Browser, world: &World) {
    let outcome = browser.get(world, "/orders").await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream("cookie"), None);
    assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
}

#[tokio::test]
async fn a_browser_that_was_closed_has_a_session_again() {
    for storage in STORAGES {
        let node = node(storage, json!({})).await;
        let world = &node.world;
        let mut first = Browser::default();
        let back = first.begin(world, "/orders").await;
        let outcome = first.get(world, &back).await;
        let given = outcome.exchange.response_headers.iter();
        let given: Vec<_> = given
            .filter(|(name, _)| name == SET_COOKIE)
            .map(|(_, value)| value.to_str().unwrap())
            .collect();
        let lasting = |name: &str| {
            let field = given.iter().find(|field| field.starts_with(name));
            let field = field.expect("a cookie");
            assert!(field.contains("; SameSite=Lax; HttpOnly"), "{field}");
            field.ends_with("; Max-Age=604800")
        };
        assert!(lasting("remember=") && !lasting("session="));
        for away in [60_000, 2 * 3_600_000, 3 * 86_400_000] {
            world.clock.advance(away);
            let mut again = closed(&first);
            passes(&mut again, world).await;
            assert_ne!(again.0["session"], first.0["session"], "{storage}");
            assert_ne!(again.0["remember"], first.0["remember"]);
            // The session is one of its own.
            let mut alone = again.clone();
            alone.0.retain(|name, _| name.starts_with("session"));
            passes(&mut alone, world).await;
            first = again;
        }
        // One whose browser has kept its cookie, too.
        world.clock.advance(2 * 3_600_000);
        passes(&mut first, world).await;
        passes(&mut first, world).await;
    }
}

#[tokio::test]
async fn nobody_is_remembered_unless_it_is_configured() {
    for storage in STORAGES {
        let node = Node::new(json!({"session_storage": storage})).await;
        let browser = Browser::signed_in(&node.world).await;
        assert!(!browser.0.contains_key("remember"));
        node.world.clock.advance(2 * 3_600_000);
        assert!(is_out(&browser, &node.world).await);
    }
}

#[tokio::test]
async fn a_browser_is_forgotten_when_its_timeouts_are_over() {
    for storage in STORAGES {
        let timeouts = json!({"session_remember_rolling_timeout": 10_000,
            "session_remember_absolute_timeout": 25_000, "session_remember_cookie_name": "keep"});
        let node = node(storage, timeouts).await;
        let world = &node.world;
        let mut browser = Browser::signed_in(world).await;
        let close = |browser: &mut Browser| {
            browser.0.retain(|name, _| name.starts_with("keep"));
        };
        let mut idle = browser.clone();
        for _ in 0..3 {
            world.clock.advance(8_000_000);
            close(&mut browser);
            passes(&mut browser, world).await;
        }
        idle.get(world, "/orders").await;
        assert!(idle.0.keys().all(|name| name.starts_with("authorization")));
        world.clock.advance(1_000_000);
        close(&mut browser);
        assert!(is_out(&browser, world).await, "{storage}: absolute");
    }
}

#[tokio::test]
async fn use_of_the_session_keeps_its_browser_remembered() {
    for storage in STORAGES {
        let timeouts = json!({"session_remember_rolling_timeout": 4_000});
        let node = node(storage, timeouts).await;
        let mut browser = Browser::signed_in(&node.world).await;
        let first = browser.0["remember"].clone();
        for _ in 0..3 {
            node.world.clock.advance(3_000_000);
            passes(&mut browser, &node.world).await;
        }
        assert_ne!(browser.0["remember"], first);
        node.world.clock.advance(3_900_000);
        passes(&mut closed(&browser), &node.world).await;
    }
}

#[tokio::test]
async fn a_logout_ends_what_a_browser_is_remembered_by_and_every_copy() {
    for storage in STORAGES {
        for with_session in [true, false] {
            let node = node(storage, json!({"logout_uri_suffix": "/logout"})).await;
            for target in ["/orders?logout=1", "/orders/logout"] {
                let first = Browser::signed_in(&node.world).await;
                let mut browser = closed(&first);
                passes(&mut browser, &node.world).await;
                let copies = [closed(&first), closed(&browser), browser.clone()];
                if !with_session {
                    browser = closed(&browser);
                }
                let outcome = browser.get(&node.world, target).await;
                assert_eq!(
                    outcome.reply.as_ref().map(|reply| reply.status.as_u16()),
                    Some(200)
                );
                assert!(
                    browser.0.is_empty(),
                    "{storage} {browser:?}",
                    browser = browser.0
                );
                for copy in copies {
                    assert!(is_out(&copy, &node.world).await, "{storage} {with_session}");
                }
                assert_eq!(node.provider.asked("revoke"), 0);
                node.world.clock.advance(1);
            }
        }
    }
}

#[tokio::test]
async fn what_ends_sessions_from_elsewhere_ends_what_browsers_are_remembered_by() {
    for storage in STORAGES {
        for how in ["back-channel", "subject", "client", "name"] {
            let node = node(storage, json!({"session_response_headers": ["id"]})).await;
            let world = &node.world;
            *node.provider.twist.lock().unwrap() = json!({"sid": "s-1"});
            let first = Browser::signed_in(world).await;
            world.clock.advance(2 * 3_600_000);
            let mut browser = closed(&first);
            let outcome = browser.get(world, "/orders").await;
            assert_eq!(outcome.code(), (200, "pass"));
            let outcome = browser.get(world, "/orders").await;
            let told = outcome.exchange.response_headers.iter();
            let id = told.clone().find(|(name, _)| name == "session-id");
            let id = id.expect("a name").1.to_str().unwrap().to_owned();
            let query = LoginQuery::default();
            match how {
                "back-channel" => {
                    let now = world.clock.now_secs();
                    let token = logout_token(&node, json!({"iat": now, "exp": now + 60}));
                    let outcome = world.ask(&posted(&format!("logout_token={token}"))).await;
                    assert_eq!(outcome.reply.expect("an answer").status, 200);
                }
                "subject" => {
                    let subjects = crate::subjects("anna");
                    node.ended_by(LoginQuery { subjects, ..query }).await;
                }
                "client" => {
                    let client_id = Some("gateway".to_owned());
                    node.ended_by(LoginQuery { client_id, ..query }).await;
                }
                _ => {
                    let id = Some(id);
                    node.ended_by(LoginQuery { id, ..query }).await;
                }
            }
            for copy in [closed(&first), closed(&browser), browser] {
                assert!(is_out(&copy, world).await, "{storage} {how}");
            }
            // And stays so.
            world.clock.advance(86_400_000);
            assert!(is_out(&closed(&first), world).await, "{storage} {how}");
        }
    }
}

#[tokio::test]
async fn what_ends_a_remembered_session_is_known_as_long_as_its_copies_may_last() {
    const FORTNIGHT: i64 = 14 * 86_400_000;
    let node = node("cookie", json!({})).await;
    let now_ms = node.world.clock.now_ms();
    let mut browser = Browser::signed_in(&node.world).await;
    browser.get(&node.world, "/orders?logout=1").await;
    let subjects = crate::subjects("anna");
    let query = LoginQuery::default();
    node.ended_by(LoginQuery { subjects, ..query }).await;
    let marks = doorward_store::Store::session_tombstones(&node.store, 0, 10).await;
    let marks = marks.expect("marks");
    assert_eq!(marks[0].1.until_ms, now_ms + FORTNIGHT);
    assert!(
        marks.len() > 1
            && marks
                .iter()
                .all(|(_, mark)| mark.until_ms >= now_ms + FORTNIGHT)
    );
}

#[tokio::test]
async fn what_was_changed_cut_swapped_or_made_elsewhere_is_nothing_to_be_remembered_by() {
    for storage in STORAGES {
        let node = node(storage, json!({})).await;
        let browser = Browser::signed_in(&node.world).await;
        let good = browser.0["remember"].clone();
        let foreign = node.with(json!({"session_storage": storage, "session_remember": true,
            "session_audience": "other"}));
        assert!(is_out(&closed(&browser), &foreign).await);
        for bad in [
            format!("{good}A"),
            good[..good.len() - 4].to_owned(),
            good[1..].to_owned(),
            format!("2{}", &good[1..]),
            good.replacen(&good[40..44], "AAAA", 1),
            browser.0["session"].clone(),
            "1".to_owned(),
            "1".to_owned() + &"x".repeat(20_000),
        ] {
            let mut shown = Browser::default();
            shown.0.insert("remember".to_owned(), bad.clone());
            shown.get(&node.world, "/orders").await;
            let only = shown.0.keys().all(|name| name.starts_with("authorization"));
            assert!(only, "{storage}: it is forgotten: {bad}");
            assert!(is_out(&shown, &node.world).await);
        }
        let mut swapped = Browser::default();
        swapped.0.insert("session".to_owned(), good);
        assert!(is_out(&swapped, &node.world).await, "{storage}");
        passes(&mut closed(&browser), &node.world).await;
    }
}

#[tokio::test]
async fn a_session_that_was_ended_is_not_begun_anew() {
    for storage in STORAGES {
        let node = node(storage, json!({})).await;
        let mut browser = Browser::signed_in(&node.world).await;
        let copy = browser.clone();
        browser.get(&node.world, "/orders?logout=1").await;
        // Both cookies of it, and only the lasting one.
        assert!(is_out(&copy, &node.world).await);
        assert!(is_out(&closed(&copy), &node.world).await);
        let mut copy = copy;
        copy.get(&node.world, "/orders").await;
        assert!(!copy.0.contains_key("session") && !copy.0.contains_key("remember"));
    }
}

#[tokio::test]
async fn fifty_requests_on_two_nodes_begin_one_session_anew() {
    let node = node("store", json!({})).await;
    let other = node.other().await;
    let browser = Browser::signed_in(&node.world).await;
    node.world.clock.advance(2 * 3_600_000);
    let request = closed(&browser).request("/orders");
    let asks = (0..50).map(|n| match n % 2 {
        0 => node.world.ask(&request),
        _ => other.ask(&request),
    });
    let mut handles = std::collections::BTreeSet::new();
    for outcome in futures_util::future::join_all(asks).await {
        assert_eq!(outcome.code(), (200, "pass"));
        let mut browser = Browser::default();
        browser.take(&outcome);
        handles.insert(browser.0["session"].clone());
    }
    assert_eq!(handles.len(), 1);
    assert_eq!(node.provider.asked("refresh_token"), 1);
    assert_eq!(node.rows().await.len(), 2, "the old one, for a while");
    // After that the old cookie is a copy, and of no use.
    node.world.clock.advance(30_000);
    assert!(is_out(&closed(&browser), &node.world).await);
}

#[tokio::test]
async fn who_comes_back_when_the_tokens_have_ended_signs_in() {
    for storage in STORAGES {
        let node = node(storage, json!({})).await;
        let browser = Browser::signed_in(&node.world).await;
        node.world.clock.advance(2 * 3_600_000);
        node.provider.refuses.store(503, Ordering::SeqCst);
        let mut again = closed(&browser);
        let outcome = again.get(&node.world, "/orders").await;
        assert_eq!(outcome.code(), (500, "provider_error"), "it may be back");
        node.provider.refuses.store(400, Ordering::SeqCst);
        let mut again = closed(&again);
        let back = again.begin(&node.world, "/orders").await;
        assert!(!again.0.contains_key("session") && !again.0.contains_key("remember"));
        assert_eq!(again.get(&node.world, &back).await.code(), (200, "pass"));
    }
}

#[tokio::test]
async fn a_session_bound_to_an_agent_is_not_begun_anew_by_another() {
    for storage in STORAGES {
        let node = node(storage, json!({"session_bind": ["user-agent"]})).await;
        let browser = Browser::signed_in(&node.world).await;
        let request = closed(&browser).request("/orders");
        let other = request.replace("Cookie:", "User-Agent: other\r\nCookie:");
        let outcome = node.world.ask(&other).await;
        assert_eq!(outcome.code(), (302, "login"), "{storage}");
        assert_eq!(node.world.ask(&request).await.code(), (200, "pass"));
    }
}

#[tokio::test]
async fn what_browsers_cannot_keep_is_refused_by_name() {
    let node = node("cookie", json!({})).await;
    *node.provider.padding.lock().unwrap() = "x".repeat(40_000);
    let mut browser = Browser::default();
    let back = browser.begin(&node.world, "/orders").await;
    let outcome = browser.get(&node.world, &back).await;
    assert_eq!(outcome.code(), (500, "session_too_big"));
    *node.provider.padding.lock().unwrap() = "x".repeat(20_000);
    let browser = Browser::signed_in(&node.world).await;
    let pieces = browser.0.keys().filter(|name| name.starts_with("remember"));
    assert!(pieces.count() > 5);
    node.world.clock.advance(2 * 3_600_000);
    passes(&mut closed(&browser), &node.world).await;
}

#[tokio::test]
async fn a_name_of_other_cookies_is_refused() {
    let world = World::new(json!({}));
    for name in ["session", "session2", "authorization", "a b"] {
        let config = super::browser::complete(json!({"session_remember": true,
            "session_remember_cookie_name": name}));
        let error = filter(&world.parts, config).err().expect("refused");
        assert_eq!(error.field, "session_remember_cookie_name", "{name}");
    }
}
