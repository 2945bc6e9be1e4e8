//! The changes of the schema, from an empty database to this version's.
//!
//! They are written in SQLite's words and never change once they were released.
//! For PostgreSQL the types are translated; where more differs, a line
//! `-- @sqlite` or `-- @postgres` begins what only that one is told, and
//! `-- @both` ends it. All that are missing are made in one transaction, or none.

use sqlx::{AssertSqlSafe, PgConnection, PgPool, SqlSafeStr, SqlitePool};

use super::dialect::Dialect;
use super::lease::Lease;
use super::{postgres as server, unavailable};
use crate::StoreError;

/// In order; the database keeps how many of them were made.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_seen.sql"),
    include_str!("migrations/0003_revoked_tokens.sql"),
    include_str!("migrations/0004_refresh_families.sql"),
    include_str!("migrations/0005_authorizations.sql"),
    include_str!("migrations/0006_devices.sql"),
    include_str!("migrations/0007_logouts.sql"),
    include_str!("migrations/0008_registrations.sql"),
    include_str!("migrations/0009_requests.sql"),
    include_str!("migrations/0010_secrets.sql"),
    include_str!("migrations/0011_request_bytes.sql"),
    include_str!("migrations/0012_members.sql"),
    include_str!("migrations/0013_audit.sql"),
    include_str!("migrations/0014_federation.sql"),
    include_str!("migrations/0015_sign_ins.sql"),
    include_str!("migrations/0016_changes.sql"),
    include_str!("migrations/0017_groups.sql"),
    include_str!("migrations/0018_factors.sql"),
    include_str!("migrations/0019_broker.sql"),
    include_str!("migrations/0020_lockouts.sql"),
    include_str!("migrations/0021_password_resets.sql"),
    include_str!("migrations/0022_logins.sql"),
    include_str!("migrations/0023_long_values.sql"),
    include_str!("migrations/0024_entity_revision.sql"),
    include_str!("migrations/0025_broker_families.sql"),
    include_str!("migrations/0026_retired_names.sql"),
    include_str!("migrations/0027_oauth2.sql"),
    include_str!("migrations/0028_acme.sql"),
    include_str!("migrations/0029_undos.sql"),
    include_str!("migrations/0030_nodes.sql"),
    include_str!("migrations/0031_consumer_groups.sql"),
];

/// How many there are.
#[expect(clippy::cast_possible_truncation, reason = "they are few")]
pub(super) const CURRENT: u32 = MIGRATIONS.len() as u32;

/// Makes the missing migrations; `PRAGMA user_version` counts those made.
pub(super) async fn sqlite(writer: &SqlitePool) -> Result<(), StoreError> {
    sqlite_to(writer, MIGRATIONS).await
}

async fn sqlite_to(writer: &SqlitePool, migrations: &[&str]) -> Result<(), StoreError> {
    let mut tx = Lease::of(writer).await.map_err(unavailable)?;
    let begun = tx.begin("BEGIN IMMEDIATE".into_sql_str()).await;
    begun.map_err(unavailable)?;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *tx)
        .await
        .map_err(unavailable)?;
    let missing = missing(migrations, version)?;
    if missing.is_empty() {
        return Ok(());
    }
    for migration in missing {
        let text = translated(migration, Dialect::Sqlite);
        let made = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *tx).await;
        made.map_err(unavailable)?;
    }
    // A PRAGMA takes no bound value; this is a number of ours.
    let count = format!("PRAGMA user_version = {}", migrations.len());
    let noted = sqlx::raw_sql(AssertSqlSafe(count)).execute(&mut *tx).await;
    noted.map_err(unavailable)?;
    tx.commit().await.map_err(unavailable)
}

/// Whether exactly this version's migrations were made.
pub(super) async fn is_sqlite_current(readers: &SqlitePool) -> Result<bool, StoreError> {
    let version = sqlx::query_scalar("PRAGMA user_version");
    let version: i64 = version.fetch_one(readers).await.map_err(unavailable)?;
    Ok(is_current(version))
}

