//! Tokens that an endpoint is asked about.

use super::*;

const OPAQUE: &str = "Zm9vLWJhcg.x~y/z=";

#[tokio::test]
async fn the_endpoint_is_asked_as_the_specification_says() {
    let world = World::of_endpoint(json!({"scopes": ["a"]}));
    let outcome = world.ask_bearer(OPAQUE).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let (authorization, form) = world.provider.last_question();
    // "gateway:s3cret"
    assert_eq!(authorization.as_deref(), Some("Basic Z2F0ZXdheTpzM2NyZXQ="));
    let wanted = "token=Zm9vLWJhcg.x%7Ey%2Fz%3D&token_type_hint=access_token";
    assert_eq!(form, wanted);
    let token = outcome.exchange.token.unwrap();
    assert_eq!(token.subject(), Some("anna"));
    assert_eq!(token.scopes, ["a", "b"]);
    assert_eq!(token.expires_at, Some(NOW + 3600));
    assert_eq!(token.claims["active"], true);
}

#[tokio::test]
async fn what_is_not_an_active_access_token_is_invalid() {
    for (answer, code) in [
        (json!({"active": false}), "inactive_token"),
        (json!({}), "inactive_token"),
        (json!({"active": "true"}), "inactive_token"),
        (json!({"active": 1}), "inactive_token"),
        (json!({"active": true, "exp": NOW}), "token_expired"),
        (json!({"active": true, "exp": "soon"}), "malformed_times"),
        (
            json!({"active": true, "nbf": NOW + 60}),
            "token_not_yet_valid",
        ),
        (
            json!({"active": true, "token_type": "refresh_token"}),
            "wrong_type",
        ),
        (json!({"active": true, "typ": "Refresh"}), "wrong_type"),
        (
            json!({"active": true, "tokenName": "id_token"}),
            "wrong_type",
        ),
    ] {
        let world = World::of_endpoint(json!({}));
        world.provider.says(200, answer.clone());
        let outcome = world.ask_bearer(OPAQUE).await;
        assert_eq!(outcome.code(), (401, code), "{answer}");
        let challenge = r#"Bearer realm="OpenIG", error="invalid_token""#;
        assert_eq!(outcome.challenge(), Some(challenge));
    }
}

#[tokio::test]
async fn an_answer_of_token_info_that_says_nothing_of_a_token_is_no_good_token() {
    let good = json!({"access_token": "t", "scope": ["read"], "expires_in": 60});
    let without = |name: &str| {
        let mut answer = good.clone();
        answer.as_object_mut().unwrap().remove(name);
        answer
    };
    let invalid = [
        json!({}),
        json!({"error": "invalid_token"}),
        json!({"message": "hello"}),
        json!({"active": true}),
        without("access_token"),
        without("scope"),
        without("expires_in"),
        with(good.clone(), json!({"access_token": ""})),
        with(good.clone(), json!({"access_token": 5})),
        with(good.clone(), json!({"scope": "read"})),
        with(good.clone(), json!({"scope": [["read"]]})),
        with(good.clone(), json!({"scope": null})),
        with(good.clone(), json!({"expires_in": "60"})),
        with(good.clone(), json!({"expires_in": null})),
        with(good.clone(), json!({"expires_in": 0})),
        with(good.clone(), json!({"exp": "soon"})),
        with(good.clone(), json!({"active": false})),
        with(good.clone(), json!({"active": "true"})),
        with(good.clone(), json!({"active": 1})),
        with(good.clone(), json!({"active": null})),
        with(good.clone(), json!({"active": ""})),
        with(good.clone(), json!({"error": "invalid_token"})),
        with(good.clone(), json!({"error": ""})),
    ];
    let broken = [
        json!([]),
        json!([good]),
        json!(null),
        json!("<html>"),
        json!(true),
    ];
    let endpoint = format!("{ISSUER}/tokeninfo");
    for scopes in [json!([]), json!(["read"])] {
        let resolver = json!({"type": "OpenAmAccessTokenResolver", "config": {
            "endpoint": endpoint, "providerHandler": "ForgeRockClientHandler"}});
        for config in [
            json!({"scopes": scopes, "tokenInfoEndpoint": endpoint}),
            json!({"scopes": scopes, "accessTokenResolver": resolver}),
        ] {
            for (said, code) in (invalid.iter().map(|said| (said, 401)))
                .chain(broken.iter().map(|said| (said, 503)))
            {
                let world = World::new(config.clone());
                world.provider.says(200, said.clone());
                let outcome = world.ask_bearer("invented").await;
                assert_eq!(outcome.code().0, code, "{config} {said}");
                let challenge = r#"Bearer realm="OpenIG", error="invalid_token""#;
                let challenge = (code == 401).then_some(challenge);
                assert_eq!(outcome.challenge(), challenge, "{said}");
            }
            let world = World::new(config.clone());
            let end = without("expires_in");
            for said in [
                good.clone(),
                with(good.clone(), json!({"active": true})),
                with(end, json!({"exp": NOW + 60})),
                // Each scope is a member, too, whatever it is called.
                with(
                    good.clone(),
                    json!({"scope": ["read", "error", "active"],
                    "read": "", "error": "", "active": ""}),
                ),
            ] {
                world.provider.says(200, said.clone());
                let outcome = world
                    .ask_bearer(&format!("t{}", world.provider.asked()))
                    .await;
                assert_eq!(outcome.code(), (200, "pass"), "{config} {said}");
            }
        }
    }
}

