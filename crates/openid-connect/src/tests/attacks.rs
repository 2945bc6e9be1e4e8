//! What must not get through, named after the attack.

use super::*;
use doorward_core::jose::testing::hs256;

#[tokio::test]
async fn alg_none() {
    let world = World::new(json!({}));
    let header = r#"{"alg":"none","kid":"key-1"}"#;
    let token = world.key.sign(header, &claims(json!({})).to_string());
    let bare = format!("{}.", token.rsplit_once('.').unwrap().0);
    for token in [token, bare] {
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (401, "unsupported_alg"));
    }
}

#[tokio::test]
async fn hs256_with_the_public_key() {
    let world = World::new(json!({"client_secret": ["s"], "enable_hs_signatures": true}));
    let header = r#"{"alg":"HS256","kid":"key-1"}"#;
    let secret = world.key.jwk().to_string();
    let token = hs256(secret.as_bytes(), header, &claims(json!({})).to_string());
    assert_eq!(
        world.ask_bearer(&token).await.code(),
        (401, "bad_signature")
    );
    let world = World::new(json!({"client_secret": ["s"]}));
    let token = hs256(b"s", header, &claims(json!({})).to_string());
    assert_eq!(
        world.ask_bearer(&token).await.code(),
        (401, "unsupported_alg")
    );
}

