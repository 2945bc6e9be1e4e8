//! Locks after wrong passwords.

use super::*;
use doorward_core::model::lockout::{LOCK_KEPT_MS, LockKind, StoredLock};

fn lock(kind: LockKind, key: &str, set_ms: i64, until_ms: i64) -> StoredLock {
    StoredLock {
        id: kind.id("/", key),
        kind,
        realm: "/".to_owned(),
        subject: None,
        until_ms,
        locks: 1,
        set_ms,
    }
}

#[tokio::test]
async fn the_latest_word_of_a_lock_counts_and_is_told_until_it_no_longer_matters() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let first = lock(LockKind::Name, "ann", 1000, 61_000);
    let lifted = lock(LockKind::Name, "ann", 2000, 0);
    let other = lock(LockKind::Address, "192.0.2.7", 3000, 63_000);
    for word in [&lifted, &first, &other] {
        store.put_lock(word, None).await.expect("kept");
    }
    let known = async |since_ms, now_ms| {
        let mut all = store.locks(since_ms, now_ms).await.expect("read");
        all.sort_by_key(|lock| lock.set_ms);
        all
    };
    assert_eq!(known(0, 4000).await, [lifted, other.clone()]);
    assert_eq!(known(2500, 4000).await, std::slice::from_ref(&other));
    assert!(known(0, 63_000 + LOCK_KEPT_MS).await.is_empty());
    let swept = store.sweep(63_000 + LOCK_KEPT_MS, 10).await.expect("swept");
    assert!(swept >= 2, "{swept}");
    assert!(known(0, 0).await.is_empty());
}
