//! Passwords and secrets of clients that the provider gives tokens for.

use super::introspection::{basic_of, world};
use super::*;

#[tokio::test]
async fn passwords_are_exchanged_once_for_tokens() {
    let (world, endpoints) = world(json!({"auth_methods": ["password"]}));
    let good = get_with(&format!("Authorization: {}", basic_of("anna", "secret")));
    for _ in 0..3 {
        let outcome = world.ask(&good).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert!(
            outcome
                .upstream("authorization")
                .unwrap()
                .starts_with("Bearer ey")
        );
    }
    let asked = endpoints.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0, basic_of("gateway", "g-secret"));
    assert_eq!(asked[0].1["scope"], "openid");
    let bad = get_with(&format!("Authorization: {}", basic_of("anna", "guess")));
    for _ in 0..2 {
        assert_eq!(world.ask(&bad).await.code(), (401, "wrong_credentials"));
    }
    assert_eq!(endpoints.asked().len(), 2);
    world.clock.advance(601_000);
    assert_eq!(world.ask(&good).await.code(), (200, "pass"));
    assert_eq!(endpoints.asked().len(), 3);
}

#[tokio::test]
async fn basic_credentials_are_those_of_a_user_or_of_a_client() {
    let (world, endpoints) = world(json!({}));
    let sent = basic_of("batch", "b-secret");
    let request = get_with(&format!("Authorization: {sent}"));
    assert_eq!(world.ask(&request).await.code(), (200, "pass"));
    let asked = endpoints.asked();
    assert_eq!(asked[0].1["grant_type"], "password");
    assert_eq!(asked[1].1["grant_type"], "client_credentials");
    assert_eq!(asked[1].0, sent);
    assert!(!asked[1].1.contains_key("client_secret"));
}

fn with_basic(name: &str, secret: &str) -> String {
    get_with(&format!("Authorization: {}", basic_of(name, secret)))
}

#[tokio::test]
async fn a_client_passes_where_the_gateway_may_not_ask_with_passwords() {
    for (error, of_client) in [
        ("unauthorized_client", true),
        ("unsupported_grant_type", true),
        ("invalid_scope", false),
        ("access_denied", false),
    ] {
        let (world, endpoints) = world(json!({}));
        *endpoints.no_password.lock().unwrap() = error;
        let good = with_basic("batch", "b-secret");
        for _ in 0..3 {
            assert_eq!(world.ask(&good).await.code(), (200, "pass"), "{error}");
            assert_eq!(endpoints.asked().len(), 2, "{error}");
        }
        // The provider is not asked twice for what it lets nobody do.
        let code = world.ask(&with_basic("batch", "guess")).await;
        assert_eq!(code.code(), (401, "wrong_credentials"), "{error}");
        let asked = endpoints.asked().len();
        assert_eq!(asked, if of_client { 3 } else { 4 }, "{error}");
        // It may have changed its mind.
        world.clock.advance(61_000);
        *endpoints.no_password.lock().unwrap() = "invalid_grant";
        world.ask(&with_basic("batch", "guess")).await;
        assert_eq!(endpoints.asked().len(), asked + 2, "{error}");
        let user = world.ask(&with_basic("anna", "secret")).await;
        assert_eq!(user.code(), (200, "pass"), "{error}");
    }
}

#[tokio::test]
async fn a_provider_that_takes_no_passwords_is_named_where_nothing_else_is_on() {
    let (world, endpoints) = world(json!({"auth_methods": ["password"]}));
    *endpoints.no_password.lock().unwrap() = "unauthorized_client";
    for asked in 1..3 {
        let outcome = world.ask(&with_basic("batch", "b-secret")).await;
        assert_eq!(outcome.code(), (500, "provider_refuses"));
        assert_eq!(endpoints.asked().len(), asked);
    }
}

#[tokio::test]
async fn a_callers_secret_goes_to_the_provider_as_those_of_the_gateway_do() {
    for (config, in_form) in [
        (json!({}), false),
        (json!({"client_auth": ["client_secret_post"]}), true),
        (
            json!({"token_endpoint_auth_method": "client_secret_post"}),
            true,
        ),
        (
            json!({"client_auth": ["client_secret_post"],
                "token_endpoint_auth_method": "client_secret_basic"}),
            false,
        ),
    ] {
        let (world, endpoints) = world(config.clone());
        let outcome = world.ask(&with_basic("batch", "b-secret")).await;
        assert_eq!(outcome.code(), (200, "pass"), "{config}");
        let (header, form) = endpoints.asked().pop().unwrap();
        assert_eq!(form.contains_key("client_secret"), in_form, "{config}");
        assert_eq!(header.is_empty(), in_form, "{config}");
    }
}

