//! Scopes that are for users of certain groups alone.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::config::RealmSettings;
use crate::testing::{Answer, FORM, Provider, config, request};
use doorward_net::http::outbound::TokenStatus;

const CALLBACK: &str = "https%3A%2F%2Fapp.example%2Fcb";
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";

fn grouped() -> Value {
    let mut config = config();
    let root = &mut config["realms"]["/"];
    root["settings"] = json!({
        "scope_groups": {"pay": ["payers", "owners"], "email": ["payers"]},
        "registration": {"mode": "open", "scope": "openid pay",
            "grant_types": ["authorization_code", "client_credentials"]},
    });
    let clients = root["clients"].as_array_mut().expect("clients");
    clients.extend([
        json!({"client_id": "web", "client_secret": "secret", "scope": "openid read pay email",
            "redirect_uris": ["https://app.example/cb"], "require_pkce": false,
            "grant_types": ["authorization_code", "password", "refresh_token",
                "client_credentials", DEVICE]}),
        json!({"client_id": "gateway", "client_secret": "secret", "scope": "openid read pay",
            "grant_types": [EXCHANGE], "audiences": ["web"]}),
    ]);
    config
}

/// The provider, and a group with nobody in it.
async fn provider() -> (Provider, String) {
    let provider = Provider::with(grouped()).await;
    let group = json!({"displayName": "payers"});
    let made = provider.manage("POST", "/groups", &group).await.json();
    let group = made["id"].as_str().expect("an id").to_owned();
    (provider, group)
}

async fn demo(provider: &Provider) -> Uuid {
    let user = provider.store.user_by_name("/", "demo").await;
    user.expect("an answer").expect("the user").id
}

/// Has `demo` come into the group, or leave it.
async fn change(provider: &Provider, group: &str, method: &str) {
    let path = format!("/groups/{group}/members/{}", demo(provider).await);
    let done = provider.manage(method, &path, &Value::Null).await;
    assert!(done.status.is_success(), "{}", done.text);
}

async fn of_web(provider: &Provider, grant: &str) -> Answer {
    let body = format!("grant_type={grant}&client_id=web&client_secret=secret");
    provider.token(&body).await
}

async fn signed_in(provider: &Provider, scope: &str) -> Answer {
    let user = "password&username=demo&password=correct+horse";
    of_web(provider, &format!("{user}&scope={scope}")).await
}

fn text(body: &Value, name: &str) -> String {
    let text = body[name].as_str();
    text.unwrap_or_else(|| panic!("{name} in {body}"))
        .to_owned()
}

/// The session of `demo`.
async fn session(provider: &Provider) -> String {
    let headers = [
        ("x-service-username", "demo"),
        ("x-service-password", "correct horse"),
    ];
    let session = request("POST", "/json/authenticate", &headers, "");
    text(&provider.send(session).await.json(), "tokenId")
}

async fn visit(provider: &Provider, method: &str, path: &str, token: &str, body: &str) -> Answer {
    let cookie = format!("iPlanetDirectoryPro={token}");
    let headers = [FORM, ("cookie", cookie.as_str())];
    provider.send(request(method, path, &headers, body)).await
}

#[tokio::test]
async fn a_users_tokens_have_such_a_scope_as_long_as_the_user_is_in_a_group() {
    let (provider, group) = provider().await;
    let without = signed_in(&provider, "openid+pay").await.json();
    assert_eq!(without["scope"], "openid");
    assert_eq!(
        provider.claims(&text(&without, "access_token"))["scope"],
        json!(["openid"])
    );
    // Nothing is left: nothing is given.
    let none = signed_in(&provider, "pay").await;
    assert_eq!(none.oauth_error().1, "invalid_scope");

    change(&provider, &group, "PUT").await;
    let with = signed_in(&provider, "openid+pay").await.json();
    assert_eq!(with["scope"], "openid pay");
    let refreshed = async |tokens: &Value| {
        let token = text(tokens, "refresh_token");
        let grant = format!("refresh_token&refresh_token={token}");
        of_web(&provider, &grant).await.json()
    };
    let exchanged = async |tokens: &Value| {
        let token = text(tokens, "access_token");
        let body = format!(
            "grant_type={EXCHANGE}&client_id=gateway&client_secret=secret&subject_token={token}\
             &subject_token_type=urn:ietf:params:oauth:token-type:access_token"
        );
        provider.token(&body).await.json()
    };
    let again = refreshed(&with).await;
    assert_eq!(again["scope"], "openid pay");
    assert_eq!(exchanged(&again).await["scope"], "openid pay");

    // Who has left the group loses it with the next token, by whatever grant.
    change(&provider, &group, "DELETE").await;
    assert_eq!(exchanged(&again).await["scope"], "openid");
    let after = refreshed(&again).await;
    assert_eq!(after["scope"], "openid");
    // The grant keeps what was agreed to.
    change(&provider, &group, "PUT").await;
    assert_eq!(refreshed(&after).await["scope"], "openid pay");
}

