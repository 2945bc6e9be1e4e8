//! The connections to a PostgreSQL database.
//!
//! As SQLite does it, writers follow one another: each transaction that writes
//! takes one advisory lock first ([`BEGIN`]), also those of other nodes. Limits
//! of time keep a node that is stuck from stopping the others: the server ends
//! who holds the lock and does nothing ([`SESSION`]) before those who wait for it
//! give up, and these give up before this node believes the server silent
//! ([`ANSWER`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, SqlSafeStr, SqlStr};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::bind::{Value, query};
use super::health::{Health, is_timeout};
use super::lease::{LIST_WAIT, LISTS, Lease};
use super::{Database, migrate, postgres_address, silent, unavailable};
use crate::{Cause, Store, StoreError};
use doorward_core::clock::random_uuid;

/// Begins a transaction that writes. One message: the lock costs no way to the
/// server of its own. Its number is `doorward` in ASCII; each statement after it
/// sees all that the writers before it left (READ COMMITTED).
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SELECT pg_advisory_xact_lock(x'646f6f7277617264'::bigint)";

/// As [`BEGIN`], to change the schema: that takes its time, and so does waiting
/// for a node that does it.
pub(super) const BEGIN_MIGRATION: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL lock_timeout = '10min'; SET LOCAL statement_timeout = 0;
    SELECT pg_advisory_xact_lock(x'646f6f7277617264'::bigint)";

const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Connections that only read, other than lists.
const READERS: u32 = 8;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// How long to wait for the answer to a statement. The server's own limits come
/// first, as long as it is there.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

/// How long the connection that listens may be silent before it is asked whether
/// it is there.
const LISTEN_TEST: Duration = Duration::from_secs(5);

/// The pause before it is tried again to listen.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The channel of `doorward_changed()`; the payload is who changed something.
const CHANNEL: &str = "doorward";

/// What every connection is told. A transaction of a node that does not go on
/// ends before those that wait for its lock give up, and statements end before
/// [`ANSWER`]. What is answered is on disk, whatever the server's default (one
/// that asks for more, `remote_apply`, stays). Of nodes that vanished the server
/// wait_for_change by keepalives.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '2500ms';
    SET lock_timeout = '4s'; SET statement_timeout = '4500ms';
    SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10;
    SET tcp_keepalives_count = 3;
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');";

/// Why a server can't be reached.
type UnreachableReason = Arc<parking_lot::Mutex<Option<String>>>;

impl Store {
    /// Opens the PostgreSQL database at `url`, migrating it as needed.
    ///
    /// # Errors
    /// [`StoreError::Address`] when the address can't be read;
    /// [`StoreError::Unavailable`] when the server does not answer, refuses, or
    /// the database was written by a newer version.
    pub async fn open_postgres(url: &str) -> Result<Self, StoreError> {
        let (server, changes) = connect(url).await?;
        migrate::postgres(server.writer()).await?;
        Ok(Self::on(Database::Postgres(Arc::new(server)), changes))
    }

    /// Opens the PostgreSQL database at `url` without changing it; `None`: there
    /// is no store in it yet.
    ///
    /// # Errors
    /// As [`Store::open_postgres`]; also when another version wrote it.
    pub async fn open_existing_postgres(url: &str) -> Result<Option<Self>, StoreError> {
        let (server, changes) = connect(url).await?;
        let mut connection = server.writer().acquire().await.map_err(unavailable)?;
        let version = timeout(ANSWER, migrate::postgres_version(&mut connection));
        let version = version.await.map_err(|_| silent())??;
        match version {
            None => return Ok(None),
            Some(version) if migrate::is_current(version) => {}
            Some(_) => {
                let reason = "the database was written by another version";
                return Err(StoreError::Unavailable(reason.to_owned(), None));
            }
        }
        drop(connection);
        let database = Database::Postgres(Arc::new(server));
        Ok(Some(Self::on(database, changes)))
    }
}

async fn connect(url: &str) -> Result<(Server, watch::Sender<()>), StoreError> {
    let options = postgres_address::options(url)?;
    let changes = watch::Sender::new(());
    let server = Server::connect(options, changes.clone()).await?;
    Ok((server, changes))
}

/// The connections of one node.
#[derive(Debug)]
pub(super) struct Server {
    writer: PgPool,
    readers: PgPool,
    /// Those that read lists, and nothing else.
    lists: PgPool,
    /// What others know this process by.
    node: String,
    health: Arc<Health>,
    /// Where the server is, for messages.
    place: String,
    /// Why it could not be reached the last time, until it is again.
    cause: UnreachableReason,
    listening: AbortHandle,
}

