//! The token broker's records and tokens.

use super::*;
use crate::model::broker::TokenFacts;
use crate::model::grant::TokenHash;

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
        secret: ClientSecret::digested(&crate::model::secret::Secret::new("s")),
        owner: Owner::Store,
        created_ms: 1,
        updated_ms: 1,
        made_up: false,
    }
}

fn tokens(access: &str, refresh: Option<&str>, client: &str) -> StoredTokens {
    StoredTokens {
        access: TokenHash::of(access),
        access_approved: true,
        expires_ms: 100,
        refresh: refresh.map(TokenHash::of),
        refresh_approved: true,
        refresh_expires_ms: 1000,
        swept_ms: 2000,
        client_id: client.to_owned(),
        facts: TokenFacts::default(),
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
        store.insert_broker_record(&one).await.expect("inserted");
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
    let refused = store.insert_broker_record(&taken).await;
    assert!(matches!(refused, Err(StoreError::Taken(name)) if name == "key"));
    let refused = store.delete_broker_record(Kind::Developer, "dev@x").await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))));
    let page = store.broker_records(Kind::Product, Some("other"), 5).await;
    assert_eq!(page.expect("a page").len(), 2);
    let mut changed = record(Kind::Product, "p", None);
    changed.updated_ms = 2;
    store
        .update_broker_record(&changed, 1)
        .await
        .expect("changed");
    let late = store.update_broker_record(&changed, 1).await;
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
        let refused = store.insert_broker_record(&application).await;
        let refused = refused.expect_err("refused").to_string();
        assert_eq!(refused, format!("there is no {} {id}", kind.as_str()));
        let one = record(kind, id, None);
        store.insert_broker_record(&one).await.expect("inserted");
    }
    store
        .insert_broker_record(&application)
        .await
        .expect("inserted");
    // What is gone since stands in the way of no other change.
    let gone = store.delete_broker_record(Kind::Product, "q").await;
    assert!(gone.expect("an answer"));
    application.updated_ms = 2;
    store
        .update_broker_record(&application, 1)
        .await
        .expect("changed");
    application.updated_ms = 3;
    application.parent = Some("nobody@x".to_owned());
    let refused = store.update_broker_record(&application, 2).await;
    assert!(matches!(refused, Err(StoreError::Absent("developer", _))));
}

#[tokio::test]
async fn a_token_that_is_given_again_has_a_good_refresh_token() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let first = tokens("a", Some("r1"), "c");
    assert!(store.keep_broker_tokens(&first).await.expect("kept"));
    let hash = TokenHash::of("r1");
    let revoked = store.revoke_broker_token(Which::Refresh, hash, false).await;
    assert!(revoked.expect("an answer").is_some());
    let again = tokens("a", Some("r2"), "c");
    assert!(store.keep_broker_tokens(&again).await.expect("kept"));
    let hash = TokenHash::of("r2");
    let found = store.broker_tokens(Which::Refresh, hash).await;
    let found = found.expect("an answer").expect("it is there");
    assert!(found.access_approved && found.refresh_approved);
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
    let refused = store.delete_broker_record(Kind::Application, "a1").await;
    assert!(matches!(refused, Err(StoreError::FileOwned(_))));
}

#[tokio::test]
async fn of_two_refreshes_at_once_one_is_told_yes() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    assert!(
        store
            .keep_broker_tokens(&tokens("a", Some("r"), "c"))
            .await
            .expect("kept")
    );
    let refresh = |access: &str, successor: &str| Refresh {
        presented: TokenHash::of("r"),
        tokens: tokens(access, Some(successor), "c"),
        now_ms: 50,
    };
    let (one, two) = (refresh("b1", "r1"), refresh("b2", "r2"));
    let (one, two) = tokio::join!(
        store.refresh_broker_tokens(&one),
        store.refresh_broker_tokens(&two)
    );
    assert_ne!(one.expect("an answer"), two.expect("an answer"));
    let old = store.broker_tokens(Which::Access, TokenHash::of("a")).await;
    assert!(old.expect("an answer").is_none());
}

#[tokio::test]
async fn a_revoked_token_is_known_as_such_and_swept_in_the_end() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let kept = tokens("a", Some("r"), "c");
    store.keep_broker_tokens(&kept).await.expect("kept");
    // Of another application it is never.
    let stolen = tokens("a", None, "d");
    assert!(!store.keep_broker_tokens(&stolen).await.expect("an answer"));
    let hash = TokenHash::of("a");
    let revoked = store.revoke_broker_token(Which::Access, hash, false).await;
    assert!(revoked.expect("an answer").is_some());
    let found = store
        .broker_tokens(Which::Refresh, TokenHash::of("r"))
        .await;
    let found = found.expect("an answer").expect("it is there");
    assert!(!found.access_approved && found.refresh_approved);
    // And it does not rise again.
    assert!(!store.keep_broker_tokens(&kept).await.expect("an answer"));
    store.sweep(1999, 10).await.expect("swept");
    assert!(
        store
            .broker_tokens(Which::Access, hash)
            .await
            .expect("an answer")
            .is_some()
    );
    store.sweep(2000, 10).await.expect("swept");
    assert!(
        store
            .broker_tokens(Which::Access, hash)
            .await
            .expect("an answer")
            .is_none()
    );
}
