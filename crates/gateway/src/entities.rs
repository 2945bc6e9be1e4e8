//! The gateway's entities: what snapshots are compiled from.

mod credentials;
mod index;
mod kind;
mod kinds;
mod table;

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::consumer_group::{ConsumerGroup, GroupMembership};
use doorward_core::model::credential::{KeyDigest, MASK};
use doorward_core::model::key::{Key, KeySet};
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::service::Service;
use doorward_core::model::sni::Sni;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_core::model::vault::Vault;

pub use credentials::{Credentials, Scheme, SchemeFields, membership};
pub use kind::{Kind, Link, OnDelete};
pub use kinds::{group_membership, target_place};
pub use table::Table;

/// Where a record comes from, and so who may change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Made through the Admin API.
    Store,
    /// Declared in this file: read-only over the Admin API.
    File(Arc<Path>),
}

/// A record: what the gateway reads, and what the Admin API shows besides.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<T> {
    /// The typed view.
    pub value: T,
    /// Who owns it.
    pub origin: Origin,
    rest: Rest,
}

/// What of a document the typed view would show differently or not at all, as
/// JSON text: there are many records, and for nearly all of them it is nothing.
#[derive(Clone, Default, PartialEq)]
struct Rest(Option<Box<str>>);

impl<T: Entity> Record<T> {
    /// The record `value`, which is to be shown as `doc`.
    pub fn new(value: T, doc: &Map<String, Value>, origin: Origin) -> Self {
        let typed = document(&value);
        let rest: Map<String, Value> = doc
            .iter()
            .filter(|(field, shown)| typed.get(field.as_str()) != Some(shown))
            .map(|(field, shown)| (field.clone(), shown.clone()))
            .collect();
        let rest = (!rest.is_empty()).then(|| Value::Object(rest).to_string().into());
        Self {
            value,
            origin,
            rest: Rest(rest),
        }
    }

    /// The record `value`, shown as it is.
    pub fn of(value: T, origin: Origin) -> Self {
        Self {
            value,
            origin,
            rest: Rest::default(),
        }
    }

    /// The whole document, with every field of the schema.
    pub fn doc(&self) -> Map<String, Value> {
        let mut doc = document(&self.value);
        if let Some(rest) = &self.rest.0
            && let Ok(rest) = serde_json::from_str::<Map<String, Value>>(rest)
        {
            doc.extend(rest);
        }
        doc
    }
}

fn document(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        // Records are structs of plain fields: they always are objects.
        _ => Map::new(),
    }
}

/// It may hold a private key, and records end up in logs.
impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "[{} bytes]",
            self.0.as_ref().map_or(0, |text| text.len())
        )
    }
}

/// A kind of record that the tables can hold.
pub trait Entity: Clone + fmt::Debug + PartialEq + Serialize + Send + Sync + 'static {
    /// Which kind.
    const KIND: Kind;
    /// Its identifier.
    fn id(&self) -> Uuid;
    /// Its unique name, if it has one.
    fn key(&self) -> Option<&str> {
        None
    }
    /// Its labels.
    fn tags(&self) -> &[String];
    /// What is true of no other record of the kind.
    fn unique(&self) -> Vec<Unique<'_>> {
        Vec::new()
    }
    /// What is unique about a record of this name, if the kind has names.
    fn named(name: &str) -> Option<Unique<'_>> {
        let key = Self::KIND.key()?;
        Some(Unique::of(vec![(key, Column::Text(name.into()))]))
    }
    /// What it refers to, by the fields of [`Kind::links`].
    fn references(&self) -> Vec<(&'static str, Uuid)> {
        Vec::new()
    }
    /// Texts that records are looked up by though others may have the same, by field.
    fn texts(&self) -> Vec<(&'static str, &str)> {
        Vec::new()
    }
    /// All records of the kind.
    fn table(entities: &Entities) -> &Table<Self>;
    /// All records of the kind, to be changed.
    fn table_mut(entities: &mut Entities) -> &mut Table<Self>;
}

/// Values that no two records of a kind may share, by their fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unique<'a>(Vec<(&'static str, Column<'a>)>);

/// One of the values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Column<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// A reference.
    Id(Option<Uuid>),
    /// A secret text, by its hash. It is never shown.
    Digest(KeyDigest),
}

impl<'a> Unique<'a> {
    /// These fields together; they are shown in the given order.
    pub fn of(columns: Vec<(&'static str, Column<'a>)>) -> Self {
        Self(columns)
    }

