//! `/config`: all that is stored as one declarative document
//! (gateway-admin-api §8).

use std::path::Path;
use std::sync::Arc;

use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::{Map, Value, json};

use super::body;
use super::call::Call;
use super::credentials::stored_item;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::model::key_path::PathSegment;
use doorward_core::openapi::{Operation, Parameter, fields, text};
use doorward_core::yaml::{Document, DocumentError};
use doorward_gateway::control::{ChangeError, DeclaredEntities, DeclaredError, Difference};
use doorward_gateway::declarative::{self, Declared};
use doorward_gateway::entities::{Entities, Item, Kind};

/// What a document without a file is called in messages.
const NAME: &str = "config";

/// `GET /config` and `POST /config`.
pub(super) fn config(call: Call) -> Answer {
    Box::pin(async move {
        if call.method == Method::GET {
            let entities = call.state.control.entities();
            let body = json!({"config": declarative::export(&entities)});
            return Ok(reply::json(StatusCode::OK, &body));
        }
        replace(&call).await
    })
}

/// Why a document was not put in force.
enum Refused {
    /// What is wrong in it.
    Wrong(Vec<DocumentError>),
    /// An entity that can't be in force.
    Entity(DeclaredError),
}

impl From<DeclaredError> for Refused {
    fn from(error: DeclaredError) -> Self {
        Self::Entity(error)
    }
}

async fn replace(call: &Call) -> Result<Response, ApiError> {
    let flag = |name: &str| {
        let mut query = call.query.iter();
        query.any(|(key, value)| key == name && matches!(value.as_str(), "1" | "true"))
    };
    let document = match document(call)? {
        Ok(document) => document,
        Err(error) => return Ok(invalid(&[error], None)),
    };
    let source = flag("flatten_errors").then(|| document.value().clone());
    let disclosure = call.disclosure();
    let now_ms = disclosure.now_ms;
    let mut read = None;
    let skips = flag("skip_unsupported");
    let load = |current: &Entities| -> Result<DeclaredEntities, Refused> {
        let declared = declarative::load_stored(document, current, now_ms, skips);
        let declared = declared.map_err(Refused::Wrong)?;
        let read = read.insert(declared);
        let items = read.entities.items.iter();
        let items = items.map(|item| stored_item(Arc::clone(item), current, disclosure));
        Ok(DeclaredEntities {
            items: items.collect(),
            ..DeclaredEntities::default()
        })
    };
    let dry = flag("check");
    let outcome = call
        .state
        .control
        .replace_stored(dry, load, call.audit())
        .await;
    let difference = match outcome {
        Ok(difference) => difference,
        Err(Refused::Wrong(errors)) => return Ok(invalid(&errors, source.as_ref())),
        Err(Refused::Entity(error)) => return refuse(error, read.as_ref(), source.as_ref()),
    };
    if dry {
        return Ok(reply::json(StatusCode::OK, &told(&difference)));
    }
    if difference.is_empty() && flag("check_hash") {
        return Ok(reply::empty(StatusCode::NOT_MODIFIED));
    }
    let declared = read.map(|declared| declared.entities).unwrap_or_default();
    Ok(reply::json(StatusCode::CREATED, &keyed(&declared)))
}

/// The document in a request: the body itself, or what it calls `config`.
fn document(call: &Call) -> Result<Result<Document, DocumentError>, ApiError> {
    let (text, is_json) = document_text(call)?;
    let name = if is_json { "config.json" } else { NAME };
    Ok(
        Document::parse_foreign(&text, Path::new(name)).map_err(|mut error| {
            error.file = NAME.into();
            error
        }),
    )
}

fn document_text(call: &Call) -> Result<(String, bool), ApiError> {
    let content_type = call.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let essence = content_type.map(body::essence).unwrap_or_default();
    let raw = || {
        std::str::from_utf8(&call.body)
            .map(str::to_owned)
            .map_err(|_| ApiError::Form("not UTF-8".to_owned()))
    };
    if matches!(
        essence.as_str(),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" | "text/plain"
    ) {
        return Ok((raw()?, false));
    }
    let (mut arguments, _) = body::arguments(&call.headers, &call.body)?;
    match arguments.remove("config") {
        Some(Value::String(text)) => Ok((text, false)),
        Some(document @ Value::Object(_)) => Ok((document.to_string(), true)),
        Some(_) => Err(ApiError::Option {
            option: "config".into(),
            message: "expected a declarative configuration".into(),
        }),
        None if essence == "application/json" => Ok((raw()?, true)),
        None => Err(ApiError::Option {
            option: "config".into(),
            message: "required field missing".into(),
        }),
    }
}

