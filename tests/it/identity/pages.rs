//! What browsers are shown when something is wrong, and how pages protect
//! themselves.

use reqwest::Method;

use super::authorize::browser::{Browser, Form, shown_error};
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

async fn visit(door: &Door, method: Method, path: &str, accept: &str) -> Answer {
    let request = client().request(method, door.proxy_url(path));
    send(request.header("accept", accept)).await
}

const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

#[tokio::test]
async fn a_browser_that_went_astray_is_shown_a_page_and_a_program_is_told_json() {
    let door = Setup::new().start().await;
    let nowhere = "/oauth2/realms/root/realms/nowhere";
    for page in [
        "/authorize",
        "/authorize/login",
        "/device/user",
        "/connect/endSession",
    ] {
        for (method, path, status, error) in [
            (Method::GET, format!("{nowhere}{page}"), 404, "not_found"),
            (Method::POST, format!("{nowhere}{page}"), 404, "not_found"),
            (
                Method::PUT,
                format!("/oauth2{page}"),
                405,
                "method_not_allowed",
            ),
        ] {
            let answer = visit(&door, method.clone(), &path, BROWSER)
                .await
                .expect(status);
            assert!(
                answer.header("content-type").starts_with("text/html"),
                "{path}"
            );
            assert_eq!(shown_error(&answer), error, "{method} {path}");
            assert_protected(&answer);
            let answer = visit(&door, method, &path, "application/json").await;
            assert_eq!(answer.expect(status).json()["error"], error, "{path}");
        }
        let url = door.proxy_url(&format!("/oauth2{page}?ui_locales=de"));
        let large = client().post(url).header("accept", BROWSER);
        let large = send(large.body("x".repeat(80_000))).await.expect(413);
        assert_eq!(shown_error(&large), "invalid_request", "{page}");
        assert!(large.body.contains("<html lang=\"de\""), "{page}");
    }
    // Endpoints of programs tell a browser the same as everybody.
    let answer = visit(&door, Method::GET, "/oauth2/access_token", BROWSER).await;
    assert!(answer.expect(405).json()["error"].is_string());
}

#[track_caller]
fn assert_protected(page: &Answer) {
    assert_eq!(page.header("x-frame-options"), "DENY");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    assert_eq!(page.header("cache-control"), "no-store");
    let policy = page.header("content-security-policy");
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(page.header("permissions-policy").contains("geolocation=()"));
}

#[tokio::test]
async fn clickjacking_of_every_page() {
    let door = Setup::new().start().await;
    for path in [
        "/oauth2/authorize",
        "/oauth2/authorize?client_id=nobody",
        "/oauth2/authorize/login?client_id=nobody",
        "/oauth2/connect/endSession",
        "/oauth2/connect/endSession?id_token_hint=x",
        "/oauth2/device/user",
        "/oauth2/device/user?user_code=x",
    ] {
        let page = visit(&door, Method::GET, path, BROWSER).await;
        assert!(
            page.header("content-type").starts_with("text/html"),
            "{path}"
        );
        assert_protected(&page);
        // By plain http nobody is told to come by TLS only.
        assert_eq!(page.header("strict-transport-security"), "", "{path}");
    }
    // A guess of a media type makes a page of nothing else.
    let answer = visit(&door, Method::POST, "/oauth2/access_token", BROWSER).await;
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}

#[tokio::test]
async fn pages_of_a_provider_behind_tls_ask_for_tls_always() {
    let identity = "\n  base_url: https://id.example\n  pages: {hsts_seconds: 600}\n";
    let door = Setup::new().identity(identity).start().await;
    let page = visit(&door, Method::GET, "/oauth2/device/user", BROWSER).await;
    let told = page.header("strict-transport-security").to_owned();
    assert_eq!(told, "max-age=600");
    let off = identity.replace("600", "0");
    let door = Setup::new().identity(&off).start().await;
    let page = visit(&door, Method::GET, "/oauth2/device/user", BROWSER).await;
    assert_eq!(page.header("strict-transport-security"), "");
}

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      users:
        - {userName: demo, password: Ch4ng31t-demo}
        - {userName: alice, password: Ch4ng31t-alice}
      clients:
        - client_id: shop
          client_name: "<b>Émile's shop"
          token_endpoint_auth_method: none
          grant_types: [authorization_code, "urn:ietf:params:oauth:grant-type:device_code"]
          redirect_uris: ["https://shop.example/cb"]
          policy_uri: https://shop.example/privacy
          scope: openid
          require_pkce: false
