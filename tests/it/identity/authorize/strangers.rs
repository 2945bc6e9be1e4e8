//! Clients that nobody has registered by hand: what a user lets one of them have, no
//! other has, whatever the browser remembers (the confused deputy).

use serde_json::{Value, json};

use super::browser::Browser;
use super::{CHALLENGE, VERIFIER, path, told, web, with};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Door, Reply, Setup, Upstream};

const BACK: &str = "https://app.example/cb";

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  outbound: {allow: [127.0.0.1]}
  realms:
    /:
      settings:
        resources: ["https://one.example/mcp", "https://two.example/mcp"]
        registration: {mode: open, scope: openid tools}
        client_metadata_documents: {mode: open}
      users:
        - {userName: demo, password: Ch4ng31t-demo}
"#;

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

/// A client that registers itself.
async fn registered(door: &Door, back: &str) -> String {
    let url = door.proxy_url("/oauth2/connect/register");
    let metadata = json!({
        "client_name": "App",
        "redirect_uris": [back],
        "token_endpoint_auth_method": "none",
    });
    let answer = send(client().post(url).json(&metadata)).await.expect(201);
    let id = answer.json()["client_id"].as_str().map(str::to_owned);
    id.expect("an identifier")
}

/// Documents of clients, each at a path of its own.
async fn documents() -> Upstream {
    Upstream::start(|seen| {
        let host = seen.header("host").unwrap_or_default();
        let document = json!({
            "client_id": format!("http://{host}{}", seen.target),
            "client_name": "App",
            "redirect_uris": [BACK],
        });
        Reply::Json(200, document)
    })
    .await
}

fn request(id: &str, resource: &str, more: (&'static str, &str)) -> String {
    let request = with(web(), "client_id", id);
    let request = with(request, "redirect_uri", BACK);
    let request = with(request, "scope", "openid tools");
    let request = with(request, "resource", resource);
    let request = with(request, "code_challenge", CHALLENGE);
    path(&with(request, more.0, more.1))
}

const ONE: &str = "https://one.example/mcp";
const TWO: &str = "https://two.example/mcp";
const NOTHING: (&str, &str) = ("nonce", "");
const SILENT: (&str, &str) = ("prompt", "none");

/// Signs in and agrees to a request of this client, which the provider remembers.
async fn agreed<'d>(door: &'d Door, id: &str) -> Browser<'d> {
    let browser = Browser::new(door);
    let address = request(id, ONE, NOTHING);
    let page = browser.get(&address).await.expect(200);
    let page = browser.sign_in(&page, "demo").await.expect(200);
    assert!(page.body.contains(ONE), "the page names the server");
    assert!(told(&browser.approve(&page).await, BACK).contains_key("code"));
    let again = browser.get(&address).await;
    assert!(told(&again, BACK).contains_key("code"));
    browser
}

async fn is_asked(browser: &Browser<'_>, door: &Door, id: &str, resource: &str) {
    let page = browser.get(&request(id, resource, NOTHING)).await;
    let page = page.expect(200);
    assert!(page.body.contains("id=\"approve\""), "{}", page.body);
    assert!(page.body.contains(resource), "{}", page.body);
    let answer = told(&browser.get(&request(id, resource, SILENT)).await, BACK);
    assert_eq!(answer["error"], "consent_required");
    assert_eq!(answer["iss"], door.proxy_url("/oauth2"));
    assert!(!answer.contains_key("code"));
}

#[tokio::test]
async fn a_consent_to_one_dynamic_client_is_none_to_another() {
    let door = door().await;
    let documents = documents().await;
    let first = registered(&door, BACK).await;
    let browser = agreed(&door, &first).await;
    let others = [registered(&door, BACK).await, documents.url("/client.json")];
    for other in &others {
        is_asked(&browser, &door, other, ONE).await;
    }
}

#[tokio::test]
async fn a_consent_to_a_client_of_a_document_is_none_to_another_of_its_host() {
    let door = door().await;
    let documents = documents().await;
    let id = documents.url("/client.json");
    let browser = agreed(&door, &id).await;
    let code = browser.get(&request(&id, ONE, NOTHING)).await;
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", &*id),
        ("code", &*told(&code, BACK)["code"]),
        ("redirect_uri", BACK),
        ("code_verifier", VERIFIER),
        ("resource", ONE),
    ];
    let url = door.proxy_url("/oauth2/access_token");
    let answer = send(client().post(url).form(&form)).await.expect(200);
    let token = answer.json()["access_token"].clone();
    let claims = claims_of(token.as_str().expect("a token"));
    assert_eq!(
        (&claims["aud"], &claims["client_id"]),
        (&json!(ONE), &json!(id))
    );
    let others = [
        documents.url("/client.json?a"),
        documents.url("/other.json"),
        registered(&door, BACK).await,
    ];
    for other in &others {
        is_asked(&browser, &door, other, ONE).await;
    }
}

#[tokio::test]
async fn a_consent_for_one_server_is_none_for_another() {
    let door = door().await;
    let id = registered(&door, BACK).await;
    let browser = agreed(&door, &id).await;
    is_asked(&browser, &door, &id, TWO).await;
    let address = request(&id, ONE, NOTHING);
    assert!(told(&browser.get(&address).await, BACK).contains_key("code"));
}

