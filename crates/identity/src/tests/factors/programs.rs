//! Second factors where there is no page: `/json`, the password grant,
//! administration.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{next_code, provider, with};
use crate::factors::code_at;
use crate::testing::{Answer, PASSWORD_GRANT, Provider, request};

async fn enrolled(provider: &Provider) -> (Vec<u8>, Vec<String>) {
    let browser = Browser::new(provider);
    browser.sign_in().await;
    let enrolled = browser.enrol_totp().await;
    next_code(provider);
    enrolled
}

async fn authenticate(provider: &Provider, body: &str) -> Answer {
    let headers = [
        ("x-service-username", "demo"),
        ("x-service-password", "correct horse"),
    ];
    let json = [("content-type", "application/json")];
    let headers: &[_] = if body.is_empty() { &headers } else { &json };
    provider
        .send(request("POST", "/json/authenticate", headers, body))
        .await
}

fn filled(question: &Value, code: &str) -> String {
    let mut answer = question.clone();
    answer["callbacks"][0]["input"][0]["value"] = json!(code);
    answer.to_string()
}

#[tokio::test]
async fn callbacks_go_on_to_the_code() {
    let provider = provider().await;
    let (secret, codes) = enrolled(&provider).await;
    let question = authenticate(&provider, "").await;
    assert_eq!(question.status, 200, "{}", question.text);
    assert_eq!(question.header("set-cookie"), "");
    let question = question.json();
    assert!(question.get("tokenId").is_none());
    assert_eq!(question["callbacks"][0]["type"], "PasswordCallback");
    let wrong = authenticate(&provider, &filled(&question, "000000")).await;
    assert_eq!(wrong.status, 401);
    assert_eq!(wrong.json()["message"], "Authentication Failed");
    let code = code_at(&secret, provider.clock.now_ms());
    let right = authenticate(&provider, &filled(&question, &code)).await;
    assert!(right.json()["tokenId"].is_string(), "{}", right.text);
    let again = authenticate(&provider, &filled(&question, &code)).await;
    assert_eq!(again.status, 408, "a replay");
    let question = authenticate(&provider, "").await.json();
    let again = authenticate(&provider, &filled(&question, &code)).await;
    assert_eq!(again.status, 401, "a replay of the code alone");
    let recovered = authenticate(&provider, &filled(&question, &codes[0])).await;
    assert!(recovered.json()["tokenId"].is_string());
    let question = authenticate(&provider, "").await.json();
    provider.clock.advance(300_000);
    let late = authenticate(&provider, &filled(&question, &codes[1])).await;
    assert_eq!(late.status, 408);
}

#[tokio::test]
async fn step_up_bypass_by_changing_the_password() {
    let provider = provider().await;
    let session = authenticate(&provider, "").await.json();
    let session = session["tokenId"].as_str().expect("a session");
    enrolled(&provider).await;
    let headers = [
        ("iPlanetDirectoryPro", session),
        ("content-type", "application/json"),
    ];
    let body = r#"{"currentpassword": "correct horse", "userpassword": "another horse"}"#;
    let path = "/json/users/demo?_action=changePassword";
    let refused = provider.send(request("POST", path, &headers, body)).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert_eq!(refused.json()["message"], "A second factor is needed");
}

