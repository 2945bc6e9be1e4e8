//! Requests and their answers.

use serde_json::json;

use super::browser::{Browser, Form, shown_error};
use super::{
    CALLBACK, VERIFIER, code, door, exchange, exchange_trusted, path, signed_in, told, trusted,
    web, with,
};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;

#[tokio::test]
async fn sign_in_consent_and_code_lead_to_tokens() {
    let door = door().await;
    let browser = Browser::new(&door);
    let page = browser.get(&path(&web())).await.expect(200);
    for part in [
        "lang=\"en\"",
        "name=\"username\"",
        "name=\"password\"",
        "id=\"login\"",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let page = browser.sign_in(&page, "demo").await.expect(200);
    for part in [
        "id=\"approve\"",
        "id=\"deny\"",
        "Your e-mail address",
        ">demo<",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let answer = browser.approve(&page).await.expect(303);
    let answer = told(&answer, CALLBACK);
    assert_eq!(answer["state"], web()["state"]);
    assert_eq!(answer["iss"], door.proxy_url("/oauth2"));
    assert_eq!(answer["scope"], "openid email");

    let body = exchange(&door, &answer["code"], VERIFIER).await.expect(200);
    assert_eq!(body.header("cache-control"), "no-store");
    let body = body.json();
    assert!(body["refresh_token"].is_string());
    assert_eq!(body["nonce"], "n-1");
    let access = body["access_token"].as_str().expect("a token");
    assert_eq!(claims_of(access)["grant_type"], "authorization_code");
    let id = claims_of(body["id_token"].as_str().expect("an ID token"));
    for (claim, value) in [
        ("sub", json!("demo")),
        ("aud", json!("web")),
        ("nonce", json!("n-1")),
        ("amr", json!(["pwd"])),
        ("acr", json!("0")),
    ] {
        assert_eq!(id[claim], value, "{claim}");
    }
    assert!(id["sid"].is_string() && id["at_hash"].is_string() && id["auth_time"].is_i64());
    assert_eq!(id.get("email"), None, "the userinfo endpoint tells it");

    // The second time nothing is asked; a request for more is.
    let again = browser.get(&path(&web())).await.expect(302);
    assert!(told(&again, CALLBACK).contains_key("code"));
    let more = with(web(), "scope", "openid email profile");
    assert!(
        browser
            .get(&path(&more))
            .await
            .expect(200)
            .body
            .contains("approve")
    );
}

#[tokio::test]
async fn a_refused_consent_is_told_and_not_remembered() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let page = browser.get(&path(&web())).await.expect(200);
    let answer = browser.post(&Form::of(&page).with("deny", "true")).await;
    let answer = told(&answer, CALLBACK);
    assert_eq!(answer["error"], "access_denied");
    assert_eq!(answer["state"], web()["state"]);
    assert_eq!(answer["iss"], door.proxy_url("/oauth2"));
    browser.get(&path(&web())).await.expect(200);
}

#[tokio::test]
async fn errors_before_the_redirect_uri_is_known_are_shown_and_never_redirected() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    for (name, value, error) in [
        ("client_id", "", "invalid_request"),
        ("client_id", "nobody", "invalid_client"),
        ("redirect_uri", "", "invalid_request"),
        (
            "redirect_uri",
            "https://evil.example/",
            "redirect_uri_mismatch",
        ),
    ] {
        let page = browser
            .get(&path(&with(web(), name, value)))
            .await
            .expect(400);
        assert_eq!(shown_error(&page), error, "{name}={value}");
        assert_eq!(page.header("location"), "");
    }
    let twice = format!("{}&state=other", path(&web()));
    let page = browser.get(&twice).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_request");
}

