//! Who guesses names and passwords at the token endpoint.

use super::*;

#[tokio::test]
async fn nobody_learns_from_the_password_grant_who_exists() {
    let provider = Provider::new().await;
    let ask = async |user: &str, password: &str| {
        let body = format!(
            "grant_type=password&client_id=app&client_secret=app-secret&scope=openid\
             &username={user}&password={password}"
        );
        let answer = provider.token(&body).await;
        (answer.status, answer.text)
    };
    let unknown = ask("nobody", "x").await;
    assert_eq!(unknown.0, 400);
    assert!(
        unknown
            .1
            .contains("The provided access grant is invalid, expired, or revoked.")
    );
    assert_eq!(ask("demo", "wrong").await, unknown);
    assert_eq!(ask("gone", "correct+horse").await, unknown);
    for _ in 0..12 {
        assert_eq!(ask("other", "wrong").await, unknown);
    }
    assert_eq!(
        ask("other", "correct+horse").await,
        unknown,
        "the lock shows"
    );
}

#[tokio::test]
async fn a_locked_user_may_return_after_the_lock() {
    let provider = Provider::new().await;
    for _ in 0..10 {
        let body = PASSWORD_GRANT.replace("correct", "wrong");
        assert_eq!(
            provider.token(&format!("{body}&scope=openid")).await.status,
            400
        );
    }
    let right = format!("{PASSWORD_GRANT}&scope=openid");
    assert_eq!(provider.token(&right).await.status, 400);
    provider.clock.advance(60_001);
    assert_eq!(provider.token(&right).await.status, 200);
}

#[tokio::test]
async fn the_user_name_has_no_case() {
    let provider = Provider::new().await;
    let body = PASSWORD_GRANT.replace("username=demo", "username=DeMo");
    let answer = provider.token(&format!("{body}&scope=email")).await;
    let claims = provider.claims(answer.json()["access_token"].as_str().expect("a token"));
    assert_eq!(claims["sub"], "demo");
}
