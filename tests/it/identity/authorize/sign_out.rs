//! Signing out.

use super::browser::{Browser, Form, shown_error};
use super::{VERIFIER, code, door, exchange, path, signed_in, told, trusted, web, with};
use crate::support::http::{client, send};
use crate::support::{Answer, Door};

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
    // Where nobody says whose it is, it leads nowhere.
    let visitor = signed_in(&door, "alice").await;
    let address = end(&[("post_logout_redirect_uri", BYE)]);
    let page = visitor.get(&address).await.expect(200);
    assert!(
        !page
            .header("content-security-policy")
            .contains("app.example")
    );
    visitor
        .post(&Form::of(&page).with("logout-yes", "true"))
        .await
        .expect(200);
    assert!(!is_signed_in(&visitor).await);
    visitor.get(&address).await.expect(200);
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

#[tokio::test]
async fn logout_csrf_by_a_form_that_is_posted_without_the_cookie() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let attacker = Browser::new(&door);
    let theirs = tokens(&door, &attacker).await;
    let hint = theirs["id_token"].as_str().expect("an ID token");
    // Browsers leave the cookie out of what other sites post.
    let posted = [
        &[("logout-yes", "true"), ("csrf", "x")][..],
        &[("id_token_hint", hint), ("ui_locales", "de")],
    ];
    for fields in posted {
        let request = client().post(door.proxy_url(END)).form(fields);
        let request = request.header("sec-fetch-site", "cross-site");
        let answer = send(request).await.expect(303);
        assert!(answer.headers.get("set-cookie").is_none(), "{answer:?}");
        let page = browser.get(answer.header("location")).await.expect(200);
        assert!(page.body.contains("id=\"logout-yes\""), "asked first");
        assert_eq!(
            page.body.contains("lang=\"de\""),
            fields.len() == 2 && fields[1].1 == "de"
        );
        assert!(is_signed_in(&browser).await);
    }
    assert!(is_good(&door, &theirs).await, "nor was anything ended");
}

#[tokio::test]
async fn a_client_may_post_to_sign_its_user_out() {
    let door = door().await;
    let browser = Browser::new(&door);
    let tokens = tokens(&door, &browser).await;
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let fields = [
        ("id_token_hint", hint),
        ("client_id", "web"),
        ("logout_hint", "demo"),
        ("post_logout_redirect_uri", BYE),
        ("state", "a&b"),
    ];
    let posted = client().post(door.proxy_url(END)).form(&fields);
    let answer = send(posted).await.expect(303);
    let answer = browser.get(answer.header("location")).await;
    assert_eq!(told(&answer, BYE)["state"], "a&b");
    assert!(!is_signed_in(&browser).await);
    assert!(!is_good(&door, &tokens).await);
    // What is wrong is said at once.
    for (name, value, code) in [
        ("client_id", "trusted", "bad_request"),
        ("id_token_hint", "junk", "bad_request"),
        (
            "post_logout_redirect_uri",
            "https://evil.example/",
            "redirect_uri_mismatch",
        ),
    ] {
        let changed: Vec<_> = fields
            .iter()
            .map(|(known, old)| (*known, if *known == name { value } else { *old }))
            .collect();
        let posted = client().post(door.proxy_url(END)).form(&changed);
        let page = send(posted).await.expect(400);
        assert_eq!(shown_error(&page), code, "{name}");
    }
}

async fn refreshed(door: &Door, tokens: &serde_json::Value) -> Answer {
    let refresh = tokens["refresh_token"].as_str().expect("a refresh token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "web"),
        ("client_secret", "web-secret"),
        ("refresh_token", refresh),
    ];
    door.token_request(&fields).await
}

async fn is_good(door: &Door, tokens: &serde_json::Value) -> bool {
    let token = tokens["access_token"].as_str().expect("an access token");
    let url = door.proxy_url(&format!("/oauth2/tokeninfo?access_token={token}"));
    send(client().get(url)).await.status == 200
}

#[tokio::test]
async fn a_browser_that_lost_its_cookie_is_signed_out_by_the_id_token() {
    let door = door().await;
    let browser = Browser::new(&door);
    let tokens = tokens(&door, &browser).await;
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let reopened = Browser::new(&door);
    let page = reopened.get(&end(&[("id_token_hint", hint)])).await;
    assert!(page.expect(200).body.contains("Signed out"));
    assert!(!is_signed_in(&browser).await);
    assert!(!is_good(&door, &tokens).await);
    refreshed(&door, &tokens).await.expect(400);
}

#[tokio::test]
async fn sessions_that_the_quota_ends_take_their_tokens_along() {
    let door = crate::support::Setup::new()
        .identity(&format!("{}\n  session: {{quota: 1}}\n", super::IDENTITY))
        .start()
        .await;
    let first = Browser::new(&door);
    let kept = tokens(&door, &first).await;
    refreshed(&door, &kept).await.expect(200);
    let second = signed_in(&door, "demo").await;
    assert!(!is_good(&door, &kept).await);
    refreshed(&door, &kept).await.expect(400);
    // Its ID token is no key to the session that took its place.
    let hint = kept["id_token"].as_str().expect("an ID token");
    first
        .get(&end(&[("id_token_hint", hint)]))
        .await
        .expect(200);
    assert!(is_signed_in(&second).await);
}

#[tokio::test]
async fn the_link_of_another_realm_leaves_the_session_alone() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let link = END.replace("/oauth2/", "/oauth2/realms/root/realms/alpha/");
    let page = browser.get(&link).await.expect(200);
    assert!(
        page.body.contains("Signed out"),
        "there nobody is signed in"
    );
    assert!(is_signed_in(&browser).await);
}

#[tokio::test]
async fn tokens_without_a_refresh_token_end_with_the_session() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let request = with(trusted(), "response_type", "id_token token");
    let request = with(
        with(request, "code_challenge", ""),
        "code_challenge_method",
        "",
    );
    let implicit = told(
        &browser.get(&path(&request)).await,
        "https://trusted.example/cb",
    );
    let implicit = serde_json::json!(implicit);
    assert!(is_good(&door, &implicit).await);
    // `trusted` has no refresh tokens: its code is spent, its access token lives.
    let answer = browser.get(&path(&trusted())).await;
    let code = told(&answer, "https://trusted.example/cb")["code"].clone();
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", "trusted"),
        ("client_secret", "trusted-secret"),
        ("code", &code),
        ("redirect_uri", "https://trusted.example/cb"),
        ("code_verifier", VERIFIER),
    ];
    let by_code = door.token_request(&fields).await.expect(200).json();
    assert!(is_good(&door, &by_code).await);
    let hint = by_code["id_token"].as_str().expect("an ID token");
    browser
        .get(&end(&[("id_token_hint", hint)]))
        .await
        .expect(200);
    assert!(!is_good(&door, &implicit).await);
    assert!(!is_good(&door, &by_code).await);
    let silent = told(
        &browser.get(&path(&with(web(), "prompt", "none"))).await,
        super::CALLBACK,
    );
    assert_eq!(silent["error"], "login_required");
}
