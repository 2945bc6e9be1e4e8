//! What other sites, other providers and strangers try on the way there and
//! back.

use serde_json::{Value, json};

use super::other_provider::{
    OtherProvider, QUERY, button, cookies, failed, get, leave, leave_by, provider, return_,
    session, who,
};
use crate::testing::{Provider, request};

fn create() -> Value {
    json!({"link": {"create": true}})
}

async fn granted(
    provider: &Provider,
    elsewhere: &OtherProvider,
) -> super::other_provider::FederatedLogin {
    let trip = leave(provider).await;
    elsewhere.grant(&elsewhere.key.token(&elsewhere.claims(&trip, &json!({}))));
    trip
}

#[tokio::test]
async fn callback_replay() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let trip = granted(&provider, &elsewhere).await;
    assert_eq!(
        who(&provider, &return_(&provider, &trip).await).await,
        "ann"
    );
    let exchanges = elsewhere.heard("POST /token").len();
    let again = return_(&provider, &trip).await;
    assert_eq!(failed(&again).as_deref(), Some("stale"));
    assert_eq!(
        elsewhere.heard("POST /token").len(),
        exchanges,
        "no code is sent twice"
    );
}

#[tokio::test]
async fn login_csrf_by_an_answer_to_another_browser() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let attackers = granted(&provider, &elsewhere).await;
    let victims = leave(&provider).await;
    for cookie in ["", victims.cookie.as_str()] {
        let path = format!(
            "/oauth2/federation/corp/callback?code=c&state={}",
            attackers.state()
        );
        let answer = get(&provider, &path, cookie).await;
        assert_eq!(answer.status, 400);
        assert!(!cookies(&answer).contains("iPlanetDirectoryPro"));
    }
    assert!(elsewhere.heard("POST /token").is_empty());
}

#[tokio::test]
async fn code_injection_into_another_request_of_the_same_browser() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let stolen = leave(&provider).await;
    let own = leave(&provider).await;
    // A provider that forgets code challenges gives the victim's token out.
    elsewhere.grant(
        &elsewhere
            .key
            .token(&elsewhere.claims(&stolen, &json!({"sub": "victim"}))),
    );
    let back = return_(&provider, &own).await;
    assert_eq!(
        failed(&back).as_deref(),
        Some("failed"),
        "the nonce is another one"
    );
}

#[tokio::test]
async fn tampered_state() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let trip = granted(&provider, &elsewhere).await;
    let state = trip.state();
    let flipped = match state.as_bytes()[40] {
        b'A' => format!("{}B{}", &state[..40], &state[41..]),
        _ => format!("{}A{}", &state[..40], &state[41..]),
    };
    let long = "A".repeat(9000);
    for state in [
        &flipped,
        &state[1..],
        "",
        "x",
        "%00",
        &long,
        &format!("{state}="),
    ] {
        let path = format!("/oauth2/federation/corp/callback?code=c&state={state}");
        let answer = get(&provider, &path, &trip.cookie).await;
        assert_eq!(answer.status, 400, "{state}");
    }
    assert!(elsewhere.heard("POST /token").is_empty());
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_refused() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let trip = granted(&provider, &elsewhere).await;
    provider.clock.advance(30 * 60 * 1000);
    assert_eq!(return_(&provider, &trip).await.status, 400);
}

#[tokio::test]
async fn mix_up_of_two_providers() {
    let (honest, evil) = (OtherProvider::open().await, OtherProvider::open().await);
    let mut config = super::other_provider::with(&honest, create());
    let all = config["realms"]["/"]["settings"]["federation"]
        .as_array_mut()
        .expect("a list");
    all.push(
        json!({"name": "evil", "issuer": evil.issuer, "client_id": "door",
        "client_secret": "x", "link": {"create": true}}),
    );
    let provider = Provider::with(config).await;
    let trip = leave(&provider).await;
    // The state of one provider at the callback of the other.
    let path = format!(
        "/oauth2/federation/evil/callback?code=c&state={}",
        trip.state()
    );
    assert_eq!(get(&provider, &path, &trip.cookie).await.status, 400);
    assert!(evil.heard("POST").is_empty() && honest.heard("POST").is_empty());
    // An answer that says who gives it, and is somebody else's.
    let issuer = &evil.issuer;
    let path = format!(
        "/oauth2/federation/corp/callback?code=c&iss={issuer}&state={}",
        trip.state()
    );
    let back = get(&provider, &path, &trip.cookie).await;
    assert_eq!(failed(&back).as_deref(), Some("failed"));
    assert!(honest.heard("POST").is_empty(), "the code is not sent");
}

#[tokio::test]
async fn an_answer_without_issuer_of_a_provider_that_names_itself_is_refused() {
    let elsewhere = OtherProvider::open().await;
    elsewhere.describe(json!({"authorization_response_iss_parameter_supported": true}));
    let provider = provider(&elsewhere, create()).await;
    let trip = granted(&provider, &elsewhere).await;
    assert_eq!(
        failed(&return_(&provider, &trip).await).as_deref(),
        Some("failed")
    );
    let trip = granted(&provider, &elsewhere).await;
    let (issuer, state) = (&elsewhere.issuer, trip.state());
    let path = format!("/oauth2/federation/corp/callback?code=c&iss={issuer}&state={state}");
    let back = get(&provider, &path, &trip.cookie).await;
    assert_eq!(who(&provider, &back).await, "ann");
}