/// Makes the missing migrations; the table `doorward_schema` counts those made.
/// Of several nodes that start at once, one does it and the others wait.
pub(super) async fn postgres(writer: &PgPool) -> Result<(), StoreError> {
    postgres_to(writer, MIGRATIONS).await
}

async fn postgres_to(writer: &PgPool, migrations: &[&str]) -> Result<(), StoreError> {
    let mut tx = Lease::of(writer).await.map_err(unavailable)?;
    let begun = tx.begin(server::BEGIN_MIGRATION.into_sql_str()).await;
    begun.map_err(unavailable)?;
    let version = postgres_version(&mut tx).await?;
    let missing = missing(migrations, version.unwrap_or(0))?;
    if missing.is_empty() {
        return Ok(());
    }
    let note = match version {
        None => {
            "CREATE TABLE doorward_schema (version BIGINT NOT NULL);
                 INSERT INTO doorward_schema (version) VALUES (0);"
        }
        Some(_) => "",
    };
    let mut text = note.to_owned();
    for migration in missing {
        text.push_str(&translated(migration, Dialect::Postgres));
    }
    let made = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *tx).await;
    made.map_err(unavailable)?;
    let count = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let noted = sqlx::query("UPDATE doorward_schema SET version = $1").bind(count);
    noted.execute(&mut *tx).await.map_err(unavailable)?;
    tx.commit().await.map_err(unavailable)
}

/// How many migrations were made; `None`: this is no database of ours.
pub(super) async fn postgres_version(
    connection: &mut PgConnection,
) -> Result<Option<i64>, StoreError> {
    let known = sqlx::query_scalar("SELECT to_regclass('doorward_schema') IS NOT NULL");
    let known: bool = known
        .fetch_one(&mut *connection)
        .await
        .map_err(unavailable)?;
    if !known {
        return Ok(None);
    }
    let version = sqlx::query_scalar("SELECT version FROM doorward_schema");
    let version = version.fetch_one(connection).await;
    version.map(Some).map_err(unavailable)
}

/// Whether exactly this version's migrations were made.
pub(super) fn is_current(version: i64) -> bool {
    usize::try_from(version) == Ok(MIGRATIONS.len())
}

/// The migrations that a database lacks in which so many were made.
fn missing<'a>(migrations: &'a [&'a str], made: i64) -> Result<&'a [&'a str], StoreError> {
    let missing = usize::try_from(made)
        .ok()
        .and_then(|made| migrations.get(made..));
    missing.ok_or_else(|| {
        StoreError::Unavailable(
            "the database was written by a newer version".to_owned(),
            None,
        )
    })
}

/// The migration in the words of a database.
fn translated(migration: &str, dialect: Dialect) -> String {
    let mut text = String::with_capacity(migration.len());
    let mut applies = true;
    for line in migration.lines() {
        match line.trim() {
            "-- @both" => applies = true,
            "-- @sqlite" => applies = dialect == Dialect::Sqlite,
            "-- @postgres" => applies = dialect == Dialect::Postgres,
            comment if !applies || comment.starts_with("--") => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    match dialect {
        Dialect::Sqlite => text,
        Dialect::Postgres => postgres_types(&text),
    }
}

/// SQLite's types as PostgreSQL's. Texts are compared byte by byte, as SQLite
/// does it: order, ranges and what is equal are the same.
fn postgres_types(text: &str) -> String {
    let mut typed = text.to_owned();
    for (sqlite, postgres) in [
        (" STRICT, WITHOUT ROWID", ""),
        (" STRICT", ""),
        (
            " INTEGER PRIMARY KEY",
            " BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        ),
        (" INTEGER", " BIGINT"),
        (" BLOB", " BYTEA"),
        (" TEXT", " TEXT COLLATE \"C\""),
    ] {
        typed = typed.replace(sqlite, postgres);
    }
    typed
}

#[cfg(test)]
mod tests;
