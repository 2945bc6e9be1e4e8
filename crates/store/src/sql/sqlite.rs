//! Opening the database file.
//!
//! WAL with `synchronous=FULL`: what was acknowledged survives `kill -9` and
//! power cuts. All writes go through one connection and begin with
//! `BEGIN IMMEDIATE`, those of very many rows through another one in its place;
//! reads go through a few connections that cannot write.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, SqlSafeStr, SqlStr, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::watch;

use super::bind::{Value, query};
use super::health::{Health, is_timeout};
use super::lease::{LIST_WAIT, LISTS, Lease};
use super::location::{FileLocation, LocationError};
use super::server_lock::ServerLock;
use super::{Database, Store, migrate, unavailable};
use crate::{Cause, StoreError};

/// Connections that only read, other than lists.
const READERS: u32 = 4;

/// How long a statement waits for another process's write.
const BUSY: Duration = Duration::from_secs(5);

/// Between two tries to open what another process is opening.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// How long a statement may take; one that waits for another process's write
/// ends by itself before. A disk that hangs is nothing to wait for.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// How long the connection for very many rows stays after its last use.
const BULK_IDLE: Duration = Duration::from_secs(30);

/// The connections to one file.
#[derive(Debug)]
pub(super) struct File {
    /// One connection: SQLite has one writer at a time.
    pub(super) writer: SqlitePool,
    pub(super) readers: SqlitePool,
    /// One connection for very many rows, which checks no foreign keys. It is
    /// there while it is needed; who uses it has the writer, too.
    bulk: SqlitePool,
    /// Those that read lists, and nothing else.
    lists: SqlitePool,
    /// How many connections the writer has had: each counts changes anew.
    writers: Arc<AtomicU32>,
    place: Arc<FileLocation>,
    health: Arc<Health>,
    /// It does nothing but stay: with the last connection SQLite takes the files
    /// beside the database away.
    _anchor: Mutex<SqliteConnection>,
}

impl Store {
    /// Opens the file at `path`, creating and migrating it as needed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file can't be opened, is no
    /// database, or was written by a newer version.
    pub async fn open_sqlite(path: &Path) -> Result<Self, StoreError> {
        create_private(path)?;
        let place = Arc::new(FileLocation::new(path));
        let writers = Arc::<AtomicU32>::default();
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        let writer = writer(&place, &writers, &options).await;
        let writer = writer.map_err(|error| failed_to_open(path, error))?;
        migrate::sqlite(&writer).await?;
        let bulk = bulk(&place, options.clone());
        let options = options.read_only(true);
        let anchor = anchor(&options).await.map_err(unavailable)?;
        place.settle();
        let lists = lists(&place).connect_lazy_with(options.clone());
        let readers = pool(READERS, &place, || {}).connect_with(options).await;
        let file = File {
            writer,
            readers: readers.map_err(unavailable)?,
            bulk,
            lists,
            writers,
            place,
            health: Arc::default(),
            _anchor: anchor,
        };
        Ok(Self::on(
            Database::Sqlite(Arc::new(file)),
            watch::Sender::new(()),
        ))
    }

    /// As [`Store::open_sqlite`], for the server: there is one for a file.
    ///
    /// # Errors
    /// As [`Store::open_sqlite`]; also when another server has the file.
    pub async fn serve_sqlite(path: &Path) -> Result<Self, StoreError> {
        create_private(path)?;
        let lock = ServerLock::take(path)?;
        let mut store = Self::open_sqlite(path).await?;
        store.lock = Some(lock);
        Ok(store)
    }

    /// As [`Store::serve_sqlite`], beside the server that has the file: `lock` is its
    /// lock.
    ///
    /// # Errors
    /// As [`Store::serve_sqlite`].
    pub async fn succeed_sqlite(path: &Path, lock: std::fs::File) -> Result<Self, StoreError> {
        let lock = ServerLock::share(path, lock)?;
        let mut store = Self::open_sqlite(path).await?;
        store.lock = Some(lock);
        Ok(store)
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
        let place = Arc::new(FileLocation::new(path));
        let lists = lists(&place).connect_lazy_with(options.clone());
        let readers = pool(READERS, &place, || {});
        let readers = readers.connect_with(options.clone()).await;
        let readers = readers.map_err(|error| failed_to_open(path, error))?;
        if !migrate::is_sqlite_current(&readers).await? {
            return Err(cannot_open(path, "it was written by another version"));
        }
        let file = File {
            writer: readers.clone(),
            bulk: readers.clone(),
            readers,
            lists,
            writers: Arc::default(),
            place,
            health: Arc::default(),
            _anchor: anchor(&options).await.map_err(unavailable)?,
        };
        Ok(Self::on(
            Database::Sqlite(Arc::new(file)),
            watch::Sender::new(()),
        ))
    }
}

impl File {
    /// Begins a transaction that writes: no other one writes meanwhile.
    pub(super) async fn begin(&self) -> Result<Lease<Sqlite>, StoreError> {
        self.place.check()?;
        let begun = self.begun(&self.writer, "BEGIN IMMEDIATE").await;
        begun.map_err(unavailable)
    }

    /// As [`File::begin`], on the connection for very many rows, with the
    /// writer's, which holds the other writes of this process up.
    pub(super) async fn begin_many(&self) -> Result<(Lease<Sqlite>, Lease<Sqlite>), StoreError> {
        self.place.check()?;
        let turn = Lease::of(&self.writer).await.map_err(unavailable)?;
        let begun = self.begun(&self.bulk, "BEGIN IMMEDIATE").await;
        Ok((begun.map_err(unavailable)?, turn))
    }

