//! What a request asks for by `claims` (OpenID Connect Core §5.5), and of whom.

use super::browser::Browser;
use super::{
    CALLBACK, VERIFIER, code, door, exchange, exchange_trusted, path, signed_in, told, trusted,
};
use super::{web, with};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;

#[tokio::test]
async fn who_is_asked_for_in_several_places_has_to_be_in_all() {
    let door = door().await;
    let browser = Browser::new(&door);
    let code = code(&browser).await;
    let tokens = exchange(&door, &code, VERIFIER).await.expect(200).json();
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let silent = with(trusted(), "prompt", "none");
    let hinted = with(silent.clone(), "id_token_hint", hint);
    for (request, claims, is_answered) in [
        (&hinted, r#"{"id_token":{"sub":{"value":"alice"}}}"#, false),
        (&hinted, r#"{"id_token":{"sub":{"value":"demo"}}}"#, true),
        (&hinted, r#"{"id_token":{"sub":{"essential":true}}}"#, true),
        (
            &silent,
            r#"{"id_token":{"sub":{"value":"demo"}},"userinfo":{"sub":{"value":"alice"}}}"#,
            false,
        ),
        (
            &silent,
            r#"{"id_token":{"sub":{"values":["alice"]}}}"#,
            false,
        ),
        (
            &silent,
            r#"{"id_token":{"sub":{"values":["alice","demo"]}}}"#,
            true,
        ),
        (&silent, r#"{"id_token":{"sub":{"values":[]}}}"#, false),
        (&silent, r#"{"id_token":{"sub":{"value":1}}}"#, false),
    ] {
        let request = path(&with(request.clone(), "claims", claims));
        let answer = told(&browser.get(&request).await, "https://trusted.example/cb");
        if is_answered {
            assert!(answer.contains_key("code"), "{claims}: {answer:?}");
        } else {
            assert_eq!(answer["error"], "login_required", "{claims}");
        }
    }
}

#[tokio::test]
async fn claims_are_told_where_they_were_asked_for() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let claims = r#"{"id_token":{"email":null},"userinfo":{"name":{"essential":true}}}"#;
    let request = with(with(trusted(), "scope", "openid"), "claims", claims);
    let answer = told(
        &browser.get(&path(&request)).await,
        "https://trusted.example/cb",
    );
    let tokens = exchange_trusted(&door, &answer["code"]).await;
    let tokens = tokens.expect(200).json();
    let id = claims_of(tokens["id_token"].as_str().expect("an ID token"));
    assert_eq!(id["email"], "demo@example.com");
    let access = tokens["access_token"].as_str().expect("a token");
    let url = door.proxy_url("/oauth2/userinfo");
    let told = send(crate::support::http::client().get(url).bearer_auth(access)).await;
    let told = told.expect(200).json();
    assert_eq!(told.get("name"), None, "the client has no scope for it");
    assert_eq!(told.get("email"), None);
}

#[tokio::test]
async fn claims_of_the_first_id_token_are_in_those_of_refreshes() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let claims = r#"{"id_token":{"email":{"essential":true},"shoe_size":null}}"#;
    let request = with(with(web(), "scope", "openid"), "claims", claims);
    let page = browser.get(&path(&request)).await.expect(200);
    let answer = browser.approve(&page).await.expect(303);
    let code = told(&answer, CALLBACK)["code"].clone();
    let mut tokens = exchange(&door, &code, VERIFIER).await.expect(200).json();
    for _ in 0..2 {
        let id = claims_of(tokens["id_token"].as_str().expect("an ID token"));
        assert_eq!(id["email"], "demo@example.com");
        assert_eq!(id.get("email_verified"), None);
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", "web"),
            ("client_secret", "web-secret"),
            (
                "refresh_token",
                tokens["refresh_token"].as_str().expect("a token"),
            ),
        ];
        let url = door.proxy_url("/oauth2/access_token");
        tokens = send(client().post(url).form(&form))
            .await
            .expect(200)
            .json();
    }
}

#[tokio::test]
async fn claims_asked_for_singly_are_not_given_past_scopes_and_consent() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    // The page has been agreed to for the scopes alone.
    let page = browser.get(&path(&web())).await.expect(200);
    browser.approve(&page).await.expect(303);
    let silent = with(web(), "prompt", "none");
    let answer = told(&browser.get(&path(&silent)).await, CALLBACK);
    assert!(answer.contains_key("code"), "{answer:?}");
    for claims in [
        r#"{"userinfo":{"name":null}}"#,
        r#"{"id_token":{"email":null,"nickname":{"essential":true}}}"#,
    ] {
        let wish = with(silent.clone(), "claims", claims);
        let answer = told(&browser.get(&path(&wish)).await, CALLBACK);
        assert_eq!(answer["error"], "consent_required", "{claims}");
    }
    // Who is asked is told of what, and then remembered to have agreed.
    let wish = with(web(), "claims", r#"{"userinfo":{"name":null}}"#);
    let page = browser.get(&path(&wish)).await.expect(200);
    assert!(page.body.contains("id=\"approve\""), "{}", page.body);
    browser.approve(&page).await.expect(303);
    let silent = with(wish, "prompt", "none");
    let answer = told(&browser.get(&path(&silent)).await, CALLBACK);
    let tokens = exchange(&door, &answer["code"], VERIFIER).await;
    let tokens = tokens.expect(200).json();
    let access = tokens["access_token"].as_str().expect("a token");
    let url = door.proxy_url("/oauth2/userinfo");
    let told = send(client().get(url).bearer_auth(access)).await;
    assert_eq!(told.expect(200).json()["name"], "Demo User");
}
