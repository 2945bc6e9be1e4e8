//! The gateway's entities: what snapshots are compiled from.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::model::plugin::Plugin;
use crate::model::route::Route;
use crate::model::service::Service;

/// Where a record comes from, and so who may change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Made through the Admin API.
    Store,
    /// Declared in this file: read-only over the Admin API.
    File(Arc<Path>),
}

/// A record: its document, complete as the Admin API shows it, and what the
/// gateway reads from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<T> {
    /// The typed view.
    pub value: T,
    /// The whole document, with every field of the schema.
    pub doc: Map<String, Value>,
    /// Who owns it.
    pub origin: Origin,
}

/// A kind of record that the tables below can hold.
pub trait Entity: Clone + Send + Sync + 'static {
    /// Its plural, as in the Admin API's paths: `services`.
    const KIND: &'static str;
    /// Its identifier.
    fn id(&self) -> Uuid;
    /// Its unique name, if it has one.
    fn key(&self) -> Option<&str>;
}

impl Entity for Service {
    const KIND: &'static str = "services";
    fn id(&self) -> Uuid {
        self.id
    }
    fn key(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl Entity for Route {
    const KIND: &'static str = "routes";
    fn id(&self) -> Uuid {
        self.id
    }
    fn key(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl Entity for Plugin {
    const KIND: &'static str = "plugins";
    fn id(&self) -> Uuid {
        self.id
    }
    fn key(&self) -> Option<&str> {
        self.instance_name.as_deref()
    }
}

/// All records of one kind, by id and by unique name.
#[derive(Clone, Debug)]
pub struct Table<T> {
    by_id: BTreeMap<Uuid, Arc<Record<T>>>,
    by_key: HashMap<String, Uuid>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_key: HashMap::new(),
        }
    }
}

impl<T: Entity> Table<T> {
    /// The record with this id.
    pub fn get(&self, id: Uuid) -> Option<&Arc<Record<T>>> {
        self.by_id.get(&id)
    }

    /// The record with this unique name.
    pub fn by_key(&self, key: &str) -> Option<&Arc<Record<T>>> {
        self.by_key.get(key).and_then(|id| self.by_id.get(id))
    }

    /// All records, by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Record<T>>> {
        self.by_id.values()
    }

    /// The records whose id is greater than `after`, by ascending id.
    pub fn after(&self, after: Option<Uuid>) -> impl Iterator<Item = &Arc<Record<T>>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.by_id
            .range((from, Unbounded))
            .map(|(_, record)| record)
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Creates or replaces; the caller has checked that the name is free.
    pub fn put(&mut self, record: Arc<Record<T>>) {
        let id = record.value.id();
        self.remove(id);
        if let Some(key) = record.value.key() {
            self.by_key.insert(key.to_owned(), id);
        }
        self.by_id.insert(id, record);
    }

    /// Removes and returns the record.
    pub fn remove(&mut self, id: Uuid) -> Option<Arc<Record<T>>> {
        let old = self.by_id.remove(&id)?;
        if let Some(key) = old.value.key() {
            self.by_key.remove(key);
        }
        Some(old)
    }
}

/// All entities of the gateway, stored ones and declared ones.
#[derive(Clone, Debug, Default)]
pub struct Entities {
    /// Upstream services.
    pub services: Table<Service>,
    /// Routes.
    pub routes: Table<Route>,
    /// Plugins.
    pub plugins: Table<Plugin>,
}
