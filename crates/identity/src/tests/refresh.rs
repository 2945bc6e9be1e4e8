use serde_json::{Value, json};

use crate::testing::{Answer, Provider, config};

async fn refresh(provider: &Provider, token: &str, more: &str) -> Answer {
    let body = format!(
        "grant_type=refresh_token&client_id=app&client_secret=app-secret\
         &refresh_token={token}{more}"
    );
    provider.token(&body).await
}

fn text(body: &Value, name: &str) -> String {
    body[name].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn a_refresh_keeps_the_grant_and_changes_the_token() {
    let provider = Provider::new().await;
    let first = provider.user_tokens("openid+email").await;
    provider.clock.advance(10_000);
    let second = refresh(&provider, &text(&first, "refresh_token"), "").await;
    assert_eq!(second.status, 200, "{}", second.text);
    let second = second.json();
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    assert_eq!(second["scope"], "openid email");
    let before = provider.claims(&text(&first, "access_token"));
    let after = provider.claims(&text(&second, "access_token"));
    for same in ["sub", "authGrantId", "auth_time", "iss", "aud"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    assert_ne!(before["jti"], after["jti"]);
    assert_eq!(
        after["iat"].as_i64(),
        before["iat"].as_i64().map(|iat| iat + 10)
    );
    let id = provider.claims(&text(&second, "id_token"));
    assert_eq!(id["auth_time"], before["auth_time"]);
}

#[tokio::test]
async fn replay_of_a_refresh_token_revokes_its_family() {
    let provider = Provider::new().await;
    let first = text(&provider.user_tokens("openid").await, "refresh_token");
    let second = refresh(&provider, &first, "").await.json();
    let replay = refresh(&provider, &first, "").await;
    assert_eq!(
        replay.oauth_error(),
        (
            400,
            "invalid_grant".to_owned(),
            "grant is invalid".to_owned()
        )
    );
    let heir = refresh(&provider, &text(&second, "refresh_token"), "").await;
    assert_eq!(heir.oauth_error().1, "invalid_grant");
}

#[tokio::test]
async fn parallel_refreshes_give_one_success() {
    let provider = Provider::new().await;
    let token = text(&provider.user_tokens("openid").await, "refresh_token");
    let tries = (0..8).map(|_| refresh(&provider, &token, ""));
    let answers = futures_util::future::join_all(tries).await;
    let good = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(good, 1);
}

#[tokio::test]
async fn the_scope_can_only_be_narrowed_and_the_grant_keeps_its_own() {
    let provider = Provider::new().await;
    let token = text(&provider.user_tokens("openid+email").await, "refresh_token");
    let wider = refresh(&provider, &token, "&scope=email+profile").await;
    assert_eq!(wider.oauth_error().1, "invalid_scope");
    let narrow = refresh(&provider, &token, "&scope=email").await.json();
    assert_eq!(narrow["scope"], "email");
    let again = refresh(&provider, &text(&narrow, "refresh_token"), "")
        .await
        .json();
    assert_eq!(again["scope"], "openid email");
}

#[tokio::test]
async fn another_client_cannot_use_nor_burn_the_token() {
    let provider = Provider::new().await;
    let token = text(&provider.user_tokens("openid").await, "refresh_token");
    let body = format!(
        "grant_type=refresh_token&client_id=opaque&client_secret=app-secret&refresh_token={token}"
    );
    let foreign = provider.token(&body).await;
    assert_eq!(foreign.oauth_error().0, 400);
    assert_eq!(foreign.oauth_error().1, "invalid_grant");
    assert_eq!(refresh(&provider, &token, "").await.status, 200);
}

#[tokio::test]
async fn refresh_tokens_die_unused_and_grants_die_used() {
    let provider = Provider::new().await;
    let week = 604_800_000;
    let mut token = text(&provider.user_tokens("openid").await, "refresh_token");
    for _ in 0..4 {
        provider.clock.advance(week - 1000);
        token = text(
            &refresh(&provider, &token, "").await.json(),
            "refresh_token",
        );
    }
    provider.clock.advance(week - 1000);
    assert_eq!(
        refresh(&provider, &token, "").await.oauth_error().1,
        "invalid_grant"
    );

    let unused = text(&provider.user_tokens("openid").await, "refresh_token");
    provider.clock.advance(week);
    assert_eq!(
        refresh(&provider, &unused, "").await.oauth_error().1,
        "invalid_grant"
    );
}

fn with_grace(seconds: u32) -> Value {
    let mut config = config();
    config["realms"]["/"]["settings"] = json!({"refresh_token_grace": seconds});
    config
}

#[tokio::test]
async fn within_the_grace_a_retry_gets_the_same_successor() {
    let provider = Provider::with(with_grace(10)).await;
    let first = text(&provider.user_tokens("openid").await, "refresh_token");
    let second = refresh(&provider, &first, "").await.json();
    provider.clock.advance(9_999);
    let retry = refresh(&provider, &first, "").await;
    assert_eq!(retry.status, 200, "{}", retry.text);
    assert_eq!(retry.json()["refresh_token"], second["refresh_token"]);
    assert_ne!(retry.json()["access_token"], second["access_token"]);
    // The successor works, and then the first is dead with its family.
    let third = refresh(&provider, &text(&second, "refresh_token"), "").await;
    assert_eq!(third.status, 200);
    let theft = refresh(&provider, &first, "").await;
    assert_eq!(theft.oauth_error().1, "invalid_grant");
    let heir = refresh(&provider, &text(&third.json(), "refresh_token"), "").await;
    assert_eq!(heir.oauth_error().1, "invalid_grant");
}

#[tokio::test]
async fn racing_tabs_within_the_grace_all_get_the_same_successor() {
    let provider = Provider::with(with_grace(10)).await;
    let token = text(&provider.user_tokens("openid").await, "refresh_token");
    let tries = (0..8).map(|_| refresh(&provider, &token, ""));
    let answers = futures_util::future::join_all(tries).await;
    let mut successors: Vec<_> = answers
        .iter()
        .map(|answer| text(&answer.json(), "refresh_token"))
        .collect();
    successors.dedup();
    assert_eq!(successors.len(), 1);
    assert_ne!(successors[0], token);
}

#[tokio::test]
async fn after_the_grace_a_retry_revokes_the_family_and_its_access_tokens() {
    let provider = Provider::with(with_grace(10)).await;
    let first = text(&provider.user_tokens("openid").await, "refresh_token");
    let second = refresh(&provider, &first, "").await.json();
    let access = text(&second, "access_token");
    let path = "/oauth2/tokeninfo";
    assert_eq!(provider.get_with(path, &access).await.status, 200);
    provider.clock.advance(10_000);
    let late = refresh(&provider, &first, "").await;
    assert_eq!(late.oauth_error().1, "invalid_grant");
    assert_eq!(provider.get_with(path, &access).await.status, 401);
    let heir = refresh(&provider, &text(&second, "refresh_token"), "").await;
    assert_eq!(heir.oauth_error().1, "invalid_grant");
}

#[tokio::test]
async fn a_token_older_than_the_last_one_revokes_its_family_too() {
    let provider = Provider::with(with_grace(10)).await;
    let first = text(&provider.user_tokens("openid").await, "refresh_token");
    let second = text(
        &refresh(&provider, &first, "").await.json(),
        "refresh_token",
    );
    let third = text(
        &refresh(&provider, &second, "").await.json(),
        "refresh_token",
    );
    assert_eq!(refresh(&provider, &first, "").await.status, 400);
    assert_eq!(refresh(&provider, &third, "").await.status, 400);
}

#[tokio::test]
async fn without_rotation_a_token_stays_and_its_idle_time_begins_anew() {
    let mut config = config();
    config["realms"]["/"]["settings"] = json!({"refresh_token_rotation": false});
    let provider = Provider::with(config).await;
    let token = text(&provider.user_tokens("openid").await, "refresh_token");
    let week = 604_800_000;
    for _ in 0..3 {
        provider.clock.advance(week - 1000);
        let answer = refresh(&provider, &token, "").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.json().get("refresh_token").is_none());
    }
    // The tokens of public clients rotate all the same.
    let body = "grant_type=password&client_id=public&username=demo&password=correct+horse&scope=a";
    let token = text(&provider.token(body).await.json(), "refresh_token");
    let body = format!("grant_type=refresh_token&client_id=public&refresh_token={token}");
    assert!(provider.token(&body).await.json()["refresh_token"].is_string());
    let again = provider.token(&body).await;
    assert_eq!(again.oauth_error().1, "invalid_grant");
}

#[tokio::test]
async fn a_client_has_lifetimes_of_its_own() {
    let mut config = config();
    for (name, value) in [("refresh_token_lifetime", 100), ("grant_lifetime", 150)] {
        config["realms"]["/"]["clients"][0][name] = json!(value);
    }
    let provider = Provider::with(config).await;
    let first = text(&provider.user_tokens("openid").await, "refresh_token");
    provider.clock.advance(99_000);
    let second = refresh(&provider, &first, "").await.json();
    provider.clock.advance(51_000);
    let third = refresh(&provider, &text(&second, "refresh_token"), "").await;
    assert_eq!(third.oauth_error().1, "invalid_grant");
    let idle = text(&provider.user_tokens("openid").await, "refresh_token");
    provider.clock.advance(100_000);
    assert_eq!(
        refresh(&provider, &idle, "").await.oauth_error().1,
        "invalid_grant"
    );
}

#[tokio::test]
async fn a_forged_secret_of_a_known_family_ends_it() {
    let provider = Provider::new().await;
    let token = text(&provider.user_tokens("openid").await, "refresh_token");
    // Who knows the family has seen one of its tokens.
    let forged = format!("{}{}", &token[..32], "A".repeat(32));
    assert_eq!(refresh(&provider, &forged, "").await.status, 400);
    assert_eq!(refresh(&provider, &token, "").await.status, 400);
}
