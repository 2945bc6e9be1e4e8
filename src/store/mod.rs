//! The durable store behind one trait.

use async_trait::async_trait;
use serde_json::{Map, Value};
use uuid::Uuid;

/// Why the store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or did not answer.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// A unique name is taken.
    #[error("{0} is taken")]
    Taken(String),
    /// What is stored can't be read back.
    #[error("stored record is damaged: {0}")]
    Damaged(String),
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

/// Everything the process keeps.
///
/// Every method is one atomic, durable promise: when it returns `Ok`, a
/// `kill -9` loses nothing of it.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// All gateway entities.
    async fn entities(&self) -> Result<Vec<(String, Uuid, Map<String, Value>)>, StoreError>;

    /// Applies all of `writes` in one transaction, or none.
    async fn write_entities(&self, writes: Vec<EntityWrite>) -> Result<(), StoreError>;
}
