//! Attacks, by name.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::browser::{Browser, Form, between, shown_error};
use super::{
    CALLBACK, VERIFIER, code, door, exchange, exchange_as, exchange_trusted, path, signed_in, told,
    trusted, web, with,
};
use crate::support::http::{client, send};

#[tokio::test]
async fn open_redirect_by_variations_of_the_redirect_uri() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    for evil in [
        "https://app.example/cb",
        "https://app.example/cb?keep=1&x=2",
        "https://app.example/cb/?keep=1",
        "https://app.example.evil.example/cb?keep=1",
        "https://app.example@evil.example/cb?keep=1",
        "https://APP.example/cb?keep=1",
        "https://app.example/cb?keep=1#",
        "https://app.example/%63b?keep=1",
        "//evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "/cb?keep=1",
    ] {
        let page = browser
            .get(&path(&with(web(), "redirect_uri", evil)))
            .await
            .expect(400);
        assert_eq!(shown_error(&page), "redirect_uri_mismatch", "{evil}");
        assert!(!page.body.contains(evil), "nor is it linked");
    }
    // Loopback addresses may have any port, and only the port may differ.
    let native = with(web(), "client_id", "native");
    let good = with(native.clone(), "redirect_uri", "http://127.0.0.1:49152/cb");
    let page = browser.get(&path(&good)).await.expect(200);
    let answer = browser.approve(&page).await;
    assert!(told(&answer, "http://127.0.0.1:49152/cb").contains_key("code"));
    let evil = with(
        native,
        "redirect_uri",
        "http://127.0.0.1:80@evil.example/cb",
    );
    browser.get(&path(&evil)).await.expect(400);
}

#[tokio::test]
async fn skipping_the_password_with_a_time_that_the_browser_made_up() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let asked = path(&with(trusted(), "prompt", "login"));
    let (_, query) = asked.split_once('?').expect("a query");
    let page = browser.get(&asked).await.expect(200);
    let shown = Form::of(&page);
    let (now, _) = shown.field("doorward_since").split_once('.').expect("two");
    let time = (now.parse::<i64>().expect("a time") - 120_000).to_string();
    let secret = browser.cookie("doorward-browser").expect("a cookie");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    for part in ["since", query, &time] {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    }
    let mark = URL_SAFE_NO_PAD.encode(context.sign());
    let forged = format!("{asked}&doorward_since={time}.{mark}");
    let page = browser.get(&forged).await.expect(200);
    assert!(page.body.contains("name=\"password\""), "{}", page.body);
}

#[tokio::test]
async fn code_replay_revokes_what_the_code_gave() {
    let door = door().await;
    let browser = Browser::new(&door);
    let code = code(&browser).await;
    let tokens = exchange(&door, &code, VERIFIER).await.expect(200).json();
    let access = tokens["access_token"].as_str().expect("a token");
    let url = door.proxy_url(&format!("/oauth2/tokeninfo?access_token={access}"));
    send(client().get(&url)).await.expect(200);
    let replay = exchange(&door, &code, VERIFIER).await.expect(400).json();
    assert_eq!(replay["error"], "invalid_grant");
    send(client().get(&url)).await.expect(401);
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "web"),
        ("client_secret", "web-secret"),
        ("refresh_token", refresh),
    ];
    door.token_request(&fields).await.expect(400);
}

#[tokio::test]
async fn code_injection_by_another_client_or_redirect_uri() {
    let door = door().await;
    let browser = Browser::new(&door);
    let stolen = code(&browser).await;
    let other = ("trusted", "trusted-secret");
    let answer = exchange_as(&door, other, &stolen, CALLBACK, VERIFIER).await;
    assert_eq!(answer.expect(400).json()["error"], "invalid_grant");
    exchange(&door, &stolen, VERIFIER).await.expect(200);
    let web = ("web", "web-secret");
    for uri in ["", "https://app.example/cb"] {
        let code = code(&browser).await;
        let answer = exchange_as(&door, web, &code, uri, VERIFIER).await;
        assert_eq!(answer.expect(400).json()["error"], "invalid_grant", "{uri}");
        // What failed is spent.
        exchange(&door, &code, VERIFIER).await.expect(400);
    }
    let answer = exchange(&door, "no-such-code", VERIFIER).await.expect(400);
    assert_eq!(answer.json()["error"], "invalid_grant");
}

