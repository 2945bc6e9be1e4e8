//! Names of former users, whichever way users are made.

use super::*;

async fn reused(store: &Store, name: &str) -> bool {
    let user = store.user_by_name("/", name).await.expect("read");
    user.expect("a user").name_reused
}

#[tokio::test]
async fn a_deleted_name_is_reused_however_its_user_is_made() {
    // Its directory must outlive the store.
    let fixture = Fixture::new().await;
    let store = &*fixture.store;
    let old = user("anna", json!({}));
    store.insert_user(&old, None).await.expect("inserted");
    assert!(!reused(store, "anna").await);
    store
        .delete_user(old.id, None, 2000, None)
        .await
        .expect("deleted");
    let inserted = user("Anna", json!({}));
    store.insert_user(&inserted, None).await.expect("inserted");
    assert!(reused(store, "anna").await);
    store
        .delete_user(inserted.id, None, 2000, None)
        .await
        .expect("deleted");
    let import = Import {
        user: user("anna", json!({})),
        says_active: true,
    };
    let all = [import];
    let made = store
        .import_users(&all, ExistingUserPolicy::Refuse, false, 3000, None)
        .await;
    assert_eq!(made.expect("imported"), [ImportOutcome::Added]);
    assert!(reused(store, "anna").await);
    // A change of other members, of the case too, leaves it so.
    let mut changed = all[0].user.clone();
    changed.user_name = "ANNA".to_owned();
    changed.version = 2;
    store.update_user(&changed, None).await.expect("updated");
    assert!(reused(store, "anna").await);
    let listed = store.retired_names("/", "", 10).await.expect("listed");
    let listed: Vec<_> = listed
        .iter()
        .map(|one| (&*one.user_name, one.user_id))
        .collect();
    assert_eq!(listed, [("anna", old.id)]);
    assert!(
        store
            .release_name("/", "aNNa", None)
            .await
            .expect("released")
    );
    assert!(
        !store
            .release_name("/", "anna", None)
            .await
            .expect("nothing left")
    );
    assert!(!reused(store, "anna").await);
}

#[tokio::test]
async fn whoever_gave_a_name_up_may_have_it_back() {
    // Its directory must outlive the store.
    let fixture = Fixture::new().await;
    let store = &*fixture.store;
    let mut one = user("anna", json!({}));
    store.insert_user(&one, None).await.expect("inserted");
    for (name, version) in [("berta", 2), ("anna", 3)] {
        (one.user_name, one.version) = (name.to_owned(), version);
        store.update_user(&one, None).await.expect("renamed");
        assert!(!reused(store, name).await, "{name}");
    }
    let other = user("berta", json!({}));
    store.insert_user(&other, None).await.expect("inserted");
    assert!(reused(store, "berta").await);
}

#[tokio::test]
async fn two_polls_of_a_device_at_two_nodes_count_together() {
    let fixture = Fixture::new().await;
    let other = fixture.another().await;
    let device = StoredDevice {
        hash: TokenHash::of("device"),
        user_code: TokenHash::of("user code"),
        realm: "/".to_owned(),
        client_id: "tv".to_owned(),
        request: DeviceRequest {
            scopes: Vec::new(),
            resources: Vec::new(),
            challenge: None,
        },
        verdict: Verdict::Pending,
        expires_ms: 600_000,
    };
    let kept = fixture.store.insert_device(&device, 10, 0, None).await;
    assert!(kept.expect("kept"));
    let poll = async |store: &Store, now_ms: i64| {
        let polled = store.poll_device(device.hash, 5, now_ms).await;
        polled.expect("polled")
    };
    assert!(!poll(&*fixture.store, 1000).await);
    assert!(poll(&*other, 2000).await, "too soon after the other node's");
    assert!(poll(&*fixture.store, 11_000).await, "ten seconds now");
    assert!(!poll(&*other, 26_000).await);
    assert!(
        !fixture
            .store
            .poll_device(TokenHash::of("x"), 5, 0)
            .await
            .expect("none")
    );
}