#[tokio::test]
async fn every_later_error_goes_back_with_state_and_issuer() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    for (name, value, error) in [
        ("response_type", "", "invalid_request"),
        ("response_type", "bogus", "unsupported_response_type"),
        ("response_type", "code token", "unsupported_response_type"),
        ("response_mode", "bogus", "invalid_request"),
        ("request", "eyJ.e30.", "invalid_request_object"),
        ("request_uri", "https://x/", "invalid_request_uri"),
        ("registration", "{}", "registration_not_supported"),
        ("prompt", "none login", "invalid_request"),
        ("prompt", "dance", "invalid_request"),
        ("prompt", "none", "consent_required"),
        ("max_age", "-1", "invalid_request"),
        ("claims", "{", "invalid_request"),
        (
            "id_token_hint",
            "eyJhbGciOiJub25lIn0.e30.",
            "invalid_request",
        ),
        ("code_challenge", "short", "invalid_request"),
        (
            "code_challenge",
            "longer-than-the-digest-of-any-verifier-there-is",
            "invalid_request",
        ),
        ("code_challenge_method", "plain", "invalid_request"),
        ("code_challenge_method", "", "invalid_request"),
        ("dpop_jkt", "short", "invalid_request"),
        (
            "dpop_jkt",
            "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I=",
            "invalid_request",
        ),
        (
            "dpop_jkt",
            "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4J",
            "invalid_request",
        ),
        (
            "dpop_jkt",
            "0ZcOCORZNYy+DWpqq30jZyJGHTN0d2HglBV3uiguA4I",
            "invalid_request",
        ),
        ("scope", "profile nonsense", "invalid_scope"),
    ] {
        let answer = browser.get(&path(&with(web(), name, value))).await;
        let mut location = CALLBACK;
        if value == "code token" {
            location = "https://app.example/cb?keep=1#";
        }
        let answer = told(&answer, location);
        assert_eq!(answer["error"], error, "{name}={value}: {answer:?}");
        assert_eq!(answer["state"], web()["state"]);
        assert_eq!(answer["iss"], door.proxy_url("/oauth2"));
    }
    let machine = with(web(), "client_id", "machine");
    let machine = with(machine, "redirect_uri", "https://machine.example/cb");
    let answer = told(
        &browser.get(&path(&machine)).await,
        "https://machine.example/cb",
    );
    assert_eq!(answer["error"], "unauthorized_client");
    let gold = r#"{"id_token":{"acr":{"essential":true,"values":["gold"]}}}"#;
    let answer = told(
        &browser.get(&path(&with(web(), "claims", gold))).await,
        CALLBACK,
    );
    assert_eq!(answer["error"], "unmet_authentication_requirements");
}

