//! Changes in the console ask for a fresh sign-in.

use std::time::Duration;

use crate::console::{Browser, attribute};
use crate::console_sign_in::{Office, ROLES, TOKEN, agree, parameter};
use crate::console_sign_in_attacks::with;

const SERVICE: [(&str, &str); 3] = [("view", "form"), ("f.name", "web"), ("f.host", "a.example")];

/// An office in which every sign-in is old already.
async fn slow_office() -> (Office, &'static str) {
    let office = Office::with(&format!("{ROLES}, step_up_age: 1")).await;
    (office, "/console/preview/services")
}

async fn aged(office: &Office) -> Browser<'_> {
    let browser = office.signed_in("alice").await;
    // The time of a sign-in has whole seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    browser
}

#[tokio::test]
async fn who_signed_in_long_ago_signs_in_again_before_a_change() {
    let (office, preview) = slow_office().await;
    let mut browser = aged(&office).await;
    // Looking is free.
    browser.get("/console/gateway/services").await.expect(200);
    let page = browser.post(preview, &SERVICE).await.expect(403).body;
    assert!(page.contains("You signed in too long ago"), "{page}");
    // A link, not a redirect: browsers hold those of a form to `form-action`.
    assert!(page.contains("href=\"/console/sign-in/provider?"), "{page}");
    let answer = browser.get("/console/new/services").await.expect(303);
    let way = answer.header("location").to_owned();
    assert_eq!(
        way,
        "/console/sign-in/provider?to=%2Fconsole%2Fnew%2Fservices&fresh=1"
    );
    let answer = browser.get(&way).await.expect(303);
    let address = answer.header("location").to_owned();
    assert_eq!(parameter(&address, "max_age"), "0");
    // There is a session at the provider, and it asks all the same.
    let page = browser.get(&address).await.expect(200).body;
    assert!(page.contains("name=\"password\""), "{page}");
    let callback = agree(&mut browser, &address, "alice").await;
    let answer = browser.get(&callback).await.expect(303);
    assert_eq!(answer.header("location"), "/console/new/services");
}

#[tokio::test]
async fn a_fresh_sign_in_changes_something_at_once() {
    let office = Office::with(&format!("{ROLES}, step_up_age: 3600")).await;
    let mut browser = office.signed_in("alice").await;
    browser.change("services", &SERVICE).await.expect(303);
}

#[tokio::test]
async fn an_address_without_its_age_leaves_the_sign_in_old() {
    let (office, preview) = slow_office().await;
    let mut browser = aged(&office).await;
    let way = "/console/sign-in/provider?to=/console&fresh=1";
    let answer = browser.get(way).await.expect(303);
    let address = with(answer.header("location"), "max_age", "86400");
    let callback = agree(&mut browser, &address, "alice").await;
    browser.get(&callback).await;
    let refused = browser.post(preview, &SERVICE).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
}

#[tokio::test]
async fn the_page_of_a_step_up_leads_to_no_other_site() {
    let (office, preview) = slow_office().await;
    let mut browser = aged(&office).await;
    let token = browser.form_token().await;
    for referer in [
        "https://evil.example//evil",
        "https://evil.example/x",
        "javascript:alert(1)",
    ] {
        let request = browser.request(reqwest::Method::POST, preview);
        let request = request.header("origin", office.door.admin_url(""));
        let request = request.header("referer", referer);
        let request = request.form(&[("form_token", token.as_str())]);
        let page = crate::support::http::send(request).await.expect(403).body;
        assert!(page.contains("to=%2Fconsole&"), "{page}");
        assert!(!page.contains("evil"), "{page}");
    }
}

#[tokio::test]
async fn the_admin_token_has_no_sign_in_to_repeat() {
    let (office, _) = slow_office().await;
    let mut browser = Browser::new(&office.door);
    let fields = [("token", TOKEN)];
    let signed_in = browser.submit("/console/sign-in", &fields).await;
    signed_in.expect(303);
    browser.change("services", &SERVICE).await.expect(303);
    let page = browser.get("/console/gateway/services").await.expect(200);
    assert_ne!(attribute(&page.body, "<tbody>", "href"), "");
}
