//! Many users at once.

use super::resets::audit_record;
use super::*;
use doorward_core::model::user::import::{ExistingUserPolicy, Import, ImportOutcome};

fn import(name: &str, profile: Value) -> Import {
    Import {
        user: user(name, profile),
        says_active: false,
    }
}

#[tokio::test]
async fn a_batch_of_users_is_added_with_what_filters_look_for() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let known = user("known", json!({"displayName": "Known"}));
    store.insert_user(&known, None).await.expect("added");
    let mut batch: Vec<_> = (0..1203)
        .map(|n| {
            let mail = json!([{"value": format!("u{n}@example.com")}]);
            import(&format!("user-{n}"), json!({"emails": mail}))
        })
        .collect();
    batch.push(import("USER-7", json!({})));
    batch.push(import("Known", json!({"title": "Boss"})));
    let mut same_id = import("of-another-id", json!({}));
    same_id.user.id = known.id;
    batch.push(same_id);
    let dry = store
        .import_users(&batch, ExistingUserPolicy::Refuse, true, 5, None)
        .await;
    let done = store
        .import_users(&batch, ExistingUserPolicy::Refuse, false, 5, None)
        .await;
    let done = done.expect("imported");
    assert_eq!(
        dry.expect("a verdict"),
        done,
        "a dry run tells what would come"
    );
    assert!(done[..1203].iter().all(|one| *one == ImportOutcome::Added));
    assert_eq!(done[1203..], [ImportOutcome::Taken; 3]);
    let mails = schema::find("emails.value").expect("an attribute");
    let query = UserQuery {
        filter: Filter::Compare(
            mails,
            Op::Equal,
            Operand::Text("u1202@example.com".to_owned()),
        ),
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: 10,
    };
    let page = store.users("/", &query).await.expect("a page");
    assert_eq!(page.users[0].user_name, "user-1202");
    assert_eq!(page.total, 1);
}

#[tokio::test]
async fn users_who_are_there_are_left_or_changed_as_asked() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut known = user("known", json!({"displayName": "Known", "title": "Boss"}));
    known.active = false;
    store.insert_user(&known, None).await.expect("added");
    let mut batch = [import("KNOWN", json!({"title": "Clerk", "locale": "de"}))];
    let skipped = store
        .import_users(&batch, ExistingUserPolicy::Skip, false, 5, None)
        .await;
    assert_eq!(skipped.expect("done"), [ImportOutcome::Skipped]);
    batch[0].user.password_hash = Some(Secret::new("a hash"));
    let updated = store
        .import_users(&batch, ExistingUserPolicy::Update, false, 5, None)
        .await;
    assert_eq!(updated.expect("done"), [ImportOutcome::Updated]);
    let now = store.user_by_name("/", "known").await.expect("a store");
    let now = now.expect("a user");
    assert_eq!(now.user_name, "known");
    assert_eq!((now.id, now.version, now.active), (known.id, 2, false));
    assert_eq!(now.password_hash, Some(Secret::new("a hash")));
    let profile = json!({"displayName": "Known", "title": "Clerk", "locale": "de"});
    assert_eq!(Value::Object(now.profile), profile);
}

#[tokio::test]
async fn users_of_a_realm_that_is_not_there_are_refused_however_many() {
    let fixture = Fixture::new().await;
    for count in [1, 1001] {
        let batch: Vec<_> = (0..count)
            .map(|n| {
                let mut stray = import(&format!("user-{n}"), json!({}));
                stray.user.realm = "/nowhere".to_owned();
                stray
            })
            .collect();
        let store = &fixture.store;
        let refused = store
            .import_users(&batch, ExistingUserPolicy::Refuse, false, 5, None)
            .await;
        let absent = StoreError::Absent("realm", "/nowhere".to_owned());
        assert_eq!(
            refused.expect_err("refused").to_string(),
            absent.to_string()
        );
        let found = store.user_by_name("/nowhere", "user-0").await;
        assert!(found.expect("a store").is_none());
    }
}

#[tokio::test]
async fn a_batch_of_users_has_its_record_in_the_same_transaction_however_large_it_is() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for (part, count) in [("few", 2), ("many", 1203)] {
        let batch: Vec<_> = (0..count)
            .map(|n| import(&format!("{part}-{n}"), json!({})))
            .collect();
        let pending = PendingAudit::new(audit_record(audit::Kind::UserImport));
        let refuse = ExistingUserPolicy::Refuse;
        let dry = store.import_users(&batch, refuse, true, 5, Some(&pending));
        dry.await.expect("a verdict");
        assert!(!pending.is_committed(), "{part}: nothing was done");
        let done = store.import_users(&batch, refuse, false, 5, Some(&pending));
        done.await.expect("imported");
        assert!(pending.is_committed(), "{part}");
    }
    let query = AuditQuery {
        kinds: vec![audit::Kind::UserImport],
        limit: 10,
        ..AuditQuery::default()
    };
    assert_eq!(store.audit(&query).await.expect("records").len(), 2);
}