#[tokio::test]
async fn another_site_cannot_send_a_browser_to_a_provider() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let page = get(&provider, &format!("/oauth2/authorize?{QUERY}"), "").await;
    let (cookie, way) = (cookies(&page), button(&page, "corp"));
    let to = "/oauth2/authorize?";
    for (way, cookie, site) in [
        (way.clone(), "", "none"),
        (way.clone(), cookie.as_str(), "cross-site"),
        (
            way.replace("csrf=", "csrf=A"),
            cookie.as_str(),
            "same-origin",
        ),
        (
            way.replace("client_id%3Dsite", "client_id%3Dother"),
            cookie.as_str(),
            "same-origin",
        ),
        (format!("{way}&max_age=5"), cookie.as_str(), "same-origin"),
    ] {
        let headers = [("cookie", cookie), ("sec-fetch-site", site)];
        let answer = provider.send(request("GET", &way, &headers, "")).await;
        let location = answer.header("location");
        assert!(
            location.starts_with(to),
            "{way}: {} {location}",
            answer.status
        );
    }
    let twice = format!("{way}&csrf=x");
    assert_eq!(get(&provider, &twice, &cookie).await.status, 400);
}

#[tokio::test]
async fn open_redirect_in_where_the_user_goes_on() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let page = get(&provider, &format!("/oauth2/authorize?{QUERY}"), "").await;
    let cookie = cookies(&page);
    for to in [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "connect/endSession?",
        "../../evil",
        "",
    ] {
        let to: String = url::form_urlencoded::byte_serialize(to.as_bytes()).collect();
        let path = format!("/oauth2/federation/corp?to={to}&csrf=x");
        let answer = get(&provider, &path, &cookie).await;
        assert_eq!(answer.status, 400, "{to}");
        assert_eq!(answer.header("location"), "");
    }
    // A page of ours with a line break stays on one line.
    let path = "/oauth2/federation/corp?to=authorize%3F%0d%0aset-cookie:x&csrf=x";
    let answer = get(&provider, path, &cookie).await;
    assert_eq!(answer.status, 400, "{:?}", answer.headers);
}

#[tokio::test]
async fn long_requests_are_kept_here_and_not_sent_along() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let query = format!("{QUERY}&nonce={}", "n".repeat(3000));
    let short = get(&provider, &format!("/oauth2/authorize?{query}"), "").await;
    let location = short.header("location").to_owned();
    let query = location.split_once('?').expect("a query").1;
    let trip = leave_by(&provider, query).await;
    assert!(trip.location.len() < 2500, "{}", trip.location.len());
    elsewhere.grant(&elsewhere.key.token(&elsewhere.claims(&trip, &json!({}))));
    let back = return_(&provider, &trip).await;
    let cookie = format!("{}; iPlanetDirectoryPro={}", trip.cookie, session(&back));
    let done = get(&provider, back.header("location"), &cookie).await;
    assert!(
        done.header("location")
            .starts_with("https://site.example/back?code=")
    );
}

#[tokio::test]
async fn metadata_that_are_huge_html_or_broken_are_told_as_out_of_reach() {
    for (status, kind, body) in [
        (200, "text/html", "<html>sign in to the wifi".to_owned()),
        (
            200,
            "application/json",
            format!("{{\"issuer\":\"{}\"}}", "x".repeat(100_000)),
        ),
        (500, "application/json", "{}".to_owned()),
        (302, "application/json", "{}".to_owned()),
        (200, "application/json", "[]".to_owned()),
        (
            200,
            "application/json",
            "{\"issuer\":1,\"issuer\":2}".to_owned(),
        ),
        (200, "application/json", "[".repeat(50_000)),
    ] {
        let elsewhere = OtherProvider::open().await;
        elsewhere.say(
            "/.well-known/openid-configuration",
            status,
            kind,
            body.clone(),
        );
        let provider = provider(&elsewhere, create()).await;
        let page = get(&provider, &format!("/oauth2/authorize?{QUERY}"), "").await;
        let (cookie, way) = (cookies(&page), button(&page, "corp"));
        for _ in 0..3 {
            let back = get(&provider, &way, &cookie).await;
            assert_eq!(
                failed(&back).as_deref(),
                Some("unavailable"),
                "{status} {body:.20}"
            );
        }
        let fetches = elsewhere.heard("GET /.well-known").len();
        assert_eq!(fetches, 1, "not asked again at once");
        elsewhere.describe(json!({}));
        provider.clock.advance(10_000);
        assert_eq!(get(&provider, &way, &cookie).await.status, 302);
    }
}

#[tokio::test]
async fn metadata_of_another_issuer_are_refused() {
    let elsewhere = OtherProvider::open().await;
    elsewhere.describe(json!({"issuer": "https://accounts.example"}));
    let provider = provider(&elsewhere, create()).await;
    let page = get(&provider, &format!("/oauth2/authorize?{QUERY}"), "").await;
    let back = get(&provider, &button(&page, "corp"), &cookies(&page)).await;
    assert_eq!(failed(&back).as_deref(), Some("unavailable"));
}
