//! Links by which people choose new passwords.

use super::*;
use doorward_core::model::reset::StoredReset;

fn link(user: &User, token: &str, expires_ms: i64) -> StoredReset {
    StoredReset {
        hash: TokenHash::of(token),
        realm: user.realm.clone(),
        user_id: user.id,
        bound: StoredReset::bound_to(user.password_hash.as_ref()),
        expires_ms,
    }
}

#[tokio::test]
async fn a_link_is_good_once_in_time_and_for_the_password_in_force() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut carol = user("carol", json!({}));
    carol.password_hash = Some(Secret::new("old"));
    store.insert_user(&carol, None).await.expect("added");
    for token in ["one", "two", "three", "four"] {
        let reset = link(
            &carol,
            token,
            1000 + i64::try_from(token.len()).expect("short"),
        );
        store.insert_reset(&reset, 3, None).await.expect("kept");
    }
    let known = async |token: &str| store.reset(TokenHash::of(token)).await.expect("read");
    assert!(known("four").await.is_some());
    let left = ["one", "two"].map(known);
    let left = futures_util::future::join_all(left).await;
    assert_eq!(left.iter().flatten().count(), 1, "three are kept");
    let spend = async |token: &str, new: &str, now_ms: i64| {
        let new = Secret::new(new);
        let done = store
            .reset_password(TokenHash::of(token), &new, now_ms, None)
            .await;
        done.expect("an answer")
    };
    assert_eq!(spend("three", "late", 1005).await, None, "over");
    assert_eq!(spend("four", "new", 10).await, Some(carol.id));
    assert_eq!(spend("four", "newer", 10).await, None, "spent");
    assert_eq!(spend("one", "newer", 10).await, None, "gone with it");
    let now = store.user_by_name("/", "carol").await.expect("read");
    let now = now.expect("a user");
    assert_eq!(
        (now.password_hash, now.version),
        (Some(Secret::new("new")), 2)
    );
    let stale = link(&carol, "five", 1000);
    store.insert_reset(&stale, 3, None).await.expect("kept");
    assert_eq!(spend("five", "newer", 10).await, None, "another password");
}

/// The record of a new password that a link is for.
/// A record of an act of this kind.
pub(super) fn audit_record(kind: audit::Kind) -> AuditRecord {
    AuditRecord {
        id: random_uuid(),
        kind,
        realm: None,
        user_id: None,
        user_name: None,
        client_id: None,
        address: None,
        failed: false,
        doc: Map::new(),
    }
}

#[tokio::test]
async fn a_dead_link_leaves_no_record_of_a_new_password() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut carol = user("carol", json!({}));
    carol.password_hash = Some(Secret::new("old"));
    store.insert_user(&carol, None).await.expect("added");
    for (token, expires_ms, is_good) in [("dead", 5, false), ("good", 1000, true)] {
        let reset = link(&carol, token, expires_ms);
        store.insert_reset(&reset, 3, None).await.expect("kept");
        let new = Secret::new("new");
        let pending = PendingAudit::new(audit_record(audit::Kind::PasswordReset));
        let spent = store.reset_password(TokenHash::of(token), &new, 10, Some(&pending));
        let spent = spent.await.expect("an answer");
        assert_eq!(spent.is_some(), is_good, "{token}");
        assert_eq!(pending.is_committed(), is_good, "{token}");
        let query = AuditQuery {
            limit: 10,
            ..AuditQuery::default()
        };
        let kept = store.audit(&query).await.expect("read");
        assert_eq!(kept.len(), usize::from(is_good), "{token}");
    }
}

#[tokio::test]
async fn a_password_is_set_in_the_place_of_the_one_that_was_seen_or_not_at_all() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let carol = user("carol", json!({}));
    store.insert_user(&carol, None).await.expect("added");
    let (old, new) = (Secret::new("old"), Secret::new("new"));
    let set = async |hash: &Secret, seen: Option<&Secret>| {
        store.set_password(carol.id, hash, seen, 5, None).await
    };
    let refused = set(&new, Some(&old)).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict(_))),
        "she has none"
    );
    set(&old, None).await.expect("whichever there is");
    let refused = set(&new, Some(&new)).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "another");
    set(&new, Some(&old)).await.expect("the same");
    let now = store.user("/", carol.id).await.expect("read");
    let now = now.expect("carol");
    assert_eq!((now.password_hash, now.version), (Some(new), 3));
}
