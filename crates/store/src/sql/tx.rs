//! Transactions on either database.

use std::io::Error;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr, SqlStr, Sqlite};

use super::bind::{Value, query};
use super::dialect::Dialect;
use super::health::{Health, is_database_fault, is_timeout};
use super::lease::{Driver, Lease};
use super::location::FileLocation;
use super::postgres::{self, Server};
use super::row::Row;
use super::sqlite::{self, File};
use super::{audit, operation, unavailable};
use crate::StoreError;
use doorward_core::calls::Note;
use doorward_core::model::audit::{AuditRecord, PendingAudit};

/// Longest statement of a transaction that reads or writes everything.
const LONG: Duration = Duration::from_secs(3600);

/// A transaction. Unless it is committed, nothing of it remains.
///
/// After a statement that failed it is over: the database may have ended it by
/// itself, and what came then would be a transaction of its own.
#[derive(Debug)]
pub(super) struct Tx {
    link: Link,
    health: Arc<Health>,
    /// Longest statement.
    limit: Duration,
    over: Option<EndReason>,
    /// Whether a row was written. A commit of none proves nothing of the disk.
    wrote: bool,
    /// Whether a statement is under way.
    busy: bool,
    /// The operation that it is, where somebody traces.
    note: Note,
    /// The record of the act that it is for.
    audit: Option<PendingAudit>,
}

#[derive(Debug)]
enum Link {
    Sqlite {
        lease: Lease<Sqlite>,
        /// The writer's connection, for one on another.
        turn: Option<Lease<Sqlite>>,
        place: Arc<FileLocation>,
    },
    Postgres(Lease<Postgres>),
}

/// Why a transaction is over.
#[derive(Clone, Copy, Debug)]
enum EndReason {
    /// For what was asked.
    Refused,
    /// For the database.
    DatabaseFault,
}

impl Tx {
    pub(super) fn sqlite(file: &File, lease: Lease<Sqlite>) -> Self {
        let link = Link::Sqlite {
            lease,
            turn: None,
            place: file.place().clone(),
        };
        Self::on(link, file.health(), sqlite::ANSWER)
    }

    /// On the connection for very many rows, with the turn of the writer's.
    pub(super) fn bulk(file: &File, lease: Lease<Sqlite>, turn: Lease<Sqlite>) -> Self {
        let link = Link::Sqlite {
            lease,
            turn: Some(turn),
            place: file.place().clone(),
        };
        Self::on(link, file.health(), LONG)
    }

    pub(super) fn postgres(server: &Server, lease: Lease<Postgres>) -> Self {
        Self::on(Link::Postgres(lease), server.health(), postgres::ANSWER)
    }

    fn on(link: Link, health: &Arc<Health>, limit: Duration) -> Self {
        Self {
            link,
            health: health.clone(),
            limit,
            over: None,
            wrote: false,
            busy: false,
            note: Note::default(),
            audit: None,
        }
    }

    /// As this operation.
    pub(super) fn with_note(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    /// For the act of this record, which goes into the audit log with it.
    pub(super) fn with_audit(mut self, audit: Option<&PendingAudit>) -> Self {
        self.audit = audit.cloned();
        self
    }

    /// Completes the record of the act, if there is one.
    pub(super) fn complete(&self, change: impl FnOnce(&mut AuditRecord)) {
        if let Some(pending) = &self.audit {
            pending.complete(change);
        }
    }

    /// Unless `done`, the act was not done after all, whatever is written: its record
    /// is not kept.
    pub(super) fn void_unless(&self, done: bool) {
        if let Some(pending) = &self.audit {
            pending.void_unless(done);
        }
    }

    /// With more time for each statement.
    pub(super) fn with_more(mut self, time: Duration) -> Self {
        self.limit += time;
        self
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self.link {
            Link::Sqlite { .. } => Dialect::Sqlite,
            Link::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Whether the database, and not what it was asked, ended the transaction.
    pub(super) fn is_database_fault(&self) -> bool {
        matches!(self.over, Some(EndReason::DatabaseFault))
    }

    /// Lets the transaction take its time: it reads or writes everything.
    pub(super) async fn without_limits(&mut self) -> Result<(), StoreError> {
        if self.dialect() == Dialect::Postgres {
            let text = "SET LOCAL statement_timeout = 0;
                        SET LOCAL idle_in_transaction_session_timeout = 0";
            self.tell(text.into_sql_str()).await?;
        }
        self.limit = LONG;
        Ok(())
    }

    /// Makes room for very many rows: the connection keeps more pages, and
    /// moves them from the log to the file less often, from now on.
    pub(super) async fn expect_many(&mut self) -> Result<(), StoreError> {
        if !matches!(self.link, Link::Sqlite { turn: None, .. }) {
            return Ok(());
        }
        // KiB of pages; pages of the log.
        let text = "PRAGMA cache_size = -131072; PRAGMA wal_autocheckpoint = 65536";
        self.tell(text.into_sql_str()).await
    }

    /// Lets the numbers of new rows begin behind those that are there.
    pub(super) async fn number_on(&mut self, table: &'static str) -> Result<(), StoreError> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let text = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', 'id'),
                           (SELECT coalesce(max(id), 1) FROM {table}))"
        );
        self.tell(AssertSqlSafe(text).into_sql_str()).await
    }

