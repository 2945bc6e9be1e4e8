//! Second factors, recovery codes and consents.

use futures_util::future::join_all;

use super::*;
use doorward_core::model::factor::{Enrolment, Kind, StoredFactor};

fn factor(of: &User, kind: Kind, credential: Option<&str>) -> StoredFactor {
    StoredFactor {
        id: random_uuid(),
        realm: of.realm.clone(),
        user_id: of.id,
        kind,
        name: "mine".to_owned(),
        credential: credential.map(str::to_owned),
        secret: Secret::new("secret"),
        counter: 0,
        created_ms: 5,
        used_ms: None,
    }
}

fn codes() -> Vec<TokenHash> {
    (0..3).map(|n| TokenHash::of(&n.to_string())).collect()
}

async fn with_user() -> (Fixture, User) {
    let fixture = Fixture::new().await;
    let demo = user("demo", json!({}));
    fixture
        .store
        .insert_user(&demo, None)
        .await
        .expect("inserted");
    (fixture, demo)
}

#[tokio::test]
async fn a_factor_is_read_back_as_it_was_kept() {
    let (Fixture { store, directory }, demo) = with_user().await;
    let kept = factor(&demo, Kind::Passkey, Some("abc"));
    let done = store.insert_factor(&kept, 20, &codes(), None).await;
    assert_eq!(done.expect("kept"), Enrolment::Kept { with_codes: true });
    let second = factor(&demo, Kind::Totp, None);
    let done = store.insert_factor(&second, 20, &codes(), None).await;
    let done = done.expect("kept");
    assert_eq!(
        done,
        Enrolment::Kept { with_codes: false },
        "others are in use"
    );
    assert_eq!(store.factors(demo.id).await.expect("factors").len(), 2);
    let found = store.factor_of_credential("/", "abc").await.expect("read");
    assert_eq!(found, Some(kept));
    let elsewhere = store.factor_of_credential("/alpha", "abc").await;
    assert_eq!(elsewhere.expect("read"), None);
    drop(directory);
}

#[tokio::test]
async fn a_passkey_is_one_users_and_nobody_has_too_many() {
    let (Fixture { store, directory }, demo) = with_user().await;
    let other = user("other", json!({}));
    store.insert_user(&other, None).await.expect("inserted");
    let mine = factor(&demo, Kind::Passkey, Some("abc"));
    store
        .insert_factor(&mine, 2, &[], None)
        .await
        .expect("kept");
    let theirs = factor(&other, Kind::Passkey, Some("abc"));
    let refused = store.insert_factor(&theirs, 2, &codes(), None).await;
    assert!(matches!(refused, Err(StoreError::Taken(_))));
    let left = store.recovery_codes_left(other.id).await.expect("a number");
    assert_eq!(left, 0, "half of it was done");
    let second = factor(&demo, Kind::Totp, None);
    store
        .insert_factor(&second, 2, &[], None)
        .await
        .expect("kept");
    let third = factor(&demo, Kind::Totp, None);
    let full = store
        .insert_factor(&third, 2, &[], None)
        .await
        .expect("answered");
    assert_eq!(full, Enrolment::Full);
    let nobody = factor(&user("nobody", json!({})), Kind::Totp, None);
    let gone = store.insert_factor(&nobody, 2, &[], None).await;
    assert!(matches!(gone, Err(StoreError::Conflict(_))));
    drop(directory);
}

#[tokio::test]
async fn of_parallel_uses_of_one_proof_one_counts() {
    let (Fixture { store, directory }, demo) = with_user().await;
    let totp = factor(&demo, Kind::Totp, None);
    store
        .insert_factor(&totp, 20, &codes(), None)
        .await
        .expect("kept");
    let uses = (0..20).map(|_| store.use_factor(totp.id, 7, None, 9, None));
    let counted = join_all(uses).await;
    let counted = counted.into_iter().filter(|done| matches!(done, Ok(true)));
    assert_eq!(counted.count(), 1);
    let earlier = store
        .use_factor(totp.id, 6, None, 9, None)
        .await
        .expect("answered");
    assert!(!earlier, "an earlier step counts after a later one");
    let uses = (0..20).map(|_| store.use_recovery_code(demo.id, codes()[0], None));
    let counted = join_all(uses).await;
    let counted = counted.into_iter().filter(|done| matches!(done, Ok(true)));
    assert_eq!(counted.count(), 1);
    assert_eq!(
        store.recovery_codes_left(demo.id).await.expect("a number"),
        2
    );
    drop(directory);
}

