//! Users in memory, for requests that only ask whether one may still sign in.
//!
//! The store counts this process's changes; those of others are noticed by the
//! background task. Passwords are never checked against what is held here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use uuid::Uuid;

use doorward_core::model::user::User;
use doorward_core::model::user::name as user_name;
use doorward_store::{Store, StoreError};

/// Users kept in memory.
const CACHED: usize = 10_000;

/// Users by realm and folded name.
#[derive(Debug)]
pub(super) struct Users {
    cache: Cache<(String, String), (u64, Arc<User>)>,
    ids: Cache<Uuid, (u64, Arc<User>)>,
    /// Grows with every change that the store does not count.
    generation: AtomicU64,
}

impl Users {
    pub(super) fn new() -> Self {
        Self {
            cache: Cache::new(CACHED),
            ids: Cache::new(CACHED),
            generation: AtomicU64::new(0),
        }
    }

    /// Forgets all: another process changed a user.
    pub(super) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Grows each time that all is forgotten.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The user of this name, whatever its case.
    pub(super) async fn by_name(
        &self,
        store: &Store,
        realm: &str,
        name: &str,
    ) -> Result<Option<Arc<User>>, StoreError> {
        // From before the look-up: a change meanwhile makes it stale at once.
        let generation = self.generation.load(Ordering::Acquire) + store.generation();
        let key = (realm.to_owned(), user_name::key(name));
        if let Some((of, user)) = self.cache.get(&key)
            && of == generation
        {
            return Ok(Some(user));
        }
        let user = store.user_by_name(realm, name).await?.map(Arc::new);
        if let Some(user) = &user {
            self.cache.insert(key, (generation, Arc::clone(user)));
        }
        Ok(user)
    }

    /// The user of this identifier, if that is known without the store.
    pub(super) fn known_by_id(&self, store: &Store, realm: &str, id: Uuid) -> Option<Arc<User>> {
        let generation = self.generation.load(Ordering::Acquire) + store.generation();
        self.in_memory(generation, realm, id)
    }

    fn in_memory(&self, generation: u64, realm: &str, id: Uuid) -> Option<Arc<User>> {
        let known = self.ids.get(&id);
        let known = known.filter(|(of, user)| *of == generation && user.realm == realm);
        known.map(|(_, user)| user)
    }

    /// The user of this identifier.
    pub(super) async fn by_id(
        &self,
        store: &Store,
        realm: &str,
        id: Uuid,
    ) -> Result<Option<Arc<User>>, StoreError> {
        // As above.
        let generation = self.generation.load(Ordering::Acquire) + store.generation();
        if let Some(user) = self.in_memory(generation, realm, id) {
            return Ok(Some(user));
        }
        let user = store.user(realm, id).await?.map(Arc::new);
        if let Some(user) = &user {
            self.ids.insert(id, (generation, Arc::clone(user)));
        }
        Ok(user)
    }
}
