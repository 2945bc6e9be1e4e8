//! The connections to a PostgreSQL database.
//!
//! As SQLite does it, writers follow one another: each transaction that writes
//! takes one advisory lock first ([`BEGIN`]), also those of other nodes. Limits
//! of time keep a node that is stuck from stopping the others.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, SqlStr, Transaction};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::database::{LIST_WAIT, LISTS, query};
use super::statement::Value;
use super::unavailable;
use crate::clock::{monotonic_ns, random_uuid};
use crate::store::StoreError;

/// Begins a transaction that writes. One message: the lock costs no way to the
/// server of its own. Its number is `doorward` in ASCII; each statement after it
/// sees all that the writers before it left (READ COMMITTED).
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SELECT pg_advisory_xact_lock(x'646f6f7277617264'::bigint)";

const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Connections that only read, other than lists, and the one that listens.
const READERS: u32 = 8 + 1;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The pause before it is tried again to listen.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The channel of `doorward_changed()`; the payload is who changed something.
const CHANNEL: &str = "doorward";

/// What every connection is told. Statements wait for locks no longer than 5 s,
/// and a transaction of a node that does not go on ends after 10 s. What is
/// answered is on disk, whatever the server's default (one that asks for more,
/// `remote_apply`, stays).
const SESSION: &str = "SET lock_timeout = '5s'; SET statement_timeout = '30s';
    SET idle_in_transaction_session_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');";

/// The connections of one node.
#[derive(Debug)]
pub(super) struct Server {
    writer: PgPool,
    readers: PgPool,
    /// Those that read lists, and nothing else.
    lists: PgPool,
    /// What others know this process by.
    node: String,
    broken: Arc<Broken>,
    listening: AbortHandle,
}

/// When a connection was last found broken. The server may have restarted:
/// those that are older are not worth a try.
#[derive(Debug, Default)]
struct Broken(AtomicU64);

impl Broken {
    fn note(&self) {
        self.0.fetch_max(monotonic_ns(), Ordering::AcqRel);
    }

    fn is_before(&self, age: Duration) -> bool {
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.0.load(Ordering::Acquire) < monotonic_ns().saturating_sub(age_ns)
    }
}

impl Server {
    /// Connects; `changes` is told when others change something.
    pub(super) async fn connect(
        options: PgConnectOptions,
        changes: watch::Sender<()>,
    ) -> Result<Self, StoreError> {
        let options = options.application_name("doorward");
        let node = random_uuid().to_string();
        let broken = Arc::<Broken>::default();
        let pool = |connections| pool(connections, &node, &broken);
        let writer = pool(1).connect_with(options.clone()).await;
        let writer = writer.map_err(unavailable)?;
        check(&writer).await?;
        let lists = pool(LISTS).min_connections(0).acquire_timeout(LIST_WAIT);
        let lists = lists.connect_lazy_with(options.clone());
        let readers = pool(READERS).connect_with(options).await;
        let readers = readers.map_err(unavailable)?;
        let listening = listen(readers.clone(), node.clone(), broken.clone(), changes);
        let listening = tokio::spawn(listening).abort_handle();
        Ok(Self {
            writer,
            readers,
            lists,
            node,
            broken,
            listening,
        })
    }

    /// Begins a transaction that writes: no other one writes meanwhile, of no
    /// node.
    pub(super) async fn begin(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        match self.writer.begin_with(BEGIN).await {
            // Nothing has happened yet.
            Err(error) if is_gone(&error) => {
                self.broken.note();
                self.writer.begin_with(BEGIN).await
            }
            begun => begun,
        }
        .map_err(unavailable)
    }

    /// Begins a transaction that reads what there is at one moment.
    pub(super) async fn snapshot(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        match self.readers.begin_with(BEGIN_SNAPSHOT).await {
            Err(error) if is_gone(&error) => {
                self.broken.note();
                self.readers.begin_with(BEGIN_SNAPSHOT).await
            }
            begun => begun,
        }
        .map_err(unavailable)
    }

