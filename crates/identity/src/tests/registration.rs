//! What becomes of registered clients with time.

use serde_json::{Value, json};

use crate::maintain::sweep_clients;
use crate::testing::{Provider, config, request};

const JSON: (&str, &str) = ("content-type", "application/json");

fn open(more: &Value) -> Value {
    let mut config = config();
    let mut settings = json!({"mode": "open", "grant_types": ["client_credentials"], "scope": "a"});
    for (name, value) in more.as_object().into_iter().flatten() {
        settings[name] = value.clone();
    }
    config["realms"]["/"]["settings"] = json!({"registration": settings});
    config
}

async fn register(provider: &Provider) -> Value {
    let body = r#"{"grant_types": ["client_credentials"],
        "token_endpoint_auth_method": "client_secret_post"}"#;
    let request = request("POST", "/oauth2/connect/register", &[JSON], body);
    let answer = provider.send(request).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()
}

async fn token(provider: &Provider, record: &Value) -> u16 {
    let text = |name: &str| record[name].as_str().expect(name);
    let body = format!(
        "grant_type=client_credentials&scope=a&client_id={}&client_secret={}",
        text("client_id"),
        text("client_secret")
    );
    provider.token(&body).await.status.as_u16()
}

#[tokio::test]
async fn clients_that_nobody_uses_are_removed() {
    let provider = Provider::with(open(&json!({"unused_lifetime": 7200}))).await;
    let state = &provider.identity.state;
    let used = register(&provider).await;
    let unused = register(&provider).await;
    for _ in 0..3 {
        provider.clock.advance(3_600_000);
        assert_eq!(token(&provider, &used).await, 200);
        sweep_clients(state, 100).await;
    }
    assert_eq!(token(&provider, &used).await, 200);
    assert_eq!(token(&provider, &unused).await, 401);
    // Those of the operator stay.
    provider.client_token().await;
}

#[tokio::test]
async fn without_a_lifetime_unused_clients_stay() {
    let provider = Provider::with(open(&json!({"unused_lifetime": 0}))).await;
    let record = register(&provider).await;
    provider.clock.advance(366 * 24 * 3_600_000);
    sweep_clients(&provider.identity.state, 100).await;
    assert_eq!(token(&provider, &record).await, 200);
}

#[tokio::test]
async fn a_wildcard_in_a_redirect_uri_is_refused_in_words() {
    for name in ["redirect_uris", "post_logout_redirect_uris"] {
        let metadata = serde_json::from_value(serde_json::json!({
            "client_id": "c", (name): ["https://*.app.example/cb"],
        }));
        let metadata = metadata.expect("metadata");
        let error = crate::records::check_record(&metadata).expect_err(name);
        assert_eq!(error.path, format!("{name}[0]"));
        assert!(error.message.contains("no wildcards"), "{}", error.message);
    }
}