#[tokio::test]
async fn authenticators_that_do_not_count_may_sign_again() {
    let (Fixture { store, directory }, demo) = with_user().await;
    let key = factor(&demo, Kind::Passkey, Some("abc"));
    store
        .insert_factor(&key, 20, &[], None)
        .await
        .expect("kept");
    for _ in 0..2 {
        assert!(
            store
                .use_factor(key.id, 0, None, 9, None)
                .await
                .expect("used")
        );
    }
    let other = Secret::new("sealed anew");
    let used = store.use_factor(key.id, 5, Some(&other), 9, None).await;
    assert!(used.expect("used"));
    assert!(
        !store
            .use_factor(key.id, 0, None, 9, None)
            .await
            .expect("answered")
    );
    let found = store.factors(demo.id).await.expect("factors").remove(0);
    assert_eq!((found.counter, found.used_ms), (5, Some(9)));
    assert_eq!(found.secret, other);
    drop(directory);
}

#[tokio::test]
async fn with_the_last_factor_the_recovery_codes_go() {
    let (Fixture { store, directory }, demo) = with_user().await;
    let (one, two) = (
        factor(&demo, Kind::Totp, None),
        factor(&demo, Kind::Totp, None),
    );
    for factor in [&one, &two] {
        store
            .insert_factor(factor, 20, &codes(), None)
            .await
            .expect("kept");
    }
    let stranger = user("stranger", json!({}));
    assert!(
        !store
            .delete_factor(stranger.id, one.id, None)
            .await
            .expect("answered")
    );
    assert!(
        !store
            .rename_factor(stranger.id, one.id, "x")
            .await
            .expect("answered")
    );
    assert!(
        store
            .rename_factor(demo.id, one.id, "x")
            .await
            .expect("renamed")
    );
    assert!(
        store
            .delete_factor(demo.id, one.id, None)
            .await
            .expect("removed")
    );
    assert_eq!(
        store.recovery_codes_left(demo.id).await.expect("a number"),
        3
    );
    assert!(
        store
            .delete_factor(demo.id, two.id, None)
            .await
            .expect("removed")
    );
    assert_eq!(
        store.recovery_codes_left(demo.id).await.expect("a number"),
        0
    );
    drop(directory);
}

#[tokio::test]
async fn a_reset_of_factors_ends_what_was_begun() {
    let (Fixture { store, directory }, demo) = with_user().await;
    let totp = factor(&demo, Kind::Totp, None);
    store
        .insert_factor(&totp, 20, &codes(), None)
        .await
        .expect("kept");
    let token = refresh("r", demo.id);
    store
        .record_tokens(Some(&token), None, None)
        .await
        .expect("kept");
    let others = store
        .reset_factors(demo.id, <[_]>::is_empty, 50, None)
        .await;
    assert_eq!(others.expect("an answer"), None, "others were meant");
    assert_eq!(store.factors(demo.id).await.expect("factors").len(), 1);
    let reset = store
        .reset_factors(demo.id, |all| all.len() == 1, 50, None)
        .await;
    assert_eq!(reset.expect("reset"), Some(1));
    assert!(store.factors(demo.id).await.expect("factors").is_empty());
    assert_eq!(
        store.recovery_codes_left(demo.id).await.expect("a number"),
        0
    );
    let gone = store.refresh_tokens(token.family).await.expect("read");
    assert_eq!(gone, None);
    drop(directory);
}

#[tokio::test]
async fn a_consent_is_withdrawn_with_what_was_granted() {
    let (Fixture { store, directory }, demo) = with_user().await;
    let scopes = ["openid".to_owned(), "email".to_owned()];
    for client_id in ["app", "shop"] {
        let added = store.add_consent("/", demo.id, client_id, &scopes, 7, None);
        added.await.expect("added");
    }
    let token = refresh("r", demo.id);
    let client_id = token.grant.client_id.clone();
    store
        .record_tokens(Some(&token), None, None)
        .await
        .expect("kept");
    let all = store.consents(demo.id).await.expect("consents");
    let named: Vec<_> = all.iter().map(|one| one.client_id.as_str()).collect();
    assert_eq!(named, ["app", "shop"]);
    assert_eq!(
        (&*all[0].scopes.join(" "), all[0].given_ms),
        ("email openid", 7)
    );
    let other = store
        .withdraw_consent("/", demo.id, "nobody", 9, None)
        .await;
    assert!(other.expect("nothing").is_empty());
    let revoked = store
        .withdraw_consent("/", demo.id, &client_id, 9, None)
        .await;
    let revoked = revoked.expect("withdrawn");
    assert_eq!(revoked, std::slice::from_ref(&token.grant.id));
    let gone = store.refresh_tokens(token.family).await.expect("read");
    assert_eq!(gone, None);
    let revoked = store.revocations().await.expect("revocations");
    assert!(
        revoked
            .iter()
            .any(|(what, _)| *what == Revocation::Grant(token.grant.id.clone()))
    );
    drop(directory);
}
