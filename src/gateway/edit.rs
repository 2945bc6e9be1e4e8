//! The steps of a change, and the constraints that entities keep among each
//! other: unique names, references, ownership.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::control::{Change, ChangeError};
use super::entities::{Entities, Entity, Origin, Record, Table};
use crate::model::plugin::Plugin;
use crate::model::route::{Reference, Route};
use crate::model::service::Service;
use crate::store::{EntityWrite, StoredEntity};

/// Makes one step on `candidate` and notes what the store has to do for it.
pub(super) fn apply(
    candidate: &mut Entities,
    change: Change,
    writes: &mut Vec<EntityWrite>,
) -> Result<(), ChangeError> {
    match change {
        Change::PutService(record) => put_stored(&mut candidate.services, record, writes),
        Change::PutRoute(record) => {
            route_references(candidate, &record.value)?;
            put_stored(&mut candidate.routes, record, writes)
        }
        Change::PutPlugin(record) => {
            plugin_references(candidate, &record.value)?;
            plugin_place_is_free(&candidate.plugins, &record.value)?;
            put_stored(&mut candidate.plugins, record, writes)
        }
        Change::DeleteService(id) => {
            let of = |r: &Route| r.service.is_some_and(|s| s.id == id);
            if candidate.routes.iter().any(|r| of(&r.value)) {
                return Err(ChangeError::Referenced {
                    entity: Service::KIND,
                    by: Route::KIND,
                });
            }
            delete_plugins(candidate, |p| p.service.is_some_and(|s| s.id == id), writes)?;
            delete_stored(&mut candidate.services, id, writes)
        }
        Change::DeleteRoute(id) => {
            delete_plugins(candidate, |p| p.route.is_some_and(|r| r.id == id), writes)?;
            delete_stored(&mut candidate.routes, id, writes)
        }
        Change::DeletePlugin(id) => delete_stored(&mut candidate.plugins, id, writes),
    }
}

fn put_stored<T: Entity + PartialEq>(
    table: &mut Table<T>,
    record: Record<T>,
    writes: &mut Vec<EntityWrite>,
) -> Result<(), ChangeError> {
    let id = record.value.id();
    if let Some(old) = table.get(id) {
        owned_by_store(&old.origin)?;
    }
    writes.push(EntityWrite::Put(StoredEntity {
        kind: T::KIND,
        id,
        key: record.value.key().map(str::to_owned),
        doc: record.doc.clone(),
    }));
    put(table, Arc::new(record))
}

/// Puts a declared record beside the stored ones; it must not hide one.
pub(super) fn declare<T: Entity>(
    table: &mut Table<T>,
    record: Arc<Record<T>>,
) -> Result<(), ChangeError> {
    let id = record.value.id();
    if table.get(id).is_some() {
        return Err(ChangeError::Unique {
            kind: T::KIND,
            fields: format!("id=\"{id}\""),
            detail: Map::from_iter([("id".to_owned(), Value::from(id.to_string()))]),
        });
    }
    put(table, record)
}

fn put<T: Entity>(table: &mut Table<T>, record: Arc<Record<T>>) -> Result<(), ChangeError> {
    if let Some(key) = record.value.key()
        && let Some(other) = table.by_key(key)
        && other.value.id() != record.value.id()
    {
        let name = if T::KIND == Plugin::KIND {
            "instance_name"
        } else {
            "name"
        };
        return Err(ChangeError::Unique {
            kind: T::KIND,
            fields: format!("{name}=\"{key}\""),
            detail: Map::from_iter([(name.to_owned(), Value::from(key))]),
        });
    }
    table.put(record);
    Ok(())
}

fn delete_stored<T: Entity>(
    table: &mut Table<T>,
    id: Uuid,
    writes: &mut Vec<EntityWrite>,
) -> Result<(), ChangeError> {
    if let Some(old) = table.get(id) {
        owned_by_store(&old.origin)?;
        table.remove(id);
        writes.push(EntityWrite::Delete(T::KIND, id));
    }
    Ok(())
}

fn delete_plugins(
    candidate: &mut Entities,
    belongs: impl Fn(&Plugin) -> bool,
    writes: &mut Vec<EntityWrite>,
) -> Result<(), ChangeError> {
    let ids: Vec<Uuid> = candidate
        .plugins
        .iter()
        .filter(|plugin| belongs(&plugin.value))
        .map(|plugin| plugin.value.id)
        .collect();
    for id in ids {
        delete_stored(&mut candidate.plugins, id, writes)?;
    }
    Ok(())
}

fn owned_by_store(origin: &Origin) -> Result<(), ChangeError> {
    match origin {
        Origin::Store => Ok(()),
        Origin::File(file) => Err(ChangeError::FileOwned {
            file: file.to_path_buf(),
        }),
    }
}

pub(super) fn route_references(entities: &Entities, route: &Route) -> Result<(), ChangeError> {
    reference(&entities.services, "service", route.service)
}

pub(super) fn plugin_references(entities: &Entities, plugin: &Plugin) -> Result<(), ChangeError> {
    reference(&entities.services, "service", plugin.service)?;
    reference(&entities.routes, "route", plugin.route)
}

fn reference<T: Entity>(
    table: &Table<T>,
    field: &'static str,
    to: Option<Reference>,
) -> Result<(), ChangeError> {
    match to {
        Some(to) if table.get(to.id).is_none() => Err(ChangeError::ForeignKey {
            field,
            entity: T::KIND,
            id: to.id,
        }),
        _ => Ok(()),
    }
}

/// One plugin of a name at each place (gateway-admin-api §5).
fn plugin_place_is_free(plugins: &Table<Plugin>, plugin: &Plugin) -> Result<(), ChangeError> {
    let taken = plugins
        .iter()
        .any(|other| other.value.id != plugin.id && place(&other.value) == place(plugin));
    if taken {
        return Err(place_taken(plugin));
    }
    Ok(())
}

/// The same for all plugins at once; the error names one that has no place.
pub(super) fn plugin_places_differ(plugins: &Table<Plugin>) -> Result<(), (Uuid, ChangeError)> {
    let mut taken = HashSet::new();
    match plugins
        .iter()
        .find(|plugin| !taken.insert(place(&plugin.value)))
    {
        Some(plugin) => Err((plugin.value.id, place_taken(&plugin.value))),
        None => Ok(()),
    }
}

fn place(plugin: &Plugin) -> (&str, Option<Reference>, Option<Reference>) {
    (&plugin.name, plugin.service, plugin.route)
}

fn place_taken(plugin: &Plugin) -> ChangeError {
    let shown = |place: Option<Reference>| {
        place.map_or("null".to_owned(), |place| {
            format!("{{id=\"{}\"}}", place.id)
        })
    };
    let json = |place: Option<Reference>| {
        place.map_or(Value::Null, |place| serde_json::json!({"id": place.id}))
    };
    ChangeError::Unique {
        kind: Plugin::KIND,
        fields: format!(
            "consumer=null,name=\"{}\",route={},service={}",
            plugin.name,
            shown(plugin.route),
            shown(plugin.service)
        ),
        detail: Map::from_iter([
            ("consumer".to_owned(), Value::Null),
            ("name".to_owned(), Value::from(plugin.name.as_str())),
            ("route".to_owned(), json(plugin.route)),
            ("service".to_owned(), json(plugin.service)),
        ]),
    }
}
