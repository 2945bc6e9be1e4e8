//! From what was collected to records: ids, references, validation.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::collect::{Finding, Kind, Pending};
use super::{DeclaredEntities, Place};
use crate::gateway::entities::{self, Origin};
use crate::gateway::records::{self, Resource};
use crate::model::plugin::Plugin;
use crate::model::route::Route;
use crate::model::schema::{Source, Violations};
use crate::model::service::Service;
use crate::yaml::Document;

/// Ids of declared records without one are derived from this and from what
/// identifies them, so that they are the same after each load.
const NAMESPACE: Uuid = Uuid::from_u128(0x8e1c_1a3e_5b5f_4d0b_9a57_0d2f_6f0c_7d11);

/// Makes records of what was collected. Of a record that is wrong, findings
/// are appended instead.
pub(super) fn records(
    documents: &[Document],
    pending: Vec<Pending>,
    now_ms: i64,
    findings: &mut Vec<Finding>,
) -> (DeclaredEntities, HashMap<(&'static str, Uuid), Place>) {
    let mut linker = Linker {
        files: documents.iter().map(|d| Arc::from(d.file())).collect(),
        documents,
        now_ms,
        ids: vec![None; pending.len()],
        kinds: pending.iter().map(|item| item.kind).collect(),
        names: HashMap::new(),
        places: HashMap::new(),
        findings,
    };
    let mut entities = DeclaredEntities::default();
    let mut read: Vec<_> = pending.into_iter().map(|p| linker.read(p)).collect();
    // Plugins last: their ids are derived from what they refer to.
    for kind in [Kind::Service, Kind::Route, Kind::Plugin] {
        for (position, item) in read.iter_mut().enumerate() {
            if let Some(item) = item.as_mut().filter(|item| item.kind == kind) {
                linker.ids[position] = linker.identify(item);
            }
        }
    }
    for (position, item) in read.into_iter().enumerate() {
        let (Some(item), Some(id)) = (item, linker.ids[position]) else {
            continue;
        };
        match item.kind {
            Kind::Service => linker.finish::<Service>(item, id, &mut entities),
            Kind::Route => linker.finish::<Route>(item, id, &mut entities),
            Kind::Plugin => linker.finish::<Plugin>(item, id, &mut entities),
        }
    }
    (entities, linker.places)
}

struct Linker<'a> {
    documents: &'a [Document],
    files: Vec<Arc<Path>>,
    now_ms: i64,
    /// By position in the list of all; `None`: wrong, and said so.
    ids: Vec<Option<Uuid>>,
    kinds: Vec<Kind>,
    /// Who has a unique name.
    names: HashMap<(Kind, String), (Uuid, Place)>,
    places: HashMap<(&'static str, Uuid), Place>,
    findings: &'a mut Vec<Finding>,
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
        let schema = match pending.kind {
            Kind::Service => Service::schema(&pending.record),
            Kind::Route => Route::schema(&pending.record),
            Kind::Plugin => Plugin::schema(&pending.record),
        };
        let record = std::mem::take(&mut pending.record);
        match schema.and_then(|schema| schema.read(record, Source::File)) {
            Ok(read) => {
                pending.record = read;
                Some(pending)
            }
            Err(violations) => {
                self.violations(&pending.place, &violations);
                None
            }
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
        let kind = item.kind.plural();
        if let Some(other) = self.places.insert((kind, id), item.place.clone()) {
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
        let field = self.kinds.get(parent)?.field();
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
        let names = &self.names;
        let find = |kind: entities::Kind, name: &str| {
            let kind = match kind {
                entities::Kind::Service => Kind::Service,
                entities::Kind::Route => Kind::Route,
                _ => return None,
            };
            names.get(&(kind, name.to_owned())).map(|(id, _)| *id)
        };
        let unresolved = match item.kind {
            Kind::Service => return Some(()),
            Kind::Route => records::resolve_names::<Route>(&mut item.record, find),
            Kind::Plugin => records::resolve_names::<Plugin>(&mut item.record, find),
        };
        let Err((field, kind, name)) = unresolved else {
            return Some(());
        };
        let message = match kind {
            entities::Kind::Service | entities::Kind::Route => {
                format!("no {field} named '{name}' is declared")
            }
            _ => format!("'{}' can't be declared yet", kind.plural()),
        };
        self.wrong(&item.place, Some(field), message);
        None
    }

    /// The same id at each load, whatever else the files hold: from the name;
    /// of plugins from their place; else from the content.
    fn derive(&self, item: &Pending) -> Uuid {
        let record = &item.record;
        let shown = |field: &str| {
            record
                .get(field)
                .map_or("null".to_owned(), Value::to_string)
        };
        let name = record.get("name").and_then(Value::as_str);
        let seed = match (item.kind, name) {
            (Kind::Plugin, _) => ["name", "service", "route"].map(shown).join(" "),
            (_, Some(name)) => name.to_owned(),
            (_, None) => Value::Object(record.clone()).to_string(),
        };
        let derived = |copy: usize| {
            let kind = item.kind.plural();
            Uuid::new_v5(&NAMESPACE, format!("{kind} {copy} {seed}").as_bytes())
        };
        let mut id = derived(0);
        if name.is_none() {
            // Twins without names are told apart by their order.
            let mut copy = 1;
            while self.places.contains_key(&(item.kind.plural(), id)) {
                id = derived(copy);
                copy += 1;
            }
        }
        id
    }

    fn claim_name(&mut self, item: &Pending, id: Uuid) -> Option<()> {
        let field = match item.kind {
            Kind::Service | Kind::Route => "name",
            Kind::Plugin => "instance_name",
        };
        let Some(Value::String(name)) = item.record.get(field) else {
            return Some(());
        };
        let key = (item.kind, name.clone());
        if let Some((_, other)) = self.names.get(&key) {
            let message = format!("'{name}' is taken already at {}", self.told(other));
            self.wrong(&item.place, Some(field), message);
            return None;
        }
        self.names.insert(key, (id, item.place.clone()));
        Some(())
    }

    fn finish<T: Resource>(
        &mut self,
        mut item: Pending,
        id: Uuid,
        entities: &mut DeclaredEntities,
    ) {
        records::stamp::<T>(&mut item.record, id, self.now_ms);
        let origin = Origin::File(self.files[item.place.document].clone());
        match records::finish::<T>(item.record, origin) {
            Ok(record) => entities.push(record),
            Err(violations) => self.violations(&item.place, &violations),
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
