//! From what was sent or declared to records: the one way in, for the Admin
//! API and for declarative files alike.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::control::Change;
use super::entities::{Entities, Entity, Origin, Record, Table};
use super::schemas;
use crate::model::plugin::Plugin;
use crate::model::route::Route;
use crate::model::schema::{Schema, Violations};
use crate::model::service::Service;

/// A kind of record that can be made and changed from outside.
pub trait Resource: Entity + PartialEq + DeserializeOwned {
    /// Its singular: `service`.
    const SINGULAR: &'static str;
    /// The field that holds its unique name.
    const KEY: &'static str;
    /// The references it holds: the field, and the plural of the kind.
    const REFERENCES: &'static [(&'static str, &'static str)];

    /// Whether lists of it also follow the older dialect: a `total`, and query
    /// parameters as equality filters.
    const LEGACY_LIST: bool = false;

    /// The schema of this record.
    ///
    /// # Errors
    /// If the record is of no kind that there is a schema for.
    fn schema(record: &Map<String, Value>) -> Result<&'static Schema, Violations>;

    /// What `created_at` is at this time: seconds, except for plugins, whose
    /// creation time is in milliseconds (interface 2.7).
    fn creation_time(now_ms: i64) -> i64 {
        now_ms.div_euclid(1000)
    }

    /// All records of the kind.
    fn table(entities: &Entities) -> &Table<Self>;

    /// The change that creates or replaces.
    fn put(record: Record<Self>) -> Change;

    /// The change that removes.
    fn delete(id: Uuid) -> Change;

    /// The record as the Admin API shows it.
    fn show(doc: &Map<String, Value>) -> Map<String, Value> {
        doc.clone()
    }
}

impl Resource for Service {
    const SINGULAR: &'static str = "service";
    const KEY: &'static str = "name";
    const REFERENCES: &'static [(&'static str, &'static str)] = &[];

    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::service())
    }

    fn table(entities: &Entities) -> &Table<Self> {
        &entities.services
    }

    fn put(record: Record<Self>) -> Change {
        Change::PutService(record)
    }

    fn delete(id: Uuid) -> Change {
        Change::DeleteService(id)
    }
}

impl Resource for Route {
    const SINGULAR: &'static str = "route";
    const KEY: &'static str = "name";
    const REFERENCES: &'static [(&'static str, &'static str)] = &[("service", "services")];

    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::route())
    }

    fn table(entities: &Entities) -> &Table<Self> {
        &entities.routes
    }

    fn put(record: Record<Self>) -> Change {
        Change::PutRoute(record)
    }

    fn delete(id: Uuid) -> Change {
        Change::DeleteRoute(id)
    }
}

impl Resource for Plugin {
    const SINGULAR: &'static str = "plugin";
    const KEY: &'static str = "instance_name";
    const REFERENCES: &'static [(&'static str, &'static str)] = &[
        ("service", "services"),
        ("route", "routes"),
        ("consumer", "consumers"),
    ];
    const LEGACY_LIST: bool = true;

    fn schema(record: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        schemas::plugin(record.get("name"))
    }

    fn creation_time(now_ms: i64) -> i64 {
        now_ms
    }

    fn table(entities: &Entities) -> &Table<Self> {
        &entities.plugins
    }

    fn put(record: Record<Self>) -> Change {
        Change::PutPlugin(record)
    }

    fn delete(id: Uuid) -> Change {
        Change::DeletePlugin(id)
    }

    /// With both dialects' references: `service: {id}` and `service_id`.
    fn show(doc: &Map<String, Value>) -> Map<String, Value> {
        let mut shown = doc.clone();
        for (field, _) in Self::REFERENCES {
            if let Some(id) = doc.get(*field).and_then(|reference| reference.get("id")) {
                shown.insert(format!("{field}_id"), id.clone());
            }
        }
        shown
    }
}

/// Makes up what is absent or null: id and times.
pub fn stamp<T: Resource>(record: &mut Map<String, Value>, id: Uuid, now_ms: i64) {
    if let Some(Value::String(id)) = record.get_mut("id") {
        id.make_ascii_lowercase();
    }
    let mut absent = |field: &str, value: Value| {
        let slot = record.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value;
        }
    };
    absent("id", id.to_string().into());
    absent("created_at", T::creation_time(now_ms).into());
    absent("updated_at", now_ms.div_euclid(1000).into());
}

/// The complete record, if it satisfies its schema. Id and times must be there.
///
/// # Errors
/// Everything that is wrong with it.
pub fn finish<T: Resource>(
    record: Map<String, Value>,
    origin: Origin,
) -> Result<Record<T>, Violations> {
    let doc = T::schema(&record)?.complete(record)?;
    // The schema admits only what the record can hold; should they ever
    // disagree, the client learns which value it is.
    let value = serde_path_to_error::deserialize(Value::Object(doc.clone()))
        .map_err(|error| Violations::of(&error.path().to_string(), error.inner().to_string()))?;
    Ok(Record { value, doc, origin })
}

/// The record that was stored as `doc`. Fields that its schema has gained since
/// take their defaults.
///
/// # Errors
/// If the document is no such record.
pub fn stored<T: Resource>(mut doc: Map<String, Value>) -> Result<Record<T>, serde_json::Error> {
    if let Ok(schema) = T::schema(&doc) {
        schema.fill(&mut doc);
    }
    let value = serde_json::from_value(Value::Object(doc.clone()))?;
    Ok(Record {
        value,
        doc,
        origin: Origin::Store,
    })
}

/// Replaces references by name with references by id; `find` knows the names
/// of a kind (its plural). What it does not know is returned: field, kind and
/// name.
pub fn resolve_names<T: Resource>(
    record: &mut Map<String, Value>,
    find: impl Fn(&'static str, &str) -> Option<Uuid>,
) -> Result<(), (&'static str, &'static str, String)> {
    for &(field, kind) in T::REFERENCES {
        let Some(Value::Object(reference)) = record.get_mut(field) else {
            continue;
        };
        if reference.contains_key("id") {
            continue;
        }
        let Some(name) = reference.get("name").and_then(Value::as_str) else {
            continue;
        };
        match find(kind, name) {
            Some(id) => {
                *reference = Map::from_iter([("id".to_owned(), id.to_string().into())]);
            }
            None => return Err((field, kind, name.to_owned())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stored_record_gains_the_fields_that_its_schema_gained() {
        let doc = json!({
            "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "name": "s", "protocol": "http",
            "host": "h", "port": 80, "path": null, "retries": 5, "connect_timeout": 1,
            "write_timeout": 1, "read_timeout": 1, "created_at": 1, "updated_at": 1
        });
        let Value::Object(doc) = doc else {
            return;
        };
        let record = stored::<Service>(doc).expect("is a service");
        assert_eq!(record.doc["enabled"], true);
        assert_eq!(record.doc["tls_verify"], Value::Null);
        assert!(record.value.enabled);
    }
}
