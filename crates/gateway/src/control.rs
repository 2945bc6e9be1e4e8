//! The only writer: a change is compiled, then persisted, then in force.

mod audit_events;
mod commit;
mod compilation;
mod difference;
mod follow;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

use super::credentials;
use super::edit;
use super::entities::{self, Entities, Entity, Item, Kind, Lines, Origin, Record};
use super::handler::{Destinations, Routes};
use super::records;
use super::snapshot::{self, CompileContext, CompileError, LiveRoute, Snapshot};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::plugin::Plugin;
use doorward_net::telemetry::traffic::RouteTraffic;
use doorward_openid_connect::Providers;
use doorward_store::{Cause, EntityChange, Store, StoreError};

use commit::{Base, Commit, State, Uncommitted};
pub use difference::Difference;

/// One step of a change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Creates or replaces a record.
    Put(Arc<dyn Item>),
    /// Removes a record, and those that go with it.
    Delete(Kind, Uuid),
}

impl Change {
    /// Creates or replaces `record`.
    pub fn put<T: Entity>(record: Record<T>) -> Self {
        Self::Put(Arc::new(record))
    }

    /// Removes the record with this id.
    pub fn delete<T: Entity>(id: Uuid) -> Self {
        Self::Delete(T::KIND, id)
    }
}

