mod accounts;
mod attacks;
mod links;
mod other_provider;
mod tokens;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use self::other_provider::{
    OtherProvider, QUERY, add, button, cookies, failed, get, leave, leave_by, provider, return_,
    round, trip, who,
};
use doorward_core::model::grant::TokenHash;

fn create() -> serde_json::Value {
    json!({"link": {"create": true}})
}

#[tokio::test]
async fn a_user_signs_in_at_another_provider_and_goes_on_to_the_client() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let trip = leave(&provider).await;
    assert!(
        trip.location
            .starts_with(&format!("{}/authorize?", elsewhere.issuer))
    );
    assert_eq!(trip.asked["response_type"], "code");
    assert_eq!(trip.asked["client_id"], "door");
    assert_eq!(trip.asked["scope"], "openid profile email");
    assert_eq!(
        trip.asked["redirect_uri"],
        "http://localhost:8000/oauth2/federation/corp/callback"
    );
    assert_eq!(trip.asked["code_challenge_method"], "S256");
    assert!(
        !trip.location.contains("site.example"),
        "whom it is for is not told"
    );
    elsewhere.grant(&elsewhere.key.token(&elsewhere.claims(&trip, &json!({}))));
    let back = return_(&provider, &trip).await;
    assert_eq!(who(&provider, &back).await, "ann");
    let exchange = elsewhere.heard("POST /token").pop().expect("an exchange");
    let verifier = exchange.split("code_verifier=").nth(1).expect("a verifier");
    let verifier = verifier.split('&').next().expect("a verifier");
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
    assert_eq!(trip.asked["code_challenge"], challenge);
    // door:hu+sh
    assert!(
        exchange.contains("authorization: Basic ZG9vcjpodStzaA=="),
        "{exchange}"
    );
    let cookie = format!("{}; {}", trip.cookie, cookies(&back));
    let done = get(&provider, back.header("location"), &cookie).await;
    let location = done.header("location");
    assert!(
        location.starts_with("https://site.example/back?code="),
        "{location}"
    );
}

#[tokio::test]
async fn the_page_says_what_failed_and_offers_the_password() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({"auto_redirect": false})).await;
    for (answer, told) in [
        ("error=access_denied", "cancelled"),
        (
            "error=server_error&error_description=%3Cb%3EHi",
            "unavailable",
        ),
        ("error=%3Cscript%3E", "failed"),
        ("", "failed"),
    ] {
        let trip = leave(&provider).await;
        let path = format!(
            "/oauth2/federation/corp/callback?{answer}&state={}",
            trip.state()
        );
        let back = get(&provider, &path, &trip.cookie).await;
        assert_eq!(failed(&back).as_deref(), Some(told), "{answer}");
        let page = get(&provider, back.header("location"), &trip.cookie).await;
        assert!(page.text.contains("id=\"password\""));
        assert!(page.text.contains("role=\"alert\""), "{told}");
        assert!(!page.text.contains("<b>Hi") && !page.text.contains("<script>"));
    }
}

#[tokio::test]
async fn an_answer_that_is_posted_is_taken_up_with_the_browsers_cookies() {
    let elsewhere = OtherProvider::open().await;
    let mut change = create();
    change["response_mode"] = json!("form_post");
    let provider = provider(&elsewhere, change).await;
    let trip = leave(&provider).await;
    assert_eq!(trip.asked["response_mode"], "form_post");
    elsewhere.grant(&elsewhere.key.token(&elsewhere.claims(&trip, &json!({}))));
    let body = format!("code=c-1&state={}&other=x", trip.state());
    let answer = provider
        .form("/oauth2/federation/corp/callback", &body)
        .await;
    assert_eq!(answer.status, 303);
    let location = answer.header("location");
    assert!(!location.contains("other"), "{location}");
    let back = get(&provider, location, &trip.cookie).await;
    assert_eq!(who(&provider, &back).await, "ann");
}

#[tokio::test]
async fn the_only_provider_can_be_gone_to_at_once_and_never_in_circles() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({"auto_redirect": true})).await;
    let path = format!("/oauth2/authorize?{QUERY}");
    let away = get(&provider, &path, "").await;
    let trip = trip(&away, cookies(&away));
    assert!(trip.location.starts_with(&elsewhere.issuer));
    elsewhere.grant(&elsewhere.key.token(&elsewhere.claims(&trip, &json!({}))));
    let back = return_(&provider, &trip).await;
    assert_eq!(failed(&back).as_deref(), Some("no_account"));
    let page = get(&provider, back.header("location"), &trip.cookie).await;
    assert_eq!(page.status, 400);
    assert!(page.text.contains("federation_no_account"));
    let by_hand = get(&provider, &format!("{path}&doorward_federation=local"), "").await;
    assert_eq!(by_hand.status, 200);
    elsewhere.say("/.well-known/openid-configuration", 500, "text/html", "");
    provider.clock.advance(2 * 3600 * 1000);
    let kept = get(&provider, &path, "").await;
    assert_eq!(kept.status, 302, "the last good metadata are kept");
}

