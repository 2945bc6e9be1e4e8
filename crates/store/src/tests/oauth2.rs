//! Tokens and codes of the `oauth2` plugin.

use super::*;
use doorward_core::model::oauth2::{
    OAUTH2_TOKENS_MAX, OAuth2Facts, StoredOAuth2Code, StoredOAuth2Token,
};

fn facts() -> OAuth2Facts {
    OAuth2Facts {
        client_id: "app".to_owned(),
        service: None,
        authenticated_userid: None,
        scope: None,
        expires_in: 60,
        plugin: None,
        challenge: None,
    }
}

fn token(number: u128, created_ms: i64) -> StoredOAuth2Token {
    StoredOAuth2Token {
        id: Uuid::from_u128(number),
        access: TokenHash::of(&format!("access {number}")),
        refresh: Some(TokenHash::of(&format!("refresh {number}"))),
        credential: Uuid::nil(),
        created_ms,
        ends_ms: Some(created_ms + 90_000),
        facts: facts(),
    }
}

#[tokio::test]
async fn a_code_and_a_refresh_token_are_spent_once() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let code = StoredOAuth2Code {
        hash: TokenHash::of("code"),
        credential: Uuid::nil(),
        expires_ms: 1000,
        facts: facts(),
    };
    store.insert_oauth2_code(&code).await.expect("kept");
    assert_eq!(
        store.oauth2_code(code.hash).await.expect("read"),
        Some(code.clone())
    );
    // It is over.
    let late = store.redeem_oauth2_code(code.hash, &token(1, 1000)).await;
    assert!(!late.expect("an answer"));
    let first = token(1, 0);
    let spent = store.redeem_oauth2_code(code.hash, &first).await;
    assert!(spent.expect("an answer"));
    let again = store.redeem_oauth2_code(code.hash, &token(2, 0)).await;
    assert!(!again.expect("an answer"));
    let shown = first.refresh.expect("a refresh token");
    let next = token(3, 500);
    for kept in [true, false] {
        let replaced = store.replace_oauth2_token(first.id, shown, &next).await;
        assert_eq!(replaced.expect("an answer"), kept);
    }
    assert_eq!(store.oauth2_token(first.access).await.expect("read"), None);
    let found = store.oauth2_refresh(TokenHash::of("refresh 3")).await;
    assert_eq!(found.expect("read").as_ref(), Some(&next));
    assert!(store.sweep(90_500, 10).await.expect("swept") >= 1);
    assert_eq!(store.oauth2_token_of(next.id).await.expect("read"), None);
}

#[tokio::test]
async fn the_oldest_tokens_of_a_credential_give_way_and_no_other_ones() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let other = StoredOAuth2Token {
        credential: Uuid::from_u128(9),
        ..token(u128::MAX, 0)
    };
    assert!(store.insert_oauth2_token(&other, None).await.expect("kept"));
    let many = u128::from(OAUTH2_TOKENS_MAX) + 3;
    let mut writes = Vec::new();
    for number in 1..=many {
        let made = token(number, i64::try_from(number).expect("few"));
        writes.push(async move { store.insert_oauth2_token(&made, None).await });
    }
    for write in futures_util::future::join_all(writes).await {
        assert!(write.expect("kept"));
    }
    for (number, kept) in [
        (1, false),
        (3, false),
        (4, true),
        (many, true),
        (u128::MAX, true),
    ] {
        let found = store.oauth2_token_of(Uuid::from_u128(number)).await;
        assert_eq!(found.expect("read").is_some(), kept, "{number}");
    }
    // Another one with the same hash is not kept.
    let twin = StoredOAuth2Token {
        id: Uuid::from_u128(1),
        ..token(many, 0)
    };
    assert!(
        !store
            .insert_oauth2_token(&twin, None)
            .await
            .expect("an answer")
    );
    let page = store.oauth2_tokens(Some(other.credential), None, 10).await;
    assert_eq!(page.expect("read"), [other]);
}
