//! Connections to either database, and transactions on them.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Encode, Postgres, SqlStr, Sqlite, SqlitePool, Transaction, Type};

use super::dialect::Dialect;
use super::postgres::{self, Server};
use super::row::Row;
use super::statement::Value;
use super::{audit, unavailable};
use crate::clock::monotonic_ns;
use crate::store::{Beside, StoreError};

/// The connections of a store.
#[derive(Clone, Debug)]
pub(super) enum Database {
    Sqlite {
        /// One connection: SQLite has one writer at a time.
        writer: SqlitePool,
        readers: SqlitePool,
        /// One connection for very many rows, which checks no foreign keys. It
        /// is there while it is needed; who uses it has the writer, too.
        bulk: SqlitePool,
        /// Those that read lists, and nothing else.
        lists: SqlitePool,
    },
    Postgres(Arc<Server>),
}

/// Connections that read lists. They have their own: a filter can have every
/// value of a million records read, and meanwhile sign-ins and tokens must find
/// what they look up.
pub(super) const LISTS: u32 = 4;

/// How long a list waits for one of them.
pub(super) const LIST_WAIT: Duration = Duration::from_secs(5);

/// How often SQLite asks whether to go on, in steps of its machine: about each
/// tenth of a millisecond.
const STEPS: i32 = 2000;

/// A transaction that reads a list. Who drops it has SQLite stop at once.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) tx: Tx,
    _asker: Option<Arc<()>>,
}

/// A transaction. Unless it is committed, nothing of it remains.
#[derive(Debug)]
pub(super) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    /// On the connection for very many rows, with the writer's, which holds the
    /// other writes of this process up.
    Bulk(
        Transaction<'static, Sqlite>,
        #[expect(dead_code, reason = "it is held, not used")] PoolConnection<Sqlite>,
    ),
    Postgres(Transaction<'static, Postgres>),
}

impl Database {
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite { .. } => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Begins a transaction that writes: no other one writes meanwhile.
    pub(super) async fn begin(&self) -> Result<Tx, StoreError> {
        match self {
            Self::Sqlite { writer, .. } => {
                let begun = writer.begin_with("BEGIN IMMEDIATE").await;
                begun.map(Tx::Sqlite).map_err(unavailable)
            }
            Self::Postgres(server) => server.begin().await.map(Tx::Postgres),
        }
    }

    /// As [`Database::begin`], for very many new rows. SQLite does not check that
    /// rows exist that others refer to, and nothing cascades: a check that may
    /// fail in the middle of a statement costs it a journal of its own.
    pub(super) async fn begin_many(&self) -> Result<Tx, StoreError> {
        let Self::Sqlite { writer, bulk, .. } = self else {
            return self.begin().await;
        };
        let turn = writer.acquire().await.map_err(unavailable)?;
        let begun = bulk.begin_with("BEGIN IMMEDIATE").await;
        Ok(Tx::Bulk(begun.map_err(unavailable)?, turn))
    }

    /// Begins a transaction that reads what there is at one moment.
    pub(super) async fn snapshot(&self) -> Result<Tx, StoreError> {
        match self {
            Self::Sqlite { readers, .. } => {
                let begun = readers.begin().await;
                begun.map(Tx::Sqlite).map_err(unavailable)
            }
            Self::Postgres(server) => server.snapshot().await.map(Tx::Postgres),
        }
    }

    /// Begins a transaction that reads a list of one moment. When it takes longer
    /// than `limit` (PostgreSQL: a statement of it) it fails with
    /// [`StoreError::TooLong`].
    pub(super) async fn listing(&self, limit: Duration) -> Result<Listing, StoreError> {
        let (tx, asker) = match self {
            Self::Sqlite { lists, .. } => {
                let mut tx = lists.begin().await.map_err(crowded)?;
                let asker = bound(&mut tx, limit).await.map_err(unavailable)?;
                (Tx::Sqlite(tx), Some(asker))
            }
            Self::Postgres(server) => {
                let begun = server.listing(limit).await.map_err(crowded)?;
                (Tx::Postgres(begun), None)
            }
        };
        let _asker = asker;
        Ok(Listing { tx, _asker })
    }