#[tokio::test]
async fn a_broken_endpoint_is_no_fault_of_the_token() {
    for (status, answer) in [
        (500, json!({})),
        (401, json!({"error": "invalid_client"})),
        (200, json!([1])),
        (302, json!({"active": true})),
        (200, json!({"active": true, "x": "y".repeat(70_000)})),
    ] {
        let world = World::of_endpoint(json!({}));
        world.provider.says(status, answer);
        let outcome = world.ask_bearer(OPAQUE).await;
        assert_eq!(outcome.code(), (503, "provider_unavailable"), "{status}");
        assert_eq!(outcome.challenge(), None);
        world.provider.says(200, json!({"active": true}));
        let outcome = world.ask_bearer(OPAQUE).await;
        assert_eq!(outcome.code(), (200, "pass"), "it is not remembered");
    }
}

#[tokio::test]
async fn without_a_cache_every_request_is_asked_about() {
    let world = World::of_endpoint(json!({}));
    for count in 1..4 {
        assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 200);
        assert_eq!(world.provider.asked(), count);
    }
    world.provider.says(200, json!({"active": false}));
    assert_eq!(
        world.ask_bearer(OPAQUE).await.code().0,
        401,
        "revoked at once"
    );
}

#[tokio::test]
async fn answers_are_believed_for_as_long_as_configured() {
    let minute = 60 * 1000;
    let untold = json!({"active": true});
    let told = json!({"active": true, "exp": NOW + 90});
    for (cache, answer, lives) in [
        (json!({"enabled": true}), &untold, minute),
        (
            json!({"enabled": "true", "defaultTimeout": "5 s"}),
            &untold,
            5_000,
        ),
        (json!({"enabled": true}), &told, 90_000),
        (
            json!({"enabled": true, "maxTimeout": "10 s"}),
            &told,
            10_000,
        ),
        (
            json!({"enabled": true, "maximumTimeToCache": "10 s"}),
            &untold,
            10_000,
        ),
        (
            json!({"enabled": true, "defaultTimeout": "unlimited", "maxTimeout": "2 minutes"}),
            &untold,
            2 * minute,
        ),
    ] {
        let world = World::of_endpoint(json!({"cache": cache}));
        world.provider.says(200, answer.clone());
        assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 200);
        world.clock.advance(lives - 1);
        assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 200, "{cache}");
        assert_eq!(world.provider.asked(), 1, "{cache}");
        world.clock.advance(1);
        world.provider.says(200, json!({"active": false}));
        assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 401, "{cache}");
    }
}

#[tokio::test]
async fn a_resolver_that_remembers_wraps_another() {
    let inner = json!({"type": "TokenIntrospectionAccessTokenResolver", "config": {
        "endpoint": format!("{ISSUER}/introspect"), "providerHandler": "ForgeRockClientHandler"}});
    let outer = json!({"type": "CacheAccessTokenResolver", "config": {
        "delegate": "inner", "defaultTimeout": "7 s"}});
    let config = json!({"scopes": [], "accessTokenResolver": "outer"});
    let world = World::with_heap(config, json!({"outer": outer, "inner": inner}));
    world.provider.says(200, json!({"active": true}));
    for _ in 0..3 {
        assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 200);
    }
    assert_eq!(world.provider.asked(), 1);
    world.clock.advance(7_000);
    assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 200);
    assert_eq!(world.provider.asked(), 2);
}