#[tokio::test]
async fn the_consent_page_shows_what_can_be_granted_and_the_code_gives_no_more() {
    let (provider, group) = provider().await;
    let token = session(&provider).await;
    let path = |scope: &str| {
        format!(
            "/oauth2/authorize?response_type=code&client_id=web&redirect_uri={CALLBACK}\
             &scope={scope}&state=s"
        )
    };
    for (method, granted) in [("DELETE", "openid read"), ("PUT", "openid read pay")] {
        change(&provider, &group, method).await;
        let both = path("openid+read+pay");
        let page = visit(&provider, "GET", &both, &token, "").await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(page.text.contains("<li>read"), "{}", page.text);
        let shows = page.text.contains("<li>pay");
        assert_eq!(shows, granted.contains("pay"), "{}", page.text);
        let body = format!("decision=allow&save_consent=on&csrf={token}");
        let answer = visit(&provider, "POST", &both, &token, &body).await;
        let address = answer.header("location").to_owned();
        let code = address
            .split(['?', '&'])
            .find_map(|part| part.strip_prefix("code="));
        let code = code.unwrap_or_else(|| panic!("no code in {address}"));
        let grant = format!("authorization_code&code={code}&redirect_uri={CALLBACK}");
        assert_eq!(of_web(&provider, &grant).await.json()["scope"], granted);
    }
    // A consent to the scope does not outlast the group.
    change(&provider, &group, "DELETE").await;
    let answer = visit(&provider, "GET", &path("pay"), &token, "").await;
    let address = answer.header("location");
    assert!(address.contains("error=invalid_scope"), "{address}");
    assert!(!address.contains("code="), "{address}");
}

#[tokio::test]
async fn a_consent_is_good_for_the_scopes_that_its_page_has_shown() {
    let (provider, group) = provider().await;
    let token = session(&provider).await;
    let path = format!(
        "/oauth2/authorize?response_type=code&client_id=web&redirect_uri={CALLBACK}\
         &scope=openid+read+pay&state=s"
    );
    let page = visit(&provider, "GET", &path, &token, "").await;
    assert!(!page.text.contains("<li>pay"), "{}", page.text);
    let of_browser = page.header("set-cookie").split(';').next();
    let of_browser = of_browser.expect("a cookie").to_owned();
    let decide = async |page: &Answer| {
        let csrf = page.text.split("name=\"csrf\" value=\"").nth(1);
        let csrf = csrf.and_then(|rest| rest.split('"').next());
        let body = format!("approve=1&csrf={}", csrf.expect("a form"));
        let cookie = format!("iPlanetDirectoryPro={token}; {of_browser}");
        let headers = [FORM, ("cookie", cookie.as_str())];
        provider.send(request("POST", &path, &headers, &body)).await
    };
    // The page is open while its user comes into the group.
    change(&provider, &group, "PUT").await;
    let again = decide(&page).await;
    assert_eq!(again.status, 400, "{}", again.header("location"));
    assert!(again.text.contains("<li>pay"), "{}", again.text);
    let answer = decide(&again).await;
    let address = answer.header("location");
    assert!(address.contains("code="), "{address}");
}

#[tokio::test]
async fn a_claim_smuggled_past_the_group_of_its_scope_is_not_told() {
    let (provider, group) = provider().await;
    let token = session(&provider).await;
    let wish = "%7B%22id_token%22%3A%7B%22email%22%3Anull%7D%2C\
                %22userinfo%22%3A%7B%22email%22%3Anull%7D%7D";
    for (method, scope, is_told) in [
        ("DELETE", "openid", false),
        ("DELETE", "openid+email", false),
        ("PUT", "openid", true),
    ] {
        change(&provider, &group, method).await;
        let path = format!(
            "/oauth2/authorize?response_type=code&client_id=web&redirect_uri={CALLBACK}\
             &scope={scope}&state=s&claims={wish}"
        );
        let body = format!("decision=allow&csrf={token}");
        let answer = visit(&provider, "POST", &path, &token, &body).await;
        let address = answer.header("location").to_owned();
        let code = address
            .split(['?', '&'])
            .find_map(|part| part.strip_prefix("code="));
        let code = code.unwrap_or_else(|| panic!("no code in {address}"));
        let grant = format!("authorization_code&code={code}&redirect_uri={CALLBACK}");
        let tokens = of_web(&provider, &grant).await.json();
        let id_token = provider.claims(&text(&tokens, "id_token"));
        assert_eq!(id_token.get("email").is_some(), is_told, "{id_token}");
        let bearer = format!("Bearer {}", text(&tokens, "access_token"));
        let headers = [("authorization", bearer.as_str())];
        let userinfo = request("GET", "/oauth2/userinfo", &headers, "");
        let userinfo = provider.send(userinfo).await.json();
        assert_eq!(userinfo.get("email").is_some(), is_told, "{userinfo}");
    }
}

