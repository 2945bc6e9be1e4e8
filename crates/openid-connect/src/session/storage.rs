//! Where sessions are kept that do not travel in cookies: a Redis, a memcached,
//! or the process's own store.
//!
//! Keys are hashes of handles, values are sealed: whoever reads the storage can
//! use neither. A storage that gives no answer is an error, never an empty one.

mod config;
mod remote;
mod tombstones;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::config::fields::Fields;
use crate::provider::token_endpoint::RefreshesByIssuer;
use crate::session::revoked_sessions::RevokedSessions;
use doorward_core::clock::{Clock, random_bytes};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::{LoginQuery, SessionTombstone, StoredLogin, TombstoneKey};
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::{ConfigError, Parts};
use doorward_store::{Store, StoreError};

use config::{Choice, RemoteConfig};
use remote::Remote;

pub(crate) use config::warning;

/// For how long what was read of a session is good, in milliseconds: until it has
/// to be read again.
pub(crate) const READ_MS: i64 = 5_000;

/// Longest wait for the process's own store, in milliseconds, about.
const OWN_WAIT_MS: i64 = 5_000;

/// How often a lock that nobody holds is tried to be taken back, and the pause
/// before each try: a storage that failed is left alone for a moment.
const UNLOCKS: u32 = 3;
const UNLOCK_PAUSE: Duration = Duration::from_secs(1);
/// Locks that are taken back at a time, at most: the others end by their time.
static UNLOCKING: Semaphore = Semaphore::const_new(256);

/// The right to ask for the next tokens of a session, and to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// A number that no other lock has: whoever comes too late frees nothing.
    holder: u64,
    until_ms: i64,
}

impl Lock {
    fn new(until_ms: i64) -> Self {
        Self {
            holder: u64::from_be_bytes(random_bytes::<8>()),
            until_ms,
        }
    }
}

/// The storage gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session storage gives no answer")]
pub(crate) struct StorageError;

impl From<doorward_net::shared::Unavailable> for StorageError {
    fn from(_: doorward_net::shared::Unavailable) -> Self {
        Self
    }
}

impl From<StoreError> for StorageError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the store gives no session");
        Self
    }
}

/// What the plugins of a process share to keep sessions and to end them.
#[derive(Default)]
pub struct Storages {
    /// The process's own store.
    store: OnceLock<Arc<Store>>,
    pub(crate) revoked_sessions: RevokedSessions,
    /// Refreshes of sessions, wherever these are kept.
    pub(crate) refreshes: RefreshesByIssuer,
    remotes: Mutex<HashMap<RemoteConfig, Weak<Remote>>>,
    /// The longest life that a session of a plugin may have, in milliseconds.
    longest_ms: std::sync::atomic::AtomicI64,
}

impl std::fmt::Debug for Storages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Storages")
    }
}

impl Storages {
    /// Those of the process that `parts` belongs to.
    pub fn of(parts: &Parts) -> Arc<Self> {
        parts.slots.get_or_default()
    }

    /// With the process's own store, which tells also what other nodes have
    /// ended; on the runtime of the caller. What has ended before is known when it
    /// is there, for the first request as for any, unless the store is silent.
    pub async fn on(store: Arc<Store>, clock: Clock) -> Arc<Self> {
        let storages = Arc::new(Self::default());
        let seen = tombstones::catch_up(&storages, &store, &clock).await;
        // It is new.
        let _ = storages.store.set(store);
        tombstones::follow(&storages, clock, seen);
        storages
    }

    pub(crate) fn store(&self) -> Result<&Arc<Store>, StorageError> {
        self.store.get().ok_or(StorageError)
    }

    /// Remembers `what` until `until_ms`, where the process has a store; whether it
    /// was new.
    ///
    /// # Errors
    /// The store gives no answer.
    pub(crate) async fn remember(
        &self,
        what: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, StorageError> {
        let Some(store) = self.store.get() else {
            // Nothing is served: a configuration is checked.
            return Ok(true);
        };
        let remembered = store.remember(what, until_ms, now_ms).await;
        remembered.map_err(|error| {
            tracing::warn!(%error, "the store remembers no proof of possession");
            StorageError
        })
    }

    /// The storage of a configuration; `None`: sessions travel in cookies.
    pub(crate) fn storage(
        self: &Arc<Self>,
        fields: &Fields,
        metrics: &Metrics,
    ) -> Result<Option<Storage>, ConfigError> {
        Ok(match Choice::of(fields)? {
            Choice::Cookie => None,
            Choice::Store => Some(Storage::Own(Arc::clone(self))),
            Choice::Remote(config) => Some(Storage::Remote(self.remote(config, metrics)?)),
        })
    }

    /// One connection for all plugins that name the same server.
    fn remote(&self, config: RemoteConfig, metrics: &Metrics) -> Result<Arc<Remote>, ConfigError> {
        let mut remotes = self.remotes.lock();
        if let Some(metadata) = remotes.get(&config).and_then(Weak::upgrade) {
            return Ok(metadata);
        }
        remotes.retain(|_, remote| remote.strong_count() > 0);
        let remote = Arc::new(Remote::open(&config, metrics)?);
        remotes.insert(config, Arc::downgrade(&remote));
        Ok(remote)
    }
}

/// Where sessions are kept.
#[derive(Clone)]
pub(crate) enum Storage {
    Own(Arc<Storages>),
    Remote(Arc<Remote>),
}

impl Storage {
    /// Keeps a new session.
    pub(crate) async fn insert(&self, login: &StoredLogin) -> Result<(), StorageError> {
        match self {
            Self::Own(own) => Ok(own.store()?.insert_login(login).await?),
            Self::Remote(remote) => remote.insert(login).await,
        }
    }