#[tokio::test]
async fn an_auth_id_from_before_the_password_is_none_from_after() {
    let provider = provider().await;
    let (secret, _) = enrolled(&provider).await;
    let first = request("POST", "/json/authenticate", &[], "");
    let first = provider.send(first).await.json();
    let code = code_at(&secret, provider.clock.now_ms());
    let mut forged = first.clone();
    forged["callbacks"] = json!([
        {"type": "NameCallback", "input": [{"value": "demo"}]},
        {"type": "PasswordCallback", "input": [{"value": code}]},
    ]);
    let refused = authenticate(&provider, &forged.to_string()).await;
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn who_must_have_a_factor_and_has_none_is_told_so() {
    let provider = Provider::with(with(json!({"second_factor": "required"}))).await;
    let refused = authenticate(&provider, "").await;
    assert_eq!(refused.status, 401);
    assert!(refused.text.contains("second factor"), "{}", refused.text);
    let refused = provider
        .token(&format!("{PASSWORD_GRANT}&scope=openid"))
        .await;
    assert_eq!(refused.oauth_error().1, "invalid_grant");
}

#[tokio::test]
async fn the_password_grant_takes_the_code_in_a_field_of_its_own() {
    let provider = provider().await;
    let (secret, _) = enrolled(&provider).await;
    let body = format!("{PASSWORD_GRANT}&scope=openid");
    let without = provider.token(&body).await;
    let wrong = provider.token(&body.replace("correct", "wrong")).await;
    assert_eq!(
        without.oauth_error(),
        wrong.oauth_error(),
        "it tells of the password"
    );
    let code = code_at(&secret, provider.clock.now_ms());
    let right = provider.token(&format!("{body}&otp={code}")).await.json();
    let claims = provider.claims(right["id_token"].as_str().expect("a token"));
    assert_eq!(claims["amr"], json!(["pwd", "otp", "mfa"]));
    let access = provider.claims(right["access_token"].as_str().expect("a token"));
    assert_eq!(
        (&access["acr"], &access["amr"]),
        (&json!("mfa"), &claims["amr"])
    );
    let again = provider.token(&format!("{body}&otp={code}")).await;
    assert_eq!(again.oauth_error().1, "invalid_grant");
    let refresh = right["refresh_token"].as_str().expect("a token");
    let body = format!(
        "grant_type=refresh_token&client_id=app&client_secret=app-secret&refresh_token={refresh}"
    );
    let renewed = provider.token(&body).await.json();
    let claims = provider.claims(renewed["id_token"].as_str().expect("a token"));
    assert_eq!(claims["acr"], "mfa");
    let path = format!("/oauth2/access_token?otp={code}");
    let in_query = provider.form(&path, PASSWORD_GRANT).await;
    assert_eq!(in_query.oauth_error().1, "invalid_request");
}

#[tokio::test]
async fn introspection_tells_how_the_user_signed_in() {
    let provider = provider().await;
    let told = |tokens: Value| {
        let provider = &provider;
        async move {
            let token = tokens["access_token"].as_str().expect("a token").to_owned();
            let body = format!("client_id=app&client_secret=app-secret&token={token}");
            let told = provider.form("/oauth2/introspect", &body).await.json();
            (told["acr"].clone(), told["amr"].clone())
        }
    };
    let plain = told(provider.user_tokens("openid").await).await;
    assert_eq!(plain, (json!("0"), json!(["pwd"])));
    let (secret, _) = enrolled(&provider).await;
    let code = code_at(&secret, provider.clock.now_ms());
    let body = format!("{PASSWORD_GRANT}&scope=openid&otp={code}");
    let strong = told(provider.token(&body).await.json()).await;
    assert_eq!(strong, (json!("mfa"), json!(["pwd", "otp", "mfa"])));
    let own = provider.client_token().await;
    let own = told(json!({"access_token": own})).await;
    assert_eq!(own, (Value::Null, Value::Null));
}

#[tokio::test]
async fn an_administrator_looks_at_factors_and_resets_them() {
    let provider = provider().await;
    enrolled(&provider).await;
    let demo = provider.store.user_by_name("/", "demo").await;
    let demo = demo.expect("read").expect("demo");
    let path = format!("/users/{}/factors", demo.id);
    let listed = provider.manage("GET", &path, &Value::Null).await;
    assert_eq!(listed.json()["data"][0]["kind"], "totp", "{}", listed.text);
    assert!(!listed.text.contains("secret"), "{}", listed.text);
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let reset = provider.manage("DELETE", &path, &Value::Null).await;
    assert_eq!(reset.status, 204);
    let listed = provider.manage("GET", &path, &Value::Null).await;
    assert_eq!(listed.json()["data"], json!([]));
    let all = doorward_core::model::session::SessionQuery::default();
    let left = provider.store.sessions(&all, None, 9).await;
    assert!(left.expect("a page").sessions.is_empty());
    let unknown = format!("/users/{}/factors", uuid::Uuid::from_u128(7));
    let lost = provider.manage("DELETE", &unknown, &Value::Null).await;
    assert_eq!(lost.status, 404);
}

#[tokio::test]
async fn secrets_of_apps_are_sealed_with_the_master_key() {
    let mut config = with(json!({}));
    config["keys"] = json!({"master_key": "one-master-key-of-32-bytes-or-more"});
    let provider = Provider::with(config.clone()).await;
    let (secret, _) = enrolled(&provider).await;
    let demo = provider.store.user_by_name("/", "demo").await;
    let demo = demo.expect("read").expect("demo");
    let kept = || async {
        let mut factors = provider.store.factors(demo.id).await.expect("factors");
        factors.remove(0).secret
    };
    let sealed = kept().await;
    assert!(sealed.expose().starts_with("sealed:1:"));
    config["keys"] = json!({
        "master_key": "two-master-key-of-32-bytes-or-more",
        "previous_master_keys": ["one-master-key-of-32-bytes-or-more"],
    });
    let other = Provider::with(config.clone()).await;
    drop(other);
    let code = code_at(&secret, provider.clock.now_ms());
    let body = format!("{PASSWORD_GRANT}&scope=openid&otp={code}");
    assert_eq!(provider.token(&body).await.status, 200);
}
