//! From a request's arguments to the record that is to be: pure functions of
//! the entities in force, called while nobody else can change them.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::call::Call;
use super::error::ApiError;
use super::list::Scope;
use super::{body, version};
use doorward_core::clock;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::schema::{self, Source, Violations};
use doorward_gateway::entities::{self, Entities, Kind, Origin, Record, Scheme, membership};
use doorward_gateway::records::{self, Resource};

/// What a path names a record by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Id(Uuid),
    Name(String),
}

impl Key {
    /// What has the shape of an id is one.
    pub(super) fn of(text: &str) -> Self {
        match Uuid::try_parse(text) {
            Ok(id) if text.len() == 36 => Self::Id(id),
            _ => Self::Name(text.to_owned()),
        }
    }

    /// That nothing has this key.
    pub(super) fn absent<T: Resource>(&self) -> ApiError {
        ApiError::Absent(match self {
            Self::Id(id) => format!("primary key '{{id=\"{id}\"}}'"),
            Self::Name(name) => {
                let key = T::KIND.key().unwrap_or("id");
                format!("'{{{key}=\"{name}\"}}'")
            }
        })
    }
}

/// The arguments of a request.
pub(super) struct Draft {
    pub(super) input: Map<String, Value>,
    pub(super) source: Source,
    pub(super) now_ms: i64,
    /// The version that the change is of, where the body names one.
    pub(super) version: Option<String>,
}

impl Draft {
    /// Reads the request's body.
    ///
    /// # Errors
    /// As [`body::arguments`], and for a version that is no text.
    pub(super) fn of(call: &Call) -> Result<Self, ApiError> {
        let (input, source) = body::arguments(&call.headers, &call.body)?;
        let mut new = Self {
            input,
            source,
            now_ms: call.state.clock.now_ms(),
            version: None,
        };
        // A record that was read with its version is sent back as it is.
        if call.method != Method::POST && Scope::of(&call.query)? == Scope::Declared {
            new.version = version::take(&mut new.input)?;
        }
        Ok(new)
    }

    /// Arguments that did not come from a client.
    pub(super) fn internal(input: Map<String, Value>, now_ms: i64) -> Self {
        Self {
            input,
            source: Source::Json,
            now_ms,
            version: None,
        }
    }

    fn read<T: Resource>(
        self,
        owner: Option<(&str, Uuid)>,
    ) -> Result<Map<String, Value>, ApiError> {
        let mut record = T::schema(&self.input)?.read(self.input, self.source)?;
        if let Some((field, id)) = owner {
            refer(&mut record, field, id);
        }
        Ok(record)
    }
}

/// The record that a path names.
pub(super) fn find<'a, T: Resource>(
    entities: &'a Entities,
    key: &Key,
) -> Option<&'a Arc<Record<T>>> {
    match key {
        Key::Id(id) => T::table(entities).get(*id),
        Key::Name(name) => T::find(entities, name),
    }
}

fn refer(record: &mut Map<String, Value>, field: &str, id: Uuid) {
    let reference = Map::from_iter([("id".to_owned(), id.to_string().into())]);
    record.insert(field.to_owned(), reference.into());
}

/// A new record.
///
/// # Errors
/// If the arguments break the schema, or the id that they give is taken.
pub(super) fn create<T: Resource>(
    entities: &Entities,
    new: Draft,
    owner: Option<(&str, Uuid)>,
) -> Result<Record<T>, ApiError> {
    let now_ms = new.now_ms;
    let mut record = new.read::<T>(owner)?;
    record.remove("updated_at");
    records::stamp::<T>(&mut record, clock::random_uuid(), now_ms);
    let record = finish::<T>(entities, record)?;
    let id = record.value.id();
    if T::table(entities).get(id).is_some() {
        return Err(ApiError::PrimaryKey(id));
    }
    Ok(record)
}

/// The record in the place that `key` names, made anew from the arguments:
/// what they do not give takes its default.
///
/// # Errors
/// If the arguments break the schema.
pub(super) fn replace<T: Resource>(
    entities: &Entities,
    key: &Key,
    new: Draft,
    owner: Option<(&str, Uuid)>,
) -> Result<Record<T>, ApiError> {
    let now_ms = new.now_ms;
    let mut record = new.read::<T>(owner)?;
    let mut named_by = None;
    match key {
        Key::Id(id) => {
            record.insert("id".to_owned(), id.to_string().into());
        }
        Key::Name(name) => {
            match T::KIND.key() {
                Some(field) => {
                    record.insert(field.to_owned(), name.as_str().into());
                    named_by = Some(field);
                }
                // By a group, which is unique within its consumer.
                None if T::KIND == Kind::Credential(Scheme::Acl) && owner.is_some() => {
                    record.insert("group".to_owned(), name.as_str().into());
                }
                // By a server name, which is not a field of its own.
                None if T::KIND == Kind::Certificate => {}
                None => return Err(ApiError::Key(name.clone())),
            }
            let old = match owner {
                Some((_, consumer)) if T::KIND == Kind::Credential(Scheme::Acl) => {
                    let member = membership(name, consumer);
                    entities
                        .credentials
                        .groups
                        .find(&member)
                        .map(|old| old.value.id)
                }
                _ => find::<T>(entities, key).map(|old| old.value.id()),
            };
            if let Some(old) = old {
                record.insert("id".to_owned(), old.to_string().into());
            }
        }
    }
    record.remove("updated_at");
    records::stamp::<T>(&mut record, clock::random_uuid(), now_ms);
    finish::<T>(entities, record).map_err(|error| in_the_path(error, named_by))
}

