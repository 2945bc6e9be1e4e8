//! What strangers try.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

#[tokio::test]
async fn a_token_in_the_query_or_the_body_is_none() {
    let world = World::of_tokens(json!({}));
    let token = world.token(json!({}));
    let query = format!("GET /a?access_token={token} HTTP/1.1\r\nHost: h\r\n\r\n");
    let body = format!("access_token={token}");
    let form = format!(
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for request in [query, form] {
        let outcome = world.ask_with(&request, true).await;
        assert_eq!(outcome.code(), (401, "no_token"));
    }
    for name in ["Access-Token", "X-Access-Token", "Cookie"] {
        assert_eq!(world.ask(&format!("{name}: {token}")).await.code().0, 401);
    }
}

#[tokio::test]
async fn two_authorization_headers_are_refused() {
    let world = World::of_tokens(json!({}));
    let good = format!("Authorization: Bearer {}", world.token(json!({})));
    for second in [
        good.as_str(),
        "Authorization: Bearer evil",
        "Authorization: Basic YTpi",
    ] {
        for fields in [format!("{good}\r\n{second}"), format!("{second}\r\n{good}")] {
            let outcome = world.ask(&fields).await;
            assert_eq!(outcome.code(), (400, "repeated_token"));
            let challenge = r#"Bearer realm="OpenIG", error="invalid_request""#;
            assert_eq!(outcome.challenge(), Some(challenge));
        }
    }
}

#[tokio::test]
async fn an_id_token_is_no_access_token() {
    let world = World::of_tokens(json!({}));
    for other in [
        json!({"tokenName": "id_token"}),
        json!({"tokenName": "refresh_token"}),
        json!({"typ": "ID"}),
        json!({"at_hash": "x"}),
    ] {
        let outcome = world.ask_bearer(&world.token(other)).await;
        assert_eq!(outcome.code(), (401, "wrong_type"));
    }
}

#[tokio::test]
async fn tokens_without_a_signature_of_the_issuer_are_refused() {
    let world = World::of_tokens(json!({}));
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let payload = part(claims(json!({})));
    for (header, signature, code) in [
        (json!({"alg": "none"}), "", "unsupported_alg"),
        (
            json!({"alg": "None", "kid": "key-1"}),
            "AA",
            "unsupported_alg",
        ),
        (
            json!({"alg": "HS256", "kid": "key-1"}),
            "AA",
            "unsupported_alg",
        ),
        (
            json!({"alg": "ES256", "kid": "key-1"}),
            "AA",
            "bad_signature",
        ),
        (json!({"alg": "ES256", "kid": "key-1"}), "", "bad_signature"),
    ] {
        let token = format!("{}.{payload}.{signature}", part(header.clone()));
        assert_eq!(
            world.ask_bearer(&token).await.code(),
            (401, code),
            "{header}"
        );
    }
    let good = world.token(json!({}));
    let (head, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = head.split_once('.').unwrap();
    let raised = part(claims(json!({"sub": "root"})));
    let forged = format!("{header}.{raised}.{signature}");
    assert_eq!(world.ask_bearer(&good).await.code().0, 200);
    assert_eq!(
        world.ask_bearer(&forged).await.code(),
        (401, "bad_signature")
    );
}

#[tokio::test]
async fn a_token_of_another_client_that_the_endpoint_keeps_quiet_about_is_refused() {
    let world = World::of_endpoint(json!({}));
    // RFC 7662 §2.2: what the caller may not know of is not active.
    world.provider.says(200, json!({"active": false}));
    let outcome = world.ask_bearer("of-another-client").await;
    assert_eq!(outcome.code(), (401, "inactive_token"));
}

#[tokio::test]
async fn a_stampede_on_one_token_asks_once() {
    let world = World::of_endpoint(json!({}));
    world.provider.0.gate.forget_permits(Semaphore::MAX_PERMITS);
    let requests = (0..50).map(|_| world.ask_bearer("same"));
    let release = async {
        while world.provider.0.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        world.provider.0.gate.add_permits(1000);
    };
    let (outcomes, ()) = tokio::join!(futures_util::future::join_all(requests), release);
    assert!(outcomes.iter().all(|outcome| outcome.code().0 == 200));
    assert_eq!(world.provider.asked(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_make_the_question_start_over() {
    let world = World::of_endpoint(json!({"cache": {"enabled": true}}));
    world.provider.0.gate.forget_permits(Semaphore::MAX_PERMITS);
    {
        let request = world.ask_bearer("token");
        tokio::pin!(request);
        while world.provider.asked() == 0 {
            tokio::select! {
                _ = &mut request => panic!("it has no answer yet"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    world.provider.0.gate.add_permits(1000);
    assert_eq!(world.ask_bearer("token").await.code().0, 200);
    assert_eq!(world.ask_bearer("token").await.code().0, 200);
    assert_eq!(world.provider.asked(), 1);
}

#[tokio::test]
async fn bad_tokens_are_remembered_a_short_while() {
    let world = World::of_endpoint(json!({}));
    world.provider.says(200, json!({"active": false}));
    for _ in 0..20 {
        assert_eq!(world.ask_bearer("bad").await.code().0, 401);
    }
    assert_eq!(world.provider.asked(), 1);
    world.clock.advance(5_000);
    assert_eq!(world.ask_bearer("bad").await.code().0, 401);
    assert_eq!(world.provider.asked(), 2);
}

#[tokio::test]
async fn strangers_questions_are_bounded_and_wait_for_their_turn() {
    let world = World::of_endpoint(json!({}));
    world.provider.0.gate.forget_permits(Semaphore::MAX_PERMITS);
    let requests = (0..300).map(|n| {
        let world = &world;
        async move { world.ask_bearer(&format!("bad{n}")).await.code().0 }
    });
    let waiting = || world.provider.0.waiting.load(Ordering::SeqCst);
    let release = async {
        while waiting() < 256 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let at_once = waiting();
        world.provider.0.gate.add_permits(1000);
        at_once
    };
    let (statuses, at_once) = tokio::join!(futures_util::future::join_all(requests), release);
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert_eq!((refused, at_once, world.provider.asked()), (0, 256, 300));
}

#[tokio::test]
async fn what_can_be_no_token_is_not_asked_about() {
    let world = World::of_endpoint(json!({}));
    let long = "x".repeat(16 * 1024 + 1);
    assert_eq!(
        world.ask_bearer(&long).await.code(),
        (401, "token_too_long")
    );
    assert_eq!(
        world.ask_bearer("a b").await.code(),
        (401, "malformed_token")
    );
    assert_eq!(world.provider.asked(), 0);
}

#[tokio::test]
async fn a_stolen_dpop_token_is_no_bearer_token() {
    let world = World::of_endpoint(json!({}));
    for (token, answer) in [
        ("one", json!({"active": true, "cnf": {"jkt": "AAAA"}})),
        ("two", json!({"active": true, "token_type": "DPoP"})),
        ("three", json!({"active": true, "token_type": "dpop"})),
    ] {
        world.provider.says(200, answer.clone());
        let outcome = world.ask_bearer(token).await;
        assert_eq!(outcome.code(), (401, "unproven_token"), "{answer}");
    }
}

#[tokio::test]
async fn a_bound_token_without_its_certificate_is_refused() {
    let inner = json!({"type": "TokenIntrospectionAccessTokenResolver", "config": {
        "endpoint": format!("{ISSUER}/introspect")}});
    let resolver = json!({"type": "ConfirmationKeyVerifierAccessTokenResolver",
        "config": {"delegate": inner}});
    let world = World::new(json!({"scopes": [], "accessTokenResolver": resolver}));
    for answer in [
        json!({"active": true}),
        json!({"active": true, "cnf": {"x5t#S256": "AAAA"}}),
        json!({"active": true, "cnf": {"jkt": "AAAA"}}),
    ] {
        world.provider.says(200, answer);
        assert_eq!(world.ask_bearer("t").await.code(), (401, "unproven_token"));
    }
}