"#;

const REQUEST: &str = "client_id=shop&redirect_uri=https://shop.example/cb&response_type=code\
                       &scope=openid&state=s&code_challenge_method=S256\
                       &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

#[tokio::test]
async fn whoever_is_signed_in_may_go_on_as_somebody_else() {
    let door = Setup::new().identity(IDENTITY).start().await;
    let browser = Browser::new(&door);
    let page = browser.get(&format!("/oauth2/authorize?{REQUEST}")).await;
    let question = browser.sign_in(&page.expect(200), "demo").await.expect(200);
    assert!(question.body.contains("<strong>demo</strong>"));
    let switch = Form::of(&question).with("doorward_switch", "true");
    let page = browser.post(&switch).await.expect(200);
    assert!(page.body.contains("name=\"password\""), "{}", page.body);
    let question = browser.sign_in(&page, "alice").await.expect(200);
    assert!(question.body.contains("<strong>alice</strong>"));
    let answer = browser.approve(&question).await.expect(303);
    let location = answer.header("location");
    assert!(location.starts_with("https://shop.example/cb?code="));

    // At the page for devices too.
    let fields = [("client_id", "shop"), ("scope", "openid")];
    let codes = client().post(door.proxy_url("/oauth2/device/code"));
    let codes = send(codes.form(&fields)).await.expect(200).json();
    let code = codes["user_code"].as_str().expect("a code");
    let page = format!("/oauth2/device/user?user_code={code}");
    let question = browser.get(&page).await.expect(200);
    assert!(question.body.contains("<strong>alice</strong>"));
    let switch = Form::of(&question).with("doorward_switch", "true");
    let page = browser.post(&switch).await.expect(200);
    let question = browser.sign_in(&page, "demo").await.expect(200);
    assert!(question.body.contains("<strong>demo</strong>"));
    assert!(question.body.contains("Is this your device?"));
}

#[tokio::test]
async fn no_link_and_no_silent_request_makes_anybody_somebody_else() {
    let door = Setup::new().identity(IDENTITY).start().await;
    let browser = Browser::new(&door);
    let address = format!("/oauth2/authorize?{REQUEST}");
    let page = browser.get(&address).await.expect(200);
    browser.sign_in(&page, "demo").await.expect(200);
    let link = format!("{address}&doorward_switch=true");
    let page = browser.get(&link).await.expect(200);
    assert!(page.body.contains("<strong>demo</strong>"));
    let silent = Form {
        action: format!("{address}&prompt=none"),
        fields: vec![("doorward_switch".to_owned(), "true".to_owned())],
    };
    let answer = browser.post(&silent).await.expect(303);
    assert!(answer.header("location").contains("error=login_required"));
}

#[tokio::test]
async fn the_question_says_who_asks_and_where_it_leads() {
    let door = Setup::new().identity(IDENTITY).start().await;
    let browser = Browser::new(&door);
    let link = format!("/oauth2/authorize?{REQUEST}&ui_locales=de");
    let page = browser.get(&link).await.expect(200);
    for shown in [
        "&#60;b&#62;Émile&#39;s shop",
        "https://shop.example/privacy",
        "<label for=\"username\">",
        "autocomplete=\"current-password\"",
    ] {
        assert!(page.body.contains(shown), "{shown}: {}", page.body);
    }
    let question = browser.sign_in(&page, "demo").await.expect(200);
    for shown in [
        "Danach geht es weiter zu <strong>shop.example</strong>",
        "https://shop.example/privacy",
        "aria-hidden=\"true\">B</span>",
    ] {
        assert!(question.body.contains(shown), "{shown}: {}", question.body);
    }
}

#[tokio::test]
async fn an_error_has_the_focus_and_speaks_the_language_that_was_asked_for() {
    let door = Setup::new().start().await;
    let path = "/oauth2/authorize?client_id=nobody&ui_locales=de";
    let page = visit(&door, Method::GET, path, BROWSER).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_client");
    assert!(page.body.contains("<html lang=\"de\""));
    assert!(
        page.body
            .contains("role=\"alert\" tabindex=\"-1\" autofocus>")
    );
    // What is wrong with a form is told at its fields.
    let page = client().post(door.proxy_url("/oauth2/device/user"));
    let page = send(page.form(&[("user_code", "BBBBBBBB")])).await;
    let page = page.expect(400);
    assert!(page.body.contains("aria-describedby=\"hint alert\""));
}