/// Why a change was not made. Nothing of it is stored or in force.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A unique name (or a plugin's place) is taken.
    #[error("UNIQUE violation detected on '{{{fields}}}'")]
    Unique {
        /// The kind of the record.
        kind: &'static str,
        /// The violated fields as the Admin API prints them, e.g. `name="foo"`.
        fields: String,
        /// The same as a JSON object, for the error's `fields`.
        detail: Map<String, Value>,
    },
    /// A reference to a record that does not exist.
    #[error("the foreign key '{{id=\"{id}\"}}' does not reference an existing '{entity}' entity.")]
    ForeignKey {
        /// Field that holds the reference.
        field: &'static str,
        /// Plural of the referenced kind.
        entity: &'static str,
        /// What was referenced.
        id: Uuid,
    },
    /// A record that others refer to can't be removed.
    #[error("an existing '{by}' entity references this '{entity}' entity")]
    Referenced {
        /// Plural of the kind to be removed.
        entity: &'static str,
        /// Plural of the referring kind.
        by: &'static str,
    },
    /// The record is owned by a file.
    #[error("this entity is declared in {}; change it there", file.display())]
    FileOwned {
        /// The declaring file.
        file: PathBuf,
    },
    /// The record can't be compiled: a regular expression, a plugin's config.
    #[error("{field}: {message}")]
    Invalid {
        /// Dotted path of the field, for instance `config.rate.duration`.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the configuration files declare.
#[derive(Clone, Debug, Default)]
pub struct DeclaredEntities {
    /// The records, of any kind and in any order.
    pub items: Vec<Arc<dyn Item>>,
    /// Where in their files they begin.
    pub lines: Arc<Lines>,
}

impl DeclaredEntities {
    /// Adds a record.
    pub fn push<T: Entity>(&mut self, record: Record<T>) {
        self.items.push(Arc::new(record));
    }

    /// The records of one kind.
    pub fn of<T: Entity>(&self) -> impl Iterator<Item = &Record<T>> {
        self.items
            .iter()
            .filter_map(|item| entities::typed(&**item))
    }
}

/// A declared entity that can't be in force, with the field at fault.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {id}: {error}")]
pub struct DeclaredError {
    /// Plural of the entity's kind.
    pub kind: &'static str,
    /// The entity at fault.
    pub id: Uuid,
    /// What is wrong with it.
    pub error: ChangeError,
}

/// Owner of the entities and of the live snapshot.
pub struct Control {
    context: CompileContext,
    store: Arc<Store>,
    entities: ArcSwap<Entities>,
    live: Arc<ArcSwap<Snapshot>>,
    /// What was in force and some request may still hold.
    retired: parking_lot::Mutex<Retired>,
    /// Tells of each new snapshot.
    changes: watch::Sender<()>,
    /// What the store said of the entities in force; see `Store::entities_revision`.
    revision: AtomicI64,
    /// Held from the look at the entities until the change is handed in.
    writer: Arc<Mutex<()>>,
    uncommitted: parking_lot::Mutex<Uncommitted>,
    /// Tells when nothing is uncommitted.
    committed: watch::Sender<()>,
    /// Whether one router of all routes is to be made soon.
    compacting: AtomicBool,
}

/// How long after a change one router of all routes is made.
const QUIET: Duration = Duration::from_secs(1);

impl Control {
    /// Loads the stored entities, adds the declared ones, and compiles the
    /// first snapshot.
    ///
    /// # Errors
    /// If the store can't be read or the entities can't be compiled.
    pub async fn open(
        context: CompileContext,
        store: Arc<Store>,
        declared: DeclaredEntities,
    ) -> Result<Arc<Self>, DeclaredError> {
        // Before them: what comes in between is looked at again.
        let revision = store.entities_revision().await.map_err(unreadable)?;
        let stored = stored_entities(&store).await.map_err(unreadable)?;
        let (entities, snapshot) = with_declared(&stored, declared, &context, None)?;
        credentials::publish(&context.parts, &Entities::default(), &entities);
        publish_identities(&context, &snapshot);
        Ok(Arc::new(Self {
            context,
            store,
            entities: ArcSwap::from_pointee(entities),
            live: Arc::new(ArcSwap::from_pointee(snapshot)),
            retired: parking_lot::Mutex::default(),
            changes: watch::Sender::new(()),
            revision: AtomicI64::new(revision),
            writer: Arc::default(),
            uncommitted: parking_lot::Mutex::default(),
            committed: watch::Sender::new(()),
            compacting: AtomicBool::new(false),
        }))
    }

    /// Which write of entities to the store is in force; see `Store::entities_revision`.
    pub fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The OpenID providers that plugins name.
    pub fn providers(&self) -> Arc<Providers> {
        Providers::of(&self.context.parts)
    }

    /// The snapshot of what is declared alone; changes nothing.
    ///
    /// # Errors
    /// What [`Control::open`] would refuse.
    pub fn check(
        context: &CompileContext,
        declared: DeclaredEntities,
    ) -> Result<Snapshot, DeclaredError> {
        with_declared(&Entities::default(), declared, context, None).map(|(_, snapshot)| snapshot)
    }

    /// The snapshot of what `store` holds and what is declared; changes nothing.
    ///
    /// # Errors
    /// What [`Control::open`] would refuse.
    pub async fn compile(
        context: &CompileContext,
        store: Option<&Store>,
        declared: DeclaredEntities,
    ) -> Result<Snapshot, DeclaredError> {
        let stored = match store {
            None => Entities::default(),
            Some(store) => stored_entities(store).await.map_err(unreadable)?,
        };
        let (_, snapshot) = with_declared(&stored, declared, context, None)?;
        Ok(snapshot)
    }

    /// The entities in force.
    pub fn entities(&self) -> Arc<Entities> {
        self.entities.load_full()
    }

    /// Tells of each snapshot that is put in force from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The snapshot in force, for the data path.
    pub fn live(&self) -> Arc<ArcSwap<Snapshot>> {
        self.live.clone()
    }

    /// Makes a change: `edit` sees the entities in force, alone, and says what
    /// to change; the result is checked (unique names, references), compiled,
    /// persisted and swapped in, or nothing happens. What other processes have
    /// changed is taken in first: the references that are checked are there.
    ///
    /// # Errors
    /// What `edit` returned, or why its changes can't be made.
    pub async fn change<R, E, F>(
        self: &Arc<Self>,
        edit: F,
        audit: Option<&PendingAudit>,
    ) -> Result<R, E>
    where
        F: FnOnce(&Entities) -> Result<(Vec<Change>, R), E> + Send,
        E: From<ChangeError>,
    {
        let alone = self.writer.clone().lock_owned().await;
        let base = self.base().await.map_err(ChangeError::from)?;
        let current = &base.state.entities;
        let (changes, answer) = edit(current)?;
        if changes.is_empty() && base.is_in_force {
            return Ok(answer);
        }
        let mut candidate = Entities::clone(current);
        let mut writes = Vec::new();
        for change in changes {
            let record = match &change {
                Change::Put(item) => Some(item.clone()),
                Change::Delete(..) => None,
            };
            edit::apply(&mut candidate, change, &mut writes)
                .map_err(|error| self.first_violation(current, record, error))?;
        }
        let previous = base.state.snapshot.clone();
        let compiled = self.compile_change(alone, candidate, previous).await?;
        let (alone, candidate, snapshot) = compiled;
        if let Some(pending) = audit {
            pending.complete(|record| audit_events::change(record, current, &writes));
        }
        let change = EntityChange::new(writes, audit).map_err(ChangeError::from)?;
        let commit = self.hand_in(&base, change, candidate, snapshot);
        let commit = commit.map_err(ChangeError::from)?;
        drop(alone);
        commit.done().await.map_err(ChangeError::from)?;
        Ok(answer)
    }

    /// What a client is told of a record that can't be written: as in the
    /// imitated gateway, what is wrong with a plugin by itself comes before the
    /// other plugin that has its place.
    fn first_violation(
        &self,
        entities: &Entities,
        record: Option<Arc<dyn Item>>,
        error: ChangeError,
    ) -> ChangeError {
        let plugin = record.as_deref().and_then(entities::typed::<Plugin>);
        match (plugin, &error) {
            (Some(plugin), ChangeError::Unique { .. }) => {
                let wrong = snapshot::check_plugin(&plugin.value, &self.context.parts, entities);
                wrong.map_or_else(ChangeError::from, |()| error)
            }
            _ => error,
        }
    }

    /// Prepares to put what the files declare now in the place of what they
    /// declared before, all of it or nothing. Nobody else makes a change until
    /// the outcome is committed or dropped.
    ///
    /// # Errors
    /// The first entity that can't be in force.
    pub async fn prepare_declared(
        &self,
        declared: DeclaredEntities,
    ) -> Result<Prepared<'_>, DeclaredError> {
        let alone = self.alone().await;
        let current = self.entities.load_full();
        let previous = self.live.load_full();
        let (entities, snapshot) =
            with_declared(&current, declared, &self.context, Some(&previous))?;
        Ok(Prepared {
            control: self,
            _alone: alone,
            entities,
            snapshot,
        })
    }

    /// Where requests of route files go.
    pub fn destinations(&self) -> Destinations {
        Destinations::new(&self.context)
    }

    /// Puts `files` in the place of the route files in force. Requests that
    /// are on their way finish on what they began with.
    pub async fn replace_route_files(&self, files: Arc<Routes>) {
        let _alone = self.alone().await;
        let snapshot = self.live.load().with_files(files);
        self.put(Arc::new(snapshot));
        // The counters of routes that are gone, unless a request still needs them.
        self.context.traffic.prune();
    }

    /// Puts the entities that `read` makes of those in force in the place of
    /// all that is stored: in one durable step, or not at all. With `dry`
    /// nothing is changed, and the answer says what would be.
    ///
    /// # Errors
    /// What `read` returned, or the first entity that can't be in force: above
    /// all one that a file owns, and that is to be another one.
    pub async fn replace_stored<E, F>(
        self: &Arc<Self>,
        dry: bool,
        read: F,
        audit: Option<&PendingAudit>,
    ) -> Result<Difference, E>
    where
        F: FnOnce(&Entities) -> Result<DeclaredEntities, E> + Send,
        E: From<DeclaredError>,
    {
        let alone = self.alone().await;
        let base = self.base().await.map_err(unreadable)?;
        let current = &base.state.entities;
        let wanted = read(current)?;
        let candidate = difference::with_stored(current, wanted)?;
        let difference = Difference::between(current, &candidate);
        if difference.is_empty() {
            return Ok(difference);
        }
        let snapshot = Snapshot::compile(&candidate, &self.context, Some(&base.state.snapshot))
            .map_err(DeclaredError::from)?;
        if dry {
            return Ok(difference);
        }
        let writes = difference.writes();
        if let Some(pending) = audit {
            pending.complete(|record| audit_events::import(record, &difference));
        }
        let change = EntityChange::new(writes, audit).map_err(unreadable)?;
        let commit = self.hand_in(&base, change, candidate, snapshot);
        let commit = commit.map_err(unreadable)?;
        drop(alone);
        commit.done().await.map_err(unreadable)?;
        Ok(difference)
    }

    /// The turn to make a change of what is in force.
    async fn alone(&self) -> MutexGuard<'_, ()> {
        let alone = self.writer.lock().await;
        self.settle().await;
        alone
    }

    /// Hands in what was made of `base`.
    fn hand_in(
        self: &Arc<Self>,
        base: &Base,
        change: EntityChange,
        entities: Entities,
        snapshot: Snapshot,
    ) -> Result<Commit, StoreError> {
        let made = State {
            entities: Arc::new(entities),
            snapshot: Arc::new(snapshot),
        };
        self.enqueue(base, change, made)
    }

    fn swap(&self, entities: Arc<Entities>, snapshot: Arc<Snapshot>) {
        credentials::publish(&self.context.parts, &self.entities.load(), &entities);
        if !Arc::ptr_eq(&snapshot.certificates, &self.live.load().certificates) {
            publish_identities(&self.context, &snapshot);
        }
        self.entities.store(entities);
        self.put(snapshot);
    }

    fn put(&self, new: Arc<Snapshot>) {
        let old = self.live.swap(new.clone());
        self.changes.send_replace(());
        for route in self.retired.lock().add(old, &new) {
            self.context.traffic.forget(route);
        }
    }

    /// Makes one router of the two that changes leave, once nobody has made one
    /// for a moment: requests are looked up once then.
    fn compact_later(self: &Arc<Self>) {
        if !self.live.load().router.are_two() || self.compacting.swap(true, Ordering::AcqRel) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(QUIET).await;
            if let Some(control) = weak.upgrade() {
                control.compacting.store(false, Ordering::Release);
                control.compact().await;
            }
        });
    }

    async fn compact(&self) {
        let _alone = self.alone().await;
        let live = self.live.load_full();
        match live.compacted() {
            Ok(Some(snapshot)) => self.put(Arc::new(snapshot)),
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "routes that are in force do not compile"),
        }
    }
}

