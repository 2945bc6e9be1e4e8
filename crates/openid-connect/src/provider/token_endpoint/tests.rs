use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::provider::token_endpoint::*;
use doorward_net::http::outbound::Answer;

fn answer(status: u16, body: Value, own_client: bool) -> Result<Tokens, Refusal> {
    let answer = Answer {
        status: StatusCode::from_u16(status).expect("a status"),
        headers: HeaderMap::new(),
        body: Bytes::from(body.to_string()),
        user: None,
    };
    read(&answer, own_client, 1000)
}

#[test]
fn an_answer_that_is_no_token_response_gives_none() {
    let good = json!({"access_token": "t", "token_type": "bearer", "expires_in": "60"});
    let tokens = answer(200, good, true).expect("tokens");
    assert_eq!(tokens.access.expose(), "t");
    assert_eq!(tokens.ends_at, Some(61_000));
    for (status, body, own, refusal) in [
        (
            400,
            json!({"error": "invalid_grant"}),
            true,
            Refusal::WrongCredentials,
        ),
        (
            401,
            json!({"error": "invalid_client"}),
            true,
            Refusal::ClientRefused,
        ),
        (
            401,
            json!({"error": "invalid_client"}),
            false,
            Refusal::WrongCredentials,
        ),
        (
            400,
            json!({"error": "invalid_scope"}),
            true,
            Refusal::WrongCredentials,
        ),
        (
            400,
            json!({"error": "unauthorized_client"}),
            true,
            Refusal::ProviderRefuses,
        ),
        (
            400,
            json!({"error": "unsupported_grant_type"}),
            false,
            Refusal::ProviderRefuses,
        ),
        (403, json!("<html>"), true, Refusal::WrongCredentials),
        (
            429,
            json!({"error": "slow_down"}),
            true,
            Refusal::ProviderError,
        ),
        (204, json!({}), true, Refusal::ProviderMalformed),
        (404, json!("<html>"), true, Refusal::ProviderMalformed),
        (
            200,
            json!({"error": "bad_refresh_token"}),
            true,
            Refusal::WrongCredentials,
        ),
        (
            200,
            json!({"token_type": "Bearer"}),
            true,
            Refusal::ProviderMalformed,
        ),
        (
            200,
            json!({"access_token": "t", "token_type": "DPoP"}),
            true,
            Refusal::ProviderMalformed,
        ),
        (200, json!([]), true, Refusal::ProviderMalformed),
    ] {
        let outcome = answer(status, body.clone(), own).map(|_| ());
        assert_eq!(outcome, Err(refusal), "{body}");
    }
}

#[test]
fn a_flood_of_long_token_responses_stays_within_the_bound() {
    let cache = grant_cache();
    for n in 0_u32..2_000 {
        let mut about = [0; 32];
        about[..4].copy_from_slice(&n.to_be_bytes());
        let access = json!({"access_token": "t".repeat(60_000)});
        let tokens = answer(200, access, true).expect("tokens");
        cache.insert(about, (Arc::new(tokens), i64::MAX));
    }
    assert!(cache.weight() <= BYTES + BYTES / 8);
}
