//! Passkeys: enrolled, used as a second factor and alone.

use serde_json::json;

use super::browser::{Browser, error, made, options, passkey_step, says, signed};
use super::{id_token, provider, request, with};
use crate::factors::software_authenticator::SoftwareAuthenticator;
use crate::testing::{Answer, Provider};

/// A user with a passkey; and what authenticators call that user.
async fn enrolled(provider: &Provider, soft: &SoftwareAuthenticator) -> String {
    let browser = Browser::new(provider);
    browser.sign_in().await;
    let page = browser.offer().await;
    let handle = options(&page)["user"]["id"]
        .as_str()
        .expect("a handle")
        .to_owned();
    let (client_data, attestation) = soft.create(&says(&page));
    let answer = made(soft, &client_data, &attestation);
    let fields = [("do", "added"), ("doorward_passkey", &*answer)];
    let done = browser.submit(&page, &fields).await;
    assert_eq!(error(&done), "", "{}", done.text);
    handle
}

/// Sends what the script would.
async fn answer(browser: &Browser<'_>, page: &Answer, passkey: &str) -> Answer {
    let step = passkey_step(page);
    let fields = [("doorward_step", &*step), ("doorward_passkey", passkey)];
    browser.submit(page, &fields).await
}

#[tokio::test]
async fn a_passkey_alone_signs_in_and_says_so() {
    let provider = provider().await;
    let soft = SoftwareAuthenticator::es256(b"one");
    let handle = enrolled(&provider, &soft).await;
    let browser = Browser::new(&provider);
    let page = browser.get(&request("")).await;
    assert!(page.text.contains("autocomplete=\"username webauthn\""));
    assert_eq!(
        options(&page)["allowCredentials"],
        json!([]),
        "a list of users"
    );
    let passkey = signed(&soft, &says(&page), Some(&handle));
    let done = answer(&browser, &page, &passkey).await;
    let back = browser.follow(&done).await;
    let claims = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(claims["sub"], "demo");
    assert_eq!(claims["amr"], json!(["pop", "hwk", "user", "mfa"]));
    assert_eq!(claims["acr"], "phr");
}

#[tokio::test]
async fn a_passkey_is_a_second_factor_after_the_password() {
    let provider = provider().await;
    let soft = SoftwareAuthenticator::ed_dsa(b"one");
    enrolled(&provider, &soft).await;
    let browser = Browser::new(&provider);
    let page = browser.get(&request("")).await;
    let page = browser.password(&page).await;
    let allowed = &options(&page)["allowCredentials"];
    assert_eq!(allowed[0]["transports"], json!(["internal"]), "{allowed}");
    // Without a gesture that verifies its user it is one all the same.
    let mut says = says(&page);
    says.flags = 0x01;
    let done = answer(&browser, &page, &signed(&soft, &says, None)).await;
    let back = browser.follow(&done).await;
    let claims = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(claims["amr"], json!(["pwd", "pop", "hwk", "user", "mfa"]));
}

#[tokio::test]
async fn replay_of_a_ceremony_is_refused() {
    let provider = provider().await;
    let soft = SoftwareAuthenticator::es256(b"one");
    let handle = enrolled(&provider, &soft).await;
    let browser = Browser::new(&provider);
    let page = browser.get(&request("")).await;
    let passkey = signed(&soft, &says(&page), Some(&handle));
    assert_eq!(answer(&browser, &page, &passkey).await.status, 303);
    browser.forget("iPlanetDirectoryPro");
    let again = answer(&browser, &page, &passkey).await;
    assert_eq!(error(&again), "invalid_passkey");
}

#[tokio::test]
async fn replay_of_a_ceremony_is_refused_as_long_as_its_page_is_good() {
    let provider = provider().await;
    let soft = SoftwareAuthenticator::es256(b"one");
    let handle = enrolled(&provider, &soft).await;
    let browser = Browser::new(&provider);
    let page = browser.get(&request("")).await;
    let passkey = signed(&soft, &says(&page), Some(&handle));
    provider.clock.advance(60_000);
    assert_eq!(answer(&browser, &page, &passkey).await.status, 303);
    for minutes in [11, 20, 27] {
        provider.clock.advance(minutes * 60_000);
        browser.forget("iPlanetDirectoryPro");
        let again = answer(&browser, &page, &passkey).await;
        assert_eq!(error(&again), "invalid_passkey", "{minutes}");
    }
}

