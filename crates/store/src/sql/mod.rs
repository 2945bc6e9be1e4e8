//! [`Store`]: one SQLite file, or a PostgreSQL database.
//!
//! Statements are written once, in words that both understand ([`statement`]);
//! where they differ, [`dialect`] has one function a difference. Its one
//! invariant: transactions that write follow one another, whichever database
//! and however many processes, so that none of them sees half of another.

mod acme;
mod audit;
mod batch;
mod bind;
mod broker;
mod broker_tokens;
mod check;
mod clients;
mod codes;
mod compare;
mod consents;
mod database;
mod devices;
mod dialect;
mod endings;
mod entities;
mod errors;
mod execute;
mod factors;
mod federation;
mod filter;
mod groups;
mod health;
mod imports;
mod insertion;
mod json;
mod keys;
mod lease;
mod location;
mod lockouts;
mod logins;
mod logouts;
mod migrate;
mod nodes;
mod oauth2;
mod operation;
mod page;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod plans;
mod postgres;
mod postgres_address;
mod realms;
mod registrations;
mod requests;
mod resets;
mod retired_names;
mod row;
mod secrets;
mod server_lock;
mod sessions;
mod sqlite;
mod statement;
mod sweep;
mod sync;
mod tokens;
mod transfer;
mod tx;
mod undos;
mod users;

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

pub use check::Finding;
pub(crate) use postgres_address::check_postgres_address;
pub use postgres_address::{POSTGRES_PARAMETERS, POSTGRES_PASSED_OVER, POSTGRES_SSL_MODES};
pub use transfer::{Rows, TransferError};

use batch::Batch;
use database::Database;
use errors::{damaged, silent, taken, unavailable};
use execute::ReadSource;
use json::{parse_doc, parse_id, write_doc, write_searched_doc};
use operation::Origin;
use row::Row;
use server_lock::ServerLock;
use statement::{Builder, sql};
use tx::Tx;
#[cfg(test)]
pub(crate) use undos::UNDOS_MAX;

use super::StoreError;
use doorward_core::model::audit::PendingAudit;

/// Everything the process keeps.
///
/// Every method is one atomic, durable promise: when it returns `Ok`, a
/// `kill -9` loses nothing of it. Times are milliseconds since the epoch, and
/// always the caller's.
///
/// # Errors
/// Every method fails with [`StoreError::Unavailable`] when the database does
/// not answer, and with [`StoreError::Damaged`] when a record can't be read.
pub struct Store {
    database: Database,
    batch: Batch,
    /// Told when the database says that another process changed something.
    changed_by_others: watch::Sender<()>,
    /// Changes of users and clients.
    changes: AtomicU64,
    /// Clients that registered themselves.
    registered: AtomicU64,
    /// That of the server, which no other one takes meanwhile.
    lock: Option<ServerLock>,
}

impl Store {
    fn on(database: Database, changed_by_others: watch::Sender<()>) -> Self {
        Self {
            batch: Batch::start(database.clone()),
            database,
            changed_by_others,
            changes: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            lock: None,
        }
    }

    /// A handle of what keeps other servers from the store, for a server that succeeds
    /// this one; `None`: there may be several.
    ///
    /// # Errors
    /// The process has no room for another file.
    pub fn server_lock(&self) -> std::io::Result<Option<std::fs::File>> {
        self.lock.as_ref().map(ServerLock::handle).transpose()
    }

    /// Says that this process is the server now, after it has succeeded another one.
    ///
    /// # Errors
    /// The disk's.
    pub fn note_server(&self) -> std::io::Result<()> {
        self.lock.as_ref().map_or(Ok(()), ServerLock::note)
    }

    /// Asks the database for nothing in particular.
    pub async fn answers(&self) -> Result<(), StoreError> {
        self.database.answers().await
    }

    /// Why the last write failed, if it did.
    pub fn failing_writes(&self) -> Option<String> {
        self.database.failing_writes()
    }

    /// A number that changes when another process has changed what the identity
    /// provider holds in memory: realms, users, clients, keys, revocations.
    pub async fn data_version(&self) -> Result<i64, StoreError> {
        self.database.version("identity").await
    }

    /// A number that changes when another process has changed the gateway's
    /// entities, or perhaps something else.
    pub async fn entities_version(&self) -> Result<i64, StoreError> {
        self.database.version("entities").await
    }

    /// Tells when the versions may be others now, as far as the database says so
    /// by itself; not every one does, nor at all times.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed_by_others.subscribe()
    }

    /// A number that grows with every change of users and clients that is made
    /// through this very value: what is held of them is then stale.
    pub fn generation(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A number that grows with every client that registers itself through this
    /// very value. [`Store::generation`] does not: nobody holds anything of it.
    pub fn registrations(&self) -> u64 {
        self.registered.load(Ordering::Acquire)
    }

    /// The outcome of a change of users or clients. Counted when it is over,
    /// so that nobody reads the old record after the count.
    fn changed<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        self.changes.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    /// Begins a transaction that is for no audited act.
    #[track_caller]
    fn begin(&self) -> impl Future<Output = Result<Tx, StoreError>> + Send {
        self.begin_audited(None)
    }

    /// Begins a transaction that takes in the record of the act that it is for.
    #[track_caller]
    fn begin_audited<'a>(
        &'a self,
        audit: Option<&'a PendingAudit>,
    ) -> impl Future<Output = Result<Tx, StoreError>> + Send + 'a {
        let origin = Origin::here();
        async move {
            let note = operation::begin(self.database.system(), origin, true);
            let tx = self.database.begin().await?;
            Ok(tx.with_note(note).with_audit(audit))
        }
    }
}