#[tokio::test]
async fn pkce_downgrade() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    for verifier in ["", "wrongwrongwrongwrongwrongwrongwrongwrongwrong"] {
        let code = code(&browser).await;
        let answer = exchange(&door, &code, verifier).await.expect(400).json();
        assert_eq!(answer["error"], "invalid_grant", "{verifier}");
    }
    // A verifier for a code that was asked for without challenge.
    let bare = with(trusted(), "code_challenge", "");
    let bare = with(bare, "code_challenge_method", "");
    let answer = told(
        &browser.get(&path(&bare)).await,
        "https://trusted.example/cb",
    );
    let answer = exchange_trusted(&door, &answer["code"]).await;
    assert_eq!(answer.expect(400).json()["error"], "invalid_grant");
    // Public clients can't do without.
    let native = with(
        with(bare, "client_id", "native"),
        "redirect_uri",
        "http://127.0.0.1/cb",
    );
    let answer = told(&browser.get(&path(&native)).await, "http://127.0.0.1/cb");
    assert_eq!(answer["error"], "invalid_request");
}

#[tokio::test]
async fn login_csrf_and_consent_csrf() {
    let door = door().await;
    let (victim, attacker) = (Browser::new(&door), Browser::new(&door));
    let of_attacker = Form::of(&attacker.get(&path(&web())).await.expect(200))
        .with("username", "alice")
        .with("password", "Ch4ng31t-alice");
    for form in [of_attacker.clone(), of_attacker.clone().with("csrf", "")] {
        let page = victim.post(&form).await.expect(400);
        assert_eq!(shown_error(&page), "bad_request");
        assert_eq!(victim.cookie("iPlanetDirectoryPro"), None);
    }
    let own = Form::of(&victim.get(&path(&web())).await.expect(200))
        .with("username", "demo")
        .with("password", "Ch4ng31t-demo");
    let page = victim
        .post_with(&own, &[("sec-fetch-site", "cross-site")])
        .await;
    assert_eq!(shown_error(&page.expect(400)), "bad_request");
    let next = victim.post(&own).await.expect(303);
    victim.get(next.header("location")).await.expect(200);

    // A decision that the victim's browser was led to make.
    let alice = signed_in(&door, "alice").await;
    let of_alice = Form::of(&alice.get(&path(&web())).await.expect(200)).with("approve", "true");
    for form in [of_alice.clone(), of_alice.with("csrf", "")] {
        let page = victim.post(&form).await.expect(400);
        assert_eq!(shown_error(&page), "bad_request");
    }
    // A link decides nothing: the page asks as if it said no more than the rest.
    let by_link = format!("{}&approve=true", path(&web()));
    let page = victim.get(&by_link).await.expect(200);
    assert!(page.body.contains("id=\"approve\""), "{}", page.body);
}

#[tokio::test]
async fn a_form_for_one_request_is_no_good_for_another() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let small = with(web(), "scope", "openid");
    let form = Form::of(&browser.get(&path(&small)).await.expect(200)).with("approve", "true");
    let more = with(web(), "scope", "openid email offline_access");
    let forged = Form {
        action: path(&more),
        ..form
    };
    let page = browser.post(&forged).await.expect(400);
    assert_eq!(shown_error(&page), "bad_request");
}