#[tokio::test]
async fn hs256_passes_only_when_enabled_and_signed_with_the_secret() {
    let world = World::new(json!({"client_secret": ["s"], "enable_hs_signatures": true}));
    let token = hs256(b"s", r#"{"alg":"HS256"}"#, &claims(json!({})).to_string());
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
}

#[tokio::test]
async fn embedded_jwk() {
    let world = World::new(json!({}));
    let forger = TestKey::es256("key-1");
    let header = json!({"alg": "ES256", "kid": "key-1", "jwk": forger.jwk()});
    let token = forger.sign(&header.to_string(), &claims(json!({})).to_string());
    assert_eq!(
        world.ask_bearer(&token).await.code(),
        (401, "bad_signature")
    );
}

#[tokio::test]
async fn kid_flood_does_not_hammer_the_issuer() {
    let world = World::new(json!({}));
    let good = world.token(json!({}));
    assert_eq!(world.ask_bearer(&good).await.code(), (200, "pass"));
    for n in 0..200 {
        let header = json!({"alg": "ES256", "kid": format!("junk-{n}")}).to_string();
        let token = world.key.sign(&header, &claims(json!({})).to_string());
        assert_eq!(world.ask_bearer(&token).await.code(), (401, "unknown_key"));
    }
    assert_eq!(world.issuer.key_fetches(), 2);
    assert_eq!(world.issuer.discoveries(), 1);
    assert_eq!(world.ask_bearer(&good).await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_flood_of_first_requests_makes_one_fetch() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    let asks = (0..50).map(|_| world.ask_bearer(&token));
    for outcome in futures_util::future::join_all(asks).await {
        assert_eq!(outcome.code(), (200, "pass"));
    }
    assert_eq!(
        (world.issuer.discoveries(), world.issuer.key_fetches()),
        (1, 1)
    );
}

#[tokio::test]
async fn duplicate_claims() {
    let world = World::new(json!({}));
    let payload = claims(json!({}))
        .to_string()
        .replacen('{', r#"{"sub":"root","#, 1);
    let token = world.key.sign(r#"{"alg":"ES256","kid":"key-1"}"#, &payload);
    assert_eq!(
        world.ask_bearer(&token).await.code(),
        (401, "malformed_token")
    );
}

#[tokio::test]
async fn expired_future_and_foreign_tokens() {
    let world = World::new(json!({"audience_required": ["orders"]}));
    for (more, status, code) in [
        (json!({"exp": NOW}), 401, "token_expired"),
        (json!({"exp": NOW - 3600}), 401, "token_expired"),
        (json!({"exp": "never"}), 401, "malformed_times"),
        (json!({"nbf": NOW + 60}), 401, "token_not_yet_valid"),
        (json!({"iat": NOW + 60}), 401, "token_not_yet_valid"),
        (json!({"iss": "http://id.test"}), 401, "wrong_issuer"),
        (
            json!({"iss": "https://evil.example/oauth2"}),
            401,
            "wrong_issuer",
        ),
        (json!({"iss": null}), 401, "wrong_issuer"),
        (json!({"aud": "billing"}), 403, "wrong_audience"),
        (json!({"aud": []}), 403, "wrong_audience"),
    ] {
        let outcome = world.ask_bearer(&world.token(more.clone())).await;
        assert_eq!(outcome.code(), (status, code), "{more}");
        let message = if status == 401 {
            "Unauthorized"
        } else {
            "Forbidden"
        };
        assert_eq!(outcome.message(), message);
        assert!(world.metric(code) > 0);
    }
}

#[tokio::test]
async fn id_token_as_access_token() {
    let world = World::new(json!({}));
    let token = world.token(json!({"tokenName": "id_token"}));
    assert_eq!(world.ask_bearer(&token).await.code(), (401, "wrong_type"));
    for (typ, status) in [("JWT", 200), ("at+jwt", 200), ("application/at+jwt", 200)]
        .into_iter()
        .chain([
            ("logout+jwt", 401),
            ("dpop+jwt", 401),
            ("secevent+jwt", 401),
        ])
    {
        let header = json!({"alg": "ES256", "kid": "key-1", "typ": typ}).to_string();
        let token = world.key.sign(&header, &claims(json!({})).to_string());
        assert_eq!(world.ask_bearer(&token).await.code().0, status, "{typ}");
    }
}

#[tokio::test]
async fn huge_token() {
    let world = World::new(json!({}));
    let token = world.token(json!({"pad": "x".repeat(20_000)}));
    assert_eq!(
        world.ask_bearer(&token).await.code(),
        (401, "token_too_long")
    );
    assert_eq!(world.issuer.key_fetches(), 0);
}

#[tokio::test]
async fn header_spoofing() {
    let world = World::new(json!({
        "upstream_headers_claims": ["email"],
        "upstream_headers_names": ["X-Email"],
    }));
    let owned = world.filter.owned_headers();
    for name in [
        "x-credential-identifier",
        "x-email",
        "x-consumer-id",
        "x-authenticated-groups",
    ] {
        assert!(owned.iter().any(|header| header == name), "{name}");
    }
    let request = format!(
        "Authorization: Bearer {}\r\nX-Credential-Identifier: root",
        world.token(json!({}))
    );
    let outcome = world.ask(&get_with(&request)).await;
    assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
}

#[tokio::test]
async fn two_tokens_at_once() {
    let world = World::new(json!({}));
    let (one, two) = (world.token(json!({})), world.token(json!({"sub": "b"})));
    let bearer = format!("Authorization: Bearer {one}");
    for request in [
        get_with(&format!("{bearer}\r\nAuthorization: Bearer {two}")),
        get_with(&format!("{bearer}\r\nX-Access-Token: {two}")),
        get_with(&bearer).replace("/orders", &format!("/orders?access_token={two}")),
        get_with("X: y").replace(
            "/orders",
            &format!("/orders?access_token={one}&access%5Ftoken={one}"),
        ),
    ] {
        let outcome = world.ask(&request).await;
        assert_eq!(outcome.code(), (400, "repeated_token"), "{request}");
    }
    let twice = get_with(&format!("{bearer}\r\nX-Access-Token: {one}"));
    assert_eq!(world.ask(&twice).await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_token_that_expires_in_the_cache() {
    let world = World::new(json!({}));
    let token = world.token(json!({"exp": NOW + 10}));
    for _ in 0..3 {
        assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    }
    world.clock.advance(9_999);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    world.clock.advance(1);
    assert_eq!(
        world.ask_bearer(&token).await.code(),
        (401, "token_expired")
    );
    let cache = &world.parts.metrics;
    assert_eq!(cache.token_cache("hit").get(), 3);
    assert_eq!(cache.token_cache("miss").get(), 1);
}

#[tokio::test]
async fn a_token_of_one_plugin_means_nothing_to_another() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    let strict = filter(&world.parts, json!({"scopes_required": ["admin"]})).unwrap();
    let strict = World {
        filter: strict,
        ..world
    };
    assert_eq!(
        strict.ask_bearer(&token).await.code(),
        (403, "missing_scope")
    );
}

#[tokio::test]
async fn an_unverified_token_never_reaches_later_filters() {
    let world = World::new(json!({"scopes_required": ["admin"]}));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
    assert!(outcome.exchange.token.is_none());
}