/// An entity can't be in force: where in the document it is, if it is there.
fn refuse(
    error: DeclaredError,
    declared: Option<&Declared>,
    source: Option<&Value>,
) -> Result<Response, ApiError> {
    match &error.error {
        ChangeError::FileOwned { .. } | ChangeError::Store(_) => Err(ApiError::Change(error.error)),
        _ => match declared.and_then(|declared| declared.locate(&error)) {
            Some(located) => Ok(invalid(&[located], source)),
            None => Err(ApiError::Change(error.error)),
        },
    }
}

/// 400 code 14; with `source`, also the errors by entity.
fn invalid(errors: &[DocumentError], source: Option<&Value>) -> Response {
    let mut fields = Value::Null;
    let mut lines = Vec::new();
    for error in errors {
        lines.push(error.to_string());
        if error.path.is_empty() {
            put(&mut fields, &["error".into()], &error.message);
        } else {
            put(&mut fields, &error.path, &error.message);
        }
    }
    let mut body = Map::from_iter([
        (
            "message".to_owned(),
            json!(format!(
                "declarative config is invalid: {}",
                lines.join("; ")
            )),
        ),
        (
            "name".to_owned(),
            json!("invalid declarative configuration"),
        ),
        ("code".to_owned(), json!(14)),
        ("fields".to_owned(), fields),
    ]);
    if let Some(source) = source {
        body.insert("flattened_errors".to_owned(), flattened(errors, source));
    }
    reply::json(StatusCode::BAD_REQUEST, &Value::Object(body))
}

/// Puts a message at a path, lists as long as it takes.
fn put(slot: &mut Value, path: &[PathSegment], message: &str) {
    match path.split_first() {
        None => *slot = message.into(),
        Some((PathSegment::Key(key), rest)) => {
            if !slot.is_object() {
                *slot = json!({});
            }
            if let Value::Object(map) = slot {
                put(
                    map.entry(key.as_str()).or_insert(Value::Null),
                    rest,
                    message,
                );
            }
        }
        Some((PathSegment::Index(index), rest)) => {
            if !slot.is_array() {
                *slot = json!([]);
            }
            if let Value::Array(list) = slot {
                if list.len() <= *index {
                    list.resize(index + 1, Value::Null);
                }
                if let Some(slot) = list.get_mut(*index) {
                    put(slot, rest, message);
                }
            }
        }
    }
}

/// The errors by the entity that they are in, with the entity itself.
fn flattened(errors: &[DocumentError], source: &Value) -> Value {
    let mut entities: Vec<(Vec<PathSegment>, Value)> = Vec::new();
    for error in errors {
        let Some((depth, kind)) = innermost(&error.path) else {
            continue;
        };
        let (at, field) = error.path.split_at(depth);
        let field: Vec<String> = field.iter().map(shown).collect();
        let told = if field.is_empty() {
            json!({"message": error.message, "type": "entity"})
        } else {
            json!({"field": field.join("."), "message": error.message, "type": "field"})
        };
        if let Some((_, known)) = entities.iter_mut().find(|(path, _)| path == at) {
            if let Some(Value::Array(errors)) = known.get_mut("errors") {
                errors.push(told);
            }
            continue;
        }
        entities.push((at.to_vec(), entity_of(kind, at, source, told)));
    }
    entities.into_iter().map(|(_, entity)| entity).collect()
}

/// The entity at a path, with what is wrong with it.
fn entity_of(kind: Kind, at: &[PathSegment], source: &Value, error: Value) -> Value {
    let entity = alone(kind, at, source);
    let mut told = json!({"entity_type": kind.singular(), "errors": [error]});
    let of = |field: &str| entity.get(field).cloned();
    let name = of("name").filter(|name| name.as_str().is_some_and(|name| !name.is_empty()));
    let facts = [
        ("entity_id", of("id")),
        ("entity_name", name),
        ("entity_tags", of("tags")),
    ];
    if let Value::Object(told) = &mut told {
        for (name, fact) in facts {
            told.extend(fact.map(|fact| (name.to_owned(), fact)));
        }
        told.insert("entity".to_owned(), entity);
    }
    told
}

