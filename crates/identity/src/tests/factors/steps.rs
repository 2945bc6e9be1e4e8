//! Sign-in in steps: what is asked for, and what must not be let through.

use serde_json::json;

use super::browser::{Browser, error, field};
use super::{id_token, next_code, provider, request, request_of, with};
use crate::factors::code_at;
use crate::testing::{Answer, Provider};

/// A user with an app, who is signed in nowhere; the key and recovery codes.
async fn enrolled(provider: &Provider) -> (Vec<u8>, Vec<String>) {
    let browser = Browser::new(provider);
    browser.sign_in().await;
    let enrolled = browser.enrol_totp().await;
    next_code(provider);
    enrolled
}

/// Where the password leads for a request.
async fn after_password(browser: &Browser<'_>, path: &str) -> Answer {
    let page = browser.get(path).await;
    browser.password(&page).await
}

async fn with_code(browser: &Browser<'_>, page: &Answer, secret: &[u8]) -> Answer {
    let code = code_at(secret, browser.provider.clock.now_ms());
    browser.submit(page, &[("doorward_code", &code)]).await
}

#[tokio::test]
async fn the_password_alone_signs_nobody_in_who_has_an_app() {
    let provider = provider().await;
    let (secret, _) = enrolled(&provider).await;
    let browser = Browser::new(&provider);
    let page = after_password(&browser, &request("")).await;
    assert_eq!(page.status, 200);
    assert!(field(&page, "doorward_step").is_some(), "{}", page.text);
    assert_eq!(browser.cookie("iPlanetDirectoryPro"), None, "a session");
    let again = browser.get(&request("&prompt=none")).await;
    assert!(again.header("location").contains("error=login_required"));
    let answer = with_code(&browser, &page, &secret).await;
    let back = browser.follow(&answer).await;
    let claims = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(claims["amr"], json!(["pwd", "otp", "mfa"]));
    assert_eq!(claims["acr"], "mfa");
}

#[tokio::test]
async fn a_wrong_password_leads_to_no_step() {
    let provider = provider().await;
    enrolled(&provider).await;
    let browser = Browser::new(&provider);
    let page = browser.get(&request("")).await;
    for name in ["demo", "nobody"] {
        let fields = [
            ("username", name),
            ("password", "wrong"),
            ("doorward_step", ""),
        ];
        let answer = browser.submit(&page, &fields).await;
        assert_eq!(error(&answer), "authentication_failed", "{name}");
    }
}

#[tokio::test]
async fn replay_of_a_code_is_refused() {
    let provider = provider().await;
    let (secret, _) = enrolled(&provider).await;
    let (one, two) = (Browser::new(&provider), Browser::new(&provider));
    let page = after_password(&one, &request("")).await;
    assert_eq!(with_code(&one, &page, &secret).await.status, 303);
    let page = after_password(&two, &request("")).await;
    let answer = with_code(&two, &page, &secret).await;
    assert_eq!(error(&answer), "invalid_code");
    next_code(&provider);
    assert_eq!(with_code(&two, &answer, &secret).await.status, 303);
}

