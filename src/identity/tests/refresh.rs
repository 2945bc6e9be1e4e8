use serde_json::Value;

use crate::identity::testing::{Answer, Provider};

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
