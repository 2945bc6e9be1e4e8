//! The connections to either database.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{SqlStr, Sqlite};

use super::bind::Value;
use super::dialect::Dialect;
use super::health::{Health, is_timeout};
use super::lease::Lease;
use super::postgres::Server;
use super::row::Row;
use super::sqlite::{self, File};
use super::statement::sql;
use super::tx::Tx;
use super::unavailable;
use crate::StoreError;
use doorward_core::clock::monotonic_ns;

/// The connections of a store.
#[derive(Clone, Debug)]
pub(super) enum Database {
    Sqlite(Arc<File>),
    Postgres(Arc<Server>),
}

/// How often SQLite asks whether to go on, in steps of its machine: about each
/// tenth of a millisecond.
const STEPS: i32 = 2000;

/// A transaction that reads a list. Who drops it has SQLite stop at once.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) tx: Tx,
    _asker: Option<Arc<()>>,
}

impl Database {
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Its name in traces.
    pub(super) fn system(&self) -> &'static str {
        self.dialect().system()
    }

    fn health(&self) -> &Arc<Health> {
        match self {
            Self::Sqlite(file) => file.health(),
            Self::Postgres(server) => server.health(),
        }
    }

    /// Begins a transaction that writes: no other one writes meanwhile.
    ///
    /// The drivers' futures are several KiB long. They lie on the heap, so that the
    /// futures of all methods above them stay short.
    pub(super) async fn begin(&self) -> Result<Tx, StoreError> {
        self.health().admit()?;
        let begun = match self {
            Self::Sqlite(file) => Box::pin(file.begin())
                .await
                .map(|lease| Tx::sqlite(file, lease)),
            Self::Postgres(server) => Box::pin(server.begin())
                .await
                .map(|lease| Tx::postgres(server, lease)),
        };
        if begun.is_err() {
            self.health().note_write(&begun);
        }
        begun
    }

    /// As [`Database::begin`], for very many new rows. SQLite does not check that
    /// rows exist that others refer to, and nothing cascades: a check that may
    /// fail in the middle of a statement costs it a journal of its own.
    pub(super) async fn begin_many(&self) -> Result<Tx, StoreError> {
        let Self::Sqlite(file) = self else {
            return self.begin().await;
        };
        self.health().admit()?;
        let (lease, turn) = file.begin_many().await?;
        Ok(Tx::bulk(file, lease, turn))
    }

    /// Begins a transaction that reads what there is at one moment.
    pub(super) async fn snapshot(&self) -> Result<Tx, StoreError> {
        self.health().admit()?;
        match self {
            Self::Sqlite(file) => Box::pin(file.snapshot())
                .await
                .map(|lease| Tx::sqlite(file, lease)),
            Self::Postgres(server) => {
                let begun = Box::pin(server.snapshot()).await;
                begun.map(|lease| Tx::postgres(server, lease))
            }
        }
    }

    /// Begins a transaction that reads a list of one moment. When it takes longer
    /// than `limit` (PostgreSQL: a statement of it) it fails with
    /// [`StoreError::TooLong`].
    pub(super) async fn listing(&self, limit: Duration) -> Result<Listing, StoreError> {
        self.health().admit()?;
        let (tx, _asker) = match self {
            Self::Sqlite(file) => {
                let mut lease = file.listing().await.map_err(crowded)?;
                let bounded = bound(&mut lease, limit);
                let asker = file.health().within(sqlite::ANSWER, bounded).await;
                if asker.as_ref().is_err_and(is_timeout) {
                    lease.give_up();
                }
                let asker = asker.map_err(unavailable)?;
                (Tx::sqlite(file, lease), Some(asker))
            }
            Self::Postgres(server) => {
                let begun = server.listing(limit).await.map_err(crowded)?;
                (Tx::postgres(server, begun), None)
            }
        };
        // The database's own limit comes first, if it is there.
        let tx = tx.with_more(limit);
        Ok(Listing { tx, _asker })
    }

    /// A number that changes when another process has changed `subject`, one of
    /// those that `doorward_changed()` is called with. SQLite knows of changes,
    /// not of what.
    pub(super) async fn version(&self, subject: &'static str) -> Result<i64, StoreError> {
        self.health().admit()?;
        match self {
            Self::Sqlite(file) => file.version().await,
            Self::Postgres(server) => server.version(subject).await,
        }
    }

    /// Whether it answers.
    pub(super) async fn answers(&self) -> Result<(), StoreError> {
        if let Self::Sqlite(file) = self {
            file.place().check()?;
        }
        sql("SELECT 1 AS one FROM realms LIMIT 1")
            .one(self)
            .await
            .map(drop)
    }

    /// Why the last write failed, if it did.
    pub(super) fn failing_writes(&self) -> Option<String> {
        self.health().failing_writes()
    }

    pub(super) async fn one(
        &self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.all(text, values).await?.into_iter().next())
    }

    pub(super) async fn all(&self, text: SqlStr, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        self.health().admit()?;
        match self {
            Self::Sqlite(file) => {
                let rows = Box::pin(file.read(text, values)).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(server) => {
                let rows = Box::pin(server.read(text, values)).await?;
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
async fn bound(lease: &mut Lease<Sqlite>, limit: Duration) -> Result<Arc<()>, sqlx::Error> {
    let asker = Arc::new(());
    let waits = Arc::downgrade(&asker);
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = monotonic_ns().saturating_add(limit_ns);
    let goes_on = move || waits.strong_count() > 0 && monotonic_ns() < until_ns;
    lease
        .lock_handle()
        .await?
        .set_progress_handler(STEPS, goes_on);
    Ok(asker)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sql::lease::LISTS;
    use crate::sql::{Store, sql};
    use crate::testing;
    use doorward_core::model::query::{Filter, Op, Operand, UserQuery};
    use doorward_core::model::user::schema;

    /// Takes minutes, on any database.
    const ENDLESS: &str = "WITH RECURSIVE n (i) AS (
            SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000)
         SELECT count(*) AS total FROM n";

    const AN_HOUR: Duration = Duration::from_secs(3600);

    async fn store(directory: &tempfile::TempDir) -> Store {
        let url = testing::url(directory.path());
        let store = match url.strip_prefix("sqlite:") {
            Some(path) => Store::open_sqlite(Path::new(path)).await,
            None => Store::open_postgres(&url).await,
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
