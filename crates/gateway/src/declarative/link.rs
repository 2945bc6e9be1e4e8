//! From what was collected to records: ids, references, validation.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::collect::{Finding, Pending};
use super::{DeclaredEntities, Place, Reading, unsupported};
use crate::entities::{Entities, Item, Kind, Origin, Scheme};
use crate::records;
use crate::schemas::cert_digest;
use crate::vaults::refers;
use doorward_core::model::credential::{KeyDigest, MASK};
use doorward_core::model::schema::{Schema, Source, Type, Violations};
use doorward_core::model::vault::is_reference;
use doorward_core::yaml::{Document, PathSegment};
use doorward_plugins::basic_auth;

/// Ids of declared records without one are derived from this and from what
/// identifies them, so that they are the same after each load.
const NAMESPACE: Uuid = Uuid::from_u128(0x8e1c_1a3e_5b5f_4d0b_9a57_0d2f_6f0c_7d11);

/// What became of what was collected.
pub(super) struct Linked {
    pub(super) entities: DeclaredEntities,
    pub(super) places: HashMap<(Kind, Uuid), Place>,
    pub(super) warnings: Vec<Finding>,
}

/// Makes records of what was collected. Of a record that is wrong, findings
/// are appended instead.
pub(super) fn records(
    documents: &[Document],
    pending: Vec<Pending>,
    now_ms: i64,
    reading: Reading<'_>,
    findings: &mut Vec<Finding>,
) -> Linked {
    let mut linker = Linker {
        files: documents.iter().map(|d| Arc::from(d.file())).collect(),
        documents,
        now_ms,
        current: match reading {
            Reading::Files => None,
            Reading::Store(current) => Some(Current::of(current)),
        },
        ids: vec![None; pending.len()],
        kinds: pending.iter().map(|item| item.kind).collect(),
        names: HashMap::new(),
        places: HashMap::new(),
        findings,
        warnings: Vec::new(),
    };
    let mut entities = DeclaredEntities::default();
    let mut read: Vec<_> = pending.into_iter().map(|p| linker.read(p)).collect();
    // In this order each kind comes after those that it refers to: ids are
    // derived from references.
    for kind in Kind::ALL {
        for (position, item) in read.iter_mut().enumerate() {
            if let Some(item) = item.as_mut().filter(|item| item.kind == kind) {
                linker.ids[position] = linker.identify(item);
            }
        }
    }
    for (position, item) in read.into_iter().enumerate() {
        if let (Some(item), Some(id)) = (item, linker.ids[position]) {
            entities.items.extend(linker.finish(item, id));
        }
    }
    Linked {
        entities,
        places: linker.places,
        warnings: linker.warnings,
    }
}

/// What is in force, by what identifies it.
struct Current<'a> {
    entities: &'a Entities,
    ids: HashMap<(Kind, String), Uuid>,
}

impl<'a> Current<'a> {
    fn of(entities: &'a Entities) -> Self {
        let identified = |item: Arc<dyn Item>| {
            let seed = identity(item.kind(), &item.doc())?;
            Some(((item.kind(), seed), item.id()))
        };
        Self {
            entities,
            ids: entities.items().filter_map(identified).collect(),
        }
    }
}

struct Linker<'a> {
    documents: &'a [Document],
    files: Vec<Arc<Path>>,
    now_ms: i64,
    /// What is in force, if it is to be kept where it says the same.
    current: Option<Current<'a>>,
    /// By position in the list of all; `None`: wrong, and said so.
    ids: Vec<Option<Uuid>>,
    kinds: Vec<Kind>,
    /// Who has a unique name.
    names: HashMap<(Kind, String), (Uuid, Place)>,
    places: HashMap<(Kind, Uuid), Place>,
    findings: &'a mut Vec<Finding>,
    /// What is right, and most likely not meant.
    warnings: Vec<Finding>,
}