/// What was in force. Freeing it takes time that requests must not wait for:
/// the writer holds it until no request can be the last to leave it.
#[derive(Default)]
struct Retired {
    snapshots: Vec<Arc<Snapshot>>,
    routes: Vec<Arc<LiveRoute>>,
}

impl Retired {
    /// Takes in what `new` replaced, and frees what nobody holds any more; the
    /// counters of routes that were freed.
    fn add(&mut self, old: Arc<Snapshot>, new: &Snapshot) -> Vec<Arc<RouteTraffic>> {
        self.routes.append(&mut old.routes_gone_in(new));
        self.snapshots.push(old);
        self.snapshots.retain(|old| Arc::strong_count(old) > 1);
        let mut freed = Vec::new();
        self.routes.retain(|old| {
            let held = Arc::strong_count(old) > 1;
            if !held {
                freed.push(Arc::clone(&old.traffic));
            }
            held
        });
        freed
    }
}

/// Declared entities that can be in force, and are not yet.
pub struct Prepared<'a> {
    control: &'a Control,
    _alone: MutexGuard<'a, ()>,
    entities: Entities,
    snapshot: Snapshot,
}

impl Prepared<'_> {
    /// Puts them in force; this can't fail.
    pub fn commit(self) {
        let (entities, snapshot) = (Arc::new(self.entities), Arc::new(self.snapshot));
        self.control.swap(entities, snapshot);
    }
}

