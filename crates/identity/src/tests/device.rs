use serde_json::{Value, json};

use crate::testing::{Answer, FORM, Provider, config, request};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

fn with_devices(settings: Value) -> Value {
    let mut config = config();
    let root = &mut config["realms"]["/"];
    root["settings"] = settings;
    let clients = root["clients"].as_array_mut().expect("clients");
    clients.push(json!({
        "client_id": "tv", "token_endpoint_auth_method": "none",
        "grant_types": [GRANT, "refresh_token"], "scope": "openid a",
    }));
    config
}

async fn provider() -> Provider {
    Provider::with(with_devices(json!({}))).await
}

async fn codes(provider: &Provider, more: &str) -> (String, String) {
    let body = format!("client_id=tv&scope=openid{more}");
    let answer = provider.form("/oauth2/device/code", &body).await;
    let given = answer.json();
    let text = |name: &str| given[name].as_str().expect("a code").to_owned();
    (text("device_code"), text("user_code"))
}

async fn poll(provider: &Provider, device_code: &str, more: &str) -> Answer {
    let body = format!("grant_type={GRANT}&client_id=tv&device_code={device_code}{more}");
    provider.token(&body).await
}

async fn error(provider: &Provider, device_code: &str) -> String {
    poll(provider, device_code, "").await.oauth_error().1
}

/// Signs `demo` in.
async fn session(provider: &Provider) -> String {
    let headers = [
        ("x-service-username", "demo"),
        ("x-service-password", "correct horse"),
    ];
    let session = request("POST", "/json/authenticate", &headers, "");
    let session = provider.send(session).await.json();
    session["tokenId"].as_str().expect("a token").to_owned()
}

/// Approves as `demo`; gives the status.
async fn approve(provider: &Provider, user_code: &str) -> u16 {
    let token = session(provider).await;
    let cookie = format!("iPlanetDirectoryPro={token}");
    let headers = [FORM, ("cookie", cookie.as_str())];
    let body = format!("user_code={user_code}&decision=allow&csrf={token}");
    let page = request("POST", "/oauth2/device/user", &headers, &body);
    provider.send(page).await.status.as_u16()
}

#[tokio::test]
async fn codes_expire() {
    let provider = provider().await;
    let (pending, user_code) = codes(&provider, "").await;
    let (approved, other) = codes(&provider, "").await;
    assert_eq!(approve(&provider, &other).await, 200);
    provider.clock.advance(300_000 - 1);
    assert_eq!(error(&provider, &pending).await, "authorization_pending");
    provider.clock.advance(1);
    assert_eq!(error(&provider, &pending).await, "expired_token");
    assert_eq!(error(&provider, &approved).await, "expired_token");
    assert_eq!(approve(&provider, &user_code).await, 400);
    provider.clock.advance(600_000);
    let now_ms = provider.clock.now_ms();
    assert_eq!(provider.store.sweep(now_ms, 10).await.expect("swept"), 2);
    assert_eq!(error(&provider, &pending).await, "invalid_grant");
}

#[tokio::test]
async fn polling_too_fast_slows_down() {
    let provider = provider().await;
    let (code, _) = codes(&provider, "").await;
    for (seconds, told) in [
        (0, "authorization_pending"),
        (5, "authorization_pending"),
        (2, "slow_down"),
        (5, "slow_down"),
        (15, "authorization_pending"),
    ] {
        provider.clock.advance(seconds * 1000);
        assert_eq!(error(&provider, &code).await, told, "{seconds}");
    }
}

#[tokio::test]
async fn a_flood_of_requests_for_codes_is_bounded() {
    let provider = Provider::with(with_devices(json!({"device_codes_per_client": 3}))).await;
    for _ in 0..3 {
        codes(&provider, "").await;
    }
    let body = "client_id=tv&scope=openid";
    let full = provider.form("/oauth2/device/code", body).await;
    assert_eq!(full.status, 503);
    assert_eq!(full.header("retry-after"), "30");
    assert_eq!(full.json()["error"], "temporarily_unavailable");
    provider.clock.advance(300_000);
    codes(&provider, "").await;
}

#[tokio::test]
async fn a_code_challenge_is_not_forgotten() {
    let provider = provider().await;
    let challenge = "&code_challenge_method=S256&\
        code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    let (code, user_code) = codes(&provider, challenge).await;
    assert_eq!(approve(&provider, &user_code).await, 200);
    assert_eq!(error(&provider, &code).await, "invalid_grant");
    let verifier = "&code_verifier=dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    assert_eq!(poll(&provider, &code, verifier).await.status, 200);
}