#[tokio::test]
async fn the_page_for_devices_shows_and_gives_no_more() {
    let (provider, group) = provider().await;
    let token = session(&provider).await;
    for (method, granted) in [("DELETE", "openid read"), ("PUT", "openid read pay")] {
        change(&provider, &group, method).await;
        let body = "client_id=web&client_secret=secret&scope=openid+read+pay";
        let codes = provider.form("/oauth2/device/code", body).await.json();
        let user_code = text(&codes, "user_code");
        let path = format!("/oauth2/device/user?user_code={user_code}");
        let page = visit(&provider, "GET", &path, &token, "").await;
        assert!(page.text.contains("<li>read"), "{}", page.text);
        assert_eq!(
            page.text.contains("<li>pay"),
            granted.contains("pay"),
            "{}",
            page.text
        );
        let body = format!("user_code={user_code}&decision=allow&csrf={token}");
        let done = visit(&provider, "POST", "/oauth2/device/user", &token, &body).await;
        assert_eq!(done.status, 200, "{}", done.text);
        let grant = format!("{DEVICE}&device_code={}", text(&codes, "device_code"));
        assert_eq!(of_web(&provider, &grant).await.json()["scope"], granted);
    }
}

#[tokio::test]
async fn an_operators_client_has_such_scopes_of_its_own_and_one_that_registered_has_not() {
    let (provider, _) = provider().await;
    let own = of_web(&provider, "client_credentials&scope=pay")
        .await
        .json();
    assert_eq!(own["scope"], "pay");
    let record = json!({"grant_types": ["client_credentials"], "scope": "openid pay",
        "token_endpoint_auth_method": "client_secret_post"});
    let json = [("content-type", "application/json")];
    let made = request(
        "POST",
        "/oauth2/connect/register",
        &json,
        &record.to_string(),
    );
    let made = provider.send(made).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let (id, secret) = (
        text(&made.json(), "client_id"),
        text(&made.json(), "client_secret"),
    );
    let body =
        format!("grant_type=client_credentials&client_id={id}&client_secret={secret}&scope=");
    let refused = provider.token(&format!("{body}pay")).await;
    assert_eq!(refused.oauth_error().1, "invalid_scope");
    let given = provider.token(&format!("{body}openid+pay")).await.json();
    assert_eq!(given["scope"], "openid");
}

#[tokio::test]
async fn who_is_in_no_group_is_not_told_to_step_up_to_such_a_scope() {
    let (provider, group) = provider().await;
    let token = text(&signed_in(&provider, "openid").await.json(), "access_token");
    let claims: Map<String, Value> = match provider.claims(&token) {
        Value::Object(claims) => claims,
        other => panic!("{other}"),
    };
    let state = &provider.identity.state;
    let may = async |scope: &str| {
        let answer = state.may_have_scopes(&claims, &[scope.to_owned()]).await;
        answer.expect("an answer")
    };
    assert!(may("read").await && !may("pay").await);
    change(&provider, &group, "PUT").await;
    assert!(may("pay").await);
}

#[test]
fn a_setting_that_would_mean_nothing_is_refused() {
    for (wrong, message) in [
        (
            json!({"pay": []}),
            "scope_groups.pay: must name from 1 to 100 groups",
        ),
        (
            json!({"openid": ["a"]}),
            "scope_groups.openid: can't be for groups alone",
        ),
        (
            json!({"offline_access": ["a"]}),
            "scope_groups.offline_access: can't be",
        ),
        (json!({"a b": ["a"]}), "scope_groups.a b: is no scope"),
        (
            json!({"pay": [""]}),
            "scope_groups.pay: must name groups by their displayName",
        ),
    ] {
        let settings = json!({"scope_groups": wrong});
        let settings: RealmSettings = serde_json::from_value(settings).expect("settings");
        let refused = crate::settings::check(&settings).expect_err("refused");
        let refused = format!("{}: {}", refused.path, refused.message);
        assert!(refused.contains(message), "{refused}");
    }
}
