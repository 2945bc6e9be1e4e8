//! What must not come of a sign-in at the console.

use reqwest::Method;
use serde_json::json;
use url::Url;

use crate::console::{Browser, attribute};
use crate::console_sign_in::{Office, START, TOKEN, agree, depart, parameter};
use crate::support::eventually;
use crate::support::http::{client, send};

/// An address with one parameter replaced.
pub(crate) fn with(address: &str, name: &str, value: &str) -> String {
    let mut url = Url::parse(address).expect("an address");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let mut query = url.query_pairs_mut();
    query.clear();
    for (key, old) in pairs {
        let new = if key == name { value } else { &old };
        query.append_pair(&key, new);
    }
    drop(query);
    url.into()
}

#[tokio::test]
async fn a_viewer_changes_nothing_by_any_method() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let fields = [("view", "form"), ("f.name", "web"), ("f.host", "a.example")];
    owner.change("services", &fields).await.expect(303);
    let mut viewer = office.signed_in("vera").await;
    for path in ["/console/gateway/services", "/console/gateway/services/web"] {
        let page = viewer.get(path).await.expect(200).body;
        for hidden in ["/console/new/", "/console/edit/", "/console/preview/"] {
            assert!(!page.contains(hidden), "{path}: {hidden}: {page}");
        }
    }
    for path in ["/console/new/services", "/console/edit/services/web"] {
        viewer.get(path).await.expect(403);
    }
    for path in [
        "/console/preview/services",
        "/console/preview/services/web",
        "/console/apply/services/web",
        "/console/end/sessions/x",
        "/console/end/lockouts/x",
        "/console/throttling/x/reset",
    ] {
        let answer = viewer.post(path, &[("view", "delete")]).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            let request = viewer.request(method, path);
            let request = request.header("origin", office.door.admin_url(""));
            let status = send(request).await.status;
            assert!(status == 405 || status == 403, "{path}: {status}");
        }
    }
    // An owner's change is sealed for the owner's session.
    let page = owner
        .post("/console/preview/services/web", &[("view", "delete")])
        .await
        .expect(200)
        .body;
    let change = attribute(&page, "name=\"change\"", "value").to_owned();
    let answer = viewer
        .post("/console/apply/services/web", &[("change", &change)])
        .await;
    assert_eq!(answer.status, 403);
    owner.get("/console/gateway/services/web").await.expect(200);
    // The Admin API takes the cookie of nobody.
    owner.get("/services").await.expect(401);
}

#[tokio::test]
async fn keys_and_secrets_are_changed_by_owners_alone() {
    let office = Office::open().await;
    let mut operator = office.signed_in("olga").await;
    let fields = [("view", "form"), ("f.username", "shop")];
    operator.change("consumers", &fields).await.expect(303);
    let page = operator.get("/console/gateway/consumers/shop").await;
    let page = page.expect(200).body;
    assert!(page.contains("/console/edit/consumers/shop"), "{page}");
    assert!(
        !page.contains("/console/new/consumers/shop/key-auth"),
        "{page}"
    );
    operator.get("/console/new/certificates").await.expect(403);
    let secret = "/console/preview/consumers/shop/key-auth";
    operator.post(secret, &[("view", "form")]).await.expect(403);
    let mut owner = office.signed_in("alice").await;
    owner.post(secret, &[("view", "form")]).await.expect(200);
}

#[tokio::test]
async fn a_callback_of_another_browser_signs_nobody_in() {
    let office = Office::open().await;
    let (mut attacker, address) = office.departed("/console").await;
    let callback = agree(&mut attacker, &address, "vera").await;
    // The victim has been at the sign-in, too, or has not.
    let (mut victim, _) = office.departed("/console").await;
    for browser in [&mut victim, &mut Browser::new(&office.door)] {
        let answer = browser.get(&callback).await.expect(400);
        assert!(answer.body.contains("did not begin in this browser"));
        browser.get("/console").await.expect(303);
    }
    let changed = with(&callback, "state", "AQIDBA");
    attacker.get(&changed).await.expect(400);
    attacker.get("/console").await.expect(303);
}

#[tokio::test]
async fn a_code_and_a_state_are_good_once() {
    let office = Office::open().await;
    let (mut browser, address) = office.departed("/console/audit").await;
    let before = browser.clone();
    let callback = agree(&mut browser, &address, "alice").await;
    let mut copy = before;
    browser.get(&callback).await.expect(303);
    // Whoever has read the address and the cookie from before is too late.
    copy.get(&callback).await.expect(400);
    copy.get("/console").await.expect(303);
    // The person loads the page again, and stays signed in.
    let again = browser.get(&callback).await.expect(303);
    assert_eq!(again.header("location"), "/console/audit");
    browser.get("/console").await.expect(200);
    // The code with another state of the same browser.
    let other = depart(&mut browser, "/console").await;
    let mixed = with(&callback, "state", &parameter(&other, "state"));
    browser.get(&mixed).await.expect(400);
}

#[tokio::test]
async fn a_code_of_a_mixed_up_sign_in_is_refused() {
    let office = Office::open().await;
    // Another nonce: all else fits.
    let (mut browser, address) = office.departed("/console").await;
    let callback = agree(&mut browser, &with(&address, "nonce", "other"), "alice").await;
    browser.get(&callback).await.expect(400);
    browser.get("/console").await.expect(303);
    // A code that another sign-in of the browser gave: another verifier.
    let (mut browser, first) = office.departed("/console").await;
    let second = depart(&mut browser, "/console").await;
    let code = parameter(&agree(&mut browser, &first, "alice").await, "code");
    let callback = agree(&mut browser, &second, "alice").await;
    browser
        .get(&with(&callback, "code", &code))
        .await
        .expect(400);
    // Another issuer.
    let address = depart(&mut browser, "/console").await;
    let callback = agree(&mut browser, &address, "alice").await;
    let foreign = with(&callback, "iss", "https://evil.example");
    browser.get(&foreign).await.expect(400);
    browser.get("/console").await.expect(303);
}