fn publish_identities(context: &CompileContext, snapshot: &Snapshot) {
    let identities = Box::new(Arc::clone(&snapshot.certificates));
    context.parts.outbound.publish_identities(identities);
}

impl From<CompileError> for ChangeError {
    fn from(error: CompileError) -> Self {
        ChangeError::Invalid {
            field: error.field,
            message: error.message,
        }
    }
}

fn unreadable(error: StoreError) -> DeclaredError {
    DeclaredError {
        kind: "entities",
        id: Uuid::nil(),
        error: ChangeError::Store(error),
    }
}

impl From<CompileError> for DeclaredError {
    fn from(error: CompileError) -> Self {
        Self {
            kind: error.kind,
            id: error.id,
            error: error.into(),
        }
    }
}

async fn stored_entities(store: &Store) -> Result<Entities, StoreError> {
    let mut entities = Entities::default();
    for (kind, id, doc) in store.entities().await? {
        let kind =
            Kind::of_plural(&kind).ok_or_else(|| format!("{id}: unknown kind of entity '{kind}'"));
        let kind = kind.map_err(|reason| StoreError::Damaged(reason, None))?;
        let item = records::load(kind, doc).map_err(|error| {
            StoreError::Damaged(format!("{id}: {error}"), Some(Cause::new(error)))
        })?;
        item.put(&mut entities);
    }
    Ok(entities)
}

/// `current` with `declared` in the place of all that files own.
fn with_declared(
    current: &Entities,
    declared: DeclaredEntities,
    context: &CompileContext,
    previous: Option<&Snapshot>,
) -> Result<(Entities, Snapshot), DeclaredError> {
    let mut candidate = Entities {
        lines: declared.lines,
        ..Entities::default()
    };
    for item in current.items().filter(|i| *i.origin() == Origin::Store) {
        item.put(&mut candidate);
    }
    for item in declared.items {
        let (kind, id) = (item.kind().plural(), item.id());
        // An unchanged record keeps its allocation, and what was compiled from it.
        edit::declare(&mut candidate, item.same_or_self(current))
            .map_err(|error| DeclaredError { kind, id, error })?;
    }
    // Of the stored ones too: what they refer to may have been declared.
    all_references(&candidate)?;
    let snapshot = Snapshot::compile(&candidate, context, previous)?;
    Ok((candidate, snapshot))
}

/// Whether all that the records refer to is there.
fn all_references(entities: &Entities) -> Result<(), DeclaredError> {
    for item in entities.items() {
        edit::references(entities, &*item).map_err(|error| DeclaredError {
            kind: item.kind().plural(),
            id: item.id(),
            error,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