#[tokio::test]
async fn a_recovery_code_lets_in_once() {
    let provider = provider().await;
    let (_, codes) = enrolled(&provider).await;
    assert_eq!(codes.len(), 10);
    for status in [303, 400] {
        let browser = Browser::new(&provider);
        let page = after_password(&browser, &request("")).await;
        let typed = codes[0].to_lowercase();
        let answer = browser.submit(&page, &[("doorward_code", &typed)]).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
}

#[tokio::test]
async fn guessing_codes_locks_the_step_and_not_the_password() {
    let provider = provider().await;
    let (secret, _) = enrolled(&provider).await;
    let browser = Browser::new(&provider);
    let mut page = after_password(&browser, &request("")).await;
    for _ in 0..5 {
        page = browser.submit(&page, &[("doorward_code", "000000")]).await;
        assert_eq!(error(&page), "invalid_code");
    }
    page = with_code(&browser, &page, &secret).await;
    assert_eq!((page.status.as_u16(), &*error(&page)), (429, "slow_down"));
    // Another browser with the password gets no further tries.
    let other = Browser::new(&provider);
    let page = after_password(&other, &request("")).await;
    assert!(field(&page, "doorward_step").is_some());
    assert_eq!(with_code(&other, &page, &secret).await.status, 429);
    provider.clock.advance(61_000);
    assert_eq!(with_code(&other, &page, &secret).await.status, 303);
}

#[tokio::test]
async fn a_half_sign_in_of_another_browser_or_request_is_refused() {
    let provider = provider().await;
    let (secret, _) = enrolled(&provider).await;
    let (victim, thief) = (Browser::new(&provider), Browser::new(&provider));
    let page = after_password(&victim, &request("")).await;
    let step = field(&page, "doorward_step").expect("a step");
    let code = code_at(&secret, provider.clock.now_ms());
    let fields = [("doorward_step", &*step), ("doorward_code", &*code)];
    let own = thief.get(&request("")).await;
    let answer = thief.submit(&own, &fields).await;
    assert_eq!(error(&answer), "bad_request");
    let other = victim.get(&request("&nonce=n")).await;
    let answer = victim.submit(&other, &fields).await;
    assert_eq!(error(&answer), "bad_request");
    // Not what was sealed, and not at all.
    for step in [&step[1..], &step[..step.len() - 1], "x.y", "."] {
        let fields = [("doorward_step", step), ("doorward_code", &*code)];
        let answer = victim.submit(&page, &fields).await;
        assert_eq!(error(&answer), "bad_request", "{step}");
    }
    assert_eq!(victim.submit(&page, &fields).await.status, 303);
}

#[tokio::test]
async fn a_half_sign_in_ends_with_time_and_with_the_password() {
    let provider = provider().await;
    let (secret, _) = enrolled(&provider).await;
    let browser = Browser::new(&provider);
    let page = after_password(&browser, &request("")).await;
    provider.clock.advance(15 * 60 * 1000);
    assert_eq!(
        error(&with_code(&browser, &page, &secret).await),
        "bad_request"
    );
    let page = after_password(&browser, &request("")).await;
    let demo = provider.store.user_by_name("/", "demo").await;
    let mut demo = demo.expect("read").expect("demo");
    demo.version += 1;
    provider
        .store
        .update_user(&demo, None)
        .await
        .expect("updated");
    assert_eq!(
        error(&with_code(&browser, &page, &secret).await),
        "bad_request"
    );
}

#[tokio::test]
async fn step_up_asks_for_the_missing_factor_alone() {
    let provider = provider().await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let code = browser.get(&request("")).await;
    let before = id_token(&provider, "web", code.header("location")).await;
    assert_eq!(
        (&before["acr"], &before["amr"]),
        (&json!("0"), &json!(["pwd"]))
    );
    // Somebody enrols; this session has shown the password only.
    let (secret, _) = enrolled(&provider).await;
    let wish = request("&acr_values=gold+phr+mfa");
    let page = browser.get(&wish).await;
    assert_eq!(page.status, 200, "{}", page.header("location"));
    assert!(!page.text.contains("name=\"password\""));
    let none = browser.get(&format!("{wish}&prompt=none")).await;
    let weaker = id_token(&provider, "web", none.header("location")).await;
    assert_eq!(weaker["acr"], "0", "a wish refuses nobody");
    let answer = with_code(&browser, &page, &secret).await;
    let back = browser.follow(&answer).await;
    let after = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(
        (&after["acr"], &after["amr"]),
        (&json!("mfa"), &json!(["pwd", "otp", "mfa"]))
    );
    assert_eq!(after["auth_time"], before["auth_time"]);
    assert_eq!(after["sid"], before["sid"]);
    let known = browser.get(&wish).await;
    assert_eq!(known.status, 302, "asked again");
}

#[tokio::test]
async fn step_up_in_a_session_that_has_ended_is_refused() {
    let provider = provider().await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let (secret, _) = enrolled(&provider).await;
    let page = browser.get(&request("&acr_values=mfa")).await;
    assert!(browser.forget("iPlanetDirectoryPro"));
    assert_eq!(
        error(&with_code(&browser, &page, &secret).await),
        "bad_request"
    );
}

const ESSENTIAL: &str = "&claims=%7B%22id_token%22%3A%7B%22acr%22%3A%7B%22essential%22%3Atrue%2C\
    %22values%22%3A%5B%22mfa%22%5D%7D%7D%7D";

#[tokio::test]
async fn an_essential_class_is_had_or_the_client_is_told() {
    let provider = provider().await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let none = browser
        .get(&request(&format!("{ESSENTIAL}&prompt=none")))
        .await;
    assert!(none.header("location").contains("error=login_required"));
    // The user has nothing to show, and is led to get something.
    let page = browser.get(&request(ESSENTIAL)).await;
    let (_, shown) = browser.confirm(&page).await;
    assert_eq!(super::browser::codes(&shown).len(), 10, "{}", shown.text);
    let back = browser.get(&request(ESSENTIAL)).await;
    let claims = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(claims["acr"], "mfa");
    let gold = ESSENTIAL.replace("mfa", "gold");
    let unmet = browser.get(&request(&gold)).await;
    assert!(
        unmet
            .header("location")
            .contains("unmet_authentication_requirements")
    );
}

#[tokio::test]
async fn a_client_may_demand_what_the_realm_does_not() {
    let provider = Provider::with(with(json!({"second_factor": "off"}))).await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let none = browser.get(&request_of("vault", "&prompt=none")).await;
    assert!(none.header("location").contains("error=login_required"));
    let page = browser.get(&request_of("vault", "")).await;
    let (secret, _) = browser.confirm(&page).await;
    let back = browser.get(&request_of("vault", "")).await;
    let claims = id_token(&provider, "vault", back.header("location")).await;
    assert_eq!(claims["amr"], json!(["pwd", "otp", "mfa"]));
    // The realm itself asks nobody.
    let other = Browser::new(&provider);
    let answer = after_password(&other, &request("")).await;
    assert_eq!(answer.status, 303);
    next_code(&provider);
    let page = other.get(&request_of("vault", "")).await;
    assert_eq!(with_code(&other, &page, &secret).await.status, 303);
}

#[tokio::test]
async fn where_it_is_required_who_has_no_factor_is_led_to_get_one() {
    let settings = json!({"second_factor": "required", "factors": {"kinds": ["totp"]}});
    let provider = Provider::with(with(settings)).await;
    let browser = Browser::new(&provider);
    let mut page = after_password(&browser, &request("")).await;
    assert_eq!(browser.cookie("iPlanetDirectoryPro"), None, "a session");
    let key = super::browser::offered(&page);
    page = browser.submit(&page, &[("doorward_code", "000000")]).await;
    assert_eq!(error(&page), "invalid_code");
    assert_eq!(super::browser::offered(&page), key, "another picture");
    let (_, shown) = browser.confirm(&page).await;
    assert_eq!(super::browser::codes(&shown).len(), 10);
    assert!(browser.cookie("iPlanetDirectoryPro").is_some());
    let back = browser.get(&request("")).await;
    let claims = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(claims["acr"], "mfa");
}

#[tokio::test]
async fn a_session_from_before_the_realm_required_it_gets_no_code_without_a_second_factor() {
    let settings = |required| json!({"second_factor": required, "factors": {"kinds": ["totp"]}});
    let provider = Provider::with(with(settings("off"))).await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let before = browser.get(&request("&prompt=none")).await;
    assert!(before.header("location").contains("code="));
    provider.reload(with(settings("required"))).await;
    let none = browser.get(&request("&prompt=none")).await;
    assert!(none.header("location").contains("error=login_required"));
    // No wish for less takes it away.
    let wish = browser.get(&request("&prompt=none&acr_values=0")).await;
    assert!(wish.header("location").contains("error=login_required"));
    let page = browser.get(&request("")).await;
    assert_eq!(page.status, 200, "{}", page.header("location"));
    let (_, shown) = browser.confirm(&page).await;
    assert_eq!(super::browser::codes(&shown).len(), 10);
    let back = browser.get(&request("")).await;
    let claims = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(claims["amr"], json!(["pwd", "otp", "mfa"]));
}

#[tokio::test]
async fn a_browser_is_remembered_as_long_as_the_factor_is_there() {
    let settings = json!({"factors": {"remember_browser_days": 30}});
    let provider = Provider::with(with(settings)).await;
    let (secret, _) = enrolled(&provider).await;
    let browser = Browser::new(&provider);
    let page = after_password(&browser, &request("")).await;
    let code = code_at(&secret, provider.clock.now_ms());
    let fields = [("doorward_code", &*code), ("doorward_remember", "on")];
    assert_eq!(browser.submit(&page, &fields).await.status, 303);
    browser.forget("iPlanetDirectoryPro");
    let back = after_password(&browser, &request("")).await;
    assert_eq!(back.status, 303, "asked again");
    let back = browser.follow(&back).await;
    let claims = id_token(&provider, "web", back.header("location")).await;
    assert_eq!(
        claims["amr"],
        json!(["pwd"]),
        "what was remembered is no method"
    );
    // The cookie is another user's, another's making, or too old.
    let cookie = browser.cookie("doorward-trusted").expect("a cookie");
    let stranger = Browser::new(&provider);
    for wrong in [&cookie[1..], &cookie[..cookie.len() - 1], "a.b.c.d.e"] {
        stranger.set_cookie("doorward-trusted", wrong);
        let page = after_password(&stranger, &request("")).await;
        assert_eq!(page.status, 200, "{wrong}");
    }
    let demo = provider.store.user_by_name("/", "demo").await;
    let demo = demo.expect("read").expect("demo");
    let factors = provider.store.factors(demo.id).await.expect("factors");
    let other = Browser::new(&provider);
    other.sign_in().await;
    provider
        .store
        .delete_factor(demo.id, factors[0].id, None)
        .await
        .expect("gone");
    enrolled(&provider).await;
    browser.forget("iPlanetDirectoryPro");
    let page = after_password(&browser, &request("")).await;
    assert_eq!(page.status, 200, "with another factor");
}

#[tokio::test]
async fn a_browser_that_was_remembered_is_asked_again_after_another_password() {
    let settings = || with(json!({"factors": {"remember_browser_days": 30}}));
    let provider = Provider::with(settings()).await;
    let (secret, _) = enrolled(&provider).await;
    let browser = Browser::new(&provider);
    let page = after_password(&browser, &request("")).await;
    let code = code_at(&secret, provider.clock.now_ms());
    let fields = [("doorward_code", &*code), ("doorward_remember", "on")];
    assert_eq!(browser.submit(&page, &fields).await.status, 303);
    let mut other = settings();
    other["realms"]["/"]["users"][0]["password"] = json!("another horse");
    provider.reload(other).await;
    browser.forget("iPlanetDirectoryPro");
    let page = browser.get(&request("")).await;
    let fields = [("username", "demo"), ("password", "another horse")];
    let asked = browser.submit(&page, &fields).await;
    assert_eq!(
        asked.status, 200,
        "who learned the password has the browser"
    );
    assert!(asked.text.contains("doorward_code"), "{}", asked.text);
}

#[tokio::test]
async fn bypass_by_an_enrolment_page_from_before_the_user_had_a_factor() {
    let settings = json!({"second_factor": "required", "factors": {"kinds": ["totp"]}});
    let provider = Provider::with(with(settings)).await;
    let (thief, owner) = (Browser::new(&provider), Browser::new(&provider));
    let kept = after_password(&thief, &request("")).await;
    let page = after_password(&owner, &request("")).await;
    let (secret, _) = owner.confirm(&page).await;
    next_code(&provider);
    let (_, asked) = thief.confirm(&kept).await;
    assert_eq!(error(&asked), "bad_request");
    assert!(
        asked.text.contains("name=\"doorward_code\""),
        "{}",
        asked.text
    );
    assert!(!asked.text.contains("totp-key"), "it is offered again");
    assert_eq!(thief.cookie("iPlanetDirectoryPro"), None, "a session");
    let demo = provider.store.user_by_name("/", "demo").await;
    let demo = demo.expect("read").expect("demo");
    let factors = provider.store.factors(demo.id).await.expect("factors");
    assert_eq!(factors.len(), 1, "a factor of the thief's");
    // Who has the factor goes on from there.
    assert_eq!(with_code(&thief, &asked, &secret).await.status, 303);
}