#[tokio::test]
async fn nothing_is_given_for_a_user_or_client_that_is_gone() {
    let provider = provider().await;
    let (code, user_code) = codes(&provider, "").await;
    assert_eq!(approve(&provider, &user_code).await, 200);
    let (pending, waiting) = codes(&provider, "").await;
    let mut changed = with_devices(json!({}));
    changed["realms"]["/"]["users"][0]["accountStatus"] = json!("Deactivated");
    provider.reload(changed.clone()).await;
    assert_eq!(error(&provider, &code).await, "invalid_grant");
    // Neither is anybody asked about a client that may no longer ask.
    let clients = changed["realms"]["/"]["clients"].as_array_mut();
    let tv = clients.and_then(|clients| clients.pop());
    provider.reload(changed.clone()).await;
    let page = format!("/oauth2/device/user?user_code={waiting}");
    assert_eq!(provider.get(&page).await.status, 400);
    let clients = changed["realms"]["/"]["clients"].as_array_mut();
    clients.expect("clients").extend(tv);
    provider.reload(changed).await;
    assert_eq!(error(&provider, &pending).await, "invalid_grant");
}

#[tokio::test]
async fn settings_of_devices_out_of_bounds_are_refused() {
    for (name, value) in [
        ("device_code_lifetime", json!(59)),
        ("device_code_lifetime", json!(1801)),
        ("device_polling_interval", json!(0)),
        ("device_verification_uri", json!("example.com/tv")),
        ("device_verification_uri", json!("https://x/#f")),
    ] {
        let config = serde_json::from_value(with_devices(json!({name: value})));
        let error = crate::Identity::check(config.expect("a configuration"));
        let error = error.expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
    }
    let short = json!({"device_verification_uri": "https://x.example/tv?a=b"});
    let provider = Provider::with(with_devices(short)).await;
    let body = "client_id=tv&scope=openid";
    let given = provider.form("/oauth2/device/code", body).await.json();
    let code = given["user_code"].as_str().expect("a code");
    let complete = format!("https://x.example/tv?a=b&user_code={code}");
    assert_eq!(given["verification_uri_complete"], *complete);
}

#[tokio::test]
async fn the_earlier_name_of_the_grant_takes_its_code_in_the_earlier_parameter() {
    let provider = provider().await;
    let (code, user_code) = codes(&provider, "").await;
    assert_eq!(approve(&provider, &user_code).await, 200);
    let ask = async |grant: &str, fields: &str| {
        let body = format!("grant_type={grant}&client_id=tv&{fields}");
        provider.token(&body).await
    };
    let earlier = "http://oauth.net/grant_type/device/1.0";
    // The name of the standard has the parameter of the standard.
    let missing = ask(GRANT, &format!("code={code}")).await.oauth_error();
    assert_eq!(missing.2, "Missing parameter, 'device_code'");
    let both = format!("code={code}&device_code=another");
    let both = ask(earlier, &both).await.oauth_error();
    assert_eq!(both.1, "invalid_request");
    let wrong = ask(earlier, "code=another").await.oauth_error();
    assert_eq!(wrong.1, "invalid_grant");
    let tokens = ask(earlier, &format!("code={code}")).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text);
}

#[tokio::test]
async fn lasting_access_is_left_out_for_a_device_that_may_not_have_it() {
    let provider = provider().await;
    for (scope, status) in [
        ("openid+offline_access", 200),
        ("offline_access", 400),
        ("openid+nonsense", 400),
    ] {
        let body = format!("client_id=tv&scope={scope}");
        let answer = provider.form("/oauth2/device/code", &body).await;
        assert_eq!(answer.status, status, "{scope}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_page_names_the_server_that_the_device_asks_for() {
    let mut config = with_devices(json!({}));
    let clients = config["realms"]["/"]["clients"].as_array_mut();
    let tv = clients.and_then(|clients| clients.last_mut());
    tv.expect("a client")["resources"] = json!(["https://mcp.example/mcp"]);
    let provider = Provider::with(config).await;
    let token = session(&provider).await;
    let cookie = format!("iPlanetDirectoryPro={token}");
    let shown = async |more: &str| {
        let (_, user_code) = codes(&provider, more).await;
        let path = format!("/oauth2/device/user?user_code={user_code}");
        let headers = [("cookie", cookie.as_str())];
        provider.send(request("GET", &path, &headers, "")).await
    };
    let page = shown("&resource=https://mcp.example/mcp").await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(
        page.text.contains("https://mcp.example/mcp"),
        "{}",
        page.text
    );
    assert!(!shown("").await.text.contains("mcp.example"));
}
