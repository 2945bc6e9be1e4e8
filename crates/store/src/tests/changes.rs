//! Changes that take the place of others, or must not.

use super::*;

#[tokio::test]
async fn a_key_that_signs_at_once_displaces_the_successor_that_was_published() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let key = |kid: &str, created_ms, active_from_ms| StoredKey {
        kid: kid.to_owned(),
        alg: SignAlg::ES256,
        pkcs8: Secret::new("x"),
        created_ms,
        active_from_ms,
        expires_ms: None,
    };
    let add = async |key: StoredKey, others, displaces| {
        let added = store.add_signing_key(&key, others, displaces, None).await;
        added.expect("an answer")
    };
    assert!(add(key("old", 1, 1), 0, false).await);
    assert!(add(key("next", 10, 100), 500, false).await);
    assert!(!add(key("new", 20, 20), 500, false).await);
    assert!(add(key("new", 20, 20), 500, true).await);
    let mut keys = store.signing_keys().await.expect("keys");
    keys.sort_by(|a, b| a.kid.cmp(&b.kid));
    let ends: Vec<_> = keys.iter().map(|key| key.expires_ms).collect();
    // `new`, `next`, `old`.
    assert_eq!(ends, [None, Some(20), Some(500)]);
}

#[tokio::test]
async fn of_two_changes_of_a_realm_the_one_that_saw_the_other_settings_is_refused() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let settings = |value: Value| match value {
        Value::Object(members) => members,
        _ => panic!("an object"),
    };
    let realm = |value| StoredRealm {
        path: "/a".to_owned(),
        declared: false,
        settings: settings(value),
    };
    store
        .insert_realm(&realm(json!({})), None)
        .await
        .expect("made");
    let seen = Map::new();
    let first = realm(json!({"code_lifetime": 10}));
    let done = store.update_realm(&first, Some(&seen), None).await;
    done.expect("the first");
    let second = realm(json!({"default_scope": "a"}));
    let refused = store.update_realm(&second, Some(&seen), None).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))));
    let kept = store
        .update_realm(&second, Some(&first.settings), None)
        .await;
    kept.expect("after another look");
    let gone = StoredRealm {
        path: "/b".to_owned(),
        ..first
    };
    let refused = store.update_realm(&gone, Some(&seen), None).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))));
    let refused = store.delete_realm("/a", Some(&seen), None).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))));
    let done = store.delete_realm("/a", Some(&second.settings), None).await;
    assert_eq!(done.expect("after another look"), RealmRemoval::Done);
}

#[tokio::test]
async fn what_was_granted_to_a_client_is_revoked_with_it() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let demo = user("demo", json!({}));
    store.insert_user(&demo, None).await.expect("inserted");
    store
        .insert_client(&client("app"), None)
        .await
        .expect("inserted");
    let stored = refresh("token", demo.id);
    store
        .record_tokens(Some(&stored), None, None)
        .await
        .expect("recorded");
    let gone = store
        .delete_client("/", "app", None, None)
        .await
        .expect("deleted");
    assert_eq!(gone, Some(vec![stored.grant.id.clone()]));
    let known = store.revocations().await.expect("a lookup");
    let grant = Revocation::Grant(stored.grant.id);
    assert!(known.iter().any(|(what, _)| *what == grant));
    let again = store
        .delete_client("/", "app", None, None)
        .await
        .expect("an answer");
    assert_eq!(again, None);
}
