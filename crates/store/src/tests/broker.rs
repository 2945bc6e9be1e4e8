//! The token broker's records.

use super::*;

fn record(kind: Kind, id: &str, key: Option<&str>) -> Record {
    Record {
        kind,
        id: id.to_owned(),
        key: key.map(str::to_owned),
        parent: (kind == Kind::Application).then(|| "dev@x".to_owned()),
        doc: match json!({"id": id, "products": ["p", "q"]}) {
            Value::Object(doc) => doc,
            _ => Map::new(),
        },
        secret: ClientSecret::digested(&doorward_core::model::secret::Secret::new("s")),
        owner: Owner::Store,
        created_ms: 1,
        updated_ms: 1,
        made_up: false,
    }
}

#[tokio::test]
async fn a_client_is_found_by_its_key_with_developer_and_products() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for one in [
        record(Kind::Product, "p", None),
        record(Kind::Product, "q", None),
        record(Kind::Product, "other", None),
        record(Kind::Developer, "dev@x", None),
        record(Kind::Application, "a1", Some("key")),
    ] {
        store
            .insert_broker_record(&one, None)
            .await
            .expect("inserted");
    }
    let found = store.broker_client("key").await.expect("an answer");
    let found = found.expect("it is there");
    assert_eq!(found.application.id, "a1");
    assert!(found.application.secret.matches("s") && !found.application.secret.matches("t"));
    assert_eq!(found.developer.map(|one| one.id).as_deref(), Some("dev@x"));
    assert_eq!(found.products.len(), 2);
    assert!(
        store
            .broker_client("KEY")
            .await
            .expect("an answer")
            .is_none()
    );
    let taken = record(Kind::Application, "a2", Some("key"));
    let refused = store.insert_broker_record(&taken, None).await;
    assert!(matches!(refused, Err(StoreError::Taken(name)) if name == "key"));
    let remove = async |id: (Kind, &str), seen_ms: Option<i64>| {
        let removal = store.delete_broker_record(id, seen_ms, None).await;
        removal.expect("an outcome")
    };
    let developer = (Kind::Developer, "dev@x");
    assert_eq!(remove(developer, None).await, Removal::InUse);
    assert_eq!(remove(developer, Some(7)).await, Removal::Stale);
    assert_eq!(
        remove((Kind::Product, "none"), None).await,
        Removal::Missing
    );
    let page = store.broker_records(Kind::Product, Some("other"), 5).await;
    assert_eq!(page.expect("a page").len(), 2);
    let mut changed = record(Kind::Product, "p", None);
    changed.updated_ms = 2;
    store
        .update_broker_record(&changed, 1, None)
        .await
        .expect("changed");
    let late = store.update_broker_record(&changed, 1, None).await;
    assert!(matches!(late, Err(StoreError::Conflict(_))));
}

#[tokio::test]
async fn an_application_refers_to_what_is_there_when_it_begins_to() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut application = record(Kind::Application, "a1", Some("key"));
    for (kind, id) in [
        (Kind::Product, "p"),
        (Kind::Product, "q"),
        (Kind::Developer, "dev@x"),
    ] {
        let refused = store.insert_broker_record(&application, None).await;
        let refused = refused.expect_err("refused").to_string();
        assert_eq!(refused, format!("there is no {} {id}", kind.as_str()));
        let one = record(kind, id, None);
        store
            .insert_broker_record(&one, None)
            .await
            .expect("inserted");
    }
    store
        .insert_broker_record(&application, None)
        .await
        .expect("inserted");
    // What is gone since stands in the way of no other change.
    let product = (Kind::Product, "q");
    let stale = store.delete_broker_record(product, Some(2), None).await;
    assert_eq!(stale.expect("an answer"), Removal::Stale);
    let gone = store.delete_broker_record(product, Some(1), None).await;
    assert_eq!(gone.expect("an answer"), Removal::Done);
    application.updated_ms = 2;
    store
        .update_broker_record(&application, 1, None)
        .await
        .expect("changed");
    application.updated_ms = 3;
    application.parent = Some("nobody@x".to_owned());
    let refused = store.update_broker_record(&application, 2, None).await;
    assert!(matches!(refused, Err(StoreError::Absent("developer", _))));
}

#[tokio::test]
async fn declared_records_replace_their_elders_and_an_application_stays_the_same() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let declared = |id: &str, key: &str| Record {
        made_up: true,
        ..record(Kind::Application, id, Some(key))
    };
    let first = vec![declared("a1", "key"), record(Kind::Product, "p", None)];
    store.sync_broker(first, 5).await.expect("synced");
    store
        .sync_broker(vec![declared("a2", "key")], 9)
        .await
        .expect("synced");
    let found = store.broker_client("key").await.expect("an answer");
    let application = found.expect("it is there").application;
    assert_eq!((application.id.as_str(), application.created_ms), ("a1", 5));
    assert_eq!(application.doc["id"], "a1");
    let gone = store.broker_record(Kind::Product, "p").await;
    assert!(gone.expect("an answer").is_none());
    let application = (Kind::Application, "a1");
    let refused = store.delete_broker_record(application, None, None).await;
    assert!(matches!(refused, Err(StoreError::FileOwned(_))));
}

#[tokio::test]
async fn what_is_revoked_of_a_declared_application_stays_so_when_the_file_is_read_again() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let declared = || Record {
        made_up: true,
        ..record(Kind::Application, "a1", Some("key"))
    };
    store
        .sync_broker(vec![declared()], 5)
        .await
        .expect("synced");
    assert!(
        !store
            .revoke_broker_client("a2", 7, None)
            .await
            .expect("an answer")
    );
    assert!(
        store
            .revoke_broker_client("a1", 7, None)
            .await
            .expect("an answer")
    );
    let revoked_ms = async || {
        let found = store.broker_client("key").await.expect("an answer");
        found.expect("it is there").application.doc["tokens_revoked_ms"].clone()
    };
    assert_eq!(revoked_ms().await, 7);
    store
        .sync_broker(vec![declared()], 9)
        .await
        .expect("synced");
    assert_eq!(revoked_ms().await, 7);
    // An earlier time takes nothing back, and one in the file counts.
    assert!(
        store
            .revoke_broker_client("a1", 6, None)
            .await
            .expect("an answer")
    );
    assert_eq!(revoked_ms().await, 7);
    let mut later = declared();
    later.doc.insert("tokens_revoked_ms".to_owned(), json!(8));
    store.sync_broker(vec![later], 10).await.expect("synced");
    assert_eq!(revoked_ms().await, 8);
}
