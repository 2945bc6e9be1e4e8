//! The durable store: [`Store`].
//!
//! Its one invariant: each method is one atomic, durable promise. There is no
//! check-then-act from outside. Start at [`open`].

mod shared_secret;
mod sql;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use doorward_core::model::audit::PendingAudit;
use doorward_core::model::client::Client;
use doorward_core::model::group::{Group, MemberChange};
use doorward_core::model::user::User;

pub use shared_secret::{SharedSecretError, shared_secret};
pub use sql::{
    Finding, POSTGRES_PARAMETERS, POSTGRES_PASSED_OVER, POSTGRES_SSL_MODES, Rows, Store,
    TransferError,
};

/// The error that a [`StoreError`] came from. The writes of one commit share it.
#[derive(Clone, Debug)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// This error.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

/// The error itself: whoever follows the sources of a [`StoreError`] meets it and
/// not its wrapping.
impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// Why the store could not do what it was asked to. The text of a cause is
/// part of the error's own text.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or did not answer.
    #[error("store unavailable: {0}")]
    Unavailable(String, #[source] Option<Cause>),
    /// A unique name is taken.
    #[error("{0} is taken")]
    Taken(String),
    /// What is stored can't be read back.
    #[error("stored record is damaged: {0}")]
    Damaged(String, #[source] Option<Cause>),
    /// The address of the store can't be used.
    #[error("store address: {0}")]
    Address(String, #[source] Option<Cause>),
    /// The record is owned by the configuration file.
    #[error("{0} is declared in the configuration file; change it there")]
    FileOwned(String),
    /// A text holds U+0000, or is longer than an index takes: not every database
    /// keeps it.
    #[error("a text holds the character U+0000, or is too long for an index")]
    Unfit,
    /// The record changed, or went, since it was read.
    #[error("{0} was changed by somebody else")]
    Conflict(String),
    /// What was asked for takes longer to find than it may.
    #[error("what is asked for takes too long to find")]
    TooLong,
    /// No connection for lists came free in time.
    #[error("too many lists are being read at once")]
    Crowded,
    /// What a record refers to is not there: its kind, its name.
    #[error("there is no {0} {1}")]
    Absent(&'static str, String),
}

impl StoreError {
    /// [`StoreError::Unavailable`] for this cause.
    pub fn unavailable(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Unavailable(cause.to_string(), Some(Cause::new(cause)))
    }

    /// [`StoreError::Damaged`] for this cause.
    pub fn damaged(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Damaged(cause.to_string(), Some(Cause::new(cause)))
    }

    /// Whether the same may succeed later, though nobody changes anything.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(..) | Self::TooLong | Self::Crowded)
    }
}

/// A gateway entity as the store keeps it: opaque but for its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntity {
    /// `services`, `routes`, `plugins`, …
    pub kind: &'static str,
    /// Its identifier.
    pub id: Uuid,
    /// Its unique name within the kind, if any.
    pub key: Option<String>,
    /// The record.
    pub doc: Map<String, Value>,
}

/// One step of a change to the gateway's entities.
#[derive(Clone, Debug, PartialEq)]
pub enum EntityWrite {
    /// Creates or replaces.
    Put(StoredEntity),
    /// Removes; nothing happens if it is absent.
    Delete(&'static str, Uuid),
}

/// A change to the gateway's entities that can share its commit with others.
#[derive(Clone, Debug, Default)]
pub struct EntityChange {
    writes: Vec<EntityWrite>,
    pending: Option<PendingAudit>,
}

impl EntityChange {
    /// The change of these writes, with the record of the act that it is for.
    ///
    /// # Errors
    /// [`StoreError::Unfit`] for a name that no database keeps: it would fail the
    /// changes beside it.
    pub fn new(writes: Vec<EntityWrite>, audit: Option<&PendingAudit>) -> Result<Self, StoreError> {
        let unfit = |write: &EntityWrite| match write {
            EntityWrite::Put(entity) => entity.key.as_ref().is_some_and(|key| key.contains('\0')),
            EntityWrite::Delete(..) => false,
        };
        if writes.iter().any(unfit) {
            return Err(StoreError::Unfit);
        }
        let pending = audit.filter(|pending| pending.is_pending()).cloned();
        Ok(Self { writes, pending })
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

/// A process that serves the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Identifies this run of the process.
    pub id: String,
    /// The name of its machine.
    pub hostname: String,
    /// The version of the program.
    pub version: String,
    /// When it began.
    pub started_ms: i64,
    /// When its last heartbeat was, by [`Store::shared_time_ms`].
    pub seen_ms: i64,
    /// Which write of entities it has in force; see [`Store::entities_revision`].
    pub revision: i64,
    /// Whether its own files are in force.
    pub is_current: bool,
}

/// One page of users.
#[derive(Clone, Debug)]
pub struct UserPage {
    /// The users, by ascending folded name.
    pub users: Vec<User>,
    /// How many satisfy the filter in all.
    pub total: u64,
    /// Whether others follow.
    pub more: bool,
}

/// One page of groups, by ascending folded name.
#[derive(Clone, Debug)]
pub struct GroupPage {
    /// The groups.
    pub groups: Vec<Group>,
    /// How many satisfy the filter in all.
    pub total: u64,
    /// Whether others follow.
    pub more: bool,
}

/// A change of one group: what is absent stays.
#[derive(Clone, Debug)]
pub struct GroupChange {
    /// Path of the group's realm.
    pub realm: String,
    /// Its identifier.
    pub id: Uuid,
    /// The version that is meant; none: whichever there is.
    pub seen: Option<i64>,
    /// The new name.
    pub name: Option<String>,
    /// The new external identifier, or none.
    pub external_id: Option<Option<String>>,
    /// Who comes and goes.
    pub members: MemberChange,
    /// Now, in milliseconds since the epoch.
    pub now_ms: i64,
}

/// What became of a write of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOutcome {
    /// It is done; the group as it is now, or was before it went.
    Done(Group),
    /// There is no such group in the realm.
    Missing,
    /// It has another version than was meant: this one.
    Stale(i64),
    /// This is no user of the realm; nothing was written.
    NoUser(Uuid),
}

/// What the configuration file declares of the identity provider.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Paths of the realms.
    pub realms: Vec<String>,
    /// Users, without password hashes; their ids are used for new ones.
    pub users: Vec<User>,
    /// Clients, without secrets.
    pub clients: Vec<Client>,
}

/// Opens the store at `url` and migrates it to this version: `sqlite:PATH`,
/// created when missing (directory with mode 0700, file with 0600), or
/// `postgres://…`.
///
/// # Errors
/// [`StoreError::Address`] for other addresses; [`StoreError::Unavailable`]
/// when the database can't be opened or was written by a newer version.
pub async fn open(url: &str) -> Result<Arc<Store>, StoreError> {
    Ok(Arc::new(match address(url)? {
        Address::Sqlite(path) => Store::open_sqlite(path).await?,
        Address::Postgres => Store::open_postgres(url).await?,
    }))
}

/// As [`open`], for the server: a SQLite file has one at a time.
///
/// # Errors
/// As [`open`]; [`StoreError::Unavailable`] also when another server has it.
pub async fn open_for_server(url: &str) -> Result<Arc<Store>, StoreError> {
    Ok(Arc::new(match address(url)? {
        Address::Sqlite(path) => Store::serve_sqlite(path).await?,
        Address::Postgres => Store::open_postgres(url).await?,
    }))
}

/// As [`open_for_server`], for a server that takes the place of one that still works on
/// the store. `lock` is that server's (see [`Store::server_lock`]).
///
/// # Errors
/// As [`open_for_server`]; also where this version would change the schema under the
/// other server.
pub async fn open_for_successor(url: &str, lock: Option<File>) -> Result<Arc<Store>, StoreError> {
    open_existing(url).await?;
    match (address(url)?, lock) {
        (Address::Sqlite(path), Some(lock)) => {
            Ok(Arc::new(Store::succeed_sqlite(path, lock).await?))
        }
        _ => open_for_server(url).await,
    }
}

/// Opens the store at `url` for reading, if there is one: nothing is created,
/// migrated or written.
///
/// # Errors
/// As [`open`]; also for a store that an older version wrote.
pub async fn open_existing(url: &str) -> Result<Option<Arc<Store>>, StoreError> {
    let store = match address(url)? {
        Address::Sqlite(path) if path.exists() => Some(Store::open_existing_sqlite(path).await?),
        Address::Sqlite(_) => None,
        Address::Postgres => Store::open_existing_postgres(url).await?,
    };
    Ok(store.map(Arc::new))
}

/// Which database an address means.
enum Address<'a> {
    Sqlite(&'a Path),
    Postgres,
}

/// What is wrong with an address does not repeat it: it may hold a password.
fn address(url: &str) -> Result<Address<'_>, StoreError> {
    match url.split_once(':') {
        Some(("sqlite", path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            Ok(Address::Sqlite(Path::new(path)))
        }
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Address::Postgres),
        _ => Err(StoreError::Address(
            "expected sqlite:PATH or postgres://USER@HOST/DATABASE".to_owned(),
            None,
        )),
    }
}

/// Whether `url` is the address of a store, as far as its text shows.
///
/// # Errors
/// [`StoreError::Address`] with what is wrong and what is allowed.
pub fn check_address(url: &str) -> Result<(), StoreError> {
    match address(url)? {
        Address::Sqlite(_) => Ok(()),
        Address::Postgres => sql::check_postgres_address(url),
    }
}
