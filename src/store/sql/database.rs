//! Connections to either database, and transactions on them.

use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Encode, Postgres, SqlStr, Sqlite, SqlitePool, Transaction, Type};

use super::dialect::Dialect;
use super::postgres::{self, Server};
use super::row::Row;
use super::statement::Value;
use super::{audit, unavailable};
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
    },
    Postgres(Arc<Server>),
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