    /// Begins a transaction that reads a list, no statement of it longer than
    /// `limit`.
    pub(super) async fn listing(
        &self,
        limit: Duration,
    ) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        // 0 would be no limit.
        let limit_ms = limit.as_millis().clamp(1, 600_000);
        let text = format!("{BEGIN_SNAPSHOT}; SET LOCAL statement_timeout = {limit_ms}");
        match self.lists.begin_with(AssertSqlSafe(text.clone())).await {
            Err(error) if is_gone(&error) => {
                self.broken.note();
                self.lists.begin_with(AssertSqlSafe(text)).await
            }
            begun => begun,
        }
    }

    /// Reads. A server that has restarted is asked once more.
    pub(super) async fn read(
        &self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Vec<PgRow>, StoreError> {
        let values = sought(values);
        let read = || query::<Postgres>(text.clone(), &values).fetch_all(&self.readers);
        match read().await {
            Err(error) if is_gone(&error) => {
                self.broken.note();
                read().await
            }
            rows => rows,
        }
        .map_err(unavailable)
    }

    /// Grows with each change of `subject` by another node.
    pub(super) async fn version(&self, subject: &'static str) -> Result<i64, StoreError> {
        const OTHERS: &str = "SELECT coalesce(sum(change), 0)::bigint AS version
             FROM doorward_changes WHERE subject = $1 AND node <> $2";
        let values = [subject, &self.node].map(Value::from);
        let rows = self.read(sqlx::SqlSafeStr::into_sql_str(OTHERS), &values);
        let row = rows.await?.pop().map(super::Row::Postgres);
        row.map_or(Ok(0), |row| row.int("version"))
    }

    pub(super) fn writer(&self) -> &PgPool {
        &self.writer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn pool(connections: u32, node: &str, broken: &Arc<Broken>) -> PgPoolOptions {
    let session: Arc<str> = format!("{SESSION} SET doorward.node = '{node}';").into();
    let broken = broken.clone();
    PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(CONNECT)
        .after_connect(move |connection: &mut PgConnection, _| {
            // Constants, and an identifier made here.
            let session = AssertSqlSafe(session.clone());
            Box::pin(async move {
                sqlx::raw_sql(session).execute(connection).await?;
                Ok(())
            })
        })
        .before_acquire(move |_, meta| {
            let good = broken.is_before(meta.age);
            Box::pin(async move { Ok(good) })
        })
}

/// Whether the server is one that a store can be in.
async fn check(writer: &PgPool) -> Result<(), StoreError> {
    let settings = "SELECT current_setting('server_encoding') AS encoding,
                           current_setting('server_version_num')::bigint AS version,
                           current_setting('fsync') AS fsync";
    let row = sqlx::query(settings).fetch_one(writer).await;
    let row = super::Row::Postgres(row.map_err(unavailable)?);
    let refused = |why: &str| Err(StoreError::Unavailable(why.to_owned()));
    if row.int("version")? < 130_000 {
        return refused("PostgreSQL 13 or newer is needed");
    }
    if row.text("encoding")? != "UTF8" {
        return refused("the database's encoding must be UTF8");
    }
    if row.text("fsync")? == "off" {
        tracing::warn!("the PostgreSQL server has fsync=off: a power cut may lose everything");
    }
    Ok(())
}

/// Listens to what other nodes change, as long as the store is there. While
/// nobody listens, something may have changed: that is told too.
async fn listen(pool: PgPool, node: String, broken: Arc<Broken>, changes: watch::Sender<()>) {
    loop {
        if let Ok(mut listener) = PgListener::connect_with(&pool).await
            && listener.listen(CHANNEL).await.is_ok()
        {
            changes.send_replace(());
            while let Ok(Some(note)) = listener.try_recv().await {
                if note.payload() != node {
                    changes.send_replace(());
                }
            }
            broken.note();
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

/// Whether the connection, or the server behind it, went away: what was asked
/// may be asked again on another one, if it changes nothing.
fn is_gone(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(refused) => match refused.code().as_deref() {
            // Another version of the program has changed a table since.
            Some("0A000") => refused.message().contains("cached plan"),
            Some(code) => code.starts_with("57P") || code.starts_with("08"),
            None => false,
        },
        _ => false,
    }
}

/// No text of the database holds U+0000, and none can be asked for: another one
/// takes its place that no text holds either.
pub(super) fn sought(values: &[Value]) -> Cow<'_, [Value]> {
    let nul = |value: &Value| matches!(value, Value::Text(Some(text)) if text.contains('\0'));
    if !values.iter().any(nul) {
        return Cow::Borrowed(values);
    }
    let replaced = values.iter().map(|value| match value {
        Value::Text(Some(text)) => Value::Text(Some(text.replace('\0', "\u{FFFF}"))),
        value => value.clone(),
    });
    Cow::Owned(replaced.collect())
}