#[tokio::test]
async fn wishes_that_cannot_be_met_never_fail() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    for (name, value) in [
        ("acr_values", "gold silver"),
        ("display", "touch"),
        ("ui_locales", "tlh xx-YY"),
        ("claims_locales", "tlh"),
        ("login_hint", "nobody@example.com"),
        ("scope", "email nonsense openid"),
        ("extra", "ignored"),
        ("claims", r#"{"userinfo":{"shoe_size":null}}"#),
    ] {
        let answer = browser.get(&path(&with(trusted(), name, value))).await;
        let answer = told(&answer, "https://trusted.example/cb");
        assert!(answer.contains_key("code"), "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn prompts_and_ages_ask_again_and_never_in_a_loop() {
    let door = door().await;
    let nobody = Browser::new(&door);
    let none = path(&with(trusted(), "prompt", "none"));
    let answer = told(&nobody.get(&none).await, "https://trusted.example/cb");
    assert_eq!(answer["error"], "login_required");

    let browser = signed_in(&door, "demo").await;
    let answer = told(&browser.get(&none).await, "https://trusted.example/cb");
    assert!(answer.contains_key("code"));
    for (name, value) in [
        ("prompt", "login"),
        ("prompt", "select_account"),
        ("max_age", "0"),
    ] {
        let page = browser.get(&path(&with(trusted(), name, value))).await;
        let page = page.expect(200);
        assert!(page.body.contains("name=\"password\""), "{name}={value}");
        let answer = browser.sign_in(&page, "demo").await;
        let answer = told(&answer, "https://trusted.example/cb");
        assert!(answer.contains_key("code"), "{name}={value}: {answer:?}");
    }
    let old = browser
        .get(&path(&with(trusted(), "max_age", "10000")))
        .await;
    assert!(told(&old, "https://trusted.example/cb").contains_key("code"));
}

#[tokio::test]
async fn a_hint_at_another_user_is_not_answered_with_this_one() {
    let door = door().await;
    let browser = Browser::new(&door);
    let code = code(&browser).await;
    let tokens = exchange(&door, &code, VERIFIER).await.expect(200).json();
    let id_token = tokens["id_token"].as_str().expect("an ID token");
    let hinted = with(trusted(), "id_token_hint", id_token);
    let silent = with(hinted.clone(), "prompt", "none");
    let same = told(
        &browser.get(&path(&silent)).await,
        "https://trusted.example/cb",
    );
    assert!(same.contains_key("code"));

    let alice = signed_in(&door, "alice").await;
    let other = told(
        &alice.get(&path(&silent)).await,
        "https://trusted.example/cb",
    );
    assert_eq!(other["error"], "login_required");
    let page = alice.get(&path(&hinted)).await.expect(200);
    assert!(
        page.body.contains("value=\"demo\""),
        "the hinted name is filled in"
    );
    let answer = alice.sign_in(&page, "alice").await;
    let answer = told(&answer, "https://trusted.example/cb");
    assert_eq!(answer["error"], "login_required");
    let by_claim = r#"{"id_token":{"sub":{"value":"demo"}}}"#;
    let silent = with(with(trusted(), "claims", by_claim), "prompt", "none");
    let answer = told(
        &alice.get(&path(&silent)).await,
        "https://trusted.example/cb",
    );
    assert_eq!(answer["error"], "login_required");
}

#[tokio::test]
async fn a_client_without_refresh_tokens_gets_no_lasting_access() {
    let lasting = super::IDENTITY.replacen(
        "scope: openid email\n        - client_id: native",
        "scope: openid email offline_access\n        - client_id: native",
        1,
    );
    assert_ne!(lasting, super::IDENTITY);
    let door = crate::support::Setup::new()
        .identity(&lasting)
        .start()
        .await;
    let browser = signed_in(&door, "demo").await;
    let request = with(trusted(), "scope", "openid offline_access");
    let callback = "https://trusted.example/cb";
    let code = told(&browser.get(&path(&request)).await, callback)["code"].clone();
    let tokens = exchange_trusted(&door, &code).await.expect(200).json();
    assert_eq!(tokens["scope"], "openid");
    assert_eq!(tokens.get("refresh_token"), None);
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let end = format!("/oauth2/connect/endSession?id_token_hint={hint}");
    browser.get(&end).await.expect(200);
    // The token ends with its session.
    let token = tokens["access_token"].as_str().expect("a token");
    let url = door.proxy_url("/oauth2/userinfo");
    let told = send(crate::support::http::client().get(url).bearer_auth(token)).await;
    told.expect(401);
}

#[tokio::test]
async fn answers_come_by_query_fragment_or_form_post() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let fragment = with(trusted(), "response_mode", "fragment");
    let answer = told(
        &browser.get(&path(&fragment)).await,
        "https://trusted.example/cb#",
    );
    assert!(answer.contains_key("code"));
    let posted = with(trusted(), "response_mode", "form_post");
    let page = browser.get(&path(&posted)).await.expect(200);
    let form = Form::of(&page);
    assert_eq!(form.action, "https://trusted.example/cb");
    assert_eq!(form.field("state"), trusted()["state"]);
    assert!(!form.field("code").is_empty());
    assert_eq!(page.header("cache-control"), "no-store");
    let failed = with(posted, "prompt", "dance");
    let form = Form::of(&browser.get(&path(&failed)).await.expect(200));
    assert_eq!(form.field("error"), "invalid_request");
}

#[tokio::test]
async fn hybrid_and_implicit_answers_are_for_clients_that_registered_them() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let at = "https://trusted.example/cb#";
    let hybrid = with(trusted(), "response_type", "id_token code token");
    let answer = told(&browser.get(&path(&hybrid)).await, at);
    let id = claims_of(&answer["id_token"]);
    for claim in ["c_hash", "at_hash", "s_hash"] {
        assert!(id[claim].is_string(), "{claim}");
    }
    assert_eq!(id["nonce"], "n-1");
    assert_eq!(answer["token_type"], "Bearer");
    let tokens = exchange_trusted(&door, &answer["code"]).await;
    let tokens = tokens.expect(200).json();
    assert_eq!(
        claims_of(tokens["id_token"].as_str().expect("one"))["sub"],
        id["sub"]
    );

    let implicit = with(trusted(), "response_type", "id_token");
    let answer = told(&browser.get(&path(&implicit)).await, at);
    let id = claims_of(&answer["id_token"]);
    assert_eq!(id["email"], "demo@example.com", "nobody else would tell it");
    assert_eq!(id.get("at_hash"), None);
    for (name, value) in [
        ("nonce", ""),
        ("response_mode", "query"),
        ("scope", "email"),
    ] {
        let answer = browser
            .get(&path(&with(implicit.clone(), name, value)))
            .await;
        assert_eq!(told(&answer, at)["error"], "invalid_request", "{name}");
    }
}