    /// Begins a transaction that reads what there is at one moment.
    pub(super) async fn snapshot(&self) -> Result<Lease<Sqlite>, StoreError> {
        self.place.was_there()?;
        self.begun(&self.readers, "BEGIN")
            .await
            .map_err(unavailable)
    }

    /// As [`File::snapshot`], for a list.
    pub(super) async fn listing(&self) -> Result<Lease<Sqlite>, sqlx::Error> {
        let gone = |gone: LocationError| sqlx::Error::Io(std::io::Error::other(gone));
        self.place.was_there().map_err(gone)?;
        self.begun(&self.lists, "BEGIN").await
    }

    /// Reads.
    pub(super) async fn read(
        &self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Vec<SqliteRow>, StoreError> {
        self.place.was_there()?;
        let read = self.read_from(&self.readers, text, values).await;
        read.map_err(unavailable)
    }

    /// A number that changes when another process has changed something.
    pub(super) async fn version(&self) -> Result<i64, StoreError> {
        self.place.check()?;
        let text = "PRAGMA data_version".into_sql_str();
        let rows = self.read_from(&self.writer, text, &[]).await;
        let row = rows.map_err(unavailable)?.pop().map(super::Row::Sqlite);
        let version = row.map_or(Ok(0), |row| row.int("data_version"))?;
        // What one connection counts says nothing about what another one does.
        let writers = i64::from(self.writers.load(Ordering::Acquire));
        Ok((writers << 32) | (version & 0xffff_ffff))
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    pub(super) fn place(&self) -> &Arc<FileLocation> {
        &self.place
    }

    async fn begun(
        &self,
        pool: &SqlitePool,
        text: &'static str,
    ) -> Result<Lease<Sqlite>, sqlx::Error> {
        let mut lease = Lease::of(pool).await?;
        let begun = lease.begin(text.into_sql_str());
        if let Err(error) = self.health.within(ANSWER, begun).await {
            if is_timeout(&error) {
                lease.give_up();
            }
            return Err(error);
        }
        Ok(lease)
    }

    async fn read_from(
        &self,
        pool: &SqlitePool,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let mut lease = Lease::of(pool).await?;
        let rows = query::<Sqlite>(text, values).fetch_all(&mut *lease);
        let rows = self.health.within(ANSWER, rows).await;
        if rows.as_ref().is_err_and(is_timeout) {
            lease.give_up();
        }
        rows
    }
}

impl From<LocationError> for StoreError {
    fn from(gone: LocationError) -> Self {
        Self::unavailable(gone)
    }
}

/// A connection that stays open, with the files beside the database.
async fn anchor(options: &SqliteConnectOptions) -> Result<Mutex<SqliteConnection>, sqlx::Error> {
    let mut anchor = options.connect().await?;
    let touched = sqlx::query("SELECT 1 FROM realms").fetch_optional(&mut anchor);
    touched.await?;
    Ok(Mutex::new(anchor))
}

fn lists(place: &Arc<FileLocation>) -> SqlitePoolOptions {
    pool(LISTS, place, || {}).acquire_timeout(LIST_WAIT)
}

/// Connections to the file that is meant; `made` hears of each.
///
/// None is made ahead of its use: who makes one in vain would keep the others
/// from it for minutes.
fn pool(
    connections: u32,
    place: &Arc<FileLocation>,
    made: impl Fn() + Send + Sync + 'static,
) -> SqlitePoolOptions {
    let place = place.clone();
    SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(0)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(BUSY * 2)
        .after_connect(move |_, _| {
            let there = place.check();
            made();
            Box::pin(async move { there.map_err(|e| sqlx::Error::Io(std::io::Error::other(e))) })
        })
}

/// The connection that writes. There is one, as long as it is sound: `PRAGMA data_version`
/// compares what this very connection has seen.
///
/// Of two processes that make a database WAL at once SQLite refuses one without a wait,
/// so it is tried again for as long as a statement would wait.
async fn writer(
    place: &Arc<FileLocation>,
    writers: &Arc<AtomicU32>,
    options: &SqliteConnectOptions,
) -> Result<SqlitePool, sqlx::Error> {
    let began = Instant::now();
    loop {
        let counted = writers.clone();
        let pool = pool(1, place, move || {
            counted.fetch_add(1, Ordering::AcqRel);
        });
        match pool.connect_with(options.clone()).await {
            Err(error) if is_busy(&error) && began.elapsed() < BUSY => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// Whether another process has the database (SQLite's result code 5 and those that
/// extend it).
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<u32>().ok());
    code.is_some_and(|code| code & 0xff == 5)
}

/// The connection for very many rows: it keeps more pages, and moves them from
/// the log to the file less often. It ends when it was not used for a while, and
/// its memory with it.
fn bulk(place: &Arc<FileLocation>, options: SqliteConnectOptions) -> SqlitePool {
    let options = options
        .foreign_keys(false)
        // KiB of pages; pages of the log.
        .pragma("cache_size", "-131072")
        .pragma("wal_autocheckpoint", "65536");
    pool(1, place, || {})
        .idle_timeout(BULK_IDLE)
        .connect_lazy_with(options)
}

pub(super) fn cannot_open(path: &Path, reason: &str) -> StoreError {
    StoreError::Unavailable(format!("can't open {}: {reason}", path.display()), None)
}

/// As [`cannot_open`], for an error.
pub(super) fn failed_to_open(
    path: &Path,
    error: impl std::error::Error + Send + Sync + 'static,
) -> StoreError {
    let reason = format!("can't open {}: {error}", path.display());
    StoreError::Unavailable(reason, Some(Cause::new(error)))
}

/// Makes the directory (0700) and the file (0600) if they are missing. SQLite
/// gives its side files the mode of the main file.
fn create_private(path: &Path) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| failed_to_open(path, error);
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(failed).map(drop)
}