/// What is wrong with the name in a path is no fault of the arguments.
fn in_the_path(error: ApiError, named_by: Option<&'static str>) -> ApiError {
    let (ApiError::Schema(violations), Some(field)) = (&error, named_by) else {
        return error;
    };
    let told = violations.to_json();
    match told.get(field).and_then(Value::as_str) {
        Some(message) => ApiError::Unique {
            field,
            message: message.to_owned().into(),
        },
        None => error,
    }
}

/// The old record with the arguments merged into it.
///
/// # Errors
/// If the result breaks the schema, or the arguments change what can't be.
pub(super) fn update<T: Resource>(
    entities: &Entities,
    old: &Record<T>,
    mut new: Draft,
    owner: Option<(&str, Uuid)>,
) -> Result<Record<T>, ApiError> {
    let mut record = old.doc();
    // The schema of a plugin depends on its name, which need not be sent.
    if T::KIND == Kind::Plugin {
        if new.input.contains_key("name") {
            T::schema(&new.input)?;
        }
        immutable(&new.input, &record, "name")?;
        if let Some(name) = record.get("name") {
            new.input.insert("name".to_owned(), name.clone());
        }
    }
    let now_ms = new.now_ms;
    let mut patch = new.read::<T>(None)?;
    // A PATCH below the owner may also part the record from it.
    if let Some((field, id)) = owner.filter(|(field, _)| !patch.contains_key(*field)) {
        refer(&mut patch, field, id);
    }
    immutable(&patch, &record, "id")?;
    for field in ["id", "updated_at"] {
        patch.remove(field);
    }
    schema::merge(T::schema(&record)?, &mut record, patch);
    record.insert("updated_at".to_owned(), Value::Null);
    records::stamp::<T>(&mut record, old.value.id(), now_ms);
    finish::<T>(entities, record)
}

/// The old record with references that are to be made in the same change.
///
/// # Errors
/// If the result breaks the schema.
pub(super) fn relink<T: Resource>(old: &Record<T>, link: Draft) -> Result<Record<T>, ApiError> {
    let mut record = old.doc();
    record.extend(link.input);
    record.insert("updated_at".to_owned(), Value::Null);
    records::stamp::<T>(&mut record, old.value.id(), link.now_ms);
    Ok(records::finish::<T>(record, Origin::Store)?)
}

fn immutable(
    input: &Map<String, Value>,
    old: &Map<String, Value>,
    field: &str,
) -> Result<(), ApiError> {
    match input.get(field) {
        Some(new) if Some(new) != old.get(field) => {
            Err(Violations::of(field, "immutable field cannot be updated").into())
        }
        _ => Ok(()),
    }
}

fn finish<T: Resource>(
    entities: &Entities,
    mut record: Map<String, Value>,
) -> Result<Record<T>, ApiError> {
    let named = |kind: Kind, name: &str| entities.table(kind).id_of(name);
    records::resolve_names::<T>(&mut record, named).map_err(|(field, kind, name)| {
        ApiError::Unresolved {
            field,
            kind: kind.plural(),
            name,
        }
    })?;
    let record = records::finish::<T>(record, Origin::Store)?;
    if let Some(plugin) = entities::typed::<Plugin>(&record) {
        protocols_overlap(entities, &plugin.value)?;
    }
    Ok(record)
}

/// A plugin must share a protocol with its route, or with one of the routes of
/// its service.
fn protocols_overlap(entities: &Entities, plugin: &Plugin) -> Result<(), ApiError> {
    let own = plugin.protocols.as_deref().unwrap_or_default();
    let overlap = |route: &Route| {
        own.iter()
            .any(|protocol| route.protocols.contains(protocol))
    };
    let route = plugin.route.and_then(|route| entities.routes.get(route.id));
    if let Some(route) = route {
        if overlap(&route.value) {
            return Ok(());
        }
        let message = "must match the associated route's protocols";
        return Err(Violations::of("protocols", message).into());
    }
    let Some(service) = plugin.service else {
        return Ok(());
    };
    let mut routes = entities
        .routes
        .referring("service", service.id, None)
        .peekable();
    if routes.peek().is_none() || routes.any(|route| overlap(&route.value)) {
        return Ok(());
    }
    let message =
        "must match the protocols of at least one route pointing to this Plugin's service";
    Err(Violations::of("protocols", message).into())
}