    /// A text, if it is set.
    pub fn text(field: &'static str, text: Option<&'a str>) -> impl Iterator<Item = Self> {
        text.into_iter()
            .map(move |text| Self::of(vec![(field, Column::Text(text.into()))]))
    }

    /// As a JSON object.
    pub fn to_json(&self) -> Map<String, Value> {
        let shown = |column: &Column<'_>| match column {
            Column::Text(text) => Value::from(text.as_ref()),
            Column::Id(id) => id.map_or(Value::Null, |id| json!({"id": id})),
            Column::Digest(_) => MASK.into(),
        };
        self.0
            .iter()
            .map(|(field, column)| ((*field).to_owned(), shown(column)))
            .collect()
    }
}

/// As the Admin API prints it: `name="x",service={id="…"}`.
impl fmt::Display for Unique<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (field, column)) in self.0.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            match column {
                Column::Text(text) => write!(f, "{comma}{field}=\"{text}\"")?,
                Column::Id(Some(id)) => write!(f, "{comma}{field}={{id=\"{id}\"}}")?,
                Column::Id(None) => write!(f, "{comma}{field}=null")?,
                Column::Digest(_) => write!(f, "{comma}{field}=\"{MASK}\"")?,
            }
        }
        Ok(())
    }
}

/// A record of any kind.
pub trait Item: Any + fmt::Debug + Send + Sync {
    /// Its kind.
    fn kind(&self) -> Kind;
    /// Its identifier.
    fn id(&self) -> Uuid;
    /// Its unique name, if it has one.
    fn key(&self) -> Option<&str>;
    /// Its labels.
    fn tags(&self) -> &[String];
    /// Who owns it.
    fn origin(&self) -> &Origin;
    /// The whole document, with every field of the schema.
    fn doc(&self) -> Map<String, Value>;
    /// What it refers to.
    fn references(&self) -> Vec<(&'static str, Uuid)>;
    /// What it shares with another record though nobody may.
    fn taken(&self, entities: &Entities) -> Option<Unique<'_>>;
    /// The record in `entities` that is equal to this one, else this one:
    /// what was compiled from it then stays.
    fn same_or_self(self: Arc<Self>, entities: &Entities) -> Arc<dyn Item>;
    /// Creates or replaces it; the caller has checked what must be unique.
    fn put(self: Arc<Self>, entities: &mut Entities);
}

impl<T: Entity> Item for Record<T> {
    fn kind(&self) -> Kind {
        T::KIND
    }

    fn id(&self) -> Uuid {
        self.value.id()
    }

    fn key(&self) -> Option<&str> {
        self.value.key()
    }

    fn tags(&self) -> &[String] {
        self.value.tags()
    }

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn doc(&self) -> Map<String, Value> {
        Record::doc(self)
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        self.value.references()
    }

    fn taken(&self, entities: &Entities) -> Option<Unique<'_>> {
        let other = |unique: &Unique<'_>| {
            let found = T::table(entities).find(unique);
            found.is_some_and(|other| other.value.id() != self.value.id())
        };
        self.value.unique().into_iter().find(other)
    }

    fn same_or_self(self: Arc<Self>, entities: &Entities) -> Arc<dyn Item> {
        match T::table(entities).get(self.value.id()) {
            Some(old) if **old == *self => old.clone(),
            _ => self,
        }
    }

    fn put(self: Arc<Self>, entities: &mut Entities) {
        T::table_mut(entities).put(self);
    }
}

/// The record, if it is of this kind.
pub fn typed<T: Entity>(item: &dyn Item) -> Option<&Record<T>> {
    let item: &dyn Any = item;
    item.downcast_ref()
}

/// A table of any kind.
pub trait AnyTable {
    /// The record with this id.
    fn item(&self, id: Uuid) -> Option<Arc<dyn Item>>;
    /// All records, by ascending id.
    fn items<'a>(&'a self) -> Box<dyn Iterator<Item = Arc<dyn Item>> + 'a>;
    /// The record with this unique name, if the kind has names.
    fn id_of(&self, name: &str) -> Option<Uuid>;
    /// Whether there is a record with this id.
    fn contains(&self, id: Uuid) -> bool;
    /// The ids of the records whose `field` refers to `to`.
    fn referring(&self, field: &'static str, to: Uuid) -> Vec<Uuid>;
    /// Removes a record, if it is there.
    fn remove(&mut self, id: Uuid);
}

impl<T: Entity> AnyTable for Table<T> {
    fn item(&self, id: Uuid) -> Option<Arc<dyn Item>> {
        Some(self.get(id)?.clone())
    }

