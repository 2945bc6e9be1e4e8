//! Opening the database file.
//!
//! WAL with `synchronous=FULL`: what was acknowledged survives `kill -9` and
//! power cuts. All writes go through one connection and begin with
//! `BEGIN IMMEDIATE`, those of very many rows through another one in its place;
//! reads go through a few connections that cannot write.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::sync::watch;

use super::database::{LIST_WAIT, LISTS};
use super::{Database, SqlStore, migrate, unavailable};
use crate::store::StoreError;

/// Connections that only read, other than lists.
const READERS: u32 = 4;

/// How long a statement waits for another process's write.
const BUSY: Duration = Duration::from_secs(5);

/// How long the connection for very many rows stays after its last use.
const BULK_IDLE: Duration = Duration::from_secs(30);

impl SqlStore {
    /// Opens the file at `path`, creating and migrating it as needed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file can't be opened, is no
    /// database, or was written by a newer version.
    pub async fn open_sqlite(path: &Path) -> Result<Self, StoreError> {
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
        migrate::sqlite(&writer).await?;
        let bulk = bulk(options.clone());
        let options = options.read_only(true);
        let lists = lists().connect_lazy_with(options.clone());
        let readers = pool(READERS).connect_with(options).await;
        let readers = readers.map_err(unavailable)?;
        let database = Database::Sqlite {
            writer,
            readers,
            bulk,
            lists,
        };
        Ok(Self::on(database, watch::Sender::new(())))
    }

    /// Opens the file at `path` for reading only.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file can't be opened, is no
    /// database, or was written by another version.
    pub async fn open_existing_sqlite(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(BUSY);
        let lists = lists().connect_lazy_with(options.clone());
        let readers = pool(READERS).connect_with(options).await;
        let readers = readers.map_err(|error| cannot_open(path, &error.to_string()))?;
        if !migrate::is_sqlite_current(&readers).await? {
            return Err(cannot_open(path, "it was written by another version"));
        }
        let database = Database::Sqlite {
            writer: readers.clone(),
            bulk: readers.clone(),
            readers,
            lists,
        };
        Ok(Self::on(database, watch::Sender::new(())))
    }
}

fn lists() -> SqlitePoolOptions {
    pool(LISTS).min_connections(0).acquire_timeout(LIST_WAIT)
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

/// The connection for very many rows: it keeps more pages, and moves them from
/// the log to the file less often. It ends when it was not used for a while, and
/// its memory with it.
fn bulk(options: SqliteConnectOptions) -> SqlitePool {
    let options = options
        .foreign_keys(false)
        // KiB of pages; pages of the log.
        .pragma("cache_size", "-131072")
        .pragma("wal_autocheckpoint", "65536");
    pool(1)
        .min_connections(0)
        .idle_timeout(BULK_IDLE)
        .connect_lazy_with(options)
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
