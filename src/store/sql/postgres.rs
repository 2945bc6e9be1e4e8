//! Opening a PostgreSQL database.
//!
//! As SQLite does it, writers follow one another: each transaction that writes
//! takes one advisory lock first ([`BEGIN`]), also those of other nodes. Limits of time keep a node that is stuck from stopping the others.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

use super::{Database, SqlStore, migrate, unavailable};
use crate::store::StoreError;

/// Begins a transaction that writes. One message: the lock costs no way to the
/// server of its own. Its number is `doorward` in ASCII; each statement after it
/// sees all that writers before it left (READ COMMITTED).
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SELECT pg_advisory_xact_lock(x'646f6f7277617264'::bigint)";

/// Connections that only read.
const READERS: u32 = 8;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// What every connection is told. Statements wait for locks no longer than 5 s,
/// and a transaction of a node that does not go on ends after 10 s. What is
/// answered is on disk, whatever the server's default (one that asks for more,
/// `remote_apply`, stays).
const SESSION: &str = "
    SET lock_timeout = '5s';
    SET statement_timeout = '30s';
    SET idle_in_transaction_session_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
";

impl SqlStore {
    /// Opens the database at `url`, migrating it as needed.
    ///
    /// # Errors
    /// [`StoreError::Address`] when the address can't be read;
    /// [`StoreError::Unavailable`] when the server does not answer, refuses, or
    /// the database was written by a newer version.
    pub async fn open_postgres(url: &str) -> Result<Self, StoreError> {
        let database = connect(url).await?;
        if let Database::Postgres { writer, .. } = &database {
            migrate::postgres(writer).await?;
        }
        Ok(Self::on(database))
    }

    /// Opens the database at `url` without changing it; `None`: there is no
    /// store in it yet.
    ///
    /// # Errors
    /// As [`SqlStore::open_postgres`]; also when another version wrote it.
    pub async fn open_existing_postgres(url: &str) -> Result<Option<Self>, StoreError> {
        let database = connect(url).await?;
        if let Database::Postgres { readers, .. } = &database {
            let mut connection = readers.acquire().await.map_err(unavailable)?;
            match migrate::postgres_version(&mut connection).await? {
                None => return Ok(None),
                Some(version) if migrate::is_current(version) => {}
                Some(_) => {
                    let reason = "the database was written by another version";
                    return Err(StoreError::Unavailable(reason.to_owned()));
                }
            }
        }
        Ok(Some(Self::on(database)))
    }
}

async fn connect(url: &str) -> Result<Database, StoreError> {
    let options = PgConnectOptions::from_str(url);
    // The error says what is wrong and holds nothing of the address.
    let options = options.map_err(|error| StoreError::Address(format!("postgres:…: {error}")))?;
    let options = options.application_name("doorward");
    let writer = pool(1, options.clone()).await?;
    let readers = pool(READERS, options).await?;
    Ok(Database::Postgres { writer, readers })
}

async fn pool(connections: u32, options: PgConnectOptions) -> Result<PgPool, StoreError> {
    PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(CONNECT)
        .after_connect(|connection: &mut PgConnection, _| {
            Box::pin(async move {
                sqlx::raw_sql(SESSION).execute(connection).await?;
                Ok(())
            })
        })
        .connect_with(options)
        .await
        .map_err(unavailable)
}