#[tokio::test]
async fn a_consent_form_of_one_client_is_of_no_use_for_another() {
    let door = door().await;
    let (first, second) = (registered(&door, BACK).await, registered(&door, BACK).await);
    let browser = Browser::new(&door);
    let page = browser
        .get(&request(&first, ONE, NOTHING))
        .await
        .expect(200);
    let page = browser.sign_in(&page, "demo").await.expect(200);
    let mut form = super::browser::Form::of(&page).with("approve", "true");
    form.action = form.action.replace(&first, &second);
    let answer = browser.post(&form).await;
    assert_eq!(answer.header("location"), "", "{answer:?}");
    // What was agreed to is what the page has named.
    let mut form = super::browser::Form::of(&page).with("approve", "true");
    form.action = form.action.replace("one.example", "two.example");
    let answer = browser.post(&form).await;
    assert_eq!(answer.header("location"), "", "{answer:?}");
}

#[tokio::test]
async fn every_answer_names_the_issuer_an_error_too() {
    let door = door().await;
    let issuer = door.proxy_url("/oauth2");
    let id = registered(&door, BACK).await;
    let metadata = door.proxy_url("/.well-known/oauth-authorization-server/oauth2");
    let metadata: Value = send(client().get(metadata)).await.expect(200).json();
    assert_eq!(metadata["issuer"], issuer);
    let supported = &metadata["authorization_response_iss_parameter_supported"];
    assert_eq!(supported, true);
    let browser = Browser::new(&door);
    for (name, value, error) in [
        ("prompt", "none", "login_required"),
        ("claims", "{", "invalid_request"),
        ("resource", "https://evil.example/mcp", "invalid_target"),
        ("response_type", "token", "unsupported_response_type"),
        ("code_challenge", "", "invalid_request"),
        ("code_challenge_method", "plain", "invalid_request"),
    ] {
        let answer = browser.get(&request(&id, ONE, (name, value))).await;
        assert_ne!(answer.status, 200, "{name}={value}");
        let answer = told(&answer, BACK);
        assert_eq!(answer["iss"], issuer, "{name}: {answer:?}");
        assert_eq!(answer["state"], "s t&ate\"<é>", "{name}");
        if error != "unsupported_response_type" {
            assert_eq!(answer["error"], error, "{name}: {answer:?}");
        }
        assert!(!answer.contains_key("code"), "{name}");
    }
}

#[tokio::test]
async fn a_loopback_address_with_any_port_is_no_open_redirect() {
    let door = door().await;
    let browser = Browser::new(&door);
    let ask = |id: &str, back: &str| {
        let request = with(with(web(), "client_id", id), "redirect_uri", back);
        let request = with(with(request, "scope", "openid"), "resource", ONE);
        path(&with(request, "code_challenge", CHALLENGE))
    };
    for (known, good, bad) in [
        (
            "http://127.0.0.1:5000/cb",
            &["http://127.0.0.1/cb", "http://127.0.0.1:65535/cb"][..],
            &[
                "http://127.0.0.2/cb",
                "http://127.1/cb",
                "http://2130706433/cb",
                "http://0x7f000001/cb",
                "http://127.0.0.1.evil.example/cb",
                "http://127.0.0.1@evil.example/cb",
                "http://127.0.0.1:80@evil.example/cb",
                "http://evil.example@127.0.0.1/cb",
                "http://user@127.0.0.1:5000/cb",
                "http://127.0.0.1:5000\\@evil.example/cb",
                "http://127.0.0.1:5000%2f@evil.example/cb",
                "http://127.0.0.1:65536/cb",
                "http://127.0.0.1:+80/cb",
                "http://127.0.0.1:080000/cb",
                "http://127.0.0.1:/cb",
                "http://127.0.0.1:1/cb/",
                "http://127.0.0.1:1/cb?x",
                "http://127.0.0.1:1/cb#x",
                "http://127.0.0.1:1/x/../cb",
                "http://127.0.0.1:1//cb",
                "http://127.0.0.1:1/%63b",
                "http://127.0.0.1:1/CB",
                "https://127.0.0.1:1/cb",
                "HTTP://127.0.0.1:1/cb",
                "http://localhost:1/cb",
                "http://[::1]:1/cb",
                "http://127.0.0.1:1/cb ",
                "http:127.0.0.1:1/cb",
                "//127.0.0.1:1/cb",
            ][..],
        ),
        (
            "http://localhost/cb",
            &["http://localhost:1/cb"][..],
            &[
                "http://localhost.evil.example/cb",
                "http://localhost.:1/cb",
                "http://LOCALHOST:1/cb",
                "http://a.localhost:1/cb",
                "http://127.0.0.1:1/cb",
                "https://localhost:1/cb",
            ][..],
        ),
        (
            "https://localhost/cb",
            &["https://localhost/cb"][..],
            &["https://localhost:1/cb", "http://localhost/cb"][..],
        ),
        (
            BACK,
            &[BACK][..],
            &["https://app.example:8443/cb", "https://app.example:443/cb"][..],
        ),
    ] {
        let id = registered(&door, known).await;
        for back in good {
            let page = browser.get(&ask(&id, back)).await;
            assert_eq!(page.status, 200, "{known}: {back}");
        }
        for back in bad {
            let answer = browser.get(&ask(&id, back)).await;
            assert_eq!(answer.status, 400, "{known}: {back}");
            assert_eq!(answer.header("location"), "", "{known}: {back}");
        }
    }
}
