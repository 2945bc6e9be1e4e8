//! Sessions of callers who showed a credential of their own.

use super::browser::Browser;
use super::introspection::{basic_of, world};
use super::server_side_sessions::Node;
use super::token_set::with_endpoints;
use super::*;

/// What a caller shows in its first request.
pub(super) fn authorization(value: &str) -> String {
    get_with(&format!("Authorization: {value}"))
}

pub(super) async fn enter(world: &World, request: &str) -> (Browser, Outcome) {
    let mut browser = Browser::default();
    let outcome = world.ask(request).await;
    browser.take(&outcome);
    (browser, outcome)
}

#[tokio::test]
async fn who_shows_a_credential_may_show_the_session_in_its_place() {
    let (world, endpoints) = world(json!({"session_secret": "s"}));
    let jwt = format!("Bearer {}", world.token(json!({})));
    for shown in [
        basic_of("anna", "secret").as_str(),
        &basic_of("batch", "b-secret"),
        &jwt,
        "Bearer good-1",
    ] {
        let (mut browser, outcome) = enter(&world, &authorization(shown)).await;
        assert_eq!(outcome.code(), (200, "pass"), "{shown}");
        assert!(browser.0.contains_key("session"), "{shown}");
        let asked = endpoints.asked().len();
        let outcome = browser.get(&world, "/orders").await;
        assert_eq!(outcome.code(), (200, "pass"), "{shown}");
        assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
        let bearer = outcome.upstream("authorization").unwrap();
        assert!(bearer.starts_with("Bearer "), "{bearer}");
        assert_eq!(outcome.upstream("cookie"), None);
        assert_eq!(endpoints.asked().len(), asked, "{shown}");
    }
}

#[tokio::test]
async fn a_method_that_is_disabled_begins_none() {
    let disabled = json!({"disable_session": ["password", "bearer", "introspection"]});
    let (world, _) = world(disabled);
    let jwt = format!("Bearer {}", world.token(json!({})));
    for shown in [basic_of("anna", "secret").as_str(), &jwt, "Bearer good-1"] {
        let (browser, outcome) = enter(&world, &authorization(shown)).await;
        assert_eq!(outcome.code(), (200, "pass"), "{shown}");
        assert!(browser.0.is_empty(), "{shown}");
    }
    let client = authorization(&basic_of("batch", "b-secret"));
    assert!(!enter(&world, &client).await.0.0.is_empty());
}

#[tokio::test]
async fn without_the_method_session_there_is_none() {
    let (world, _) = world(json!({"auth_methods": ["bearer", "password"]}));
    let shown = authorization(&basic_of("anna", "secret"));
    let (browser, outcome) = enter(&world, &shown).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert!(browser.0.is_empty());
}

#[tokio::test]
async fn callers_who_keep_no_cookies_get_one_session_a_token() {
    for storage in ["cookie", "store"] {
        let node = Node::new(json!({"session_storage": storage})).await;
        let world = &node.world;
        let shown = async |more: Value| {
            let token = world.token(more);
            let (browser, outcome) = enter(world, &authorization(&format!("Bearer {token}"))).await;
            assert_eq!(outcome.code(), (200, "pass"), "{storage}");
            (browser, token)
        };
        let (first, token) = shown(json!({})).await;
        let again = authorization(&format!("Bearer {token}"));
        for _ in 0..3 {
            let (next, _) = enter(world, &again).await;
            assert_eq!(next.0["session"], first.0["session"], "{storage}");
        }
        let (other, _) = shown(json!({"jti": "other"})).await;
        assert_ne!(other.0["session"], first.0["session"], "{storage}");
        // Long before it is over there is the next one.
        world.clock.advance(950_000);
        let (mut next, _) = enter(world, &again).await;
        assert_ne!(next.0["session"], first.0["session"], "{storage}");
        let outcome = next.get(world, "/orders").await;
        assert_eq!(outcome.code(), (200, "pass"), "{storage}");
    }
}

#[tokio::test]
async fn a_session_without_tokens_any_more_gives_way_to_the_credential() {
    let (world, _) = world(json!({"auth_methods": ["session", "password"]}));
    let shown = authorization(&basic_of("anna", "secret"));
    let (mut browser, _) = enter(&world, &shown).await;
    world.clock.advance(601_000);
    let cookie = format!("session={}", browser.0["session"]);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "session_over"));
    let both = shown.replace("\r\n\r\n", &format!("\r\nCookie: {cookie}\r\n\r\n"));
    let (browser, outcome) = enter(&world, &both).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_ne!(format!("session={}", browser.0["session"]), cookie);
}

#[tokio::test]
async fn a_token_that_ends_at_the_provider_ends_with_its_session() {
    let lives = json!({"cache_introspection": false, "auth_methods": ["session", "introspection"]});
    let (world, endpoints) = world(lives);
    let (mut browser, _) = enter(&world, &authorization("Bearer good-1")).await;
    assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
    endpoints.ended.store(true, Ordering::SeqCst);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "inactive_token"));
}

