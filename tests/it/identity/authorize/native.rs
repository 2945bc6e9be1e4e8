//! Programs of a device: any of them can claim a scheme, a loopback port and the
//! identifier of a public client (RFC 8252 §8.6).

use super::browser::Browser;
use super::{CHALLENGE, path, told, web, with};
use crate::support::{Door, Setup};

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      users:
        - {userName: demo, password: Ch4ng31t-demo}
      clients:
        - client_id: app
          token_endpoint_auth_method: none
          grant_types: [authorization_code]
          redirect_uris: ["http://127.0.0.1/cb", "com.example.app:/cb", "https://app.example/cb"]
          scope: openid
        - client_id: silent
          token_endpoint_auth_method: none
          grant_types: [authorization_code]
          redirect_uris: ["com.example.silent:/cb"]
          require_consent: false
          scope: openid
        - client_id: hybrid
          client_secret: hybrid-secret
          grant_types: [authorization_code]
          response_types: [code, "id_token token"]
          redirect_uris: ["http://127.0.0.1/cb"]
          scope: openid
"#;

const LOOPBACK: &str = "http://127.0.0.1:49152/cb";

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

fn request(client_id: &str, redirect_uri: &str) -> String {
    path(&request_of(client_id, redirect_uri))
}

fn request_of(
    client_id: &str,
    redirect_uri: &str,
) -> std::collections::BTreeMap<&'static str, String> {
    let request = with(web(), "client_id", client_id);
    let request = with(request, "redirect_uri", redirect_uri);
    with(
        with(request, "scope", "openid"),
        "code_challenge",
        CHALLENGE,
    )
}

/// Signs in and agrees; gives the browser.
async fn agreed<'d>(door: &'d Door, address: &str, redirect_uri: &str) -> Browser<'d> {
    let browser = Browser::new(door);
    let page = browser.get(address).await.expect(200);
    let page = browser.sign_in(&page, "demo").await.expect(200);
    let answer = browser.approve(&page).await;
    assert!(told(&answer, redirect_uri).contains_key("code"));
    browser
}

#[tokio::test]
async fn a_native_public_client_asks_at_each_request() {
    let door = door().await;
    for redirect_uri in [LOOPBACK, "com.example.app:/cb"] {
        let address = request("app", redirect_uri);
        let browser = agreed(&door, &address, redirect_uri).await;
        let page = browser.get(&address).await.expect(200);
        assert!(page.body.contains("id=\"approve\""), "{}", page.body);
        let none = path(&with(request_of("app", redirect_uri), "prompt", "none"));
        let answer = told(&browser.get(&none).await, redirect_uri);
        assert_eq!(answer["error"], "consent_required");
        assert!(!answer.contains_key("code"));
    }
}

#[tokio::test]
async fn a_consent_for_a_loopback_address_counts_nowhere_else() {
    let door = door().await;
    let browser = agreed(&door, &request("app", LOOPBACK), LOOPBACK).await;
    for redirect_uri in ["com.example.app:/cb", "https://app.example/cb"] {
        let page = browser.get(&request("app", redirect_uri)).await.expect(200);
        assert!(page.body.contains("id=\"approve\""), "{redirect_uri}");
    }
}

#[tokio::test]
async fn a_claimed_https_address_asks_once() {
    let door = door().await;
    let address = request("app", "https://app.example/cb");
    let browser = agreed(&door, &address, "https://app.example/cb").await;
    let answer = browser.get(&address).await.expect(302);
    assert!(told(&answer, "https://app.example/cb").contains_key("code"));
    // Nor does that agreement count for other addresses of the client.
    let page = browser.get(&request("app", LOOPBACK)).await.expect(200);
    assert!(page.body.contains("id=\"approve\""));
}

#[tokio::test]
async fn a_native_client_without_consent_takes_a_sign_in_or_an_answer() {
    let door = door().await;
    let redirect_uri = "com.example.silent:/cb";
    let address = request("silent", redirect_uri);
    let browser = Browser::new(&door);
    let page = browser.get(&address).await.expect(200);
    let answer = browser.sign_in(&page, "demo").await;
    assert!(told(&answer, redirect_uri).contains_key("code"));
    // The session alone is no answer.
    let page = browser.get(&address).await.expect(200);
    assert!(page.body.contains("id=\"approve\""), "{}", page.body);
    let none = path(&with(request_of("silent", redirect_uri), "prompt", "none"));
    let answer = told(&browser.get(&none).await, redirect_uri);
    assert_eq!(answer["error"], "consent_required");
    let answer = browser.approve(&page).await;
    assert!(told(&answer, redirect_uri).contains_key("code"));
}

#[tokio::test]
async fn tokens_for_a_loopback_address_are_asked_for_each_time_with_a_secret_too() {
    let door = door().await;
    let code = request("hybrid", LOOPBACK);
    let browser = agreed(&door, &code, LOOPBACK).await;
    // The code is of no use without the secret.
    let answer = browser.get(&code).await.expect(302);
    assert!(told(&answer, LOOPBACK).contains_key("code"));
    let tokens = with(
        request_of("hybrid", LOOPBACK),
        "response_type",
        "id_token token",
    );
    let page = browser.get(&path(&tokens)).await.expect(200);
    assert!(page.body.contains("id=\"approve\""), "{}", page.body);
}