#[tokio::test]
async fn a_request_may_be_posted() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let form = Form {
        action: "/oauth2/realms/root/authorize".to_owned(),
        fields: trusted()
            .into_iter()
            .map(|(n, v)| (n.to_owned(), v))
            .collect(),
    };
    let answer = browser.post(&form).await.expect(303);
    assert!(told(&answer, "https://trusted.example/cb").contains_key("code"));
    // Another site's form brings no cookies: the browser comes again by itself.
    let answer = Browser::new(&door).post(&form).await.expect(303);
    let location = answer.header("location");
    assert!(
        location.starts_with("/oauth2/realms/root/authorize?"),
        "{location}"
    );
    let answer = browser.get(location).await;
    assert!(told(&answer, "https://trusted.example/cb").contains_key("code"));
}

#[tokio::test]
async fn a_script_with_a_session_token_can_decide() {
    let door = door().await;
    let request = client().post(door.proxy_url("/json/realms/root/authenticate"));
    let request = request
        .header("x-service-username", "demo")
        .header("x-service-password", "Ch4ng31t-demo");
    let token = send(request).await.expect(200).json()["tokenId"]
        .as_str()
        .expect("a token")
        .to_owned();
    let mut fields = web();
    fields.insert("decision", "allow".to_owned());
    fields.insert("csrf", token.clone());
    let url = door.proxy_url("/oauth2/authorize");
    let request = client().post(url).form(&fields);
    let answer = send(request.header("cookie", format!("iPlanetDirectoryPro={token}"))).await;
    assert!(told(&answer, CALLBACK).contains_key("code"));
}

#[tokio::test]
async fn a_link_decides_nothing_and_prompt_none_shows_no_page() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let mut request = with(web(), "decision", "allow");
    let page = browser.get(&path(&request)).await.expect(200);
    assert!(page.body.contains("id=\"approve\""), "{}", page.body);
    request.insert("prompt", "none".to_owned());
    let answer = told(&browser.get(&path(&request)).await, CALLBACK);
    assert_eq!(answer["error"], "consent_required");
    let form = Form {
        action: "/oauth2/authorize".to_owned(),
        fields: request
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    };
    let answer = told(&browser.post(&form).await, CALLBACK);
    assert_eq!(answer["error"], "consent_required");
}