    fn items<'a>(&'a self) -> Box<dyn Iterator<Item = Arc<dyn Item>> + 'a> {
        Box::new(self.iter().map(|record| record.clone() as Arc<dyn Item>))
    }

    fn id_of(&self, name: &str) -> Option<Uuid> {
        self.by_key(name).map(|record| record.value.id())
    }

    fn contains(&self, id: Uuid) -> bool {
        self.get(id).is_some()
    }

    fn referring(&self, field: &'static str, to: Uuid) -> Vec<Uuid> {
        Table::referring(self, field, to, None)
            .map(|record| record.value.id())
            .collect()
    }

    fn remove(&mut self, id: Uuid) {
        Table::remove(self, id);
    }
}

/// All entities of the gateway, stored ones and declared ones. A clone shares
/// all records; its cost does not depend on how many there are.
#[derive(Clone, Debug, Default)]
pub struct Entities {
    /// Where secrets are looked up.
    pub vaults: Table<Vault>,
    /// Sets of keys.
    pub key_sets: Table<KeySet>,
    /// Keys.
    pub keys: Table<Key>,
    /// Certificates of authorities.
    pub ca_certificates: Table<CaCertificate>,
    /// Certificates with their keys.
    pub certificates: Table<Certificate>,
    /// Server names of certificates.
    pub snis: Table<Sni>,
    /// Whom requests come from.
    pub consumers: Table<Consumer>,
    /// Groups of consumers.
    pub consumer_groups: Table<ConsumerGroup>,
    /// Who belongs to which group.
    pub group_memberships: Table<GroupMembership>,
    /// What they prove themselves by.
    pub credentials: Credentials,
    /// Groups of targets.
    pub upstreams: Table<Upstream>,
    /// Peers of the upstreams.
    pub targets: Table<Target>,
    /// Where requests go.
    pub services: Table<Service>,
    /// Routes.
    pub routes: Table<Route>,
    /// Plugins.
    pub plugins: Table<Plugin>,
    /// Where in their files declared records begin.
    pub lines: Arc<Lines>,
}

/// The lines of declared records in their files, by kind and identifier.
pub type Lines = HashMap<(Kind, Uuid), usize>;

impl Entities {
    /// The line of the file that declares the record; `None`: the store has it, or the
    /// file tells no more.
    pub fn line<T: Entity>(&self, record: &Record<T>) -> Option<usize> {
        self.lines.get(&(T::KIND, record.value.id())).copied()
    }

    /// The table of a kind.
    pub fn table(&self, kind: Kind) -> &dyn AnyTable {
        match kind {
            Kind::Vault => &self.vaults,
            Kind::KeySet => &self.key_sets,
            Kind::Key => &self.keys,
            Kind::CaCertificate => &self.ca_certificates,
            Kind::Certificate => &self.certificates,
            Kind::Sni => &self.snis,
            Kind::Consumer => &self.consumers,
            Kind::ConsumerGroup => &self.consumer_groups,
            Kind::GroupMembership => &self.group_memberships,
            Kind::Credential(scheme) => self.credentials.table(scheme),
            Kind::Upstream => &self.upstreams,
            Kind::Target => &self.targets,
            Kind::Service => &self.services,
            Kind::Route => &self.routes,
            Kind::Plugin => &self.plugins,
        }
    }

    /// The table of a kind, to be changed.
    pub fn table_mut(&mut self, kind: Kind) -> &mut dyn AnyTable {
        match kind {
            Kind::Vault => &mut self.vaults,
            Kind::KeySet => &mut self.key_sets,
            Kind::Key => &mut self.keys,
            Kind::CaCertificate => &mut self.ca_certificates,
            Kind::Certificate => &mut self.certificates,
            Kind::Sni => &mut self.snis,
            Kind::Consumer => &mut self.consumers,
            Kind::ConsumerGroup => &mut self.consumer_groups,
            Kind::GroupMembership => &mut self.group_memberships,
            Kind::Credential(scheme) => self.credentials.table_mut(scheme),
            Kind::Upstream => &mut self.upstreams,
            Kind::Target => &mut self.targets,
            Kind::Service => &mut self.services,
            Kind::Route => &mut self.routes,
            Kind::Plugin => &mut self.plugins,
        }
    }

    /// All records of all kinds, referenced ones first.
    pub fn items(&self) -> impl Iterator<Item = Arc<dyn Item>> {
        Kind::ALL
            .into_iter()
            .flat_map(|kind| self.table(kind).items())
    }
}
