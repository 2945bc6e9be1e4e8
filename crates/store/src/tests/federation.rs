//! Links between users and others at other providers.

use super::*;

fn link(user: &User, subject: &str) -> FederatedIdentity {
    FederatedIdentity {
        id: random_uuid(),
        realm: "/".to_owned(),
        user_id: user.id,
        issuer: "https://other.example".to_owned(),
        subject: subject.to_owned(),
        provider: "other".to_owned(),
        email: None,
        created_ms: 1000,
        used_ms: 1000,
    }
}

async fn added(store: &Arc<Store>, name: &str) -> User {
    let user = user(name, json!({}));
    store.insert_user(&user, None).await.expect("added");
    user
}

#[tokio::test]
async fn somebody_elsewhere_is_one_user_here() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (ann, bert) = (added(store, "ann").await, added(store, "bert").await);
    let first = link(&ann, "1");
    store
        .link_identity(&first, Some(1), None)
        .await
        .expect("linked");
    let again = store.link_identity(&link(&bert, "1"), None, None).await;
    assert!(matches!(again, Err(StoreError::Taken(_))));
    let stale = store.link_identity(&link(&bert, "2"), Some(2), None).await;
    assert!(matches!(stale, Err(StoreError::Conflict(_))));
    let nobody = user("nobody", json!({}));
    let gone = store.link_identity(&link(&nobody, "3"), None, None).await;
    assert!(matches!(gone, Err(StoreError::Conflict(_))));
    let who = async |realm: &str, issuer: &str, subject: &str| {
        let found = store.federated_user(realm, issuer, subject).await;
        found.expect("read").map(|(_, user)| user.user_name)
    };
    let issuer = "https://other.example";
    assert_eq!(who("/", issuer, "1").await.as_deref(), Some("ann"));
    for (realm, issuer, subject) in [
        ("/a", issuer, "1"),
        ("/", "https://Other.example", "1"),
        ("/", issuer, "2"),
    ] {
        assert_eq!(who(realm, issuer, subject).await, None);
    }
    let used = FederatedIdentity {
        email: Some("a@x.example".to_owned()),
        used_ms: 2000,
        ..first
    };
    store.touch_identity(&used).await.expect("noted");
    let links = store.identities(ann.id).await.expect("read");
    assert_eq!(links, [used]);
}

#[tokio::test]
async fn a_user_and_its_link_are_made_together_or_not_at_all() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let ann = user("ann", json!({}));
    let made = store
        .insert_federated_user(&ann, &link(&ann, "1"), None)
        .await;
    made.expect("made");
    for (name, subject) in [("ANN", "2"), ("other", "1")] {
        let other = user(name, json!({}));
        let link = link(&other, subject);
        let refused = store.insert_federated_user(&other, &link, None);
        assert!(matches!(refused.await, Err(StoreError::Taken(_))), "{name}");
        assert!(store.user("/", other.id).await.expect("read").is_none());
        assert!(store.identities(other.id).await.expect("read").is_empty());
    }
}

#[tokio::test]
async fn with_a_link_end_sessions_and_with_a_user_its_links() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (ann, bert) = (added(store, "ann").await, added(store, "bert").await);
    let first = link(&ann, "1");
    store
        .link_identity(&first, None, None)
        .await
        .expect("linked");
    let token = refresh("token", ann.id);
    store
        .record_tokens(Some(&token), None, None)
        .await
        .expect("kept");
    let unlink = async |user: &User| {
        let own = FederatedIdentity {
            user_id: user.id,
            ..first.clone()
        };
        store.unlink_identity(&own, &[], 5000, None).await
    };
    assert!(!unlink(&bert).await.expect("an answer"), "it is not his");
    assert!(unlink(&ann).await.expect("an answer"));
    assert!(!unlink(&ann).await.expect("an answer"));
    let family = TokenHash::of("family");
    let left = store.refresh_tokens(family).await.expect("read");
    assert!(left.is_none(), "what began with it has ended");
    store
        .link_identity(&first, None, None)
        .await
        .expect("linked");
    assert!(
        store
            .delete_user(ann.id, None, 6000, None)
            .await
            .expect("deleted")
    );
    store
        .link_identity(&link(&bert, "1"), None, None)
        .await
        .expect("the subject is free");
}
