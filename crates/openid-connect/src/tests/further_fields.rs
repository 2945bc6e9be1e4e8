//! Settings one by one, with what each does: sessions, what is remembered, and
//! where things are found.

use super::browser::{self, Browser};
use super::request_recorder::world;
use super::server_side_sessions::Node;
use super::*;
use doorward_core::model::login::LoginQuery;

/// How often `path` is asked when a request comes twice, `pause` milliseconds apart.
async fn asked_twice(config: Value, request: &str, path: &str, pause: i64) -> usize {
    let (world, recorder) = world(config);
    for wait in [pause, 0] {
        assert_eq!(world.ask(request).await.code(), (200, "pass"));
        world.clock.advance(wait);
    }
    recorder.at(path).len()
}

#[tokio::test]
async fn answers_of_the_provider_are_remembered_unless_that_is_off() {
    let basic = get_with("Authorization: Basic YW5uYTpz");
    let opaque = get_with("Authorization: Bearer opaque");
    for (method, setting, request, path) in [
        ("password", "cache_tokens", &basic, "/token"),
        (
            "introspection",
            "cache_introspection",
            &opaque,
            "/introspect",
        ),
        ("userinfo", "cache_user_info", &opaque, "/userinfo"),
    ] {
        for (remembers, calls) in [(true, 1), (false, 2)] {
            let mut config = json!({ "auth_methods": [method] });
            config[setting] = json!(remembers);
            let asked = asked_twice(config, request, path, 0).await;
            assert_eq!(asked, calls, "{setting}");
        }
    }
}

#[tokio::test]
async fn what_tells_no_end_is_remembered_for_a_while() {
    let request = get_with("Authorization: Bearer opaque");
    for (pause, calls) in [(59_000, 1), (60_000, 2)] {
        let config = json!({"auth_methods": ["introspection"], "cache_ttl": 60});
        let asked = asked_twice(config, &request, "/introspect", pause).await;
        assert_eq!(asked, calls, "{pause}");
    }
}

#[tokio::test]
async fn requests_choose_a_client_by_the_argument_that_is_configured() {
    for (header, client) in [("X-App: b", "b"), ("X-Client-ID: b", "a")] {
        let (world, recorder) = world(json!({
            "auth_methods": ["introspection"], "client_arg": "app",
            "client_auth": ["client_secret_post"],
            "client_id": ["a", "b"], "client_secret": ["s", "t"],
        }));
        let headers = format!("Authorization: Bearer opaque\r\n{header}");
        world.ask(&get_with(&headers)).await;
        let noted = recorder.at("/introspect").remove(0);
        assert_eq!(noted.form("client_id"), Some(client), "{header}");
    }
}

#[tokio::test]
async fn credentials_of_clients_are_looked_for_where_that_is_configured() {
    let (world, _) = world(json!({
        "auth_methods": ["client_credentials"], "client_credentials_param_type": ["query"],
    }));
    let outcome = world.ask(&get_with("Authorization: Basic YW5uYTpz")).await;
    assert_eq!(outcome.code(), (401, "no_token"));
    let request = get_with("X-A: b").replace("/orders", "/orders?client_id=a&client_secret=s");
    assert_eq!(world.ask(&request).await.code(), (200, "pass"));
}

#[tokio::test]
async fn an_id_token_is_looked_for_where_that_is_configured() {
    let world = World::new(json!({"auth_methods": ["bearer"], "client_id": ["gateway"],
        "id_token_param_name": "idt", "id_token_param_type": ["query"],
        "upstream_headers_claims": ["email"], "upstream_headers_names": ["x-mail"]}));
    let token = world.token(json!({}));
    let id = world
        .key
        .token(&json!({"iss": ISSUER, "sub": "anna", "aud": "gateway",
        "iat": NOW, "exp": NOW + 60, "email": "anna@b.c"}));
    let bearer = format!("Authorization: Bearer {token}");
    let outcome = world
        .ask(&get_with(&format!("{bearer}\r\nIdt: {id}")))
        .await;
    assert_eq!(outcome.upstream("x-mail"), None);
    let request = get_with(&bearer).replace("/orders", &format!("/orders?idt={id}"));
    let outcome = world.ask(&request).await;
    assert_eq!(outcome.upstream("x-mail"), Some("anna@b.c"));
}

