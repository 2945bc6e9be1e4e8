use sqlx::sqlite::SqliteConnectOptions;

use super::*;
use crate::Store;
use crate::testing::postgres::Cluster;
use doorward_core::model::grant::TokenHash;

const USER: &str = "0191d0a0-0000-7000-8000-000000000001";

/// What every version can hold.
const ROWS: &str = r#"
    INSERT INTO users (id, realm, user_name, user_key, password, status, owner, version,
                       created_ms, updated_ms, doc)
    VALUES ('0191d0a0-0000-7000-8000-000000000001', '/', 'Demo', 'demo', 'hash', 'active',
            'store', 3, 1, 1, '{"displayName":"Demo"}');
    INSERT INTO user_attr (user_id, path, idx, realm, text)
    VALUES ('0191d0a0-0000-7000-8000-000000000001', 'displayName', 0, '/', 'demo');
    INSERT INTO clients (realm, client_id, owner, created_ms, updated_ms, doc)
    VALUES ('/', 'app', 'store', 1, 1, '{"client_id":"app"}');
    INSERT INTO signing_keys (kid, alg, pkcs8, created_ms, active_from_ms)
    VALUES ('kid', 'RS256', 'key', 1, 1);
    INSERT INTO sessions (hash, realm, user_id, created_ms, used_ms, ends_ms)
    VALUES (x'00', '/', '0191d0a0-0000-7000-8000-000000000001', 1, 1, 9);
    INSERT INTO revoked_grants (grant_id, expires_ms) VALUES ('revoked', 9);
"#;

const GRANT: &str = r#"{"id":"grant","realm":"/","client_id":"app",
    "user_id":"0191d0a0-0000-7000-8000-000000000001","scopes":["openid","offline_access"],
    "grant_type":"password","auth_time":1,"ends_ms":90000,"sid":"s"}"#;

/// A database as the version of so many migrations left it.
async fn written_by(path: &std::path::Path, version: usize) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path);
    let old = SqlitePool::connect_with(options.create_if_missing(true));
    let old = old.await.expect("a database");
    let before = sqlite_to(&old, &MIGRATIONS[..version]).await;
    before.expect("the old version");
    sqlx::raw_sql(ROWS).execute(&old).await.expect("rows");
    let (family, more) = match version {
        ..4 => ("hash", "used"),
        _ => ("family", "current"),
    };
    for (token, used) in [("token", 0), ("spent", 1)] {
        let insert = format!(
            "INSERT INTO refresh_tokens ({family}, grant_id, realm, client_id, user_id, {more},
                                         expires_ms, doc)
             VALUES (?, 'grant', '/', 'app', '{USER}', ?, 50000, ?)"
        );
        let hash = TokenHash::of(token).0.to_vec();
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(hash.clone());
        let insert = match version {
            ..4 => insert.bind(used),
            _ if used == 1 => continue,
            _ => insert.bind(hash),
        };
        insert.bind(GRANT).execute(&old).await.expect("inserted");
    }
    old
}

#[tokio::test]
async fn what_any_earlier_version_wrote_is_taken_over() {
    let directory = tempfile::tempdir().expect("a directory");
    for version in 1..=MIGRATIONS.len() {
        let path = directory.path().join(format!("{version}.db"));
        written_by(&path, version).await.close().await;
        let store = Store::open_sqlite(&path).await.expect("it opens");
        let user = store.user_by_name("/", "DEMO").await.expect("a lookup");
        let user = user.expect("the user");
        assert_eq!((user.version, user.user_name.as_str()), (3, "Demo"));
        let client = store.client("/", "app").await.expect("a lookup");
        assert_eq!(client.expect("the client").metadata.client_id, "app");
        assert_eq!(store.signing_keys().await.expect("keys").len(), 1);
        assert_eq!(store.revocations().await.expect("revoked").len(), 1);
        let hash = TokenHash::of("token");
        let kept = store.refresh_tokens(hash).await.expect("a lookup");
        assert_eq!(kept.expect("kept").current, hash, "from {version}");
        let spent = store.refresh_tokens(TokenHash::of("spent")).await;
        assert!(spent.expect("a lookup").is_none());
        let revoked = store
            .delete_client("/", "app", None, None)
            .await
            .expect("deleted");
        assert_eq!(revoked.expect("the client"), ["grant"], "from {version}");
    }
}

#[tokio::test]
async fn a_migration_that_fails_leaves_the_old_version_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("old.db");
    let old = written_by(&path, 5).await;
    let broken = [
        MIGRATIONS,
        &["CREATE TABLE more (a INTEGER) STRICT; BROKEN"],
    ]
    .concat();
    sqlite_to(&old, &broken).await.expect_err("broken");
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&old)
        .await
        .expect("a version");
    assert_eq!(version, 5);
    let tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('more', 'devices', 'logouts')";
    let tables: i64 = sqlx::query_scalar(tables)
        .fetch_one(&old)
        .await
        .expect("tables");
    assert_eq!(tables, 0);
    old.close().await;
    Store::open_sqlite(&path)
        .await
        .expect("this version opens it");
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new.db");
    let newer = written_by(&path, MIGRATIONS.len()).await;
    let bump = "PRAGMA user_version = 9999";
    sqlx::raw_sql(bump).execute(&newer).await.expect("done");
    newer.close().await;
    let refused = Store::open_sqlite(&path).await.map(drop);
    assert!(
        refused
            .expect_err("refused")
            .to_string()
            .contains("newer version")
    );
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn postgres_is_migrated_in_steps_or_not_at_all() {
    let url = Cluster::shared().database("migrations");
    let pool = PgPool::connect(&url).await.expect("a database");
    postgres_to(&pool, &MIGRATIONS[..7])
        .await
        .expect("an old version");
    let broken = [
        MIGRATIONS,
        &["CREATE TABLE more (a INTEGER) STRICT; BROKEN"],
    ]
    .concat();
    postgres_to(&pool, &broken).await.expect_err("broken");
    let mut connection = pool.acquire().await.expect("a connection");
    let version = postgres_version(&mut connection).await.expect("a version");
    assert_eq!(version, Some(7));
    // Of several nodes that start at once, one migrates.
    let (a, b, c) = tokio::join!(
        Store::open_postgres(&url),
        Store::open_postgres(&url),
        Store::open_postgres(&url),
    );
    let stores = [a.expect("opens"), b.expect("opens"), c.expect("opens")];
    assert_eq!(stores[2].realms().await.expect("realms").len(), 1);
    let newer = sqlx::query("UPDATE doorward_schema SET version = 9999");
    newer.execute(&pool).await.expect("done");
    let refused = Store::open_postgres(&url).await.map(drop);
    assert!(
        refused
            .expect_err("refused")
            .to_string()
            .contains("newer version")
    );
}

#[test]
fn types_are_translated_and_sections_told_apart() {
    let text = "-- Words of SQLite's.\nCREATE TABLE a (\n    -- Its name.\n    id INTEGER PRIMARY KEY,\n\
                name TEXT, at INTEGER, hash BLOB\n) STRICT, WITHOUT ROWID;\n\
                -- @sqlite\nONE;\n-- @postgres\nOTHER;\n-- @both\nALL;\n";
    assert_eq!(
        translated(text, Dialect::Postgres),
        "CREATE TABLE a (\n    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,\n\
         name TEXT COLLATE \"C\", at BIGINT, hash BYTEA\n);\nOTHER;\nALL;\n"
    );
    assert!(translated(text, Dialect::Sqlite).ends_with("STRICT, WITHOUT ROWID;\nONE;\nALL;\n"));
}
