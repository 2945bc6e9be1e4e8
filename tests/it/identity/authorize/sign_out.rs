//! Signing out.

use super::browser::{Browser, Form, shown_error};
use super::{VERIFIER, code, door, exchange, path, signed_in, told, trusted, with};
use crate::support::Door;

const END: &str = "/oauth2/connect/endSession";
const BYE: &str = "https://app.example/bye";

fn end(pairs: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    format!("{END}?{}", query.finish())
}

async fn is_signed_in(browser: &Browser<'_>) -> bool {
    let answer = browser.get(&path(&with(trusted(), "prompt", "none"))).await;
    told(&answer, "https://trusted.example/cb").contains_key("code")
}

async fn tokens(door: &Door, browser: &Browser<'_>) -> serde_json::Value {
    let code = code(browser).await;
    exchange(door, &code, VERIFIER).await.expect(200).json()
}

#[tokio::test]
async fn a_client_with_the_id_token_signs_its_user_out() {
    let door = door().await;
    let browser = Browser::new(&door);
    let tokens = tokens(&door, &browser).await;
    let hint = tokens["id_token"].as_str().expect("an ID token");
    assert!(is_signed_in(&browser).await);
    let answer = browser
        .get(&end(&[
            ("id_token_hint", hint),
            ("post_logout_redirect_uri", BYE),
            ("state", "a&b"),
        ]))
        .await;
    assert_eq!(told(&answer, BYE)["state"], "a&b");
    assert_eq!(browser.cookie("iPlanetDirectoryPro"), None);
    assert!(!is_signed_in(&browser).await);
    let refresh = tokens["refresh_token"].as_str().expect("a refresh token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "web"),
        ("client_secret", "web-secret"),
        ("refresh_token", refresh),
    ];
    door.token_request(&fields).await.expect(400);
}

#[tokio::test]
async fn whoever_brings_no_proof_is_asked_first() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let other = signed_in(&door, "alice").await;
    let page = browser.get(END).await.expect(200);
    assert!(page.body.contains("id=\"logout-yes\""));
    assert!(is_signed_in(&browser).await);
    // The form of another browser does nothing.
    let foreign = Form::of(&other.get(END).await.expect(200)).with("logout-yes", "true");
    browser.post(&foreign).await.expect(200);
    assert!(is_signed_in(&browser).await);
    let own = Form::of(&page).with("logout-yes", "true");
    let page = browser.post(&own).await.expect(200);
    assert!(page.body.contains("Signed out"));
    assert!(!is_signed_in(&browser).await);
    assert!(is_signed_in(&other).await);
}

#[tokio::test]
async fn a_hint_of_another_session_leads_through_the_page_to_the_client() {
    let door = door().await;
    let other = Browser::new(&door);
    let tokens = tokens(&door, &other).await;
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let browser = signed_in(&door, "demo").await;
    let pairs = [
        ("id_token_hint", hint),
        ("post_logout_redirect_uri", BYE),
        ("state", "s"),
    ];
    let page = browser.get(&end(&pairs)).await.expect(200);
    let form = Form::of(&page).with("logout-yes", "true");
    assert_eq!(form.field("client_id"), "web");
    let answer = browser.post(&form).await;
    assert_eq!(told(&answer, BYE)["state"], "s");
    assert!(!is_signed_in(&browser).await);
    assert!(is_signed_in(&other).await);
}

#[tokio::test]
async fn open_redirect_by_logout() {
    let door = door().await;
    let browser = Browser::new(&door);
    let tokens = tokens(&door, &browser).await;
    let hint = tokens["id_token"].as_str().expect("an ID token");
    for address in [
        "https://evil.example/",
        "https://app.example/bye?x=1",
        "https://app.example/bye/",
    ] {
        let pairs = [
            ("id_token_hint", hint),
            ("post_logout_redirect_uri", address),
        ];
        let page = browser.get(&end(&pairs)).await.expect(400);
        assert_eq!(shown_error(&page), "redirect_uri_mismatch", "{address}");
    }
    let page = browser
        .get(&end(&[("post_logout_redirect_uri", BYE)]))
        .await;
    assert_eq!(shown_error(&page.expect(400)), "redirect_uri_mismatch");
    let page = browser
        .get(&end(&[("id_token_hint", &hint[..hint.len() - 4])]))
        .await;
    assert_eq!(shown_error(&page.expect(400)), "bad_request");
    let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJkZW1vIn0.";
    browser
        .get(&end(&[("id_token_hint", none)]))
        .await
        .expect(400);
    assert!(is_signed_in(&browser).await);
}