#[tokio::test]
async fn prompt_and_age_are_passed_on_and_checked() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let now = crate::testing::START_MS / 1000;
    for (query, auth_time, told) in [
        ("prompt=login", json!(null), Some("failed")),
        ("prompt=login", json!(now - 600), Some("failed")),
        ("prompt=login", json!(now), None),
        ("max_age=900", json!(now - 600), None),
        ("max_age=300", json!(now - 600), Some("failed")),
    ] {
        let trip = leave_by(&provider, &format!("{QUERY}&{query}&login_hint=ann")).await;
        assert!(trip.location.contains(query), "{}", trip.location);
        assert_eq!(trip.asked["login_hint"], "ann");
        let claims = elsewhere.claims(&trip, &json!({"auth_time": auth_time}));
        elsewhere.grant(&elsewhere.key.token(&claims));
        let back = return_(&provider, &trip).await;
        match told {
            Some(told) => assert_eq!(failed(&back).as_deref(), Some(told), "{query} {auth_time}"),
            None => assert_eq!(who(&provider, &back).await, "ann"),
        }
    }
}

#[tokio::test]
async fn devices_are_let_in_through_another_provider_too() {
    let elsewhere = OtherProvider::open().await;
    let mut config = other_provider::with(&elsewhere, create());
    let clients = config["realms"]["/"]["clients"]
        .as_array_mut()
        .expect("clients");
    clients.push(json!({
        "client_id": "tv", "token_endpoint_auth_method": "none", "scope": "openid",
        "grant_types": ["urn:ietf:params:oauth:grant-type:device_code"],
    }));
    let provider = crate::testing::Provider::with(config).await;
    let codes = provider
        .form("/oauth2/device/code", "client_id=tv&scope=openid")
        .await;
    let code = codes.json()["user_code"]
        .as_str()
        .expect("a code")
        .to_owned();
    let page = get(
        &provider,
        &format!("/oauth2/device/user?user_code={code}"),
        "",
    )
    .await;
    let cookie = cookies(&page);
    let away = get(&provider, &button(&page, "corp"), &cookie).await;
    let trip = trip(&away, cookie);
    elsewhere.grant(&elsewhere.key.token(&elsewhere.claims(&trip, &json!({}))));
    let back = return_(&provider, &trip).await;
    let location = back.header("location").to_owned();
    assert!(
        location.starts_with("/oauth2/device/user?user_code="),
        "{location}"
    );
    let cookie = format!("{}; {}", trip.cookie, cookies(&back));
    let question = get(&provider, &location, &cookie).await;
    assert!(
        question.text.contains("doorward-user-code"),
        "{}",
        question.text
    );
}

#[tokio::test]
async fn providers_that_are_not_enabled_are_not_there() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({"enabled": false})).await;
    let page = get(&provider, &format!("/oauth2/authorize?{QUERY}"), "").await;
    assert!(!page.text.contains("federation-corp"));
    for path in ["corp", "corp/callback", "other", "other/callback?state=x"] {
        let answer = get(&provider, &format!("/oauth2/federation/{path}"), "").await;
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[tokio::test]
async fn secrets_of_providers_are_not_shown_to_operators() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({})).await;
    let shown = provider.manage("GET", "/realms/root", &json!(null)).await;
    assert!(
        shown.text.contains("\"client_id\":\"door\""),
        "{}",
        shown.text
    );
    assert!(!shown.text.contains("hu sh"), "{}", shown.text);
    let realm = json!({"path": "/made", "settings": {"federation": [
        {"name": "x", "issuer": elsewhere.issuer, "client_id": "c", "client_secret": "hush!"}]}});
    let made = provider.manage("POST", "/realms", &realm).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(!made.text.contains("hush!"), "{}", made.text);
}

#[tokio::test]
async fn linked_identities_are_shown_and_unlinked_by_operators() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, create()).await;
    let back = round(&provider, &elsewhere, json!({})).await;
    let session = other_provider::session(&back);
    let user = provider
        .store
        .user_by_name("/", "ann")
        .await
        .expect("read")
        .expect("ann");
    let path = format!("/users/{}/identities", user.id);
    let list = provider.manage("GET", &path, &json!(null)).await.json();
    let link = &list["data"][0];
    assert_eq!(link["issuer"], elsewhere.issuer);
    assert_eq!(
        (&link["subject"], &link["provider"]),
        (&json!("u-1"), &json!("corp"))
    );
    let one = format!("{path}/{}", link["id"].as_str().expect("an id"));
    let gone = provider.manage("DELETE", &one, &json!(null)).await;
    assert_eq!(gone.status, 204);
    assert_eq!(
        provider.manage("DELETE", &one, &json!(null)).await.status,
        404
    );
    let ended = provider.store.session(TokenHash::of(&session)).await;
    assert!(
        ended.expect("read").is_none(),
        "what began with it has ended"
    );
    // Not made anew: the name is taken by now.
    let back = round(&provider, &elsewhere, json!({})).await;
    assert_eq!(failed(&back).as_deref(), Some("no_account"));
    let body = json!({"provider": "corp", "subject": "u-1"});
    let linked = provider.manage("POST", &path, &body).await;
    assert_eq!(linked.status, 201, "{}", linked.text);
    let back = round(&provider, &elsewhere, json!({})).await;
    assert_eq!(who(&provider, &back).await, "ann");
    let bert = add(&provider, json!({"userName": "bert"})).await;
    let path = format!("/users/{}/identities", bert.id);
    let taken = provider.manage("POST", &path, &body).await;
    assert_eq!(taken.status, 409, "{}", taken.text);
}
