//! Tokens that the provider gave for a credential, and what their ID token says.

use super::browser::{Browser, Provider};
use super::consumers::{consumer, people};
use super::introspection::basic_of;
use super::*;

/// A filter that takes sessions and credentials of this method, and a provider.
fn world(method: &str, more: Value) -> (World, Provider) {
    let mut config = json!({
        "auth_methods": ["session", method], "refresh_token_param_name": "refresh_token",
        "upstream_headers_claims": ["email"], "upstream_headers_names": ["X-Mail"],
    });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    let (world, provider) = super::browser::world(config);
    let people = people(&[("anna", "a-1"), ("bob", "7")]);
    world.parts.consumers.publish(people);
    (world, provider)
}

fn with_password() -> String {
    get_with(&format!("Authorization: {}", basic_of("anna", "secret")))
}

/// What becomes of a credential, and of the session that it begins.
async fn both(world: &World, shown: &str) -> [Outcome; 2] {
    let mut browser = Browser::default();
    let first = world.ask(shown).await;
    browser.take(&first);
    let next = browser.get(world, "/orders").await;
    [first, next]
}

#[tokio::test]
async fn the_id_token_of_a_token_response_names_its_user_at_once() {
    let basic = basic_of("batch", "b-secret");
    for (method, shown, audience) in [
        ("password", with_password(), "gateway"),
        ("refresh_token", get_with("Refresh-Token: r1"), "gateway"),
        (
            "client_credentials",
            get_with(&format!("Authorization: {basic}")),
            "batch",
        ),
    ] {
        for opaque in [true, false] {
            let by_claim = json!({"consumer_claim": ["preferred_username"]});
            for (config, named) in [(by_claim, Some("bob")), (json!({}), None)] {
                let (world, provider) = world(method, config);
                provider.opaque.store(opaque, Ordering::SeqCst);
                let twist = json!({"aud": audience, "preferred_username": "bob"});
                *provider.twist.lock().unwrap() = twist;
                for outcome in both(&world, &shown).await {
                    assert_eq!(outcome.code(), (200, "pass"), "{method} {opaque}");
                    assert_eq!(consumer(&outcome), named, "{method} {opaque}");
                    assert_eq!(outcome.upstream("x-mail"), Some("anna@b.c"));
                    let subject = outcome.upstream("x-credential-identifier");
                    let wanted = named.is_none().then_some("anna");
                    assert_eq!(subject, wanted, "{method} {opaque}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_id_token_of_a_response_that_is_remembered_is_verified_once() {
    for opaque in [true, false] {
        let (world, provider) = world("password", json!({}));
        provider.opaque.store(opaque, Ordering::SeqCst);
        *provider.twist.lock().unwrap() = json!({"exp": NOW + 100});
        for _ in 0..2 {
            let outcome = world.ask(&with_password()).await;
            assert_eq!(outcome.code(), (200, "pass"), "{opaque}");
            assert_eq!(outcome.upstream("x-mail"), Some("anna@b.c"), "{opaque}");
            world.clock.advance(200_000);
        }
        assert_eq!(provider.asked("password"), 1, "{opaque}");
    }
}

#[tokio::test]
async fn tokens_with_an_id_token_that_does_not_hold_let_nobody_in() {
    let rules = json!({"max_age": 60, "domains": ["b.c"]});
    for (changes, code) in [
        (json!({}), (200, "pass")),
        (json!({"auth_time": NOW - 60}), (200, "pass")),
        (json!({"auth_time": NOW - 61}), (401, "login_too_old")),
        (json!({"hd": "evil.c"}), (403, "wrong_domain")),
        (json!({"hd": null}), (403, "wrong_domain")),
        (json!({"aud": "other"}), (403, "wrong_audience")),
        (json!({"iss": "http://evil.test"}), (401, "wrong_issuer")),
        (json!({"exp": NOW}), (401, "id_token_expired")),
        (json!({"sub": null}), (401, "wrong_id_token")),
        (json!({"at_hash": "another"}), (401, "wrong_at_hash")),
    ] {
        for opaque in [true, false] {
            let (world, provider) = world("password", rules.clone());
            provider.opaque.store(opaque, Ordering::SeqCst);
            let mut twist = json!({"hd": "b.c"});
            for (name, value) in changes.as_object().unwrap() {
                twist[name] = value.clone();
            }
            *provider.twist.lock().unwrap() = twist;
            let [first, next] = both(&world, &with_password()).await;
            assert_eq!(first.code(), code, "{changes} {opaque}");
            let wanted = if code.0 == 200 {
                code
            } else {
                (401, "no_token")
            };
            assert_eq!(next.code(), wanted, "{changes} {opaque}");
        }
    }
}

#[tokio::test]
async fn an_id_token_that_somebody_else_signed_lets_nobody_in() {
    let (world, provider) = world("password", json!({}));
    provider.opaque.store(true, Ordering::SeqCst);
    world.issuer.publish(&[&TestKey::es256("key-1")]);
    for outcome in [
        world.ask(&with_password()).await,
        world.ask(&with_password()).await,
    ] {
        assert_eq!(outcome.code(), (401, "bad_signature"));
        assert!(outcome.exchange.token.is_none());
        assert!(outcome.exchange.response_headers.is_empty());
    }
}

#[tokio::test]
async fn granted_scopes_are_found_wherever_scopes_are_looked_for() {
    for path in [json!(["scp"]), json!(["realm", "scopes"]), json!(["scope"])] {
        let config = json!({"scopes": ["openid", "read"], "scopes_claim": path,
            "scopes_required": ["read"]});
        let (world, provider) = world("password", config.clone());
        provider.opaque.store(true, Ordering::SeqCst);
        for outcome in both(&world, &with_password()).await {
            assert_eq!(outcome.code(), (200, "pass"), "{path}");
            let token = outcome.exchange.token.as_ref().unwrap();
            assert_eq!(token.scopes, ["openid", "read"], "{path}");
        }
        let (world, provider) = super::browser::world(config);
        provider.opaque.store(true, Ordering::SeqCst);
        let mut browser = Browser::signed_in(&world).await;
        let outcome = browser.get(&world, "/orders").await;
        assert_eq!(outcome.code(), (200, "pass"), "{path}");
    }
}

#[tokio::test]
async fn the_id_token_of_a_client_that_calls_may_be_signed_with_its_own_secret() {
    let basic = basic_of("batch", "b-secret");
    let shown = get_with(&format!("Authorization: {basic}"));
    for (secret, enabled, code) in [
        ("b-secret", true, (200, "pass")),
        ("g-secret", true, (401, "bad_signature")),
        ("b-secret", false, (401, "id_token_alg")),
    ] {
        let config = json!({ "enable_hs_signatures": enabled });
        let (world, provider) = world("client_credentials", config);
        *provider.twist.lock().unwrap() = json!({"aud": "batch"});
        *provider.secret.lock().unwrap() = Some(secret);
        let outcome = world.ask(&shown).await;
        assert_eq!(outcome.code(), code, "{secret} {enabled}");
    }
}
