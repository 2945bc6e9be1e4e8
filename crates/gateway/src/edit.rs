//! The steps of a change, and the constraints that entities keep among each
//! other: unique names, references, ownership. All of it follows from what
//! the kinds declare ([`Kind::links`], `Entity::unique`).

use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::control::{Change, ChangeError};
use super::entities::{self, Entities, Item, Kind, OnDelete, Origin};
use doorward_core::model::consumer_group::{GroupMembership, MAX_GROUPS};
use doorward_store::{EntityWrite, StoredEntity};

/// Makes one step on `candidate` and notes what the store has to do for it.
pub(super) fn apply(
    candidate: &mut Entities,
    change: Change,
    writes: &mut Vec<EntityWrite>,
) -> Result<(), ChangeError> {
    match change {
        Change::Put(item) => {
            if let Some(old) = candidate.table(item.kind()).item(item.id()) {
                owned_by_store(old.origin())?;
            }
            references(candidate, &*item)?;
            unique(candidate, &*item)?;
            bounded(candidate, &*item)?;
            writes.push(EntityWrite::Put(StoredEntity {
                kind: item.kind().plural(),
                id: item.id(),
                key: item.key().map(str::to_owned),
                doc: item.doc(),
            }));
            item.put(candidate);
            Ok(())
        }
        Change::Delete(kind, id) => delete(candidate, kind, id, writes),
    }
}

/// Puts a declared record beside the stored ones; it must not hide one.
pub(super) fn declare(candidate: &mut Entities, item: Arc<dyn Item>) -> Result<(), ChangeError> {
    let id = item.id();
    if candidate.table(item.kind()).contains(id) {
        return Err(ChangeError::Unique {
            kind: item.kind().plural(),
            fields: format!("id=\"{id}\""),
            detail: Map::from_iter([("id".to_owned(), Value::from(id.to_string()))]),
        });
    }
    unique(candidate, &*item)?;
    bounded(candidate, &*item)?;
    item.put(candidate);
    Ok(())
}

/// Removes a record and those that go with it, unless one that stays refers
/// to any of them.
fn delete(
    candidate: &mut Entities,
    kind: Kind,
    id: Uuid,
    writes: &mut Vec<EntityWrite>,
) -> Result<(), ChangeError> {
    let Some(old) = candidate.table(kind).item(id) else {
        return Ok(());
    };
    owned_by_store(old.origin())?;
    // A cascade ends: no kind refers to itself or to a later one.
    for (by, on_delete, referring) in referring(candidate, kind, id) {
        match on_delete {
            OnDelete::Restrict => {
                return Err(ChangeError::Referenced {
                    entity: kind.plural(),
                    by: by.plural(),
                });
            }
            OnDelete::Cascade => delete(candidate, by, referring, writes)?,
        }
    }
    candidate.table_mut(kind).remove(id);
    writes.push(EntityWrite::Delete(kind.plural(), id));
    Ok(())
}

/// The records that refer to `id`, those first that keep it from going.
fn referring(entities: &Entities, kind: Kind, id: Uuid) -> Vec<(Kind, OnDelete, Uuid)> {
    let mut found = Vec::new();
    for by in Kind::ALL {
        for link in by.links().iter().filter(|link| link.to == kind) {
            let ids = entities.table(by).referring(link.field, id);
            found.extend(ids.into_iter().map(|id| (by, link.on_delete, id)));
        }
    }
    found.sort_by_key(|(_, on_delete, _)| *on_delete == OnDelete::Cascade);
    found
}

fn owned_by_store(origin: &Origin) -> Result<(), ChangeError> {
    match origin {
        Origin::Store => Ok(()),
        Origin::File(file) => Err(ChangeError::FileOwned {
            file: file.to_path_buf(),
        }),
    }
}

/// Whether all that `item` refers to is there.
pub(super) fn references(entities: &Entities, item: &dyn Item) -> Result<(), ChangeError> {
    for (field, id) in item.references() {
        let link = item.kind().links().iter().find(|link| link.field == field);
        if let Some(link) = link.filter(|link| !entities.table(link.to).contains(id)) {
            return Err(ChangeError::ForeignKey {
                field: link.field,
                entity: link.to.plural(),
                id,
            });
        }
    }
    Ok(())
}

/// Whether a consumer belongs to no more groups than it may.
fn bounded(entities: &Entities, item: &dyn Item) -> Result<(), ChangeError> {
    let Some(member) = entities::typed::<GroupMembership>(item) else {
        return Ok(());
    };
    let own = (member.value.consumer.id, member.value.id);
    let memberships = &entities.group_memberships;
    let others = memberships.referring("consumer", own.0, None);
    let others = others.filter(|other| other.value.id != own.1);
    if others.take(MAX_GROUPS).count() < MAX_GROUPS {
        return Ok(());
    }
    Err(ChangeError::Invalid {
        field: "consumer_group".to_owned(),
        message: format!("a consumer belongs to {MAX_GROUPS} groups at most"),
    })
}

fn unique(entities: &Entities, item: &dyn Item) -> Result<(), ChangeError> {
    match item.taken(entities) {
        None => Ok(()),
        Some(unique) => Err(ChangeError::Unique {
            kind: item.kind().plural(),
            fields: unique.to_string(),
            detail: unique.to_json(),
        }),
    }
}