/// A callback without one parameter.
fn without(address: &str, name: &str) -> String {
    let mut url = Url::parse(address).expect("an address");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let kept = pairs.iter().filter(|(key, _)| key != name);
    url.query_pairs_mut().clear().extend_pairs(kept);
    url.into()
}

#[tokio::test]
async fn mix_up_attack_by_an_answer_that_names_no_issuer() {
    let office = Office::open().await;
    let (mut browser, address) = office.departed("/console").await;
    let callback = agree(&mut browser, &address, "alice").await;
    assert!(!parameter(&callback, "iss").is_empty(), "{callback}");
    let nameless = without(&callback, "iss");
    browser.get(&nameless).await.expect(400);
    browser.get("/console").await.expect(303);
    // An error is an answer as well.
    let address = depart(&mut browser, "/console").await;
    let state = parameter(&address, "state");
    let nameless = format!("/console/sign-in/callback?state={state}&error=access_denied");
    let answer = browser.get(&nameless).await.expect(400);
    let believed = "<code>error</code>: access_denied";
    assert!(!answer.body.contains(believed), "{}", answer.body);
    // With the name it counts, as often as somebody signs in.
    let address = depart(&mut browser, "/console").await;
    let callback = agree(&mut browser, &address, "alice").await;
    browser.get(&callback).await.expect(303);
    browser.get("/console").await.expect(200);
}

#[tokio::test]
async fn who_is_in_no_group_with_a_role_is_told_so() {
    let office = Office::open().await;
    let (mut browser, address) = office.departed("/console").await;
    let callback = agree(&mut browser, &address, "nobody").await;
    let answer = browser.get(&callback).await.expect(403);
    assert!(answer.body.contains("None of your groups has a role"));
    assert!(answer.body.contains("nobody") && answer.body.contains("connect/endSession"));
    browser.get("/console").await.expect(303);
    let request = client().get(office.door.admin_url("/audit?kind=admin.refuse"));
    let request = || {
        send(
            request
                .try_clone()
                .expect("a request")
                .header("kong-admin-token", TOKEN),
        )
    };
    eventually("the refusal in the log", || async {
        let records = request().await.expect(200).json();
        let actor = &records["data"][0]["actor"];
        (actor["name"] == "nobody").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_user_of_another_realm_does_not_get_in() {
    let office = Office::open().await;
    let (mut browser, address) = office.departed("/console").await;
    let elsewhere = address.replace(
        "/oauth2/authorize",
        "/oauth2/realms/root/realms/other/authorize",
    );
    assert_ne!(elsewhere, address);
    let answer = browser.get(&elsewhere).await;
    assert!(answer.status >= 400, "{}", answer.body);
    // A session there is none here.
    let login = office
        .door
        .proxy_url("/json/realms/root/realms/other/authenticate");
    let request = client().post(login).json(&json!({}));
    let request = request
        .header("x-openam-username", "alice")
        .header("x-openam-password", "Ch4ng31t-alice")
        .header("accept-api-version", "resource=2.0, protocol=1.0");
    let token = send(request).await.expect(200).json();
    let token = token["tokenId"].as_str().expect("a session").to_owned();
    browser
        .cookies
        .push(("iPlanetDirectoryPro".to_owned(), token));
    let answer = browser.get(&address).await;
    let page = if answer.status == 200 {
        answer
    } else {
        let to = answer.header("location").to_owned();
        assert!(!to.contains("/console/sign-in/callback"), "{to}");
        browser.get(&to).await
    };
    assert!(page.body.contains("name=\"password\""), "{}", page.body);
}

#[tokio::test]
async fn a_sign_in_leads_to_no_other_site() {
    let office = Office::open().await;
    for to in [
        "//evil.example",
        "https://evil.example/console",
        "/console//evil.example",
        "/\\evil.example",
        "/console/\\evil.example",
        "javascript:alert(1)",
        "/services",
    ] {
        let (mut browser, address) = office.departed(to).await;
        let callback = agree(&mut browser, &address, "vera").await;
        let answer = browser.get(&callback).await.expect(303);
        assert_eq!(answer.header("location"), "/console", "{to}");
    }
    // A redirect URI that is not the console's.
    let (mut browser, address) = office.departed("/console").await;
    for uri in [
        "https://evil.example/console/sign-in/callback",
        "http://evil.example",
    ] {
        let answer = browser.get(&with(&address, "redirect_uri", uri)).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
}

#[tokio::test]
async fn no_page_of_the_sign_in_stands_in_a_frame() {
    let office = Office::open().await;
    let mut browser = Browser::new(&office.door);
    for path in [
        "/console/sign-in",
        START,
        "/console/sign-in/callback?state=x&code=y",
        "/console/sign-in/callback?error=access_denied",
        "/console/signed-out",
    ] {
        let answer = browser.get(path).await;
        let policy = answer.header("content-security-policy");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(policy.contains("form-action 'self'"), "{path}: {policy}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{path}");
        for field in answer.headers.get_all("set-cookie") {
            let field = field.to_str().expect("text");
            for attribute in ["HttpOnly", "SameSite=Lax", "Path=/console"] {
                assert!(field.contains(attribute), "{field}");
            }
        }
    }
}
