//! The audit event of a change to the entities.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Difference, Entities};
use crate::entities::{Item, Kind};
use doorward_core::model::audit::{self, AuditRecord, Detail};
use doorward_store::{EntityWrite, StoredEntity};

/// Completes the record of the change that makes `writes` of `current`.
pub(super) fn change(record: &mut AuditRecord, current: &Entities, writes: &[EntityWrite]) {
    let all: Vec<String> = writes.iter().map(|write| step(current, write)).collect();
    // Records that go with another one are removed first.
    let main = match writes.last() {
        Some(EntityWrite::Delete(..)) => writes.last(),
        _ => writes.first(),
    };
    match main {
        Some(EntityWrite::Put(new)) => {
            let old = old(current, new.kind, new);
            record.set_kind(match old {
                None => audit::Kind::EntityCreate,
                Some(_) => audit::Kind::EntityUpdate,
            });
            record.set_target(&place(new.kind, new.id, &new.doc));
            if let Some(name) = &new.key {
                record.set_detail("name", name.as_str());
            }
            let members = old.map(|old| members(&*old, new)).unwrap_or_default();
            if !members.is_empty() {
                let members = members.iter().map(String::as_str);
                record.set_detail("members", members.collect::<Detail>());
            }
        }
        Some(EntityWrite::Delete(kind, id)) => record.set_target(&old_place(current, kind, *id)),
        None => {}
    }
    if all.len() > 1 {
        let all = all.iter().map(String::as_str);
        record.set_detail("changes", all.collect::<Detail>());
    }
}

/// Completes the record of an import.
pub(super) fn import(record: &mut AuditRecord, difference: &Difference) {
    let count = |items: usize| i64::try_from(items).unwrap_or(i64::MAX);
    record.set_detail("created", count(difference.created.len()));
    record.set_detail("updated", count(difference.updated.len()));
    record.set_detail("deleted", count(difference.deleted.len()));
}

fn step(current: &Entities, write: &EntityWrite) -> String {
    match write {
        EntityWrite::Put(new) => {
            let verb = match old(current, new.kind, new) {
                None => "create",
                Some(_) => "update",
            };
            format!("{verb} {}", place(new.kind, new.id, &new.doc))
        }
        EntityWrite::Delete(kind, id) => format!("delete {}", old_place(current, kind, *id)),
    }
}

/// How a record is named: a membership by those whom it joins, since its own id is told
/// nowhere else.
fn place(kind: &str, id: Uuid, doc: &Map<String, Value>) -> String {
    let of = |field: &str| doc.get(field)?.get("id")?.as_str();
    if kind == Kind::GroupMembership.plural()
        && let (Some(group), Some(consumer)) = (of("consumer_group"), of("consumer"))
    {
        return format!("consumer_groups/{group}/consumers/{consumer}");
    }
    format!("{kind}/{id}")
}

/// How a record is named that is still there.
fn old_place(current: &Entities, kind: &str, id: Uuid) -> String {
    let table = Kind::of_plural(kind).map(|kind| current.table(kind));
    let old = table.and_then(|table| table.item(id));
    place(kind, id, &old.map_or_else(Map::new, |old| old.doc()))
}

fn old(current: &Entities, kind: &str, new: &StoredEntity) -> Option<std::sync::Arc<dyn Item>> {
    current.table(Kind::of_plural(kind)?).item(new.id)
}

/// The names of what differs, those of a plugin's configuration one by one.
fn members(old: &dyn Item, new: &StoredEntity) -> Vec<String> {
    let old = old.doc();
    let mut names = Vec::new();
    for (name, value) in &new.doc {
        let before = old.get(name);
        if before == Some(value) || name == "updated_at" {
            continue;
        }
        match (
            before.and_then(|before| before.as_object()),
            value.as_object(),
        ) {
            (Some(before), Some(after)) => {
                let inner = after
                    .iter()
                    .filter(|(name, value)| before.get(*name) != Some(value));
                names.extend(inner.map(|(inner, _)| format!("{name}.{inner}")));
            }
            _ => names.push(name.clone()),
        }
    }
    names
}
