//! The credentials in force, as filters look them up.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use arc_swap::{ArcSwap, Guard};
use uuid::Uuid;

use crate::basic_auth::StoredPassword;
use crate::hmac_auth::SigningKeys;
use crate::jwt::TokenKey;
use crate::oauth2::Client;
use doorward_plugin_api::consumers::Caller;
use doorward_plugin_api::identity::Credential;

/// Parts that an index is cut into; a change copies one of them.
const PARTS: usize = 256;

/// A credential, ready to be checked.
#[derive(Debug)]
pub struct Entry<M> {
    /// What upstreams are told of it.
    pub credential: Arc<Credential>,
    /// Whom it belongs to.
    pub caller: Arc<Caller>,
    /// When it ends, in seconds since the epoch.
    pub expires_at: Option<i64>,
    /// What it is checked with.
    pub material: M,
}

impl<M> Entry<M> {
    /// Whether it has ended.
    pub(crate) fn is_over(&self, now_secs: i64) -> bool {
        self.expires_at.is_some_and(|end| end <= now_secs)
    }
}

type Part<M> = HashMap<Box<[u8]>, Arc<Entry<M>>, RandomState>;

/// Credentials of one scheme by what requests name them by. A clone shares
/// everything; a change copies a 256th.
#[derive(Debug)]
pub struct Index<M> {
    parts: Arc<[Arc<Part<M>>]>,
    keys: RandomState,
}

impl<M> Clone for Index<M> {
    fn clone(&self) -> Self {
        Self {
            parts: Arc::clone(&self.parts),
            keys: self.keys.clone(),
        }
    }
}

impl<M> Default for Index<M> {
    fn default() -> Self {
        let keys = RandomState::new();
        let empty = Arc::new(Part::with_hasher(keys.clone()));
        Self {
            parts: (0..PARTS).map(|_| Arc::clone(&empty)).collect(),
            keys,
        }
    }
}

impl<M> Index<M> {
    /// The credential of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Entry<M>>> {
        self.parts[self.part_of(name)].get(name)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.is_empty())
    }

    /// Sets the credential of this name.
    pub fn put(&mut self, name: Box<[u8]>, entry: Entry<M>) {
        let part = self.part_of(&name);
        self.part_mut(part).insert(name, Arc::new(entry));
    }

    /// Removes the credential of this name, if it is the one with this identifier.
    pub fn remove(&mut self, name: &[u8], id: Uuid) {
        if self
            .get(name)
            .is_some_and(|entry| entry.credential.id == id)
        {
            let part = self.part_of(name);
            self.part_mut(part).remove(name);
        }
    }

    fn part_of(&self, name: &[u8]) -> usize {
        // The lowest byte: any will do.
        usize::from(self.keys.hash_one(name).to_le_bytes()[0])
    }

    fn part_mut(&mut self, at: usize) -> &mut Part<M> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[at])
    }
}

/// The credentials of all schemes.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Keys, by their hash.
    pub keys: Index<()>,
    /// Passwords, by user name.
    pub passwords: Index<StoredPassword>,
    /// Whether a check of one takes long; then it does with unknown names too.
    pub has_dear_passwords: bool,
    /// Keys of signed tokens, by what tokens name them by.
    pub tokens: Index<TokenKey>,
    /// Secrets of signed requests, by user name.
    pub signatures: Index<SigningKeys>,
    /// Applications that ask for tokens, by `client_id`.
    pub clients: Index<Client>,
}

/// The credentials in force. The gateway publishes them in the slot of this type;
/// a request reads them without a lock.
#[derive(Debug, Default)]
pub struct Credentials(ArcSwap<Directory>);

impl Credentials {
    /// Those in force.
    pub fn load(&self) -> Guard<Arc<Directory>> {
        self.0.load()
    }

    /// Puts `directory` in the place of the one in force.
    pub fn publish(&self, directory: Directory) {
        self.0.store(Arc::new(directory));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use doorward_core::model::consumer::Consumer;

    fn entry(id: u128) -> Entry<()> {
        let consumer = json!({"id": Uuid::nil(), "username": "anna", "created_at": 0});
        let consumer: Consumer = serde_json::from_value(consumer).expect("a consumer");
        Entry {
            credential: Arc::new(Credential::new(Uuid::from_u128(id), "")),
            caller: Arc::new(consumer.into()),
            expires_at: None,
            material: (),
        }
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut index = Index::default();
        index.put((*b"one").into(), entry(1));
        let before = index.clone();
        index.put((*b"two").into(), entry(2));
        index.remove(b"one", Uuid::from_u128(1));
        assert!(before.get(b"one").is_some() && before.get(b"two").is_none());
        assert!(index.get(b"one").is_none() && index.get(b"two").is_some());
    }

    #[test]
    fn a_name_that_another_credential_has_by_now_stays() {
        let mut index = Index::default();
        index.put((*b"one").into(), entry(2));
        index.remove(b"one", Uuid::from_u128(1));
        assert!(index.get(b"one").is_some());
        assert!(Index::<()>::default().is_empty() && !index.is_empty());
    }
}
