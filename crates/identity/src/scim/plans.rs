//! That what filters ask for is read along an index, on either database.

use std::sync::Arc;

use serde_json::{Value, json};

use super::parse_filter;
use doorward_core::clock::random_uuid;
use doorward_core::model::group::{Group, MemberChange};
use doorward_core::model::query::UserQuery;
use doorward_core::model::user::import::{ExistingUserPolicy, Import};
use doorward_core::model::user::{Owner, User};
use doorward_store::testing::whole_reads;
use doorward_store::{self as store, Store, testing};

fn person(number: usize, profile: &Value) -> User {
    User {
        id: random_uuid(),
        realm: "/".to_owned(),
        user_name: format!("user-{number:04}"),
        name_reused: false,
        password_hash: None,
        active: true,
        owner: Owner::Store,
        version: 1,
        created_ms: 1000,
        updated_ms: i64::try_from(number).expect("small"),
        profile: profile.as_object().cloned().expect("an object"),
    }
}

/// A store with some users, one of them in a group.
async fn filled() -> (tempfile::TempDir, String, Arc<Store>, (User, Group)) {
    let directory = tempfile::tempdir().expect("a directory");
    let url = testing::url(directory.path());
    let store = store::open(&url).await.expect("a store");
    let imports: Vec<_> = (0..2000)
        .map(|number| {
            let emails = json!([{"value": format!("u{number:04}@x.test"), "type": "work"}]);
            let profile = json!({
                "title": format!("t{number:04}"), "externalId": format!("e{number:04}"),
                "emails": emails,
            });
            let user = person(number, &profile);
            Import {
                user,
                says_active: false,
            }
        })
        .collect();
    let user = imports[7].user.clone();
    let added = store.import_users(&imports, ExistingUserPolicy::Refuse, false, 5, None);
    added.await.expect("imported");
    let group = Group {
        id: random_uuid(),
        realm: "/".to_owned(),
        name: "Staff".to_owned(),
        external_id: Some("g".to_owned()),
        version: 1,
        created_ms: 1,
        updated_ms: 1,
    };
    let everybody = Group {
        id: random_uuid(),
        name: "Everybody".to_owned(),
        ..group.clone()
    };
    let all = imports.iter().map(|import| import.user.id).collect();
    for (group, ids) in [(&group, vec![user.id]), (&everybody, all)] {
        let members = MemberChange {
            clear: false,
            steps: ids.into_iter().map(|id| (true, id)).collect(),
        };
        store
            .insert_group(group, &members, None)
            .await
            .expect("a group");
    }
    (directory, url, store, (user, group))
}

fn asks(filter: &str) -> UserQuery {
    UserQuery {
        filter: parse_filter(filter).expect("a filter"),
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: 10,
    }
}

#[tokio::test]
async fn every_clause_on_what_is_indexed_reads_an_index() {
    let (_directory, url, store, (user, group)) = filled().await;
    let (id, group) = (user.id, group.id);
    let filters = [
        format!("id eq \"{id}\""),
        format!("groups.value eq \"{group}\""),
        format!("groups[value eq \"{group}\"] and title eq \"t0007\""),
        "userName eq \"user-0007\"".to_owned(),
        "userName sw \"user-000\"".to_owned(),
        "userName gt \"user-1990\"".to_owned(),
        "userName lt \"user-0010\"".to_owned(),
        "externalId eq \"e0007\"".to_owned(),
        "meta.lastModified gt \"1970-01-01T00:00:01.990Z\"".to_owned(),
        "title eq \"t0007\"".to_owned(),
        "title sw \"t000\"".to_owned(),
        "title gt \"t1990\"".to_owned(),
        "title ge \"t1990\"".to_owned(),
        "title lt \"t0010\"".to_owned(),
        "title le \"t0010\"".to_owned(),
        "title co \"0007\"".to_owned(),
        "title ew \"0007\"".to_owned(),
        "emails eq \"u0007@x.test\"".to_owned(),
        "emails.value sw \"u000\"".to_owned(),
        "emails[type eq \"work\" and value eq \"u0007@x.test\"]".to_owned(),
        "emails[value co \"u0007@\" and type eq \"work\"]".to_owned(),
        "title eq \"t0007\" and active eq true".to_owned(),
        "title eq \"t0007\" and not (externalId eq \"e0008\")".to_owned(),
        "title eq \"t0007\" or externalId eq \"e0008\"".to_owned(),
        "userName eq \"user-0007\" or emails.value eq \"u0007@x.test\"".to_owned(),
        "active eq true and (title eq \"t0007\" or emails[type eq \"work\" and value eq \"u0008@x.test\"])"
            .to_owned(),
    ];
    for filter in &filters {
        // Of so few users PostgreSQL rather joins all of them.
        if testing::is_postgres() && filter.contains("[value co") {
            continue;
        }
        let asked = whole_reads(&url, async {
            let page = store.users("/", &asks(filter)).await.expect("a page");
            assert_ne!(page.total, 0, "{filter}");
        });
        assert_eq!(Box::pin(asked).await, Vec::<String>::new(), "{filter}");
    }
}

#[tokio::test]
async fn looking_up_and_removing_reads_an_index() {
    let (_directory, url, store, (user, group)) = filled().await;
    let asked = whole_reads(&url, async {
        store.user("/", user.id).await.expect("a look-up");
        let found = store.user_by_name("/", "user-0007").await;
        found.expect("a look-up");
        store.sweep(9, 10).await.expect("swept");
        if testing::is_postgres() {
            // Tables of a few rows it reads however it likes.
            return;
        }
        store.memberships(&[user.id]).await.expect("a look-up");
        let found = store.members(group.id, None, 10).await;
        found.expect("a look-up");
        store.group("/", group.id).await.expect("a look-up");
        store.consents(user.id).await.expect("a look-up");
        store.factors(user.id).await.expect("a look-up");
        store.identities(user.id).await.expect("a look-up");
        let gone = store.delete_user(user.id, None, 9, None).await;
        gone.expect("deleted");
    });
    assert_eq!(asked.await, Vec::<String>::new());
}
