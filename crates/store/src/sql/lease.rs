//! Connections that pools lend.
//!
//! A connection goes back to its pool only when no transaction is left on it:
//! after a commit, or after a rollback that the database has confirmed. Any
//! other one is closed, so that nobody begins where another one broke off. The
//! way back has a limit of time, like everything that waits for a database.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{Pool, Postgres, SqlSafeStr, SqlStr, Sqlite};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Connections that read lists. They have their own: a filter can have every
/// value of a million records read, and meanwhile sign-ins and tokens must find
/// what they look up.
pub(super) const LISTS: u32 = 4;

/// How long a list waits for one of them.
pub(super) const LIST_WAIT: Duration = Duration::from_secs(5);

/// How long a connection may take to go back; then it is closed.
const BACK: Duration = Duration::from_secs(5);

/// A database that takes statements as text.
pub(super) trait Driver: sqlx::Database {
    /// Makes the statements of `text`.
    fn tell(
        connection: &mut Self::Connection,
        text: SqlStr,
    ) -> BoxFuture<'_, Result<(), sqlx::Error>>;
}

impl Driver for Sqlite {
    fn tell(
        connection: &mut Self::Connection,
        text: SqlStr,
    ) -> BoxFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async { sqlx::raw_sql(text).execute(connection).await.map(drop) })
    }
}

impl Driver for Postgres {
    fn tell(
        connection: &mut Self::Connection,
        text: SqlStr,
    ) -> BoxFuture<'_, Result<(), sqlx::Error>> {
        Box::pin(async { sqlx::raw_sql(text).execute(connection).await.map(drop) })
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
enum State {
    /// There is no transaction.
    Idle,
    /// There may be a transaction.
    Open,
    /// Nobody knows: it did not answer.
    Lost,
}

/// A connection of a pool.
#[derive(Debug)]
pub(super) struct Lease<DB: Driver> {
    /// Always there, until it goes.
    connection: Option<PoolConnection<DB>>,
    state: State,
}

impl<DB: Driver> Lease<DB> {
    pub(super) async fn of(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: Some(pool.acquire().await?),
            state: State::Idle,
        })
    }

    /// Begins a transaction with the words of `text`.
    pub(super) async fn begin(&mut self, text: SqlStr) -> Result<(), sqlx::Error> {
        self.state = State::Open;
        DB::tell(self, text).await
    }

    /// Makes the transaction durable.
    pub(super) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        DB::tell(self, "COMMIT".into_sql_str()).await?;
        self.state = State::Idle;
        Ok(())
    }

    /// The connection does not answer: it is closed instead of going back.
    pub(super) fn give_up(&mut self) {
        self.state = State::Lost;
    }
}

impl<DB: Driver> Deref for Lease<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.connection.as_ref().expect("it is there until it goes")
    }
}

impl<DB: Driver> DerefMut for Lease<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.connection.as_mut().expect("it is there until it goes")
    }
}

impl<DB: Driver> Drop for Lease<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        match (self.state, Handle::try_current()) {
            (State::Idle, Ok(runtime)) => drop(runtime.spawn(back(connection))),
            (State::Open, Ok(runtime)) => drop(runtime.spawn(undo(connection))),
            _ => drop(connection.detach()),
        }
    }
}

/// Back to the pool, which makes sure that it answers.
async fn back<DB: Driver>(mut connection: PoolConnection<DB>) {
    // Who is too late is dropped, and so is its place in the pool.
    let _ = timeout(BACK, connection.return_to_pool()).await;
}

/// Back to the pool once nothing of the transaction is left. Where it has ended
/// by itself, the rollback fails: such a connection is closed.
async fn undo<DB: Driver>(mut connection: PoolConnection<DB>) {
    let undone = timeout(BACK, DB::tell(&mut connection, "ROLLBACK".into_sql_str()));
    match undone.await {
        Ok(Ok(())) => back(connection).await,
        _ => drop(connection.detach()),
    }
}