/// The entity at a path as it would stand by itself: without the entities that
/// are nested in it, and with a reference to the one that it is nested in.
fn alone(kind: Kind, at: &[PathSegment], source: &Value) -> Value {
    let mut entity = value_at(source, at).cloned().unwrap_or_default();
    let Value::Object(fields) = &mut entity else {
        return entity;
    };
    fields.retain(|name, value| {
        let nested = Kind::of_plural(name).filter(|_| value.is_array());
        let refers = |nested: Kind| nested.links().iter().any(|link| link.to == kind);
        !nested.is_some_and(refers)
    });
    let around = &at[..at.len().saturating_sub(2)];
    if let Some((depth, parent)) = innermost(around)
        && depth == around.len()
        && let Some(link) = kind.links().iter().find(|link| link.to == parent)
        && let Some(id) = value_at(source, around).and_then(|parent| parent.get("id"))
        && !fields.contains_key(link.field)
    {
        fields.insert(link.field.to_owned(), json!({"id": id}));
    }
    entity
}

/// How deep in a path its innermost entity is, and of which kind.
fn innermost(path: &[PathSegment]) -> Option<(usize, Kind)> {
    let mut found = None;
    let mut rest = path;
    let mut depth = 0;
    while let [PathSegment::Key(key), PathSegment::Index(_), after @ ..] = rest
        && let Some(kind) = Kind::of_plural(key)
    {
        depth += 2;
        found = Some((depth, kind));
        rest = after;
    }
    found
}

fn value_at<'a>(source: &'a Value, path: &[PathSegment]) -> Option<&'a Value> {
    path.iter()
        .try_fold(source, |value, segment| match segment {
            PathSegment::Key(key) => value.get(key),
            PathSegment::Index(index) => value.get(index),
        })
}

/// Positions count from one.
fn shown(segment: &PathSegment) -> String {
    match segment {
        PathSegment::Key(key) => key.clone(),
        PathSegment::Index(index) => (index + 1).to_string(),
    }
}

/// The entities of a document by kind and id.
fn keyed(declared: &DeclaredEntities) -> Value {
    let mut kinds = Map::new();
    for item in &declared.items {
        let kind = kinds
            .entry(item.kind().plural())
            .or_insert_with(|| json!({}));
        if let Value::Object(kind) = kind {
            kind.insert(item.id().to_string(), Value::Object(item.doc()));
        }
    }
    Value::Object(kinds)
}

/// What a document would change.
fn told(difference: &Difference) -> Value {
    let list = |items: &[Arc<dyn Item>]| -> Value {
        items
            .iter()
            .map(|item| {
                let mut told = json!({"type": item.kind().plural(), "id": item.id()});
                if let Some(name) = item.key() {
                    told["name"] = name.into();
                }
                told
            })
            .collect()
    };
    json!({
        "message": "declarative config is valid",
        "created": list(&difference.created),
        "updated": list(&difference.updated),
        "deleted": list(&difference.deleted),
    })
}

/// What the description says of all entities at once.
pub(super) fn config_operation(method: &str) -> Operation {
    if method == "GET" {
        let body = fields([("config", text())], &["config"]);
        return Operation::new("Shows all that is stored as one declarative document in YAML.")
            .answers(200, "The document.", &body);
    }
    let flag = |name, description| {
        let schema = json!({"type": "boolean", "default": false});
        Parameter::query(name, schema, description)
    };
    let by_id = json!({"type": "object", "additionalProperties": {"type": "object"}});
    let list = || json!({"type": "array", "items": {"type": "object"}});
    let difference = fields(
        [
            ("message", text()),
            ("created", list()),
            ("updated", list()),
            ("deleted", list()),
        ],
        &["message", "created", "updated", "deleted"],
    );
    let document = json!({"type": "object", "description": "The document, or `config` with it."});
    Operation::new("Replaces all that is stored by a declarative document.")
        .takes([
            flag(
                "check",
                "Whether nothing is changed, and the difference is told.",
            ),
            flag(
                "check_hash",
                "Whether 304 is answered where nothing differs.",
            ),
            flag("flatten_errors", "Whether errors are told by entity, too."),
            flag(
                "skip_unsupported",
                "Whether what does not run here is left out.",
            ),
        ])
        .body(&document)
        .body_as("application/yaml", &text())
        .answers(201, "The entities, by kind and id.", &by_id)
        .answers(200, "With `check`: what would change.", &difference)
        .ends(304, "With `check_hash`: nothing differs.")
}
