//! Tokens that the filter verifies itself, and what every token has to allow.

use super::*;

#[tokio::test]
async fn a_good_token_passes_and_later_filters_see_it() {
    let world = World::of_tokens(json!({}));
    let token = world.token(json!({}));
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let held = outcome.exchange.token.unwrap();
    assert_eq!(
        (held.token.as_str(), held.subject()),
        (token.as_str(), Some("anna"))
    );
    assert_eq!(held.scopes, ["a", "b"]);
    assert_eq!(held.expires_at, Some(NOW + 3600));
    assert_eq!(world.metric("pass"), 1);
    let hits = world.parts.metrics.token_cache("hit");
    assert_eq!(
        world
            .ask(&format!("authorization: bEARER  {token}"))
            .await
            .code()
            .0,
        200
    );
    assert_eq!(hits.get(), 1, "the second use is a look-up");
}

#[tokio::test]
async fn without_a_token_the_challenge_has_no_error() {
    let world = World::of_tokens(json!({}));
    for field in [
        "X: y",
        "Authorization: Basic YTpi",
        "Authorization: Bearer",
        "Authorization: Bearer  ",
    ] {
        let outcome = world.ask(field).await;
        assert_eq!(outcome.code(), (401, "no_token"), "{field}");
        assert_eq!(outcome.challenge(), Some(r#"Bearer realm="OpenIG""#));
    }
    let world = World::of_tokens(json!({"realm": "a \"b\""}));
    let outcome = world.ask("X: y").await;
    assert_eq!(outcome.challenge(), Some(r#"Bearer realm="a \"b\"""#));
}

#[tokio::test]
async fn a_bad_token_is_invalid() {
    let world = World::of_tokens(json!({}));
    for (claims, code) in [
        (json!({"exp": NOW}), "token_expired"),
        (json!({"nbf": NOW + 60}), "token_not_yet_valid"),
        (json!({"exp": null}), "malformed_times"),
        (json!({"iss": "http://id.test/other"}), "wrong_issuer"),
        (json!({"iss": null}), "wrong_issuer"),
    ] {
        let outcome = world.ask_bearer(&world.token(claims)).await;
        assert_eq!(outcome.code(), (401, code));
        let challenge = r#"Bearer realm="OpenIG", error="invalid_token""#;
        assert_eq!(outcome.challenge(), Some(challenge));
        assert!(outcome.exchange.token.is_none());
    }
    assert_eq!(world.ask_bearer("x").await.code(), (401, "malformed_token"));
    let other = TestKey::es256("key-2").token(&claims(json!({})));
    assert_eq!(world.ask_bearer(&other).await.code(), (401, "unknown_key"));
}

#[tokio::test]
async fn a_token_passes_no_longer_than_it_lives() {
    let world = World::of_tokens(json!({}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code().0, 200);
    world.clock.advance(3600 * 1000);
    assert_eq!(
        world.ask_bearer(&token).await.code(),
        (401, "token_expired")
    );
}

#[tokio::test]
async fn all_scopes_are_needed_and_told() {
    for (scopes, code) in [
        (json!(["a"]), 200),
        (json!(["a", "b"]), 200),
        (json!(["a b"]), 200),
        (json!("b"), 200),
        (json!(["a", "c"]), 403),
        (json!(["A"]), 403),
    ] {
        let world = World::of_tokens(json!({"scopes": scopes}));
        let outcome = world.ask_bearer(&world.token(json!({}))).await;
        assert_eq!(outcome.code().0, code, "{scopes}");
    }
    let world = World::of_tokens(json!({"scopes": ["a", "orders:read"]}));
    let outcome = world
        .ask_bearer(&world.token(json!({"scope": "a b"})))
        .await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
    let challenge = r#"Bearer realm="OpenIG", error="insufficient_scope", scope="a orders:read""#;
    assert_eq!(outcome.challenge(), Some(challenge));
    assert!(outcome.exchange.token.is_none());
}

#[tokio::test]
async fn scopes_may_depend_on_the_request() {
    let scopes = json!(["a", "${request.method == 'GET' ? 'b' : 'w'}"]);
    let world = World::of_tokens(json!({"scopes": scopes}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code().0, 200);
    let post = format!("POST /a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\r\n");
    let outcome = world.ask_with(&post, true).await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
    assert!(outcome.challenge().unwrap().ends_with(r#"scope="a w""#));
    let world = World::of_tokens(json!({"scopes": ["${request.headers['X-Scope'][0]}"]}));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(
        outcome.code(),
        (500, "no_scopes"),
        "never a pass for want of a rule"
    );
}

#[tokio::test]
async fn requests_have_to_come_by_https_unless_configured() {
    let world = World::of_tokens(json!({}));
    let token = world.token(json!({}));
    let request = format!("GET /a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\r\n");
    let outcome = world.ask_with(&request, false).await;
    assert_eq!(outcome.code(), (403, "https_required"));
    assert_eq!(outcome.challenge(), None);
    for name in ["requireHttps", "enforceHttps"] {
        let open = World::of_tokens(json!({name: false}));
        let token = open.token(json!({}));
        let request =
            format!("GET /a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\r\n");
        assert_eq!(open.ask_with(&request, false).await.code().0, 200);
    }
}

#[tokio::test]
async fn keys_are_found_by_the_issuers_discovery_document() {
    let resolver = json!({"type": "StatelessAccessTokenResolver", "config": {"issuer": ISSUER}});
    let world = World::new(json!({"scopes": [], "accessTokenResolver": resolver}));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (200, "pass"));
}

#[tokio::test]
async fn keys_that_cannot_be_had_are_no_fault_of_the_token() {
    let resolver = json!({"type": "StatelessAccessTokenResolver", "config": {
        "issuer": ISSUER, "secretsProvider": {"type": "JwkSetSecretStore",
            "config": {"jwkUrl": "http://id.test/nowhere"}}}});
    let world = World::new(json!({"scopes": [], "accessTokenResolver": resolver}));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (503, "provider_unavailable"));
    assert_eq!(outcome.challenge(), None);
}