impl Linker<'_> {
    fn wrong(&mut self, place: &Place, field: Option<&str>, message: String) {
        let mut place = place.clone();
        place.path.extend(field.map(Into::into));
        self.findings.push(Finding { place, message });
    }

    fn violations(&mut self, place: &Place, violations: &Violations) {
        for (path, message) in violations.flat() {
            let mut place = place.clone();
            place.path.extend(path);
            self.findings.push(Finding { place, message });
        }
    }

    /// Types the values; `None`, with findings, if that can't be done.
    fn read(&mut self, mut pending: Pending) -> Option<Pending> {
        if let Some(message) = self.unknown_plugin(&pending) {
            self.wrong(&pending.place, Some("name"), message);
            return None;
        }
        let schema = records::any(pending.kind).schema(&pending.record);
        let record = std::mem::take(&mut pending.record);
        match schema.and_then(|schema| schema.read(record, Source::File)) {
            Ok(read) => {
                pending.record = read;
                self.resolve_references(&mut pending)?;
                Some(pending)
            }
            Err(violations) => {
                self.violations(&pending.place, &violations);
                None
            }
        }
    }

    /// Leaves references to vaults where a record may hold them. Elsewhere a file means
    /// what they stand for, and a document from elsewhere may not ask for it.
    fn resolve_references(&mut self, pending: &mut Pending) -> Option<()> {
        if !pending.record.values().any(refers) {
            return Some(());
        }
        let schema = records::any(pending.kind).schema(&pending.record).ok();
        let document = self.documents.get(pending.place.document);
        let is_foreign = self.current.is_some();
        let mut wrong = Vec::new();
        let mut path = pending.place.path.clone();
        each_text(&mut pending.record, schema, &mut path, &mut |text, path| {
            let is_literal = document.is_some_and(|document| document.is_substituted(path));
            if is_reference(text) && !is_literal {
                match Document::resolve_reference(text, is_foreign) {
                    Ok(value) => *text = value,
                    Err(message) => wrong.push((path.to_vec(), message)),
                }
            }
        });
        let sound = wrong.is_empty();
        for (path, message) in wrong {
            let document = pending.place.document;
            let place = Place { document, path };
            self.findings.push(Finding { place, message });
        }
        sound.then_some(())
    }

    /// What a file is told whose plugin is none of ours. Whoever sends one over
    /// the Admin API gets the imitated gateway's words.
    fn unknown_plugin(&self, pending: &Pending) -> Option<String> {
        let name = pending.record.get("name")?.as_str()?;
        let of_file = pending.kind == Kind::Plugin && self.current.is_none();
        if of_file {
            unsupported::unknown_plugin(name)
        } else {
            None
        }
    }

    /// Sets the record's references and says its id.
    fn identify(&mut self, item: &mut Pending) -> Option<Uuid> {
        self.refer_to_parent(item)?;
        self.refer_by_name(item)?;
        let id = match item.record.get("id") {
            Some(Value::String(id)) => match Uuid::try_parse(id) {
                Ok(id) => id,
                Err(_) => {
                    self.wrong(&item.place, Some("id"), "expected a valid UUID".to_owned());
                    return None;
                }
            },
            _ => self.derive(item),
        };
        self.claim_name(item, id)?;
        if let Some(other) = self.places.insert((item.kind, id), item.place.clone()) {
            let message = format!("is declared already at {}", self.told(&other));
            self.wrong(&item.place, None, message);
            return None;
        }
        Some(id)
    }

    /// A nested record belongs to the record around it.
    fn refer_to_parent(&mut self, item: &mut Pending) -> Option<()> {
        let Some(parent) = item.parent else {
            return Some(());
        };
        let id = self.ids.get(parent).copied().flatten()?;
        let field = self.kinds.get(parent)?.singular();
        if item.record.get(field).is_some_and(|value| !value.is_null()) {
            let message = format!("is given already by the {field} around it");
            self.wrong(&item.place, Some(field), message);
            return None;
        }
        let reference = Map::from_iter([("id".to_owned(), id.to_string().into())]);
        item.record.insert(field.to_owned(), reference.into());
        Some(())
    }

    fn refer_by_name(&mut self, item: &mut Pending) -> Option<()> {
        let (names, current) = (&self.names, &self.current);
        let find = |kind: Kind, name: &str| {
            let declared = names.get(&(kind, folded(kind, name))).map(|(id, _)| *id);
            declared.or_else(|| of_files(current.as_ref()?.entities, kind, name))
        };
        let resource = records::any(item.kind);
        let Err((field, kind, name)) = resource.resolve_names(&mut item.record, &find) else {
            return Some(());
        };
        let message = match kind.key() {
            Some(_) => format!("no {} named '{name}' is declared", kind.singular()),
            None => format!("expected the id of one of the {}", kind.plural()),
        };
        // An item of a list in another record is what it refers to.
        let is_item = item.kind == Kind::GroupMembership && !is_own_list(&item.place);
        self.wrong(&item.place, Some(field).filter(|_| !is_item), message);
        None
    }

    /// The same id at each load, whatever else the files hold: from the name
    /// or the place; else from the content.
    fn derive(&self, item: &Pending) -> Uuid {
        let identity = identity(item.kind, &item.record);
        if let (Some(current), Some(seed)) = (&self.current, &identity)
            && let Some(id) = current.ids.get(&(item.kind, seed.clone()))
        {
            return *id;
        }
        let (seed, has_twins) = match identity {
            // Upstreams are told the id: it must not let anybody guess the key.
            _ if item.kind == Kind::Credential(Scheme::KeyAuth) => {
                (format!("{:?}", item.record.get("consumer")), true)
            }
            Some(identity) => (identity, false),
            None => (Value::Object(item.record.clone()).to_string(), true),
        };
        let derived = |copy: usize| {
            let kind = item.kind.plural();
            Uuid::new_v5(&NAMESPACE, format!("{kind} {copy} {seed}").as_bytes())
        };
        let mut id = derived(0);
        if has_twins {
            // Twins without names are told apart by their order.
            let mut copy = 1;
            while self.places.contains_key(&(item.kind, id)) {
                id = derived(copy);
                copy += 1;
            }
        }
        id
    }

    fn claim_name(&mut self, item: &Pending, id: Uuid) -> Option<()> {
        let field = item.kind.key();
        let Some((field, Value::String(name))) =
            field.and_then(|field| Some((field, item.record.get(field)?)))
        else {
            return Some(());
        };
        let key = (item.kind, folded(item.kind, name));
        if let Some((_, other)) = self.names.get(&key) {
            let shown = match item.kind {
                // A key in a message would end up in a log.
                Kind::Credential(Scheme::KeyAuth) => MASK,
                _ => name,
            };
            let message = format!("'{shown}' is taken already at {}", self.told(other));
            self.wrong(&item.place, Some(field), message);
            return None;
        }
        self.names.insert(key, (id, item.place.clone()));
        Some(())
    }

    /// Warns of a password that is the hash of one, most likely.
    fn warn_of_hash(&mut self, item: &Pending) {
        let password = item.record.get("password").and_then(Value::as_str);
        if item.kind == Kind::Credential(Scheme::BasicAuth)
            && password.is_some_and(basic_auth::is_legacy_hash)
        {
            let mut place = item.place.clone();
            place.path.push("password".into());
            let message = "it looks like a hash, and is taken for the password itself: give the \
                           password, or set _transform: false";
            let message = message.to_owned();
            self.warnings.push(Finding { place, message });
        }
    }

    fn finish(&mut self, mut item: Pending, id: Uuid) -> Option<Arc<dyn Item>> {
        self.warn_of_hash(&item);
        let resource = records::any(item.kind);
        let old = self.current.as_ref().and_then(|current| {
            let table = current.entities.table(item.kind);
            table.item(id)
        });
        let origin = match (&old, &self.current) {
            // What a file owns and the document repeats stays the file's.
            (Some(old), _) => old.origin().clone(),
            (None, Some(_)) => Origin::Store,
            (None, None) => Origin::File(self.files[item.place.document].clone()),
        };
        if let Some(old) = &old {
            if *old.origin() != Origin::Store {
                // Those of a file are made up at each start.
                item.record
                    .retain(|field, _| !TIMES.contains(&field.as_str()));
            }
            keep_times(&mut item.record, &old.doc());
        }
        resource.stamp(&mut item.record, id, self.now_ms);
        let made = resource.finish(item.record, origin.clone());
        let made = made.and_then(|new| match &old {
            Some(old) => changed_or_same(old, new, origin, self.now_ms),
            None => Ok(new),
        });
        match made {
            Ok(item) => Some(item),
            Err(violations) => {
                self.violations(&item.place, &violations);
                None
            }
        }
    }

    fn told(&self, place: &Place) -> String {
        let document = &self.documents[place.document];
        match document.line_of(&place.path) {
            Some(line) => format!("{}:{line}", document.file().display()),
            None => document.file().display().to_string(),
        }
    }
}

