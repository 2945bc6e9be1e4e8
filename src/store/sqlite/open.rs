//! Opening and migrating the database file.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, SqlitePool};

use super::batch::Batch;
use super::{SqliteStore, unavailable};
use crate::store::StoreError;

/// The changes that lead from an empty database to this version's, in order.
/// `PRAGMA user_version` counts those that were made.
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
];

/// Connections that only read.
const READERS: u32 = 4;

/// How long a statement waits for another process's write.
const BUSY: Duration = Duration::from_secs(5);

impl SqliteStore {
    /// Opens the file at `path`, creating and migrating it as needed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file can't be opened, is no
    /// database, or was written by a newer version.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        create_private(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        // One connection for its whole life: `PRAGMA data_version` compares
        // what this very connection has seen.
        let writer = pool(1).connect_with(options.clone()).await;
        let writer = writer.map_err(|error| cannot_open(path, &error.to_string()))?;
        migrate(&writer).await?;
        let readers = pool(READERS).connect_with(options.read_only(true)).await;
        let readers = readers.map_err(unavailable)?;
        Ok(Self {
            batch: Batch::start(writer.clone()),
            writer,
            readers,
            changes: AtomicU64::new(0),
            registered: AtomicU64::new(0),
        })
    }

    /// Opens the file at `path` for reading only.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file can't be opened, is no
    /// database, or was written by another version.
    pub async fn open_existing(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(BUSY);
        let readers = pool(READERS).connect_with(options).await;
        let readers = readers.map_err(|error| cannot_open(path, &error.to_string()))?;
        let version: i64 = sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(&readers)
            .await
            .map_err(unavailable)?;
        if usize::try_from(version) != Ok(MIGRATIONS.len()) {
            let reason = "it was written by another version";
            return Err(cannot_open(path, reason));
        }
        let writer = readers.clone();
        Ok(Self {
            batch: Batch::start(writer.clone()),
            writer,
            readers,
            changes: AtomicU64::new(0),
            registered: AtomicU64::new(0),
        })
    }
}

fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(BUSY * 2)
}

fn cannot_open(path: &Path, reason: &str) -> StoreError {
    StoreError::Unavailable(format!("can't open {}: {reason}", path.display()))
}

/// Makes the directory (0700) and the file (0600) if they are missing. SQLite
/// gives its side files the mode of the main file.
fn create_private(path: &Path) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| cannot_open(path, &error.to_string());
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(failed).map(drop)
}

/// Makes the missing migrations, all or none, one process at a time.
async fn migrate(writer: &SqlitePool) -> Result<(), StoreError> {
    let mut tx = writer
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(unavailable)?;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *tx)
        .await
        .map_err(unavailable)?;
    let done = usize::try_from(version)
        .ok()
        .filter(|done| *done <= MIGRATIONS.len());
    let done = done.ok_or_else(|| {
        StoreError::Unavailable("the database was written by a newer version".to_owned())
    })?;
    for migration in &MIGRATIONS[done..] {
        sqlx::raw_sql(*migration)
            .execute(&mut *tx)
            .await
            .map_err(unavailable)?;
    }
    if done < MIGRATIONS.len() {
        // A PRAGMA takes no bound value; this is a number of ours.
        let sql = format!("PRAGMA user_version = {}", MIGRATIONS.len());
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut *tx)
            .await
            .map_err(unavailable)?;
    }
    tx.commit().await.map_err(unavailable)
}