#[tokio::test]
async fn claims_are_found_where_that_is_configured() {
    let world = World::new(
        json!({"auth_methods": ["bearer"], "credential_claim": ["who", "mail"],
        "scopes_claim": ["realm", "can"], "scopes_required": ["read"],
        "jwt_session_cookie": "app", "jwt_session_claim": "ses"}),
    );
    let good = json!({"who": {"mail": "anna@b.c"}, "realm": {"can": "read"}, "ses": "s1"});
    for (more, code) in [
        (json!({}), (200, "pass")),
        (json!({"realm": {"can": "write"}}), (403, "missing_scope")),
        (json!({"ses": "s2", "sid": "s1"}), (401, "wrong_session")),
    ] {
        let mut claims = good.clone();
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let token = world.token(claims);
        let headers = format!("Authorization: Bearer {token}\r\nCookie: app=s1");
        let outcome = world.ask(&get_with(&headers)).await;
        assert_eq!(outcome.code(), code);
        if code.0 == 200 {
            assert_eq!(
                outcome.upstream("x-credential-identifier"),
                Some("anna@b.c")
            );
        }
    }
}

#[tokio::test]
async fn introspection_gets_the_hint_that_is_configured() {
    let config = json!({"auth_methods": ["introspection"], "introspection_hint": "jwt"});
    let (world, recorder) = world(config);
    world.ask_bearer("opaque").await;
    let noted = recorder.at("/introspect").remove(0);
    assert_eq!(noted.form("token_type_hint"), Some("jwt"));
}

#[tokio::test]
async fn the_older_names_of_cookies_attributes_count() {
    let (world, _) = browser::world(json!({
        "session_cookie_samesite": "Strict", "session_cookie_httponly": false,
        "authorization_cookie_samesite": "None", "authorization_cookie_httponly": false,
    }));
    let mut browser = Browser::default();
    let begun = browser.get(&world, "/orders").await;
    let ended = browser.get(&world, &browser::answer_to(&begun)).await;
    for (outcome, same_site) in [(&begun, "SameSite=None"), (&ended, "SameSite=Strict")] {
        let fields = &outcome.exchange.response_headers;
        let kept = |field: &&(HeaderName, HeaderValue)| {
            field.0 == http::header::SET_COOKIE && !field.1.to_str().unwrap().contains("Max-Age=0")
        };
        let cookie = fields.iter().find(kept).expect("a cookie");
        let cookie = cookie.1.to_str().unwrap();
        assert!(
            cookie.contains(same_site) && !cookie.contains("HttpOnly"),
            "{cookie}"
        );
    }
}

#[tokio::test]
async fn a_session_is_not_refreshed_where_that_is_off() {
    for (refreshes, code) in [(true, (200, "pass")), (false, (302, "login"))] {
        let (world, provider) = browser::world(json!({ "refresh_tokens": refreshes }));
        let mut browser = Browser::signed_in(&world).await;
        world.clock.advance(300_000);
        assert_eq!(browser.get(&world, "/orders").await.code(), code);
        assert_eq!(provider.asked("refresh_token"), usize::from(refreshes));
    }
}

#[tokio::test]
async fn a_session_is_judged_anew_and_of_one_user_whatever_is_configured() {
    for said in [true, false] {
        let (world, provider) = browser::world(json!({"session_enforce_same_subject": said}));
        let mut browser = Browser::signed_in(&world).await;
        world.clock.advance(300_000);
        *provider.twist.lock().unwrap() = json!({"sub": "mallory"});
        let outcome = browser.get(&world, "/orders").await;
        assert_eq!(outcome.code(), (401, "session_over"), "{said}");
        let (world, _) = browser::world(json!({ "reverify": said }));
        let browser = Browser::signed_in(&world).await;
        let (other, _) = browser::world(json!({"reverify": said, "scopes_required": ["admin"]}));
        other.issuer.publish(&[&world.key]);
        let outcome = browser.clone().get(&other, "/orders").await;
        assert_eq!(outcome.code(), (403, "missing_scope"), "{said}");
    }
}

#[tokio::test]
async fn subjects_are_hashed_in_the_store_and_found_all_the_same() {
    for hashes in [true, false] {
        let node = Node::new(json!({ "session_hash_subject": hashes })).await;
        let browser = Browser::signed_in(&node.world).await;
        let rows = node.rows().await;
        assert_eq!(rows[0].subject.as_deref() == Some("anna"), !hashes);
        let subjects = crate::subjects("anna");
        assert!(subjects.contains(rows[0].subject.as_ref().unwrap()));
        let query = LoginQuery {
            subjects,
            ..LoginQuery::default()
        };
        assert_eq!(node.ended_by(query).await, 1);
        assert!(super::server_side_sessions::is_out(&browser, &node.world).await);
    }
}

#[tokio::test]
async fn keys_of_the_storage_are_hashes_whatever_is_configured() {
    for hashes in [true, false] {
        let node = Node::new(json!({ "session_hash_storage_key": hashes })).await;
        let browser = Browser::signed_in(&node.world).await;
        let rows = format!("{:?}", node.rows().await);
        assert!(!rows.contains(&browser.0["session"][1..]), "{hashes}");
    }
}
