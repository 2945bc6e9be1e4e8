//! What becomes of registered clients with time.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::maintain::sweep_clients;
use crate::testing::{Provider, config, request};

const CALLBACK: &str = "https://app.example/cb";
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

/// An authorization request that is a request object without a signature.
fn by_unsigned_object(client_id: &str) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "client_id": client_id, "response_type": "code", "redirect_uri": CALLBACK,
        "scope": "openid", "state": "inside", "prompt": "none",
    });
    let object = format!("{}.{}.", part(json!({"alg": "none"})), part(claims));
    format!(
        "/oauth2/authorize?client_id={client_id}&response_type=code&scope=openid\
         &redirect_uri={CALLBACK}&request={object}"
    )
}

#[tokio::test]
async fn an_unsigned_request_object_counts_for_who_registered_no_algorithm_where_it_is_offered() {
    let settings = json!({"grant_types": ["authorization_code"], "scope": "openid"});
    let mut config = open(&settings);
    let clients = config["realms"]["/"]["clients"].as_array_mut();
    clients.expect("a list").push(json!({
        "client_id": "declared", "client_secret": "declared-secret", "scope": "openid",
        "grant_types": ["authorization_code"], "redirect_uris": [CALLBACK],
    }));
    let provider = Provider::with(config).await;
    let metadata = provider.get("/oauth2/.well-known/openid-configuration");
    let algorithms = &metadata.await.json()["request_object_signing_alg_values_supported"];
    let algorithms = algorithms.as_array().expect("a list");
    assert!(algorithms.contains(&json!("none")), "{algorithms:?}");

    // That of RFC 7515, appendix A.3.
    let key = json!({
        "kty": "EC", "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    let heard = ("login_required", Some("inside"));
    let unheard = ("invalid_request_object", None);
    for (alg, jwks, must_sign, (error, state)) in [
        (Value::Null, Value::Null, false, heard),
        (json!("none"), Value::Null, false, heard),
        (json!("HS256"), Value::Null, false, unheard),
        (Value::Null, json!({"keys": [key]}), true, unheard),
    ] {
        let mut record = json!({
            "redirect_uris": [CALLBACK], "request_object_signing_alg": alg, "jwks": jwks,
            "require_signed_request_object": must_sign,
        });
        let members = record.as_object_mut().expect("an object");
        members.retain(|_, value| !value.is_null());
        let body = record.to_string();
        let request = request("POST", "/oauth2/connect/register", &[JSON], &body);
        let answer = provider.send(request).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let client_id = answer.json()["client_id"].as_str().map(str::to_owned);
        assert_told(&provider, &client_id.expect("a text"), error, state).await;
    }
    // The operator says it for those that the operator declared.
    assert_told(&provider, "declared", "request_not_supported", None).await;
}

async fn assert_told(provider: &Provider, client_id: &str, error: &str, state: Option<&str>) {
    let answer = provider.get(&by_unsigned_object(client_id)).await;
    let told = url::Url::parse(answer.header("location")).expect("a redirect");
    let of = |name: &str| {
        let mut pairs = told.query_pairs();
        let found = pairs.find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned())
    };
    assert_eq!(of("error").as_deref(), Some(error), "{told}");
    assert_eq!(of("state").as_deref(), state, "{told}");
}
