//! Tokens that are kept together.

use super::*;

fn access(number: u32, grant: &str) -> StoredAccess {
    let mut claims = Map::new();
    claims.insert("sub".to_owned(), json!(format!("user {number}")));
    StoredAccess {
        hash: TokenHash::of(&format!("token {number}")),
        grant_id: grant.to_owned(),
        claims,
        expires_ms: 90_000 + i64::from(number),
    }
}

#[tokio::test]
async fn tokens_that_share_statements_are_kept_each_as_it_is() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    // More than the longest statement takes, and a rest of each shorter one.
    let tokens: Vec<_> = (0..64 + 16 + 4 + 1).map(|n| access(n, "grant")).collect();
    let kept = tokens
        .iter()
        .map(|token| store.record_tokens(None, Some(token)));
    for kept in futures_util::future::join_all(kept).await {
        kept.expect("kept");
    }
    for token in &tokens {
        let found = store.access_token(token.hash).await.expect("a lookup");
        assert_eq!(found.as_ref(), Some(token));
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_kept_fails_none_that_shares_its_statement() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let token = access(0, "grant");
    store
        .record_tokens(None, Some(&token))
        .await
        .expect("the first is kept");
    // The first is there already; the others are not.
    let tokens: Vec<_> = (0..20).map(|n| access(n, "grant")).collect();
    let kept = tokens
        .iter()
        .map(|token| store.record_tokens(None, Some(token)));
    let kept = futures_util::future::join_all(kept).await;
    let refused = kept.iter().filter(|kept| kept.is_err()).count();
    assert_eq!((refused, kept[0].is_err()), (1, true));
    for token in &tokens {
        let found = store.access_token(token.hash).await.expect("a lookup");
        assert_eq!(found.as_ref(), Some(token));
    }
}

#[tokio::test]
async fn a_revocation_between_tokens_of_one_commit_counts_for_those_before_it() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (early, late) = (access(0, "grant"), access(1, "grant"));
    let (a, b, c) = tokio::join!(
        store.record_tokens(None, Some(&early)),
        store.revoke_grant("grant", 99_000),
        store.record_tokens(None, Some(&late)),
    );
    a.and(b).and(c).expect("all are kept");
    let found = store.access_token(early.hash).await.expect("a lookup");
    assert_eq!(found, None, "a token outlived its grant");
    let found = store.access_token(late.hash).await.expect("a lookup");
    assert_eq!(found, Some(late));
}