#[tokio::test]
async fn a_userinfo_token_is_good_in_its_realm_only() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let code = code(&browser).await;
    let tokens = exchange(&door, &code, VERIFIER).await.expect(200).json();
    let access = tokens["access_token"].as_str().expect("a token");
    for (realm, status) in [("", 200), ("/realms/root/realms/alpha", 401)] {
        let url = door.proxy_url(&format!("/oauth2{realm}/userinfo"));
        let answer = send(client().get(url).bearer_auth(access)).await;
        answer.expect(status);
    }
}

#[tokio::test]
async fn a_session_is_of_one_realm() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let alpha = path(&web()).replace("/oauth2/", "/oauth2/realms/root/realms/alpha/");
    let page = browser.get(&alpha).await.expect(200);
    assert!(page.body.contains("name=\"password\""));
    let answer = told(&browser.sign_in(&page, "demo").await, CALLBACK);
    assert_eq!(
        answer["iss"],
        door.proxy_url("/oauth2/realms/root/realms/alpha")
    );
}

#[tokio::test]
async fn pages_speak_german_where_that_is_wished() {
    let door = door().await;
    let browser = Browser::new(&door);
    let page = browser
        .get(&path(&with(web(), "ui_locales", "fr de-AT")))
        .await;
    let page = page.expect(200);
    assert!(page.body.contains("<html lang=\"de\""));
    assert!(page.body.contains("Benutzername"));
    assert_eq!(page.header("content-language"), "de");
}

#[tokio::test]
async fn two_tabs_sign_in_without_disturbing_each_other() {
    let door = door().await;
    let browser = Browser::new(&door);
    let one = browser.get(&path(&web())).await.expect(200);
    let two = browser
        .get(&path(&with(web(), "state", "two")))
        .await
        .expect(200);
    let consent_one = browser.sign_in(&one, "demo").await.expect(200);
    let consent_two = browser.sign_in(&two, "demo").await.expect(200);
    let answer = told(&browser.approve(&consent_one).await, CALLBACK);
    assert_eq!(answer["state"], web()["state"]);
    let answer = told(&browser.approve(&consent_two).await, CALLBACK);
    assert_eq!(answer["state"], "two");
}

#[tokio::test]
async fn discovery_names_what_works() {
    let door = door().await;
    let url = door.proxy_url("/oauth2/.well-known/openid-configuration");
    let told = send(client().get(url)).await.expect(200).json();
    let issuer = door.proxy_url("/oauth2");
    assert_eq!(
        told["authorization_endpoint"],
        format!("{issuer}/authorize")
    );
    let end = format!("{issuer}/connect/endSession");
    assert_eq!(told["end_session_endpoint"], end);
    assert_eq!(told["code_challenge_methods_supported"], json!(["S256"]));
    assert_eq!(told["authorization_response_iss_parameter_supported"], true);
    assert_eq!(
        told["response_modes_supported"],
        json!(["query", "fragment", "form_post"])
    );
}

#[tokio::test]
async fn a_request_too_long_for_addresses_is_kept_while_its_user_signs_in() {
    let door = door().await;
    let state = "é".repeat(3000);
    let request = with(trusted(), "state", &state);
    let browser = Browser::new(&door);
    let answer = browser.get(&path(&request)).await.expect(302);
    let short = answer.header("location").to_owned();
    assert!(short.len() < 300, "{short}");
    let page = browser.get(&short).await.expect(200);
    // Looked at again, in another tab, and signed in there.
    browser.get(&short).await.expect(200);
    let answer = browser.sign_in(&page, "demo").await.expect(302);
    let answer = told(&answer, "https://trusted.example/cb");
    assert!(answer.contains_key("code"));
    assert_eq!(answer["state"], state);
    // Who is signed in is led nowhere else.
    let answer = browser.get(&path(&request)).await.expect(302);
    assert_eq!(told(&answer, "https://trusted.example/cb")["state"], state);
    // Nor is it a way to push.
    let again = browser.get(&short).await.expect(302);
    assert!(told(&again, "https://trusted.example/cb").contains_key("code"));
}
