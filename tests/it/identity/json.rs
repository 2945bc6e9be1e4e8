//! `/json`: signing in as a program does, and sessions.

use serde_json::{Value, json};

use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Answer, Door, Setup};

const FAMILY: &str = "
  base_url: http://@PROXY@
  realms:
    /:
      users: [{userName: demo, password: Ch4ng31t-demo}]
    /staff/desk:
      settings: {success_url: /desk}
      users: [{userName: anna, password: Ch4ng31t-anna}]
      clients:
        - client_id: app
          client_secret: app-secret
          grant_types: [client_credentials, authorization_code]
          redirect_uris: [\"https://app.example/cb\"]
          scope: openid low
          default_scope: low
";

async fn post(door: &Door, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = client().post(door.proxy_url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request).await
}

const ANNA: [(&str, &str); 2] = [
    ("X-Service-Username", "anna"),
    ("X-Service-Password", "Ch4ng31t-anna"),
];

async fn token(door: &Door, path: &str) -> String {
    let body = post(door, path, &ANNA).await.expect(200).json();
    body["tokenId"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn every_form_of_a_realm_reaches_it_on_both_surfaces() {
    let door = Setup::new().identity(FAMILY).start().await;
    for path in [
        "/json/realms/root/realms/staff/realms/desk/authenticate",
        "/json/realms/staff/realms/desk/authenticate",
        "/json/staff/desk/authenticate",
        "/json/authenticate?realm=/staff/desk",
        "/json/realms/root/authenticate?realm=staff%2Fdesk",
    ] {
        let body = post(&door, path, &ANNA).await.expect(200).json();
        assert_eq!(body["realm"], "/staff/desk", "{path}");
        assert_eq!(body["successUrl"], "/desk", "{path}");
    }
    let issuer = door.proxy_url("/oauth2/realms/root/realms/staff/realms/desk");
    for path in [
        "/oauth2/realms/root/realms/staff/realms/desk/access_token",
        "/oauth2/realms/staff/realms/desk/access_token",
        "/oauth2/staff/desk/access_token",
        "/oauth2/access_token?realm=/staff/desk",
        "/oauth2/realms/root/access_token?realm=staff/desk",
    ] {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", "app"),
            ("client_secret", "app-secret"),
        ];
        let answer = send(client().post(door.proxy_url(path)).form(&form)).await;
        let body = answer.expect(200).json();
        let claims = claims_of(body["access_token"].as_str().expect("a token"));
        assert_eq!(claims["iss"], issuer, "{path}");
    }
    let unknown = post(&door, "/json/authenticate?realm=x", &ANNA).await;
    assert_eq!(
        unknown.expect(400).json(),
        json!({"code": 400, "reason": "Bad Request", "message": "Invalid realm, /x"})
    );
    let unknown = send(client().get(door.proxy_url("/oauth2/connect/jwk_uri?realm=x"))).await;
    assert_eq!(
        unknown.expect(404).json(),
        json!({"error": "not_found", "error_description": "Invalid realm, x"})
    );
}

#[tokio::test]
async fn pages_of_a_realm_in_the_query_lead_on_in_that_realm() {
    let door = Setup::new().identity(FAMILY).start().await;
    let address = "/oauth2/authorize?realm=/staff/desk&client_id=app&response_type=code\
        &redirect_uri=https%3A%2F%2Fapp.example%2Fcb&scope=openid&state=s\
        &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256";
    let browser = super::authorize::browser::Browser::new(&door);
    let page = browser.get(address).await.expect(200);
    let wanted = "/oauth2/realms/root/realms/staff/realms/desk/authorize/login?";
    assert!(page.body.contains(wanted), "{}", page.body);
    let page = browser.sign_in(&page, "anna").await.expect(200);
    let answer = browser.approve(&page).await.expect(303);
    let location = answer.header("location");
    assert!(
        location.starts_with("https://app.example/cb?"),
        "{location}"
    );
    assert!(location.contains("code="), "{location}");
}

#[tokio::test]
async fn a_token_in_the_path_is_not_logged() {
    let door = Setup::new().identity(FAMILY).start().await;
    let token = token(&door, "/json/staff/desk/authenticate").await;
    let path = format!("/json/sessions/{token}?_action=validate");
    let valid = post(&door, &path, &[("Accept-API-Version", "resource=1.1")]).await;
    assert_eq!(
        valid.expect(200).json(),
        json!({"valid": true, "uid": "anna", "realm": "/staff/desk"})
    );
    let wrong = client().get(door.proxy_url(&format!("/json/sessions/{token}")));
    send(wrong).await.expect(405);
    door.wait_log("both requests", |line| {
        line.contains("\"path\":\"/json/sessions/*\"") && line.contains("405")
    })
    .await;
    assert!(!door.log_text().contains(&token), "{}", door.log_text());
}

#[tokio::test]
async fn sessions_outlive_the_process_and_end_for_good() {
    let mut door = Setup::new().identity(FAMILY).start().await;
    let token = token(&door, "/json/staff/desk/authenticate").await;
    let act = async |door: &Door, action: &str| -> Value {
        let path = format!("/json/sessions?_action={action}");
        let headers = [("iPlanetDirectoryPro", token.as_str())];
        post(door, &path, &headers).await.json()
    };
    door.kill();
    door.start().await;
    assert_eq!(act(&door, "validate").await["uid"], "anna");
    let out = act(&door, "logout").await;
    assert_eq!(out, json!({"result": "Successfully logged out"}));
    door.kill();
    door.start().await;
    assert_eq!(act(&door, "validate").await, json!({"valid": false}));
    assert_eq!(act(&door, "refresh").await["code"], 401);
}

#[tokio::test]
async fn a_wrong_pattern_for_goto_is_refused_with_its_line() {
    let door = Setup::new().identity(FAMILY).lay_out();
    door.edit(
        "doorward.yaml",
        "success_url: /desk",
        "goto_urls: [\"https://app.example/*\", \"https://*/*\"]",
    );
    let check = door.run(&["check", "-c", "doorward.yaml"]);
    let text = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(!check.status.success());
    let wanted = "identity.realms./staff/desk.settings.goto_urls[1]: must name a host";
    assert!(text.contains(wanted), "{text}");
    assert!(text.contains("doorward.yaml:"), "{text}");
}
