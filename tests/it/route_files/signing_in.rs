//! Routes whose users sign in at an OpenID provider, as browsers do it.

use serde_json::{Value, json};

use super::{door_with, until_state};
use crate::openid_connect_login::{Browser, CLIENTS};
use crate::support::{Door, Setup, Upstream};

const ENDPOINT: &str = "/app/openid";

/// The provider, with a client for the route.
fn setup() -> Setup {
    let callback = format!("http://api.test{ENDPOINT}/callback");
    let clients = CLIENTS
        .replace("http://api.test/callback", &callback)
        .replace("http://api.test/bye", "http://api.test/app/bye");
    Setup::new()
        .identity(&clients)
        .env("GATEWAY_SECRET", "Zy1zZWNyZXQ=")
}

/// A route with the filter, and what later filters tell the upstream.
fn route(upstream: &Upstream, more: &Value) -> String {
    let mut config = json!({
        "clientEndpoint": ENDPOINT, "registrations": ["app"], "requireHttps": false,
        "failureHandler": {"type": "StaticResponseHandler", "config": {
            "status": 418, "headers": {"Content-Type": ["text/plain"]},
            "entity": "failed: ${contexts.oauth2Failure.error}"}}});
    for (name, value) in more.as_object().expect("an object") {
        config[name] = value.clone();
    }
    let told = json!({"type": "HeaderFilter", "config": {"messageType": "REQUEST", "add": {
        "X-User": ["${attributes.openid.user_info.sub}"],
        "X-Client": ["${contexts.oauth2Info.clientRegistrationId}"],
        "X-Id-Token": ["${attributes.openid.id_token}"],
        "X-Type": ["${attributes.openid.token_type}"]}}});
    json!({
        "name": "app", "baseURI": upstream.url(""),
        "condition": "${find(request.uri.path, '^/app')}",
        "heap": [
            {"name": "provider", "type": "Issuer", "config": {"wellKnownEndpoint":
                "http://@PROXY@/oauth2/.well-known/openid-configuration"}},
            {"name": "app", "type": "ClientRegistration", "config": {
                "clientId": "gateway", "clientSecretId": "gateway.secret",
                "secretsProvider": "SystemAndEnvSecretStore", "issuer": "provider",
                "scopes": ["openid", "profile"]}}],
        "handler": {"type": "Chain", "config": {
            "filters": [{"type": "AuthorizationCodeOAuth2ClientFilter", "config": config}, told],
            "handler": "ReverseProxyHandler"}},
    })
    .to_string()
}

async fn door(upstream: &Upstream, more: Value) -> Door {
    let route = route(upstream, &more);
    let door = door_with(setup(), &[("app.json", &route)]).await;
    until_state(&door, "app", "loaded").await;
    door
}

#[tokio::test]
async fn users_of_a_route_sign_in_and_later_filters_see_them() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({})).await;
    let mut browser = Browser::at(&door);
    let page = "http://api.test/app/orders?a=%201";
    let answer = browser.sign_in(page).await.expect(302);
    assert_eq!(answer.header("location"), page);
    browser.get(page).await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.target, "/app/orders?a=%201");
    assert_eq!(seen.header("x-user"), Some("demo"));
    assert_eq!(seen.header("x-client"), Some("gateway"));
    assert_eq!(seen.header("x-type"), Some("Bearer"));
    assert!(
        seen.header("x-id-token")
            .expect("a token")
            .starts_with("ey")
    );
    assert_eq!(seen.header("authorization"), None);
    assert_eq!(seen.header("x-credential-identifier"), None);
    assert_eq!(seen.header("cookie").unwrap_or_default(), "");
    // The service URIs: a user who is in is led on.
    let login = format!("http://api.test{ENDPOINT}/login?registration=gateway&goto=/app/x");
    let answer = browser.get(&login).await.expect(302);
    assert_eq!(answer.header("location"), "http://api.test/app/x");
    let logout = format!("http://api.test{ENDPOINT}/logout?goto=/app/bye");
    let answer = browser.get(&logout).await.expect(302);
    assert_eq!(answer.header("location"), "http://api.test/app/bye");
    browser.get(page).await.expect(302);
    assert!(!door.log_text().contains("g-secret"));
}

#[tokio::test]
async fn a_login_that_fails_is_answered_by_the_failure_handler() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({"openIdEndSessionOnLogout": true})).await;
    let mut browser = Browser::at(&door);
    let forged = format!("http://api.test{ENDPOINT}/callback?code=a&state=dw1.forged");
    let answer = browser.get(&forged).await.expect(418);
    assert_eq!(answer.body, "failed: forged_state");
    let elsewhere = format!("http://api.test{ENDPOINT}/login?goto=https://evil.test/");
    let answer = browser.get(&elsewhere).await.expect(418);
    assert_eq!(answer.body, "failed: malformed_request");
    // What the upstream answers is none of it.
    browser.sign_in("http://api.test/app/a").await.expect(302);
    browser.get("http://api.test/app/a").await.expect(200);
    // The provider is told of the logout, and leads to where it was to go.
    let logout = format!("http://api.test{ENDPOINT}/logout?goto=/app/bye");
    let answer = browser.get(&logout).await.expect(302);
    let end = answer.header("location").to_owned();
    assert!(end.contains("id_token_hint="), "{end}");
    let answer = browser.get(&end).await;
    assert_eq!(answer.header("location"), "http://api.test/app/bye");
}

#[tokio::test]
async fn a_login_may_wait_for_the_page_where_users_choose_it() {
    let upstream = Upstream::echo().await;
    let page = json!({"loginHandler": {"type": "StaticResponseHandler", "config": {
        "status": 200, "entity": "sign in, please"}}});
    let door = door(&upstream, page).await;
    let mut browser = Browser::at(&door);
    let answer = browser.get("http://api.test/app/a").await.expect(200);
    assert_eq!(answer.body, "sign in, please");
    let login = format!("http://api.test{ENDPOINT}/login?registration=app&goto=/app/a");
    let answer = browser.sign_in(&login).await.expect(302);
    let answer = browser.get(answer.header("location")).await.expect(302);
    assert_eq!(answer.header("location"), "http://api.test/app/a");
    browser.get("http://api.test/app/a").await.expect(200);
    assert_eq!(upstream.last().header("x-user"), Some("demo"));
}

#[tokio::test]
async fn what_a_route_cannot_have_is_told_with_its_file_line_and_key() {
    let upstream = Upstream::echo().await;
    let route = route(&upstream, &json!({"registrations": ["app", "app"]}));
    let route: Value = serde_json::from_str(&route).expect("JSON");
    let pretty = serde_json::to_string_pretty(&route).expect("JSON");
    let door = door_with(setup(), &[("app.json", &pretty)]).await;
    let state = until_state(&door, "app", "refused").await;
    let error = state["errors"][0].as_str().expect("an error");
    assert!(error.contains("app.json:"), "{error}");
    assert!(
        error.contains("registrations[1]: a filter signs users in at one"),
        "{error}"
    );
}