#[tokio::test]
async fn a_client_may_encode_its_name_and_secret() {
    let (world, endpoints) = world(json!({"auth_methods": ["client_credentials"]}));
    let outcome = world.ask(&with_basic("b%61tch", "b%2Dsecret")).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(endpoints.asked().len(), 1);
    // What only looks so is tried as it is, too.
    let outcome = world.ask(&with_basic("batch", "%41")).await;
    assert_eq!(outcome.code(), (401, "wrong_credentials"));
    let sent: Vec<_> = endpoints
        .asked()
        .into_iter()
        .map(|(sent, _)| sent)
        .collect();
    assert_eq!(
        sent[1..],
        [basic_of("batch", "A"), basic_of("batch", "%2541")]
    );
}

#[tokio::test]
async fn credentials_in_queries_and_forms_are_found_and_hidden() {
    let (world, _) = world(json!({
        "hide_credentials": true, "refresh_token_param_name": "refresh_token",
    }));
    let query = get_with("X: y").replace("/orders", "/orders?a=1&username=anna&password=secret");
    let outcome = world.ask(&query).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream.uri.to_string(), "/orders?a=1");
    let body = "refresh_token=r1&keep=%20x";
    let form = format!(
        "POST /orders HTTP/1.1\r\nHost: orders.test\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let outcome = world.ask(&form).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(
        outcome.exchange.replacement.as_deref(),
        Some(&b"keep=%20x"[..])
    );
    let twice = get_with("X: y").replace("/orders", "/orders?refresh_token=r1&refresh_token=r2");
    assert_eq!(
        world.ask(&twice).await.code(),
        (400, "repeated_credentials")
    );
}

#[tokio::test]
async fn the_first_credential_decides_even_if_another_would_pass() {
    let (world, endpoints) = world(json!({}));
    let basic = basic_of("anna", "secret");
    let request = get_with(&format!("X-Access-Token: bad\r\nAuthorization: {basic}"));
    assert_eq!(world.ask(&request).await.code(), (401, "inactive_token"));
    assert_eq!(endpoints.asked().len(), 1);
}

#[tokio::test]
async fn tokens_that_were_given_are_dropped_when_their_key_is_gone() {
    let (world, endpoints) = world(json!({"auth_methods": ["password"]}));
    let request = get_with(&format!("Authorization: {}", basic_of("anna", "secret")));
    assert_eq!(world.ask(&request).await.code(), (200, "pass"));
    let other = TestKey::es256("key-2");
    world.issuer.publish(&[&other]);
    world.clock.advance(301_000);
    // Newer keys are fetched meanwhile; what the old one signs is not believed.
    world.ask(&request).await;
    tokio::task::yield_now().await;
    let asked = endpoints.asked().len();
    let outcome = world.ask(&request).await;
    assert_eq!(outcome.code(), (401, "unknown_key"));
    assert_eq!(
        endpoints.asked().len(),
        asked + 1,
        "asked for another token"
    );
}

#[tokio::test]
async fn whatever_is_said_against_a_password_is_its_callers_fault() {
    let alone = json!({"auth_methods": ["password"]});
    for error in [
        "invalid_request",
        "interaction_required",
        "access_denied",
        "invalid_scope",
    ] {
        let (both, endpoints) = world(json!({}));
        *endpoints.no_password.lock().unwrap() = error;
        let client = both.ask(&with_basic("batch", "b-secret")).await;
        assert_eq!(client.code(), (200, "pass"), "{error}");
        let (alone, endpoints) = world(alone.clone());
        *endpoints.no_password.lock().unwrap() = error;
        for _ in 0..2 {
            let outcome = alone.ask(&with_basic("anna", "guess")).await;
            assert_eq!(outcome.code(), (401, "wrong_credentials"), "{error}");
            assert_eq!(endpoints.asked().len(), 1, "{error}");
        }
    }
    let (alone, endpoints) = world(alone);
    *endpoints.no_password.lock().unwrap() = "invalid_client";
    let outcome = alone.ask(&with_basic("anna", "secret!")).await;
    assert_eq!(outcome.code(), (500, "client_refused"));
}
