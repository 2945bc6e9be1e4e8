//! Exports and imports from SQLite to SQLite; those of PostgreSQL are with the
//! tests of the program.

use serde_json::json;

use super::*;
use crate::{Finding, Store};
use doorward_core::clock::random_uuid;
use doorward_core::model::audit::{Actor, AuditQuery, Event, Kind, Occurrence, Trace, audit_id};
use doorward_core::model::grant::{StoredSession, TokenHash};
use doorward_core::model::query::{Filter, UserQuery};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::{Owner, User};

async fn new_store(directory: &tempfile::TempDir, name: &str) -> Store {
    let path = directory.path().join(name);
    Store::open_sqlite(&path).await.expect("a store")
}

fn user(name: &str) -> User {
    let profile = json!({"displayName": format!("{name} \u{1F980}"), "emails": [
        {"value": format!("{name}@example.com"), "primary": true}]});
    User {
        id: random_uuid(),
        realm: "/".to_owned(),
        user_name: name.to_owned(),
        name_reused: false,
        password_hash: Some(Secret::new("$argon2id$x".to_owned())),
        active: true,
        owner: Owner::Store,
        version: 1,
        created_ms: 1,
        updated_ms: 2,
        profile: profile.as_object().cloned().expect("an object"),
    }
}

/// A store with something in it.
async fn filled(directory: &tempfile::TempDir) -> Store {
    let store = new_store(directory, "old").await;
    for n in 0..2500 {
        store
            .insert_user(&user(&format!("user{n}")), None)
            .await
            .expect("stored");
    }
    let someone = user("someone");
    store.insert_user(&someone, None).await.expect("stored");
    let session = StoredSession {
        hash: TokenHash::of("session"),
        realm: "/".to_owned(),
        user_id: someone.id,
        created_ms: 1,
        used_ms: 1,
        ends_ms: i64::MAX,
        sid: "sid".to_owned(),
        auth_ms: 1,
        amr: vec!["pwd".to_owned()],
        agent: "a browser".to_owned(),
        address: "192.0.2.1".to_owned(),
    };
    store
        .insert_session(&session, 5, None)
        .await
        .expect("stored");
    store
        .remember(TokenHash::of("x"), 9, 1)
        .await
        .expect("stored");
    let told = Occurrence {
        id: audit_id(5, 0, [1; 8]),
        at_ms: 5,
        last_ms: 5,
        count: 1,
        trace: Trace::default(),
    };
    let record = Event::new(Kind::UserCreate, Actor::Admin).record(&told);
    store.append_audit(vec![record]).await.expect("stored");
    store
}

async fn exported(store: &Store, audit: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let done = store.export(&mut out, audit, 0, &mut |_| {}).await;
    done.expect("exported");
    out
}

async fn imported(store: &Store, mut text: &[u8], force: bool) -> Result<Rows, TransferError> {
    store.import(&mut text, force, &mut |_| {}).await
}

async fn findings(store: &Store) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut tell = |finding| found.push(finding);
    store.check(&mut tell, &mut |_| {}).await.expect("checked");
    found
}

async fn users(store: &Store) -> u64 {
    let query = UserQuery {
        filter: Filter::Always,
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: 1,
    };
    store.users("/", &query).await.expect("users").total
}

#[tokio::test]
async fn an_import_is_what_was_exported() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = filled(&directory).await;
    let text = exported(&old, true).await;
    let new = new_store(&directory, "new").await;
    let rows = imported(&new, &text, false).await.expect("imported");
    assert_eq!(
        (rows["users"], rows["sessions"], rows["audit"]),
        (2501, 1, 1)
    );
    assert_eq!(exported(&new, true).await, text);
    assert_eq!(findings(&new).await, []);
    let session = new.session(TokenHash::of("session")).await.expect("read");
    assert_eq!(session.expect("a session").sid, "sid");
    let someone = new.user_by_name("/", "SOMEONE").await.expect("read");
    let someone = someone.expect("a user");
    assert_eq!(someone.profile["displayName"], "someone \u{1F980}");
    let query = AuditQuery {
        limit: 9,
        ..AuditQuery::default()
    };
    assert_eq!(new.audit(&query).await.expect("read").len(), 1);
    let without = String::from_utf8(exported(&old, false).await).expect("text");
    assert!(!without.contains(r#""table":"audit""#));
}

#[tokio::test]
async fn nothing_is_put_over_what_is_there_unless_that_is_wanted() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = filled(&directory).await;
    let text = exported(&old, true).await;
    let new = new_store(&directory, "new").await;
    new.insert_user(&user("own"), None).await.expect("stored");
    let refused = imported(&new, &text, false).await.expect_err("not empty");
    assert!(
        matches!(refused, TransferError::NotEmpty("users")),
        "{refused}"
    );
    assert_eq!(users(&new).await, 1);
    imported(&new, &text, true).await.expect("imported");
    assert_eq!(users(&new).await, 2501);
    assert!(new.user_by_name("/", "own").await.expect("read").is_none());
    assert_eq!(findings(&new).await, []);
}