    /// Makes what was written durable.
    ///
    /// The record of the act that the transaction is for goes with it.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        let committed = self.try_commit().await;
        if self.wrote || committed.is_err() {
            self.health.note_write(&committed);
        }
        let mut note = std::mem::take(&mut self.note);
        operation::settle(&mut note, &committed);
        committed
    }

    async fn try_commit(&mut self) -> Result<(), StoreError> {
        let pending = self.audit.take().filter(PendingAudit::is_pending);
        if let Some(pending) = &pending {
            audit::append(self, &pending.record()).await?;
        }
        self.begin_statement().map_err(unavailable)?;
        let health = &self.health;
        let done = match &mut self.link {
            Link::Sqlite { lease, .. } => health.within(self.limit, lease.commit()).await,
            Link::Postgres(lease) => health.within(self.limit, lease.commit()).await,
        };
        self.note_outcome(done).map_err(unavailable)?;
        // What is on disk is of no use where nobody will find it.
        if let Link::Sqlite { place, .. } = &self.link {
            place.check()?;
        }
        if let Some(pending) = pending {
            pending.mark_committed();
        }
        Ok(())
    }

    pub(super) async fn run(&mut self, text: SqlStr, values: &[Value]) -> Result<u64, sqlx::Error> {
        self.begin_statement()?;
        let link = &mut self.link;
        let done = async {
            match link {
                Link::Sqlite { lease, .. } => {
                    let done = query::<Sqlite>(text, values).execute(&mut **lease);
                    Ok(done.await?.rows_affected())
                }
                Link::Postgres(lease) => {
                    let done = query::<Postgres>(text, values).execute(&mut **lease);
                    Ok(done.await?.rows_affected())
                }
            }
        };
        let done = self.health.within(self.limit, done).await;
        if let Err(error) = &done
            && is_database_fault(error)
        {
            self.health.note_failure(&error.to_string());
        }
        self.wrote |= matches!(done, Ok(1..));
        self.note_outcome(done)
    }

    pub(super) async fn one(
        &mut self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Option<Row>, sqlx::Error> {
        self.begin_statement()?;
        let returns_written = is_write(&text);
        let link = &mut self.link;
        let row = async {
            match link {
                Link::Sqlite { lease, .. } => {
                    let row = query::<Sqlite>(text, values).fetch_optional(&mut **lease);
                    Ok(row.await?.map(Row::Sqlite))
                }
                Link::Postgres(lease) => {
                    let values = &postgres::replace_nul(values);
                    let row = query::<Postgres>(text, values).fetch_optional(&mut **lease);
                    Ok(row.await?.map(Row::Postgres))
                }
            }
        };
        let row = self.health.within(self.limit, row).await;
        self.wrote |= returns_written && matches!(row, Ok(Some(_)));
        self.note_outcome(row)
    }

    pub(super) async fn all(
        &mut self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Vec<Row>, sqlx::Error> {
        self.begin_statement()?;
        let return_written = is_write(&text);
        let link = &mut self.link;
        let rows = async {
            match link {
                Link::Sqlite { lease, .. } => {
                    let rows = query::<Sqlite>(text, values).fetch_all(&mut **lease);
                    Ok(rows.await?.into_iter().map(Row::Sqlite).collect::<Vec<_>>())
                }
                Link::Postgres(lease) => {
                    let values = &postgres::replace_nul(values);
                    let rows = query::<Postgres>(text, values).fetch_all(&mut **lease);
                    Ok(rows.await?.into_iter().map(Row::Postgres).collect())
                }
            }
        };
        let rows = self.health.within(self.limit, rows).await;
        self.wrote |= return_written && rows.as_ref().is_ok_and(|rows| !rows.is_empty());
        self.note_outcome(rows)
    }

    /// Statements of the program's own, with nothing bound.
    async fn tell(&mut self, text: SqlStr) -> Result<(), StoreError> {
        self.begin_statement().map_err(unavailable)?;
        let done = match &mut self.link {
            Link::Sqlite { lease, .. } => Sqlite::tell(lease, text),
            Link::Postgres(lease) => Postgres::tell(lease, text),
        };
        let done = self.health.within(self.limit, done).await;
        self.note_outcome(done).map_err(unavailable)
    }

    fn begin_statement(&mut self) -> Result<(), sqlx::Error> {
        if self.over.is_some() {
            return Err(sqlx::Error::Io(Error::other("the transaction is over")));
        }
        self.busy = true;
        Ok(())
    }

    /// The outcome of a statement, which may be the last one.
    fn note_outcome<T>(&mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.busy = false;
        if let Err(error) = &outcome {
            self.over = Some(if is_database_fault(error) {
                EndReason::DatabaseFault
            } else {
                EndReason::Refused
            });
            if is_timeout(error) {
                match &mut self.link {
                    Link::Sqlite { lease, .. } => lease.give_up(),
                    Link::Postgres(lease) => lease.give_up(),
                }
            }
        }
        outcome
    }
}

impl Drop for Tx {
    /// One that is left for what it has read, or taken back for it, has not failed.
    fn drop(&mut self) {
        if self.over.is_none() && !self.busy {
            operation::settle(&mut self.note, &Ok::<_, StoreError>(()));
        }
    }
}

/// Whether the rows of a statement are those that it wrote (`RETURNING`).
fn is_write(text: &SqlStr) -> bool {
    !text.as_str().trim_start().starts_with("SELECT")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::sql::database::Database;
    use crate::sql::sql;

    async fn store(directory: &tempfile::TempDir) -> Store {
        let store = Store::open_sqlite(&directory.path().join("db")).await;
        store.expect("a store")
    }

    /// SQLite's writer, with no more room than there is.
    async fn fill_up(database: &Database) {
        let Database::Sqlite(file) = database else {
            panic!("another database");
        };
        let pages = sqlx::query_scalar::<_, i64>("PRAGMA page_count");
        let pages = pages.fetch_one(&file.writer).await.expect("a number");
        let limit = AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
        let limited = sqlx::raw_sql(limit).execute(&file.writer).await;
        limited.expect("limited");
    }

    async fn insert(tx: &mut Tx, path: &str) -> Result<u64, StoreError> {
        let insert = sql("INSERT INTO realms (path, owner, settings) VALUES ($1, 'store', $2)");
        let long = format!("{{\"x\":\"{}\"}}", "x".repeat(1 << 20));
        insert.bind(path).bind(long).run(tx).await
    }

    #[tokio::test]
    async fn a_transaction_that_ended_by_itself_leaves_no_connection_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory).await;
        let database = &store.database;
        for round in 0..3 {
            fill_up(database).await;
            let mut tx = database.begin().await.expect("begun");
            let small = sql("INSERT INTO realms (path, owner) VALUES ($1, 'store')");
            let small = small.bind(format!("/lost{round}")).run(&mut tx);
            small.await.expect("there is room");
            assert!(insert(&mut tx, "/full").await.is_err());
            assert!(tx.is_database_fault());
            // It would be written at once, alone.
            assert!(insert(&mut tx, "/alone").await.is_err());
            assert!(tx.commit().await.is_err());
            assert!(store.failing_writes().is_some());
            store.sweep(0, 10).await.expect("there is nothing to write");
            assert!(store.failing_writes().is_some(), "nothing was written");
            let mut tx = database.begin().await.expect("begun anew");
            let path = format!("/kept{round}");
            insert(&mut tx, &path).await.expect("there is room");
            tx.commit().await.expect("committed");
            assert!(store.failing_writes().is_none());
        }
        let realms = store.realms().await.expect("realms");
        let mut paths: Vec<_> = realms.iter().map(|realm| realm.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/", "/kept0", "/kept1", "/kept2"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_statement_that_hangs_is_given_up_and_the_next_write_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store(&directory).await;
        let (go_on, hangs) = std::sync::mpsc::channel::<()>();
        let mut tx = store.database.begin().await.expect("begun");
        tx.limit = Duration::from_millis(20);
        let Link::Sqlite { lease, .. } = &mut tx.link else {
            panic!("another database");
        };
        let mut handle = lease.lock_handle().await.expect("the handle");
        // As a disk that hangs: until it is let go.
        handle.set_progress_handler(1, move || hangs.recv().is_ok());
        drop(handle);
        let hung = insert(&mut tx, "/hung").await;
        assert!(matches!(hung, Err(StoreError::Unavailable(..))), "{hung:?}");
        assert!(tx.is_database_fault());
        drop(tx);
        // Nobody waits in vain from there on.
        let refused = store.database.begin().await.map(drop);
        assert!(
            matches!(refused, Err(StoreError::Unavailable(..))),
            "{refused:?}"
        );
        // Its thread ends, and the transaction with it.
        drop(go_on);
        let begun = async {
            loop {
                if let Ok(tx) = store.database.begin().await {
                    return tx;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut tx = tokio::time::timeout(Duration::from_secs(60), begun)
            .await
            .expect("it is tried again");
        insert(&mut tx, "/next").await.expect("written");
        tx.commit().await.expect("committed");
    }
}
