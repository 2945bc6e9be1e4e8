//! What is taken for an answer of another provider, and what is not.

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::other_provider::{OtherProvider, encoded, failed, leave, provider, return_, round, who};
use crate::testing::{Answer, Provider, START_MS};
use doorward_core::jose::testing::TestKey;

fn create() -> Value {
    json!({"link": {"create": true}})
}

/// What becomes of this text as ID token.
async fn brought(
    provider: &Provider,
    elsewhere: &OtherProvider,
    make: impl Fn(&Value) -> String,
) -> Answer {
    let trip = leave(provider).await;
    elsewhere.grant(&make(&elsewhere.claims(&trip, &json!({}))));
    return_(provider, &trip).await
}

#[tokio::test]
async fn an_id_token_that_is_not_the_answer_to_our_request_is_refused() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let now = START_MS / 1000;
    for change in [
        json!({"iss": "https://evil.example"}),
        json!({"iss": format!("{}/", elsewhere.issuer)}),
        json!({"iss": null}),
        json!({"aud": "other"}),
        json!({"aud": ["door", "other"]}),
        json!({"aud": []}),
        json!({"aud": {"door": 1}}),
        json!({"azp": "other"}),
        json!({"azp": 5}),
        json!({"exp": now - 61}),
        json!({"exp": null}),
        json!({"exp": "later"}),
        json!({"iat": null}),
        json!({"iat": now + 3600}),
        json!({"nbf": now + 3600}),
        json!({"nonce": "other"}),
        json!({"nonce": null}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": 7}),
        json!({"sub": "x".repeat(256)}),
        json!({"sub": "a\nb"}),
        json!({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}),
    ] {
        let back = round(&provider, &elsewhere, change.clone()).await;
        assert_eq!(failed(&back).as_deref(), Some("failed"), "{change}");
    }
    let good = json!({"aud": ["door", "other"], "azp": "door", "exp": now - 59,
        "at_hash": doorward_core::jose::sign::half_hash(doorward_core::model::client::SignAlg::ES256, "at")});
    assert_eq!(
        who(&provider, &round(&provider, &elsewhere, good).await).await,
        "ann"
    );
}

#[tokio::test]
async fn algorithm_none_and_confused_keys() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let none = |claims: &Value| {
        format!(
            "{}.{}.",
            encoded("{\"alg\":\"none\"}"),
            encoded(&claims.to_string())
        )
    };
    let shared = |key: &[u8], claims: &Value| {
        let head = encoded("{\"alg\":\"HS256\",\"kid\":\"one\"}");
        let signed = format!("{head}.{}", encoded(&claims.to_string()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), signed.as_bytes());
        use base64::Engine;
        let tag = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(tag);
        format!("{signed}.{tag}")
    };
    let public = elsewhere.key.jwk().to_string();
    let other = TestKey::es256("one");
    let typed = |claims: &Value| {
        let header = json!({"alg": "ES256", "kid": "one", "typ": "at+jwt"});
        elsewhere.key.sign(&header.to_string(), &claims.to_string())
    };
    let attempts: [&dyn Fn(&Value) -> String; 5] = [
        &none,
        &|claims| shared(public.as_bytes(), claims),
        &|claims| shared(b"hu sh", claims),
        &|claims| other.token(claims),
        &typed,
    ];
    for (index, attempt) in attempts.iter().enumerate() {
        let back = brought(&provider, &elsewhere, attempt).await;
        assert_eq!(failed(&back).as_deref(), Some("failed"), "{index}");
    }
}

#[tokio::test]
async fn algorithms_that_the_provider_does_not_name_are_refused() {
    let elsewhere = OtherProvider::open().await;
    elsewhere.describe(json!({"id_token_signing_alg_values_supported": ["RS256"]}));
    let provider = provider(&elsewhere, create()).await;
    let back = round(&provider, &elsewhere, json!({})).await;
    assert_eq!(failed(&back).as_deref(), Some("failed"));
}