#[tokio::test]
async fn a_challenge_of_another_browser_page_or_time_is_refused() {
    let provider = provider().await;
    let soft = SoftwareAuthenticator::es256(b"one");
    let handle = enrolled(&provider, &soft).await;
    let (one, two) = (Browser::new(&provider), Browser::new(&provider));
    let page = one.get(&request("")).await;
    let passkey = signed(&soft, &says(&page), Some(&handle));
    let step = passkey_step(&page);
    let fields = [("doorward_step", &*step), ("doorward_passkey", &*passkey)];
    let own = two.get(&request("")).await;
    assert_eq!(error(&two.submit(&own, &fields).await), "bad_request");
    let other = one.get(&request("&nonce=n")).await;
    assert_eq!(error(&one.submit(&other, &fields).await), "bad_request");
    let own_step = passkey_step(&other);
    let fields = [
        ("doorward_step", &*own_step),
        ("doorward_passkey", &*passkey),
    ];
    assert_eq!(error(&one.submit(&other, &fields).await), "invalid_passkey");
    provider.clock.advance(3600 * 1000);
    let late = answer(&one, &page, &passkey).await;
    assert_eq!(error(&late), "bad_request");
}

#[tokio::test]
async fn a_counter_that_goes_back_is_refused() {
    let provider = provider().await;
    let soft = SoftwareAuthenticator::es256(b"one");
    let handle = enrolled(&provider, &soft).await;
    for (count, counts) in [(5, true), (5, false), (4, false), (0, false), (6, true)] {
        let browser = Browser::new(&provider);
        let page = browser.get(&request("")).await;
        let mut says = says(&page);
        says.count = count;
        let done = answer(&browser, &page, &signed(&soft, &says, Some(&handle))).await;
        assert_eq!(done.status == 303, counts, "{count}");
    }
}

#[tokio::test]
async fn alone_a_passkey_must_verify_and_name_its_user() {
    let provider = provider().await;
    let soft = SoftwareAuthenticator::es256(b"one");
    let handle = enrolled(&provider, &soft).await;
    let browser = Browser::new(&provider);
    let page = browser.get(&request("")).await;
    let mut unverified = says(&page);
    unverified.flags = 0x01;
    for (says, handle) in [
        (unverified, Some(&*handle)),
        (says(&page), None),
        (says(&page), Some("c29tZWJvZHk")),
    ] {
        let refused = answer(&browser, &page, &signed(&soft, &says, handle)).await;
        assert_eq!(error(&refused), "invalid_passkey");
    }
    let unknown = SoftwareAuthenticator::es256(b"two");
    let passkey = signed(&unknown, &says(&page), Some(&handle));
    assert_eq!(
        error(&answer(&browser, &page, &passkey).await),
        "invalid_passkey"
    );
    for junk in ["{}", "", "[]", "{\"id\":\"\"}", &"x".repeat(61_000)] {
        let refused = answer(&browser, &page, junk).await;
        assert_ne!(refused.status, 303);
    }
}

#[tokio::test]
async fn a_passkey_of_another_user_is_no_second_factor() {
    let provider = provider().await;
    let (mine, theirs) = (
        SoftwareAuthenticator::es256(b"mine"),
        SoftwareAuthenticator::es256(b"theirs"),
    );
    enrolled(&provider, &mine).await;
    let other = Browser::new(&provider);
    let page = other.get("/oauth2/account").await;
    let fields = [("username", "other"), ("password", "correct horse")];
    assert_eq!(other.submit(&page, &fields).await.status, 303);
    assert_eq!(error(&other.enrol_passkey(&theirs).await), "");
    // The same key again, though another user has it.
    assert_eq!(error(&other.enrol_passkey(&mine).await), "invalid_passkey");
    let browser = Browser::new(&provider);
    let page = browser.get(&request("")).await;
    let page = browser.password(&page).await;
    let refused = answer(&browser, &page, &signed(&theirs, &says(&page), None)).await;
    assert_eq!(error(&refused), "invalid_passkey");
}

#[tokio::test]
async fn passkeys_are_offered_only_where_browsers_have_them() {
    for (base_url, offered) in [
        ("http://localhost:8000", true),
        ("https://id.example", true),
        ("http://id.example", false),
        ("https://127.0.0.1:8443", false),
    ] {
        let mut config = with(json!({}));
        config["base_url"] = json!(base_url);
        let provider = Provider::with(config).await;
        let page = provider.get(&request("")).await;
        assert_eq!(page.text.contains("id=\"passkey\""), offered, "{base_url}");
        let policy = page.header("content-security-policy");
        assert_eq!(policy.contains("script-src 'nonce-"), offered, "{policy}");
    }
    let off = with(json!({"factors": {"passkeys_alone": false}}));
    let page = Provider::with(off).await.get(&request("")).await;
    assert!(!page.text.contains("id=\"passkey\""));
}

#[tokio::test]
async fn the_script_is_served_as_a_script_and_kept() {
    let provider = provider().await;
    let page = provider.get(&request("")).await;
    let address = page.text.split_once("<script src=\"").expect("a script").1;
    let address = address.split('"').next().expect("an address");
    let script = provider.get(address).await;
    assert_eq!(
        script.header("content-type"),
        "text/javascript; charset=utf-8"
    );
    assert_eq!(script.header("x-content-type-options"), "nosniff");
    assert!(script.text.contains("navigator.credentials"));
}