/// Whether a membership stands in a list of memberships.
fn is_own_list(place: &Place) -> bool {
    let list = place.path.iter().rev().nth(1);
    list.is_some_and(|list| *list == Kind::GroupMembership.plural().into())
}

const TIMES: [&str; 2] = ["created_at", "updated_at"];

/// A document that does not tell the times of a record means those it has.
fn keep_times(record: &mut Map<String, Value>, old: &Map<String, Value>) {
    for field in TIMES {
        let slot = record.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = old.get(field).cloned().unwrap_or_default();
        }
    }
}

/// `old` if `new` says the same; else `new`, whose last change is now unless
/// it says when.
fn changed_or_same(
    old: &Arc<dyn Item>,
    new: Arc<dyn Item>,
    origin: Origin,
    now_ms: i64,
) -> Result<Arc<dyn Item>, Violations> {
    let (before, mut after) = (old.doc(), new.doc());
    if before == after {
        return Ok(old.clone());
    }
    if before.get("updated_at") != after.get("updated_at") {
        return Ok(new);
    }
    after.remove("updated_at");
    let resource = records::any(new.kind());
    resource.stamp(&mut after, new.id(), now_ms);
    resource.finish(after, origin)
}

/// Calls `visit` with each text that no field keeps as a reference, and its path.
fn each_text(
    record: &mut Map<String, Value>,
    schema: Option<&Schema>,
    path: &mut Vec<PathSegment>,
    visit: &mut impl FnMut(&mut String, &[PathSegment]),
) {
    for (name, value) in record {
        path.push(name.as_str().into());
        let field = schema.and_then(|schema| schema.field(name));
        match (value, field.map(|field| &field.kind)) {
            (Value::Object(map), Some(Type::Record(inside))) => {
                each_text(map, Some(inside), path, visit);
            }
            (value, _) if !field.is_some_and(|field| field.referenceable) => {
                each_text_of(value, path, visit);
            }
            _ => {}
        }
        path.pop();
    }
}