#[tokio::test]
async fn the_older_form_asks_a_token_info_endpoint_and_remembers_a_minute() {
    let config = json!({"scopes": ["mail"], "providerHandler": "ClientHandler",
        "tokenInfoEndpoint": format!("{ISSUER}/tokeninfo")});
    let world = World::new(config);
    let good = json!({"scope": ["uid", "mail"], "expires_in": 3000, "access_token": OPAQUE});
    world.provider.says(200, good);
    let outcome = world.ask_bearer(OPAQUE).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.exchange.token.unwrap().expires_at, Some(NOW + 3000));
    let (_, query) = world.provider.last_question();
    assert_eq!(query, "access_token=Zm9vLWJhcg.x%7Ey%2Fz%3D");
    for (status, error) in [
        (400, "invalid_request"),
        (401, "invalid_token"),
        (404, "not_found"),
    ] {
        world.provider.says(status, json!({ "error": error }));
        assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 200, "remembered");
        let outcome = world.ask_bearer(&format!("other{status}")).await;
        assert_eq!(outcome.code(), (401, "inactive_token"));
    }
    world.clock.advance(60_000);
    assert_eq!(world.ask_bearer(OPAQUE).await.code().0, 401);
    world.provider.says(500, json!({"error": "server_error"}));
    assert_eq!(world.ask_bearer("third").await.code().0, 503);
}

#[tokio::test]
async fn credentials_are_read_from_the_chain_of_the_handler() {
    let secrets = json!({"type": "Base64EncodedSecretStore",
        "config": {"secrets": {"the.secret": "cyZjcmV0"}}});
    let chain = |filter: Value| json!({"type": "Chain", "config": {"filters": [filter], "handler": "ForgeRockClientHandler"}});
    let basic_form = "Basic YSUyNmI6cyUyNmNyZXQ="; // a%26b:s%26cret
    let basic_plain = "Basic YSZiOnMmY3JldA=="; // a&b:s&cret
    for (filter, authorization, form) in [
        (
            json!({"type": "ClientSecretBasicAuthenticationFilter", "config": {"clientId": "a&b",
            "clientSecretId": "the.secret", "secretsProvider": "store"}}),
            Some(basic_form),
            "",
        ),
        (
            json!({"type": "HttpBasicAuthenticationClientFilter", "config": {"username": "a&b",
            "passwordSecretId": "the.secret", "secretsProvider": "store"}}),
            Some(basic_plain),
            "",
        ),
        (
            json!({"type": "HeaderFilter", "config": {"messageType": "request",
            "add": {"Authorization": ["Basic ${encodeBase64('a&b:s&cret')}"]}}}),
            Some(basic_plain),
            "",
        ),
        (
            json!({"type": "ClientSecretPostAuthenticationFilter", "config": {"clientId": "a&b",
            "clientSecretId": "the.secret", "secretsProvider": ["store"]}}),
            None,
            "&client_id=a%26b&client_secret=s%26cret",
        ),
    ] {
        let resolver = json!({"type": "TokenIntrospectionAccessTokenResolver", "config": {
            "endpoint": format!("{ISSUER}/introspect"), "providerHandler": chain(filter)}});
        let config = json!({"scopes": [], "accessTokenResolver": resolver});
        let world = World::with_heap(config, json!({"store": secrets}));
        assert!(
            world.filter.warnings().is_empty(),
            "{:?}",
            world.filter.warnings()
        );
        world.provider.says(200, json!({"active": true}));
        assert_eq!(world.ask_bearer("t").await.code().0, 200);
        let (got, body) = world.provider.last_question();
        assert_eq!(got.as_deref(), authorization);
        assert_eq!(body, format!("token=t&token_type_hint=access_token{form}"));
    }
}

#[tokio::test]
async fn an_access_managers_endpoint_is_that_of_its_realm() {
    let manager = json!({"type": "AmService", "config": {"url": "http://id.test/", "realm": "/a/b",
        "agent": {"username": "ig_agent", "passwordSecretId": "agent.password"},
        "secretsProvider": {"type": "Base64EncodedSecretStore",
            "config": {"secrets": {"agent.password": "cHc"}}}}});
    let resolver = json!({"type": "TokenIntrospectionAccessTokenResolver",
        "config": {"amService": "manager"}});
    let config = json!({"scopes": [], "accessTokenResolver": resolver});
    let world = World::with_heap(config, json!({"manager": manager}));
    world.provider.says(200, json!({"active": true}));
    assert_eq!(world.ask_bearer("t").await.code().0, 200);
    let (authorization, _) = world.provider.last_question();
    assert_eq!(authorization.as_deref(), Some("Basic aWdfYWdlbnQ6cHc="));
}
