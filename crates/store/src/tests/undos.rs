//! How changes of the console are undone.

use super::*;
use crate::sql::UNDOS_MAX;

#[tokio::test]
async fn what_undoes_a_change_is_known_until_its_end_or_its_use() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .put_undo("a", ("owner", "x"), 100)
        .await
        .expect("kept");
    store
        .put_undo("b", ("viewer", "y"), 50)
        .await
        .expect("kept");
    let sealed = store.undo("a", 99).await.expect("read");
    assert_eq!(sealed.as_deref(), Some("x"));
    assert_eq!(store.undo("a", 100).await.expect("read"), None, "over");
    assert_eq!(store.undo("c", 1).await.expect("read"), None);
    let named = |id: &str, role: &str| (id.to_owned(), role.to_owned());
    let all = store.undos(49).await.expect("read");
    assert_eq!(all, [named("a", "owner"), named("b", "viewer")]);
    assert_eq!(store.undos(50).await.expect("read").len(), 1);
    assert!(store.delete_undo("a").await.expect("used"));
    assert!(!store.delete_undo("a").await.expect("used before"));
    assert_eq!(store.undo("a", 1).await.expect("read"), None);
    store.sweep(50, 10).await.expect("swept");
    assert_eq!(store.undos(0).await.expect("read"), []);
}

#[tokio::test]
async fn changes_that_can_be_undone_are_bounded_by_their_number() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for number in 0..UNDOS_MAX + 5 {
        let id = number.to_string();
        let put = store.put_undo(&id, ("owner", "x"), 100 + i64::from(number));
        put.await.expect("kept");
    }
    let all = store.undos(0).await.expect("read");
    assert_eq!(all.len(), UNDOS_MAX as usize);
    assert_eq!(store.undo("4", 0).await.expect("read"), None);
    assert!(store.undo("5", 0).await.expect("read").is_some());
}
