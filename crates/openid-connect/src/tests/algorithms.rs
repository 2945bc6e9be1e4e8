//! The algorithm by which the provider signs for its client
//! (`id_token_signed_response_alg`).

use std::collections::HashMap;

use super::browser::{Browser, location, world};
use super::server_side_sessions::{Node, posted};
use super::*;

/// Signs claims by RS256 or PS256 with a key that is good for both.
fn by(key: &TestKey, alg: &str, claims: &Value) -> String {
    let header = json!({"alg": alg, "kid": key.kid});
    key.sign(&header.to_string(), &claims.to_string())
}

#[tokio::test]
async fn an_id_token_by_another_algorithm_than_the_configured_one_is_refused() {
    for (pinned, code) in [
        (json!(null), (200, "pass")),
        (json!("ES256"), (200, "pass")),
        (json!("PS256"), (401, "id_token_alg")),
        (json!("EdDSA"), (401, "id_token_alg")),
    ] {
        let (world, _) = world(json!({ "id_token_signed_response_alg": pinned }));
        let mut browser = Browser::default();
        let back = browser.begin(&world, "/orders").await;
        let outcome = browser.get(&world, &back).await;
        assert_eq!(outcome.code(), code, "{pinned}");
    }
    // One that is signed with the secret where a key is configured.
    let config = json!({"id_token_signed_response_alg": "ES256", "enable_hs_signatures": true});
    let (world, provider) = world(config);
    *provider.secret.lock().unwrap() = Some("g-secret");
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (401, "id_token_alg"));
}

#[tokio::test]
async fn a_signed_answer_by_another_algorithm_is_refused() {
    // The ID token of this provider is by ES256.
    for (pinned, alg, code) in [
        ("ES256", "ES256", (200, "pass")),
        ("ES256", "PS256", (401, "wrong_answer")),
        ("PS256", "RS256", (401, "wrong_answer")),
        ("PS256", "PS256", (401, "id_token_alg")),
    ] {
        let config = json!({"response_mode": "jwt", "id_token_signed_response_alg": pinned});
        let (world, _) = world(config);
        let rsa = TestKey::rsa("rsa-1", false);
        world.issuer.publish(&[&world.key, &rsa]);
        let mut browser = Browser::default();
        let sent = Url::parse(&location(&browser.get(&world, "/orders").await)).unwrap();
        let asked: HashMap<_, _> = sent.query_pairs().into_owned().collect();
        let claims = json!({"iss": ISSUER, "aud": "gateway", "exp": NOW + 60,
            "code": format!("{}.{}", asked["nonce"], asked["code_challenge"]),
            "state": asked["state"]});
        let answer = match alg {
            "ES256" => world.key.token(&claims),
            alg => by(&rsa, alg, &claims),
        };
        let outcome = browser
            .get(&world, &format!("/orders?response={answer}"))
            .await;
        assert_eq!(outcome.code(), code, "{pinned} {alg}");
    }
}

#[tokio::test]
async fn a_logout_token_by_another_algorithm_is_refused_by_name() {
    for (pinned, status) in [("ES256", 200), ("PS256", 400)] {
        let node = Node::new(json!({ "id_token_signed_response_alg": pinned })).await;
        let token = super::server_side_sessions::logout_token(&node, json!({}));
        let outcome = node
            .world
            .ask(&posted(&format!("logout_token={token}")))
            .await;
        assert_eq!(outcome.code().0, status, "{pinned}");
        if status == 400 {
            assert_eq!(outcome.code(), (400, "wrong_logout_alg"));
        }
    }
}

#[tokio::test]
async fn signed_userinfo_by_another_algorithm_is_refused() {
    for (pinned, code) in [
        (json!(null), (200, "pass")),
        (json!("ES256"), (200, "pass")),
        (json!("PS256"), (500, "provider_malformed")),
    ] {
        let (world, recorder) =
            super::request_recorder::world(json!({"auth_methods": ["userinfo"],
            "userinfo_accept": "application/jwt", "id_token_signed_response_alg": pinned}));
        let said = world.key.token(&json!({"sub": "anna", "iss": ISSUER}));
        recorder.answer("/userinfo", json!(said));
        assert_eq!(world.ask_bearer("opaque").await.code(), code, "{pinned}");
    }
}
