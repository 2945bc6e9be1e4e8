use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use crate::testing::{Answer, Provider, START_MS, config, request};

const CALLBACK: &str = "https://app.example/cb";

async fn provider() -> Provider {
    let mut config = config();
    let clients = config["realms"]["/"]["clients"].as_array_mut();
    clients.expect("a list").push(json!({
        "client_id": "web", "client_secret": "web-secret",
        "grant_types": ["authorization_code"], "redirect_uris": [CALLBACK],
        "scope": "a", "request_object_signing_alg": "none",
    }));
    config["realms"]["/"]["settings"] = json!({"unsigned_request_objects": true});
    Provider::with(config).await
}

/// The browser's secret, and when it was shown the page.
fn shown(page: &Answer) -> (String, String) {
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let cookie = page.header("set-cookie");
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    let field = "name=\"doorward_since\" value=\"";
    let (_, rest) = page.text.split_once(field).expect("the field");
    let since = rest.split('"').next().unwrap_or_default().to_owned();
    (cookie, since)
}

/// What a browser that was shown the page before, in another time, is shown.
async fn later(provider: &Provider, path: &str, (cookie, since): &(String, String)) -> Answer {
    let path = format!("{path}&doorward_since={since}");
    let cookie = [("cookie", cookie.as_str())];
    provider.send(request("GET", &path, &cookie, "")).await
}

async fn push(provider: &Provider) -> String {
    let form = format!(
        "client_id=web&client_secret=web-secret&response_type=code&scope=a&redirect_uri={CALLBACK}"
    );
    let answer = provider.form("/oauth2/par", &form).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let uri = answer.json()["request_uri"].as_str().map(str::to_owned);
    let uri = uri.expect("a text");
    format!("/oauth2/authorize?client_id=web&request_uri={uri}")
}

#[tokio::test]
async fn a_pushed_request_is_begun_in_time_and_finished_in_peace() {
    let provider = provider().await;
    let path = push(&provider).await;
    provider.clock.advance(89_000);
    let mine = shown(&provider.get(&path).await);
    provider.clock.advance(1_000);
    let late = provider.get(&path).await;
    assert_eq!(late.status, StatusCode::BAD_REQUEST);
    assert!(late.text.contains("invalid_request_uri"));
    provider.clock.advance(50 * 60 * 1000);
    assert_eq!(later(&provider, &path, &mine).await.status, StatusCode::OK);
    // The mark is this browser's, for this request.
    let other = (
        format!("doorward-browser={}", "x".repeat(32)),
        mine.1.clone(),
    );
    let other = later(&provider, &path, &other).await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
    provider.clock.advance(10 * 60 * 1000);
    let over = later(&provider, &path, &mine).await;
    assert_eq!(over.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_mark_of_a_page_that_was_shown_too_late_opens_nothing() {
    let provider = provider().await;
    let (first, second) = (push(&provider).await, push(&provider).await);
    let mine = shown(&provider.get(&first).await);
    provider.clock.advance(90_000);
    let wrong = later(&provider, &second, &mine).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_request_object_that_ends_while_its_user_signs_in_still_counts() {
    let provider = provider().await;
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "exp": START_MS / 1000 + 60, "response_type": "code", "redirect_uri": CALLBACK,
        "scope": "a", "client_id": "web",
    });
    let object = format!("{}.{}.", part(json!({"alg": "none"})), part(claims));
    let path = format!("/oauth2/authorize?client_id=web&request={object}");
    let mine = shown(&provider.get(&path).await);
    provider.clock.advance(5 * 60 * 1000);
    let late = provider.get(&path).await;
    let told = late.header("location");
    assert!(told.contains("error=invalid_request_object"), "{told}");
    assert_eq!(later(&provider, &path, &mine).await.status, StatusCode::OK);
}

#[tokio::test]
async fn unknown_scopes_get_at_every_endpoint_what_the_realm_says() {
    let both = async |setting: &str, scope: &str| {
        let mut config = config();
        config["realms"]["/"]["settings"] = json!({"unknown_scope": setting});
        let clients = config["realms"]["/"]["clients"].as_array_mut();
        clients.expect("a list").push(json!({
            "client_id": "web", "client_secret": "web-secret", "scope": "openid a",
            "grant_types": ["authorization_code", "client_credentials"],
            "redirect_uris": [CALLBACK], "default_scope": "a",
        }));
        let provider = Provider::with(config).await;
        let sender = format!("client_id=web&client_secret=web-secret&scope={scope}");
        let pushed = format!("{sender}&response_type=code&redirect_uri={CALLBACK}");
        let pushed = provider.form("/oauth2/par", &pushed).await;
        let token = format!("{sender}&grant_type=client_credentials");
        let token = provider.token(&token).await;
        (
            (pushed.status.as_u16(), pushed.oauth_error().1),
            (token.status.as_u16(), token.json()["scope"].clone()),
        )
    };
    let refused = ((400, "invalid_scope".to_owned()), (400, Value::Null));
    let granted = |scope: &str| ((201, String::new()), (200, json!(scope)));
    for (setting, scope, wanted) in [
        ("refuse", "openid+nonsense", &refused),
        ("refuse", "a+nonsense", &refused),
        ("refuse", "openid+a", &granted("openid a")),
        ("ignore", "openid+nonsense+a", &granted("openid a")),
        ("ignore", "a+nonsense", &granted("a")),
        ("ignore", "nonsense", &refused),
        ("ignore", "", &granted("a")),
    ] {
        assert_eq!(both(setting, scope).await, *wanted, "{setting}: {scope}");
    }
}

#[tokio::test]
async fn lasting_access_is_left_out_where_a_client_may_not_have_it_unless_the_realm_refuses() {
    for (setting, scope, status) in [
        (Value::Null, "a+offline_access", 201),
        (Value::Null, "+offline_access", 400),
        (Value::Null, "a+nonsense", 400),
        (json!("ignore"), "a+offline_access", 201),
        (json!("refuse"), "a+offline_access", 400),
    ] {
        let mut config = config();
        config["realms"]["/"]["settings"] = json!({"unknown_scope": setting});
        let clients = config["realms"]["/"]["clients"].as_array_mut();
        clients.expect("a list").push(json!({
            "client_id": "web", "client_secret": "web-secret", "scope": "a",
            "grant_types": ["authorization_code"],
            "redirect_uris": [CALLBACK], "default_scope": "a",
        }));
        let provider = Provider::with(config).await;
        let pushed = format!(
            "client_id=web&client_secret=web-secret&scope={scope}\
             &response_type=code&redirect_uri={CALLBACK}"
        );
        let pushed = provider.form("/oauth2/par", &pushed).await;
        assert_eq!(pushed.status, status, "{setting} {scope}: {}", pushed.text);
    }
}