    /// Keeps what is in a session now, and unlocks it if it is locked so; says
    /// whether it is still there.
    pub(crate) async fn update(
        &self,
        login: &StoredLogin,
        lock: Lock,
    ) -> Result<bool, StorageError> {
        match self {
            Self::Own(own) => Ok(own.store()?.update_login(login, lock.until_ms).await?),
            Self::Remote(remote) => remote.update(login, lock).await,
        }
    }

    /// What is sealed of a session.
    pub(crate) async fn load(
        &self,
        key: &TokenHash,
        now_ms: i64,
    ) -> Result<Option<String>, StorageError> {
        match self {
            Self::Own(own) => {
                let login = own.store()?.login(*key).await?;
                let login = login.filter(|login| now_ms < login.ends_ms);
                Ok(login.map(|login| login.sealed))
            }
            Self::Remote(remote) => remote.load(key).await,
        }
    }

    /// Locks a session against a second refresh until `until_ms`; `None`: somebody
    /// else has.
    pub(crate) async fn lock(
        &self,
        key: &TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<Option<Lock>, StorageError> {
        let lock = Lock::new(until_ms);
        let locked = self.take(key, lock, now_ms).await;
        if locked.is_err() {
            self.unlock_soon(*key, lock);
        }
        Ok(locked?.then_some(lock))
    }

    async fn take(&self, key: &TokenHash, lock: Lock, now_ms: i64) -> Result<bool, StorageError> {
        match self {
            Self::Own(own) => {
                let store = own.store()?;
                Ok(store.lock_login(*key, lock.until_ms, now_ms).await?)
            }
            Self::Remote(remote) => remote.lock(key, lock).await,
        }
    }

    /// Takes back what may have been locked although the answer did not come in
    /// time: nobody would hold it, and all would wait for its end.
    fn unlock_soon(&self, key: TokenHash, lock: Lock) {
        let Ok(place) = UNLOCKING.try_acquire() else {
            return;
        };
        let storage = self.clone();
        tokio::spawn(async move {
            let _place = place;
            for _ in 0..UNLOCKS {
                tokio::time::sleep(UNLOCK_PAUSE).await;
                if storage.unlock(&key, lock).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Unlocks a session if it is locked so.
    pub(crate) async fn unlock(&self, key: &TokenHash, lock: Lock) -> Result<(), StorageError> {
        match self {
            Self::Own(own) => Ok(own.store()?.unlock_login(*key, lock.until_ms).await?),
            Self::Remote(remote) => remote.unlock(key, lock).await,
        }
    }

    /// Longest wait for an answer, in milliseconds, about.
    pub(crate) fn wait_ms(&self) -> i64 {
        match self {
            Self::Own(_) => OWN_WAIT_MS,
            Self::Remote(remote) => remote.wait_ms,
        }
    }

    /// Ends the session of a key and a name.
    pub(crate) async fn end(
        &self,
        key: &TokenHash,
        id: &str,
        now_ms: i64,
    ) -> Result<(), StorageError> {
        match self {
            Self::Own(own) => {
                let query = LoginQuery {
                    id: Some(id.to_owned()),
                    ..LoginQuery::default()
                };
                let store = own.store()?;
                store.end_logins(&query, &[], now_ms, None).await?;
                Ok(())
            }
            Self::Remote(remote) => remote.end(key).await,
        }
    }

    /// Whether one of these marks, which nodes without a common store have left
    /// here, ends a session that began at `started_ms`.
    pub(crate) async fn is_over(
        &self,
        of: &[TombstoneKey],
        started_ms: i64,
    ) -> Result<bool, StorageError> {
        match self {
            // The process has them in memory.
            Self::Own(_) => Ok(false),
            Self::Remote(remote) => remote.is_over(of, started_ms).await,
        }
    }

    /// Leaves marks for other nodes.
    pub(crate) async fn mark(
        &self,
        marks: &[SessionTombstone],
        now_ms: i64,
    ) -> Result<(), StorageError> {
        match self {
            Self::Own(_) => Ok(()),
            Self::Remote(remote) => remote.mark(marks, now_ms).await,
        }
    }

    /// How long what was read of a session is good, in milliseconds.
    pub(crate) fn read_ms(&self) -> i64 {
        match self {
            // It tells when a session ends, so this is only for what others have
            // renewed.
            Self::Own(_) => 4 * READ_MS,
            Self::Remote(_) => READ_MS,
        }
    }
}