#[tokio::test]
async fn a_new_key_of_the_provider_is_fetched_once_it_is_named() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    assert_eq!(
        who(&provider, &round(&provider, &elsewhere, json!({})).await).await,
        "ann"
    );
    let new = TestKey::es256("two");
    elsewhere.publish(&new);
    let back = brought(&provider, &elsewhere, |claims| new.token(claims)).await;
    assert_eq!(who(&provider, &back).await, "ann");
    let fetched = elsewhere.heard("GET /keys").len();
    let unknown = TestKey::es256("three");
    for _ in 0..5 {
        let back = brought(&provider, &elsewhere, |claims| unknown.token(claims)).await;
        assert_eq!(failed(&back).as_deref(), Some("failed"));
    }
    assert_eq!(
        elsewhere.heard("GET /keys").len(),
        fetched,
        "not for every stranger's key"
    );
}

#[tokio::test]
async fn required_contexts_are_checked_and_asked_for() {
    let elsewhere = OtherProvider::open().await;
    let mut rules = create();
    rules["acr_values"] = json!("gold");
    rules["require_acr"] = json!(["gold", "platinum"]);
    let provider = provider(&elsewhere, rules).await;
    for (acr, good) in [
        (json!("gold"), true),
        (json!("tin"), false),
        (json!(null), false),
    ] {
        let back = round(&provider, &elsewhere, json!({"acr": acr})).await;
        if good {
            assert_eq!(who(&provider, &back).await, "ann")
        } else {
            assert_eq!(failed(&back).as_deref(), Some("failed"), "{acr}")
        }
    }
    assert_eq!(leave(&provider).await.asked["acr_values"], "gold");
}

#[tokio::test]
async fn answers_of_the_token_endpoint_that_are_none() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    for (status, kind, body, told) in [
        (
            400,
            "application/json",
            "{\"error\":\"invalid_grant\"}".to_owned(),
            "failed",
        ),
        (
            401,
            "text/html",
            "<script>alert(1)</script>".to_owned(),
            "failed",
        ),
        (503, "text/html", String::new(), "unavailable"),
        (200, "text/html", "{}".to_owned(), "failed"),
        (200, "application/json", "{}".to_owned(), "failed"),
        (
            200,
            "application/json",
            "{\"access_token\":\"at\",\"id_token\":5}".to_owned(),
            "failed",
        ),
        (
            200,
            "application/json",
            format!("{{\"id_token\":\"{}\"}}", "x".repeat(17_000)),
            "failed",
        ),
        (200, "application/json", " ".repeat(70_000), "unavailable"),
    ] {
        let trip = leave(&provider).await;
        elsewhere.say("/token", status, kind, body.clone());
        let back = return_(&provider, &trip).await;
        assert_eq!(failed(&back).as_deref(), Some(told), "{status} {body:.30}");
        assert!(!back.text.contains("alert(1)"));
    }
}

/// The token responses that have members beside a good ID token.
async fn with_members(provider: &Provider, elsewhere: &OtherProvider, more: Value) -> Answer {
    let trip = leave(provider).await;
    let claims = elsewhere.claims(&trip, &json!({}));
    let mut response = more;
    response["id_token"] = json!(elsewhere.key.token(&claims));
    elsewhere.say_json("/token", &response);
    return_(provider, &trip).await
}

#[tokio::test]
async fn a_provider_that_gives_an_id_token_alone_signs_users_in() {
    let elsewhere = OtherProvider::open().await;
    let issuer = &elsewhere.issuer;
    elsewhere.describe(json!({"userinfo_endpoint": format!("{issuer}/userinfo")}));
    let provider = provider(&elsewhere, create()).await;
    for good in [json!({}), json!({"token_type": "Bearer", "scope": ""})] {
        let back = with_members(&provider, &elsewhere, good).await;
        assert_eq!(who(&provider, &back).await, "ann");
    }
    assert!(elsewhere.heard("GET /userinfo").is_empty());
    // Nobody takes a header of that length.
    let long = json!({"access_token": "x".repeat(17_000)});
    let back = with_members(&provider, &elsewhere, long).await;
    assert_eq!(who(&provider, &back).await, "ann");
    assert!(elsewhere.heard("GET /userinfo").is_empty());
}