#[tokio::test]
async fn a_damaged_export_changes_nothing_and_says_where() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = filled(&directory).await;
    let whole = String::from_utf8(exported(&old, true).await).expect("text");
    let new = new_store(&directory, "new").await;
    new.insert_user(&user("own"), None).await.expect("stored");
    let lines: Vec<&str> = whole.lines().collect();
    let cut = lines[..lines.len() - 1].join("\n") + "\n";
    let half = &whole[..whole.len() - 10];
    let changed = whole.replacen("user7@", "user8@", 1);
    let newer = whole.replacen("\"format\":1", "\"format\":2", 1);
    let retyped = whole.replacen("\"/\",\"store\",\"{}\"", "\"/\",7,\"{}\"", 1);
    let unknown = whole.replacen("{\"table\":\"users\"", "{\"table\":\"user\"", 1);
    let more = format!("{whole}[]\n");
    for (text, said) in [
        (
            cut.as_str(),
            "the export is cut short: its last line is missing",
        ),
        (half, "the export is cut short: its last line is missing"),
        (
            &changed,
            "the export is damaged: it is not what its last line says",
        ),
        (&newer, "the export was made by a newer version"),
        (&retyped, "realms.owner is of another type"),
        (&unknown, "names a table that there is not"),
        (&more, "comes after the end"),
        ("", "this is no export of a store"),
        ("{}\n", "this is no export of a store"),
    ] {
        let refused = imported(&new, text.as_bytes(), true).await.expect_err(said);
        assert!(
            refused.to_string().contains(said),
            "{refused} is not {said}"
        );
        assert!(new.user_by_name("/", "own").await.expect("read").is_some());
    }
    let refused = imported(&new, retyped.as_bytes(), true)
        .await
        .expect_err("refused");
    assert!(refused.to_string().starts_with("line "), "{refused}");
}

#[tokio::test]
async fn what_is_wrong_in_a_store_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = filled(&directory).await;
    assert_eq!(findings(&store).await, []);
    let Database::Sqlite(file) = &store.database else {
        panic!("another database");
    };
    let writer = &file.writer;
    for (damage, table, problem) in [
        (
            "UPDATE users SET user_key = 'other' WHERE user_name = 'user1'",
            "users",
            "user_key is not the key of user_name",
        ),
        (
            "UPDATE users SET doc = '{' WHERE user_name = 'user2'",
            "users",
            "stored record is damaged",
        ),
        (
            "DELETE FROM user_attr WHERE user_id = (SELECT id FROM users WHERE user_name = 'user3')",
            "users",
            "the index of its attributes says something else",
        ),
        (
            "INSERT INTO refresh_tokens (family, grant_id, realm, client_id, user_id, current,
                                         expires_ms, doc)
             SELECT x'00', 'g', '/', 'nobody', id, x'00', 1, '{}' FROM users LIMIT 1",
            "refresh_tokens",
            "refers to one of clients that there is not",
        ),
        (
            "UPDATE audit SET kind = 'user.delete'",
            "audit",
            "the record is another one than the row says",
        ),
    ] {
        sqlx::query(damage).execute(writer).await.expect("damaged");
        let found = findings(&store).await;
        let told = found
            .iter()
            .any(|one| one.table == table && one.problem.contains(problem));
        assert!(told, "{problem} is not in {found:?}");
    }
}