fn each_text_of(
    value: &mut Value,
    path: &mut Vec<PathSegment>,
    visit: &mut impl FnMut(&mut String, &[PathSegment]),
) {
    match value {
        Value::String(text) => visit(text, path),
        Value::Array(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                path.push(index.into());
                each_text_of(item, path, visit);
                path.pop();
            }
        }
        Value::Object(map) => each_text(map, None, path, visit),
        _ => {}
    }
}

/// The record of this name that a file owns.
fn of_files(entities: &Entities, kind: Kind, name: &str) -> Option<Uuid> {
    let table = entities.table(kind);
    let item = table.item(table.id_of(name)?)?;
    (*item.origin() != Origin::Store).then(|| item.id())
}

/// Server names are the same in any case, and a key is the same as its hash.
fn folded(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Credential(Scheme::KeyAuth) => KeyDigest::of(name).to_string(),
        Kind::Sni => name.to_ascii_lowercase(),
        _ => name.to_owned(),
    }
}

/// What makes a record of this kind the same one as another, besides its id:
/// its name or its place. `None`: nothing does.
fn identity(kind: Kind, record: &Map<String, Value>) -> Option<String> {
    let shown = |field: &str| {
        record
            .get(field)
            .map_or("null".to_owned(), Value::to_string)
    };
    let text = |field: &str| record.get(field).and_then(Value::as_str);
    match kind {
        Kind::Key => Some(["kid", "set"].map(shown).join(" ")),
        Kind::Service | Kind::Route | Kind::Upstream | Kind::KeySet | Kind::ConsumerGroup => {
            text("name").map(str::to_owned)
        }
        Kind::GroupMembership => Some(["consumer", "consumer_group"].map(shown).join(" ")),
        Kind::Vault => text("prefix").map(str::to_owned),
        Kind::Sni => text("name").map(|name| folded(kind, name)),
        Kind::Consumer => match (text("username"), text("custom_id")) {
            (Some(name), _) => Some(name.to_owned()),
            (None, Some(id)) => Some(format!("custom_id {id}")),
            (None, None) => None,
        },
        Kind::Plugin => {
            let mut place = ["name", "service", "route"].map(shown).join(" ");
            let is_set = |field: &str| record.get(field).is_some_and(|to| !to.is_null());
            if is_set("consumer") {
                place = format!("{place} {}", shown("consumer"));
            }
            if is_set("consumer_group") {
                place = format!("{place} group {}", shown("consumer_group"));
            }
            Some(place)
        }
        Kind::Credential(Scheme::KeyAuth) => text("key").map(|key| KeyDigest::of(key).to_string()),
        Kind::Credential(Scheme::Acl) => Some(["group", "consumer"].map(shown).join(" ")),
        Kind::Credential(Scheme::Jwt) => text("key").map(str::to_owned),
        Kind::Credential(_) => text("username").map(str::to_owned),
        Kind::Target => Some(["target", "upstream"].map(shown).join(" ")),
        Kind::Certificate => text("cert").map(str::to_owned),
        Kind::CaCertificate => {
            let cert = text("cert")?;
            Some(cert_digest(cert).unwrap_or_else(|| cert.to_owned()))
        }
    }
}