#[tokio::test]
async fn a_token_response_that_says_two_things_is_refused() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    for bad in [
        json!({"access_token": "at", "error": "access_denied"}),
        json!({"access_token": "at", "token_type": "DPoP"}),
        json!({"access_token": ["at"], "token_type": "Bearer"}),
    ] {
        let back = with_members(&provider, &elsewhere, bad.clone()).await;
        assert_eq!(failed(&back).as_deref(), Some("failed"), "{bad}");
    }
}

#[tokio::test]
async fn user_info_adds_claims_and_never_of_another_subject() {
    let elsewhere = OtherProvider::open().await;
    let issuer = &elsewhere.issuer;
    elsewhere.describe(json!({"userinfo_endpoint": format!("{issuer}/userinfo")}));
    let provider = provider(&elsewhere, create()).await;
    elsewhere.say_json(
        "/userinfo",
        &json!({"sub": "u-2", "preferred_username": "eve"}),
    );
    let less = json!({"preferred_username": null});
    let back = round(&provider, &elsewhere, less.clone()).await;
    assert_eq!(failed(&back).as_deref(), Some("failed"));
    elsewhere.say_json(
        "/userinfo",
        &json!({"sub": "u-1", "preferred_username": "bea",
        "name": "Other"}),
    );
    let back = round(&provider, &elsewhere, less).await;
    assert_eq!(who(&provider, &back).await, "bea");
    let bea = provider
        .store
        .user_by_name("/", "bea")
        .await
        .expect("read")
        .expect("bea");
    assert_eq!(
        bea.profile["displayName"], "Ann A",
        "the signed claim counts"
    );
    let asked = elsewhere.heard("GET /userinfo").pop().expect("a request");
    assert!(asked.contains("authorization: Bearer at"));
}

#[tokio::test]
async fn shared_secrets_sign_only_where_that_is_said() {
    let elsewhere = OtherProvider::open().await;
    let mut rules = create();
    rules["id_token_signed_response_alg"] = json!("HS256");
    rules["client_secret"] = json!("0123456789abcdef0123456789abcdef");
    rules["token_endpoint_auth_method"] = json!("client_secret_jwt");
    let provider = provider(&elsewhere, rules).await;
    let signer = doorward_core::jose::sign::Signer::from_secret(
        doorward_core::model::client::SignAlg::HS256,
        "0123456789abcdef0123456789abcdef",
    );
    let signer = signer.expect("a signer");
    let back = brought(&provider, &elsewhere, |claims| {
        signer.sign(claims).expect("signed")
    })
    .await;
    assert_eq!(who(&provider, &back).await, "ann");
    let back = brought(&provider, &elsewhere, |claims| elsewhere.key.token(claims)).await;
    assert_eq!(failed(&back).as_deref(), Some("failed"));
    let exchange = elsewhere.heard("POST /token").pop().expect("an exchange");
    assert!(exchange.contains("client_assertion=") && !exchange.contains("0123456789abcdef"));
}

#[tokio::test]
async fn assertions_are_signed_with_published_keys() {
    let elsewhere = OtherProvider::open().await;
    let mut rules = create();
    rules["client_secret"] = json!(null);
    rules["token_endpoint_auth_method"] = json!("private_key_jwt");
    let provider = provider(&elsewhere, rules).await;
    assert_eq!(
        who(&provider, &round(&provider, &elsewhere, json!({})).await).await,
        "ann"
    );
    let exchange = elsewhere.heard("POST /token").pop().expect("an exchange");
    let assertion = exchange
        .split("client_assertion=")
        .nth(1)
        .expect("an assertion");
    let claims = provider.claims(assertion.split('&').next().expect("an assertion"));
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!("door"), &json!("door"))
    );
    assert_eq!(claims["aud"], elsewhere.issuer);
}