impl Server {
    /// Connects; `changes` is told when others change something.
    pub(super) async fn connect(
        options: PgConnectOptions,
        changes: watch::Sender<()>,
    ) -> Result<Self, StoreError> {
        let options = options.application_name("doorward");
        let node = random_uuid().to_string();
        let health = Arc::<Health>::default();
        let pool = |connections| pool(connections, &node, &health);
        let writer = match pool(1).connect_with(options.clone()).await {
            Ok(writer) => writer,
            Err(error) => return Err(unreachable(&options, error).await),
        };
        check(&writer).await?;
        let lists = pool(LISTS).acquire_timeout(LIST_WAIT);
        let lists = lists.connect_lazy_with(options.clone());
        let readers = pool(READERS).connect_with(options.clone()).await;
        let readers = readers.map_err(unavailable)?;
        let place = place(&options);
        let ears = ChangeListener {
            options,
            pool: pool(1),
            node: node.clone(),
            changes,
            cause: UnreachableReason::default(),
        };
        let cause = ears.cause.clone();
        let listening = tokio::spawn(ears.listen(health.clone())).abort_handle();
        Ok(Self {
            writer,
            readers,
            lists,
            node,
            health,
            place,
            cause,
            listening,
        })
    }

    /// Begins a transaction that writes: no other one writes meanwhile, of no
    /// node.
    pub(super) async fn begin(&self) -> Result<Lease<Postgres>, StoreError> {
        let begun = self.begun(&self.writer, BEGIN.into_sql_str()).await;
        begun.map_err(|error| self.unavailable(error))
    }

    /// Begins a transaction that reads what there is at one moment.
    pub(super) async fn snapshot(&self) -> Result<Lease<Postgres>, StoreError> {
        let begun = self.begun(&self.readers, BEGIN_SNAPSHOT.into_sql_str());
        begun.await.map_err(|error| self.unavailable(error))
    }

    /// Begins a transaction that reads a list, no statement of it longer than
    /// `limit`.
    pub(super) async fn listing(&self, limit: Duration) -> Result<Lease<Postgres>, sqlx::Error> {
        // 0 would be no limit.
        let limit_ms = limit.as_millis().clamp(1, 600_000);
        let text = format!("{BEGIN_SNAPSHOT}; SET LOCAL statement_timeout = {limit_ms}");
        self.begun(&self.lists, AssertSqlSafe(text).into_sql_str())
            .await
    }

    /// Begins a transaction. A server that has restarted is asked once more:
    /// nothing has happened yet.
    async fn begun(&self, pool: &PgPool, text: SqlStr) -> Result<Lease<Postgres>, sqlx::Error> {
        match self.try_begin(pool, text.clone()).await {
            Err(error) if is_gone(&error) => self.try_begin(pool, text).await,
            begun => begun,
        }
    }

    async fn try_begin(&self, pool: &PgPool, text: SqlStr) -> Result<Lease<Postgres>, sqlx::Error> {
        let mut lease = self.health.acquire(Lease::of(pool)).await?;
        let begun = self.health.within(ANSWER, lease.begin(text)).await;
        self.note_outcome(&mut lease, begun)?;
        Ok(lease)
    }

    /// Reads. A server that has restarted is asked once more.
    pub(super) async fn read(
        &self,
        text: SqlStr,
        values: &[Value],
    ) -> Result<Vec<PgRow>, StoreError> {
        let values = replace_nul(values);
        match self.try_read(text.clone(), &values).await {
            Err(error) if is_gone(&error) => self.try_read(text, &values).await,
            rows => rows,
        }
        .map_err(|error| self.unavailable(error))
    }

    /// The error for whoever asked; a server that gives no connection is named.
    fn unavailable(&self, error: sqlx::Error) -> StoreError {
        match error {
            sqlx::Error::PoolTimedOut => {
                let cause = self.cause.lock().clone();
                let cause = cause.unwrap_or_else(|| silence("connection"));
                StoreError::Unavailable(format!("{}: {cause}", self.place), None)
            }
            error => unavailable(error),
        }
    }

    async fn try_read(&self, text: SqlStr, values: &[Value]) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut lease = self.health.acquire(Lease::of(&self.readers)).await?;
        let rows = query::<Postgres>(text, values).fetch_all(&mut *lease);
        let rows = self.health.within(ANSWER, rows).await;
        self.note_outcome(&mut lease, rows)
    }

    /// What a connection says about those that were made before.
    fn note_outcome<T>(
        &self,
        lease: &mut Lease<Postgres>,
        outcome: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        if let Err(error) = &outcome {
            if is_timeout(error) {
                lease.give_up();
            }
            if is_gone(error) {
                self.health.note_broken();
            }
        }
        outcome
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.health
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

fn pool(connections: u32, node: &str, health: &Arc<Health>) -> PgPoolOptions {
    let session: Arc<str> = format!("{SESSION} SET doorward.node = '{node}';").into();
    let health = health.clone();
    PgPoolOptions::new()
        .max_connections(connections)
        // Who makes one ahead of its use, in vain, would keep the others from it.
        .min_connections(0)
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
            let good = health.is_sound(meta.age);
            Box::pin(async move { Ok(good) })
        })
}