    /// A number that changes when another process has changed `subject`, one of
    /// those that `doorward_changed()` is called with. SQLite knows of changes,
    /// not of what.
    pub(super) async fn version(&self, subject: &'static str) -> Result<i64, StoreError> {
        match self {
            Self::Sqlite { writer, .. } => {
                let version = sqlx::query_scalar("PRAGMA data_version");
                version.fetch_one(writer).await.map_err(unavailable)
            }
            Self::Postgres(server) => server.version(subject).await,
        }
    }

    pub(super) async fn one(
        &self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Option<Row>, StoreError> {
        match self {
            Self::Sqlite { readers, .. } => {
                let row = query::<Sqlite>(text, values).fetch_optional(readers).await;
                row.map(|row| row.map(Row::Sqlite)).map_err(unavailable)
            }
            Self::Postgres(server) => {
                let rows = server.read(text, values).await?;
                Ok(rows.into_iter().next().map(Row::Postgres))
            }
        }
    }

    pub(super) async fn all(&self, text: SqlStr, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite { readers, .. } => {
                let rows = query::<Sqlite>(text, values).fetch_all(readers).await;
                let rows = rows.map_err(unavailable)?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(server) => {
                let rows = server.read(text, values).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }
}

fn crowded(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::PoolTimedOut => StoreError::Crowded,
        error => unavailable(error),
    }
}

/// Has SQLite stop what it does on this connection when `limit` is over, or who
/// asked is gone. Each list sets it anew; nothing else is read there.
async fn bound(
    tx: &mut Transaction<'static, Sqlite>,
    limit: Duration,
) -> Result<Arc<()>, sqlx::Error> {
    let asker = Arc::new(());
    let waits = Arc::downgrade(&asker);
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = monotonic_ns().saturating_add(limit_ns);
    let goes_on = move || waits.strong_count() > 0 && monotonic_ns() < until_ns;
    tx.lock_handle().await?.set_progress_handler(STEPS, goes_on);
    Ok(asker)
}

impl Tx {
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) | Self::Bulk(..) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Lets the transaction take its time: it reads or writes everything.
    pub(super) async fn without_limits(&mut self) -> Result<(), StoreError> {
        let Self::Postgres(tx) = self else {
            return Ok(());
        };
        let text = "SET LOCAL statement_timeout = 0;
                    SET LOCAL idle_in_transaction_session_timeout = 0";
        let done = sqlx::raw_sql(text).execute(&mut **tx).await;
        done.map(drop).map_err(unavailable)
    }

    /// Makes room for very many rows: the connection keeps more pages, and
    /// moves them from the log to the file less often, from now on.
    pub(super) async fn expect_many(&mut self) -> Result<(), StoreError> {
        let Self::Sqlite(tx) = self else {
            return Ok(());
        };
        // KiB of pages; pages of the log.
        let text = "PRAGMA cache_size = -131072; PRAGMA wal_autocheckpoint = 65536";
        let done = sqlx::raw_sql(text).execute(&mut **tx).await;
        done.map(drop).map_err(unavailable)
    }

    /// Lets the numbers of new rows begin behind those that are there.
    pub(super) async fn number_on(&mut self, table: &'static str) -> Result<(), StoreError> {
        let Self::Postgres(tx) = self else {
            return Ok(());
        };
        let text = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', 'id'),
                           (SELECT coalesce(max(id), 1) FROM {table}))"
        );
        let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut **tx).await;
        done.map(drop).map_err(unavailable)
    }

    /// Makes what was written durable.
    ///
    /// The record of the act that the transaction is for goes with it.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        let beside = Beside::waiting();
        if let Some(beside) = &beside {
            audit::append(&mut self, &beside.record()).await?;
        }
        match self {
            Self::Sqlite(tx) | Self::Bulk(tx, _) => tx.commit().await,
            Self::Postgres(tx) => tx.commit().await,
        }
        .map_err(unavailable)
    }

    pub(super) async fn run(&mut self, text: SqlStr, values: &[Value]) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(tx) | Self::Bulk(tx, _) => {
                let done = query::<Sqlite>(text, values).execute(&mut **tx).await?;
                Ok(done.rows_affected())
            }
            Self::Postgres(tx) => {
                let done = query::<Postgres>(text, values).execute(&mut **tx).await?;
                Ok(done.rows_affected())
            }
        }
    }

    pub(super) async fn one(
        &mut self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Option<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(tx) | Self::Bulk(tx, _) => {
                let row = query::<Sqlite>(text, values).fetch_optional(&mut **tx);
                Ok(row.await?.map(Row::Sqlite))
            }
            Self::Postgres(tx) => {
                let values = &postgres::sought(values);
                let row = query::<Postgres>(text, values).fetch_optional(&mut **tx);
                Ok(row.await?.map(Row::Postgres))
            }
        }
    }

    pub(super) async fn all(
        &mut self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(tx) | Self::Bulk(tx, _) => {
                let rows = query::<Sqlite>(text, values).fetch_all(&mut **tx).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(tx) => {
                let values = &postgres::sought(values);
                let rows = query::<Postgres>(text, values).fetch_all(&mut **tx).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }
}

/// The statement with its values, as the driver takes it.
pub(super) fn query<'q, DB>(text: SqlStr, values: &'q [Value]) -> Query<'q, DB, DB::Arguments>
where
    DB: sqlx::Database,
    Option<&'q str>: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    Option<&'q [u8]>: Encode<'q, DB> + Type<DB>,
{
    values
        .iter()
        .fold(sqlx::query(text), |query, value| match value {
            Value::Text(text) => query.bind(text.as_deref()),
            Value::Int(number) => query.bind(*number),
            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
        })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::query::{Filter, Op, Operand, UserQuery};
    use crate::model::user::schema;
    use crate::store::sql::{SqlStore, sql};
    use crate::store::{Store, testing};

    /// Takes minutes, on any database.
    const ENDLESS: &str = "WITH RECURSIVE n (i) AS (
            SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000)
         SELECT count(*) AS total FROM n";

    const AN_HOUR: Duration = Duration::from_secs(3600);

    async fn store(directory: &tempfile::TempDir) -> SqlStore {
        let url = testing::url(directory.path());
        let store = match url.strip_prefix("sqlite:") {
            Some(path) => SqlStore::open_sqlite(Path::new(path)).await,
            None => SqlStore::open_postgres(&url).await,
        };
        store.expect("a store")
    }

    #[tokio::test]
    async fn a_list_that_takes_too_long_is_given_up_and_the_next_one_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory).await;
        for _ in 0..2 * LISTS {
            let listing = store.database.listing(Duration::from_millis(5)).await;
            let mut listing = listing.expect("a connection");
            let given_up = sql(ENDLESS).one(&mut listing.tx).await;
            assert!(matches!(given_up, Err(StoreError::TooLong)));
        }
        for _ in 0..2 * LISTS {
            let listing = store.database.listing(AN_HOUR).await;
            let mut listing = listing.expect("a connection");
            let count = sql("SELECT count(*) AS total FROM users");
            let count = count.one(&mut listing.tx).await.expect("a number");
            assert!(count.is_some());
        }
    }

    #[tokio::test]
    async fn a_list_that_nobody_waits_for_any_more_is_given_up() {
        if testing::is_postgres() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory).await;
        for _ in 0..LISTS {
            let asked = async {
                let mut listing = store.database.listing(AN_HOUR).await?;
                sql(ENDLESS).one(&mut listing.tx).await
            };
            let gone = tokio::time::timeout(Duration::from_millis(20), asked).await;
            assert!(gone.is_err(), "it ended by itself");
        }
        let free = store.database.listing(AN_HOUR).await;
        assert!(free.is_ok(), "{:?}", free.err());
    }

    #[tokio::test]
    async fn denial_of_service_by_lists_leaves_connections_for_look_ups() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory).await;
        let mut held = Vec::new();
        for _ in 0..LISTS {
            held.push(store.database.listing(AN_HOUR).await.expect("a connection"));
        }
        let nobody = store.user_by_name("/", "nobody").await;
        assert!(nobody.expect("read").is_none());
        let emails = schema::find("emails.value").expect("an attribute");
        let query = UserQuery {
            filter: Filter::Compare(emails, Op::Equal, Operand::Text("a@x.example".to_owned())),
            sort: Vec::new(),
            after: None,
            skip: 0,
            limit: 2,
        };
        let page = store.users("/", &query).await.expect("read");
        assert_eq!(page.total, 0, "who signs in by address waits for no list");
    }
}