#[tokio::test]
async fn links_and_forms_of_other_sites_sign_nobody_in() {
    let (world, _) = world(json!({}));
    let token = world.token(json!({}));
    let link = get_with("Accept: text/html").replace("/orders", &format!("/?access_token={token}"));
    let (browser, outcome) = enter(&world, &link).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert!(browser.0.is_empty());
    let body = format!("access_token={token}");
    for (headers, begins) in [
        ("Sec-Fetch-Site: cross-site\r\n", false),
        ("Sec-Fetch-Site: same-site\r\n", false),
        ("Origin: https://evil.test\r\n", false),
        ("Origin: null\r\n", false),
        ("Sec-Fetch-Site: same-origin\r\n", true),
        ("", true),
    ] {
        let form = format!(
            "POST / HTTP/1.1\r\nHost: orders.test\r\n{headers}\
             Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (browser, outcome) = enter(&world, &form).await;
        assert_eq!(outcome.code(), (200, "pass"), "{headers}");
        assert_eq!(!browser.0.is_empty(), begins, "{headers}");
    }
}

#[tokio::test]
async fn a_cookie_replaces_no_proof() {
    for strict in [
        json!({"proof_of_possession_dpop": "optional"}),
        json!({"proof_of_possession_mtls": "optional"}),
        json!({"jwt_session_cookie": "sid"}),
        json!({"token_exchange": {"subject_token_issuers": [{"issuer": "https://other"}]}}),
    ] {
        let mut config = strict.clone();
        config["auth_methods"] = json!(["session", "bearer"]);
        let (world, _) = world(config);
        let token = world.token(json!({"sid": "x"}));
        let request = get_with(&format!("Cookie: sid=x\r\nAuthorization: Bearer {token}"));
        let (browser, outcome) = enter(&world, &request).await;
        assert_eq!(outcome.code(), (200, "pass"), "{strict}");
        assert!(browser.0.is_empty(), "{strict}");
    }
}

#[tokio::test]
async fn who_is_refused_gets_none() {
    let (world, _) = world(json!({"consumer_claim": ["sub"]}));
    let token = world.token(json!({}));
    let (browser, outcome) = enter(&world, &authorization(&format!("Bearer {token}"))).await;
    assert_eq!(outcome.code(), (403, "no_consumer"));
    assert!(browser.0.is_empty());
}

/// Another plugin of the same node and provider.
pub(super) fn plugin(world: &World, config: Value) -> World {
    World {
        issuer: world.issuer.clone(),
        key: world.key.clone(),
        clock: world.clock.clone(),
        filter: filter(&world.parts, config).expect("valid"),
        parts: world.parts.clone(),
    }
}

#[tokio::test]
async fn a_session_of_a_token_does_not_stand_in_where_the_token_would_not_do() {
    let (world, _) = world(json!({"session_secret": "s"}));
    let token = world.token(json!({"sid": "x"}));
    let shown = authorization(&format!("Bearer {token}"));
    for (demands, code) in [
        (json!({}), (200, "pass")),
        (json!({"auth_methods": ["session"]}), (200, "pass")),
        (
            json!({"auth_methods": ["session", "password"]}),
            (401, "session_unfit"),
        ),
        (
            json!({"proof_of_possession_dpop": "optional"}),
            (401, "session_unfit"),
        ),
        (json!({"jwt_session_cookie": "sid"}), (401, "session_unfit")),
        (
            json!({"token_exchange": {"subject_token_issuers": [{"issuer": "https://other"}]}}),
            (401, "session_unfit"),
        ),
        (json!({"domains": ["b.c"]}), (403, "wrong_domain")),
    ] {
        let mut config = json!({"session_secret": "s", "client_id": ["gateway"],
            "client_secret": ["g"], "auth_methods": ["session", "bearer"]});
        for (name, value) in demands.as_object().unwrap() {
            config[name] = value.clone();
        }
        let strict = plugin(&world, config);
        let (mut browser, _) = enter(&world, &shown).await;
        let outcome = browser.get(&strict, "/orders").await;
        assert_eq!(outcome.code(), code, "{demands}");
    }
}

#[tokio::test]
async fn who_shows_a_token_alone_gets_nothing_of_the_credential_that_it_was_given_for() {
    let config = json!({"client_id": ["gateway"], "client_secret": ["g"],
        "auth_methods": ["session", "bearer", "password"], "session_secret": "s",
        "token_endpoint": "http://id.test/oauth2/token",
        "upstream_refresh_token_header": "x-refresh"});
    let world = World::new(config);
    with_endpoints(&world, "anna");
    let (mut owner, outcome) = enter(&world, &authorization("Basic YTpi")).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let bearer = outcome.upstream("authorization").unwrap().to_owned();
    let outcome = owner.get(&world, "/orders").await;
    assert_eq!(outcome.upstream("x-refresh"), Some("r9"));
    let (mut thief, outcome) = enter(&world, &authorization(&bearer)).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_ne!(thief.0["session"], owner.0["session"]);
    let outcome = thief.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream("x-refresh"), None);
    world.clock.advance(3_601_000);
    let outcome = thief.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "session_over"));
}

#[tokio::test]
async fn one_token_does_not_fill_the_storage_by_changing_who_shows_it() {
    let node = Node::new(json!({"session_bind": ["user-agent"]})).await;
    let token = node.world.token(json!({}));
    for n in 0..60 {
        let request = get_with(&format!(
            "User-Agent: {}\r\nAuthorization: Bearer {token}",
            n % 20
        ));
        let outcome = node.world.ask(&request).await;
        assert_eq!(outcome.code(), (200, "pass"), "the token is good");
    }
    assert_eq!(node.rows().await.len(), 8);
}

#[tokio::test]
async fn one_token_does_not_fill_the_storage_by_being_shown_many_times_at_once() {
    for (binds, most) in [(json!([]), 1), (json!(["user-agent"]), 8)] {
        let node = Node::new(json!({"session_bind": binds})).await;
        let token = node.world.token(json!({}));
        let requests: Vec<_> = (0..40)
            .map(|n| get_with(&format!("User-Agent: {n}\r\nAuthorization: Bearer {token}")))
            .collect();
        let asks = requests.iter().map(|request| node.world.ask(request));
        for outcome in futures_util::future::join_all(asks).await {
            assert_eq!(outcome.code(), (200, "pass"), "the token is good");
        }
        assert_eq!(node.rows().await.len(), most);
    }
}