#[tokio::test]
async fn session_fixation() {
    let door = door().await;
    let browser = signed_in(&door, "alice").await;
    let planted = browser.cookie("iPlanetDirectoryPro").expect("a session");
    let victim = Browser::new(&door);
    victim.set_cookie("iPlanetDirectoryPro", &planted);
    let page = victim.get(&path(&with(trusted(), "prompt", "login"))).await;
    victim.sign_in(&page.expect(200), "demo").await.expect(302);
    let own = victim.cookie("iPlanetDirectoryPro").expect("a session");
    assert_ne!(own, planted);
    let silent = path(&with(trusted(), "prompt", "none"));
    let answer = told(&browser.get(&silent).await, "https://trusted.example/cb");
    assert_eq!(answer["error"], "login_required", "the planted one is dead");
}

#[tokio::test]
async fn clickjacking_and_caches() {
    let door = door().await;
    let browser = Browser::new(&door);
    let sign_in = browser.get(&path(&web())).await.expect(200);
    let consent = browser.sign_in(&sign_in, "demo").await.expect(200);
    let error = browser.get("/oauth2/authorize").await.expect(400);
    for page in [sign_in, consent, error] {
        let policy = page.header("content-security-policy");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-frame-options"), "DENY");
        assert_eq!(page.header("cache-control"), "no-store");
        assert_eq!(page.header("referrer-policy"), "no-referrer");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
    }
}

#[tokio::test]
async fn html_injection_by_client_name_state_and_login_hint() {
    let door = door().await;
    let browser = Browser::new(&door);
    let hostile = "\"><script>alert(1)</script>";
    let request = with(with(web(), "login_hint", hostile), "state", hostile);
    let page = browser.get(&path(&request)).await.expect(200);
    assert!(!page.body.contains("<script>alert"), "{}", page.body);
    let hinted = between(&page.body, "name=\"username\" value=\"", "\"");
    assert_eq!(hinted.as_deref(), Some(hostile), "it is there as text");
    let consent = browser.sign_in(&page, "demo").await.expect(200);
    assert!(!consent.body.contains("<script>alert"));
    let posted = with(
        with(request, "response_mode", "form_post"),
        "prompt",
        "none",
    );
    let page = browser.get(&path(&posted)).await.expect(200);
    assert!(!page.body.contains("<script>alert"));
    assert_eq!(Form::of(&page).field("state"), hostile);
}

#[tokio::test]
async fn header_injection_by_state() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let hostile = "x\r\nSet-Cookie: evil=1\r\n\r\n<html>";
    let answer = browser.get(&path(&with(trusted(), "state", hostile))).await;
    assert_eq!(answer.header("set-cookie"), "");
    let answer = told(&answer, "https://trusted.example/cb");
    assert_eq!(answer["state"], hostile, "escaped, and unchanged");
}

#[tokio::test]
async fn a_password_in_an_address_is_refused() {
    let door = door().await;
    let browser = Browser::new(&door);
    let form = Form::of(&browser.get(&path(&web())).await.expect(200));
    let action = format!("{}&username=demo&password=Ch4ng31t-demo", form.action);
    let page = browser.post(&Form { action, ..form }).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_request");
    assert_eq!(browser.cookie("iPlanetDirectoryPro"), None);
}

#[tokio::test]
async fn nobody_learns_which_users_exist() {
    let door = door().await;
    let browser = Browser::new(&door);
    let mut pages = Vec::new();
    for (name, password) in [
        ("demo", "wrong"),
        ("nobody", "wrong"),
        ("gone", "Ch4ng31t-gone"),
        ("gone", "wrong"),
    ] {
        let page = browser.get(&path(&web())).await.expect(200);
        let form = Form::of(&page)
            .with("username", name)
            .with("password", password);
        let page = browser.post(&form).await.expect(400);
        assert_eq!(shown_error(&page), "authentication_failed");
        assert!(!page.body.contains(password), "no password comes back");
        pages.push(between(&page.body, "<div class=\"alert\"", "</div>"));
    }
    assert!(pages.windows(2).all(|two| two[0] == two[1]));
}