/// Where a server is, without the password.
fn place(options: &PgConnectOptions) -> String {
    let port = options.get_port();
    let server = match options.get_socket() {
        Some(socket) => format!("{} port {port}", socket.display()),
        None => format!("{}:{port}", options.get_host()),
    };
    match options.get_database() {
        Some(database) => format!("PostgreSQL at {server}, database {database}"),
        None => format!("PostgreSQL at {server}"),
    }
}

/// Why a server can't be reached. A pool only says that it waited: a connection
/// of its own says why.
async fn unreachable(options: &PgConnectOptions, error: sqlx::Error) -> StoreError {
    let error = match error {
        sqlx::Error::PoolTimedOut => cause(options).await,
        error => Ok(error),
    };
    let place = place(options);
    match error {
        Ok(error) => StoreError::Unavailable(format!("{place}: {error}"), Some(Cause::new(error))),
        Err(silence) => StoreError::Unavailable(format!("{place}: {silence}"), None),
    }
}

/// What a connection of its own says; `Err`: nothing in time.
async fn cause(options: &PgConnectOptions) -> Result<sqlx::Error, String> {
    match timeout(CONNECT, PgConnection::connect_with(options)).await {
        Ok(Err(error)) => Ok(error),
        Ok(Ok(_)) | Err(_) => Err(silence("answer")),
    }
}

fn silence(what: &str) -> String {
    format!("no {what} within {} s", CONNECT.as_secs())
}

/// Whether the server is one that a store can be in.
async fn check(writer: &PgPool) -> Result<(), StoreError> {
    let settings = "SELECT current_setting('server_encoding') AS encoding,
                           current_setting('server_version_num')::bigint AS version,
                           current_setting('fsync') AS fsync";
    let row = sqlx::query(settings).fetch_one(writer);
    let row = Health::default().within(ANSWER, row).await;
    let row = super::Row::Postgres(row.map_err(unavailable)?);
    let refused = |why: &str| Err(StoreError::Unavailable(why.to_owned(), None));
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

/// Who listens to what other nodes change.
struct ChangeListener {
    options: PgConnectOptions,
    /// One connection, apart from the others: what becomes of one that wait_for_change
    /// nothing any more is nobody's loss.
    pool: PgPoolOptions,
    node: String,
    changes: watch::Sender<()>,
    /// Told why nobody can be listened to.
    cause: UnreachableReason,
}

impl ChangeListener {
    /// Listens as long as the store is there. While nobody listens, something may
    /// have changed: that is told too.
    async fn listen(self, health: Arc<Health>) {
        loop {
            if let Some(mut listener) = self.connect().await {
                *self.cause.lock() = None;
                self.changes.send_replace(());
                while self.wait_for_change(&mut listener).await {}
                health.note_broken();
            } else {
                let why = cause(&self.options).await;
                let why = why.map_or_else(|silence| silence, |error| error.to_string());
                *self.cause.lock() = Some(why);
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
        }
    }

    async fn connect(&self) -> Option<PgListener> {
        let pool = self.pool.clone().connect_lazy_with(self.options.clone());
        let mut listener = PgListener::connect_with(&pool).await.ok()?;
        listener.eager_reconnect(false);
        let listens = timeout(ANSWER, listener.listen(CHANNEL)).await;
        listens
            .is_ok_and(|listens| listens.is_ok())
            .then_some(listener)
    }

    /// Waits for what is said next; whether the connection is still there.
    async fn wait_for_change(&self, listener: &mut PgListener) -> bool {
        let Ok(heard) = timeout(LISTEN_TEST, listener.try_recv()).await else {
            let test = sqlx::query("SELECT 1").execute(&mut *listener);
            return timeout(ANSWER, test).await.is_ok_and(|test| test.is_ok());
        };
        let note: Option<PgNotification> = heard.ok().flatten();
        if let Some(note) = &note
            && note.payload() != self.node
        {
            self.changes.send_replace(());
        }
        note.is_some()
    }
}

/// Whether the connection, or the server behind it, went away: what was asked
/// may be asked again on another one, if it changes nothing.
fn is_gone(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => !is_timeout(error),
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
pub(super) fn replace_nul(values: &[Value]) -> Cow<'_, [Value]> {
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
