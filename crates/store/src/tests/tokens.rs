//! Refresh tokens that are exchanged, and tokens that are kept together.

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
        .map(|token| store.record_tokens(None, Some(token), None));
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
        .record_tokens(None, Some(&token), None)
        .await
        .expect("the first is kept");
    // The first is there already; the others are not.
    let tokens: Vec<_> = (0..20).map(|n| access(n, "grant")).collect();
    let kept = tokens
        .iter()
        .map(|token| store.record_tokens(None, Some(token), None));
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
        store.record_tokens(None, Some(&early), None),
        store.revoke_grant("grant", 99_000, None),
        store.record_tokens(None, Some(&late), None),
    );
    a.and(b).and(c).expect("all are kept");
    let found = store.access_token(early.hash).await.expect("a lookup");
    assert_eq!(found, None, "a token outlived its grant");
    let found = store.access_token(late.hash).await.expect("a lookup");
    assert_eq!(found, Some(late));
}

#[tokio::test]
async fn a_refresh_token_is_exchanged_once_even_by_two_at_once() {
    let (fixture, _) = with_refresh_token().await;
    let store = &fixture.store;
    let rotate = |from, to| store.exchange_refresh_token(exchange(from, to, 1, 0), None, None);
    let (left, right) = tokio::join!(rotate("one", "two"), rotate("one", "three"));
    let mut outcomes = [left.expect("an outcome"), right.expect("an outcome")];
    outcomes.sort_by_key(|outcome| *outcome != Rotation::Done);
    assert_eq!(outcomes, [Rotation::Done, Rotation::Reused]);
    let revoked = store.revocations().await.expect("a lookup");
    assert_eq!(revoked, [(Revocation::Grant("grant".to_owned()), 99_000)]);
    let found = store.refresh_tokens(TokenHash::of("family")).await;
    assert!(
        found.expect("a lookup").is_none(),
        "a token outlived its grant"
    );
    let gone = rotate("one", "two").await.expect("an outcome");
    assert_eq!(gone, Rotation::Gone);
}

#[tokio::test]
async fn within_the_grace_a_retry_is_given_the_same_salt() {
    let (fixture, _) = with_refresh_token().await;
    let rotate = |from, to, now| {
        let exchange = exchange(from, to, now, 10);
        fixture.store.exchange_refresh_token(exchange, None, None)
    };
    assert_eq!(
        rotate("one", "two", 1).await.expect("an outcome"),
        Rotation::Done
    );
    let again = rotate("one", "three", 10).await.expect("an outcome");
    assert_eq!(again, Rotation::Again(TokenHash::of("two").0));
    // Its successor is used: from now on, it is a theft.
    assert_eq!(
        rotate("two", "four", 10).await.expect("an outcome"),
        Rotation::Done
    );
    assert_eq!(
        rotate("one", "five", 10).await.expect("an outcome"),
        Rotation::Reused
    );
}

#[tokio::test]
async fn after_the_grace_a_retry_is_a_second_use() {
    let (fixture, _) = with_refresh_token().await;
    let rotate = |now| {
        let exchange = exchange("one", "two", now, 10);
        fixture.store.exchange_refresh_token(exchange, None, None)
    };
    assert_eq!(rotate(1).await.expect("an outcome"), Rotation::Done);
    assert_eq!(rotate(11).await.expect("an outcome"), Rotation::Reused);
}

#[tokio::test]
async fn writes_that_share_a_commit_do_not_share_their_failures() {
    let (fixture, demo) = with_refresh_token().await;
    let store = &fixture.store;
    let (twice, nobody) = (refresh("x", demo.id), random_uuid());
    let mut orphan = refresh("y", nobody);
    orphan.family = TokenHash::of("orphan");
    let other = fixture.another().await;
    let (a, b, c, d) = tokio::join!(
        store.exchange_refresh_token(exchange("one", "two", 1, 0), None, None),
        store.record_tokens(Some(&twice), None, None),
        store.record_tokens(Some(&orphan), None, None),
        store.remember(TokenHash::of("id"), 10, 1),
    );
    assert_eq!(a.expect("an outcome"), Rotation::Done);
    assert!(
        b.is_err() && c.is_err(),
        "a family twice, and a user who is none"
    );
    assert!(d.expect("an outcome"));
    let kept = other.refresh_tokens(twice.family).await.expect("a lookup");
    assert_eq!(kept.map(|kept| kept.current), Some(TokenHash::of("two")));
}
