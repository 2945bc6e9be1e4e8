//! PATCH (RFC 7644 §3.5.2): operations as they were sent, and what they make of
//! a record. They work on a copy, so all of them count or none.
//!
//! Read besides what the RFC has: operations in any case, booleans in quotes,
//! members of a value that are named by a whole path, and values to remove in
//! the value of a `remove`.

mod apply;
mod path;

use serde_json::{Map, Value};

pub(super) use self::apply::apply;
pub(super) use self::path::Path;
use super::body::{check_members, member};
use crate::error::ScimError;
use doorward_core::model::user::schema::Schema;

/// The URN of the message.
const PATCH_URN: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

/// Most operations of a request, also once values are taken apart.
const OPERATIONS_MAX: usize = 1000;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Remove,
    Replace,
}

/// One operation on one attribute.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) verb: Verb,
    pub(super) path: Path,
    /// Absent of `remove` only.
    pub(super) value: Option<Value>,
}

impl Operation {
    /// Whether no value was sent: the attribute as a whole is meant. An empty list
    /// of values to remove means none of them.
    pub(super) fn means_all(&self) -> bool {
        matches!(self.value, None | Some(Value::Null))
    }
}

/// The operations of a request on a record of `schema` with this `id`.
pub(super) fn read(
    schema: &'static Schema,
    id: &str,
    body: &Map<String, Value>,
) -> Result<Vec<Operation>, ScimError> {
    let syntax = |text: &str| ScimError::bad("invalidSyntax", text);
    check_members(body)?;
    let schemas = member(body, "schemas").and_then(Value::as_array);
    let is_patch = |urn: &Value| {
        urn.as_str()
            .is_some_and(|urn| urn.eq_ignore_ascii_case(PATCH_URN))
    };
    if !schemas.is_some_and(|schemas| schemas.iter().any(is_patch)) {
        return Err(syntax(&format!("schemas must hold {PATCH_URN}")));
    }
    let operations = member(body, "operations").and_then(Value::as_array);
    let operations = operations.ok_or_else(|| syntax("Operations must be an array"))?;
    if operations.is_empty() {
        return Err(syntax("there are no Operations"));
    }
    let mut read = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        one(schema, id, operation, &mut read).map_err(|error| error.at_operation(index))?;
        if read.len() > OPERATIONS_MAX {
            let text = format!("more than {OPERATIONS_MAX} operations");
            return Err(ScimError::bad("tooMany", text));
        }
    }
    Ok(read)
}

fn one(
    schema: &'static Schema,
    id: &str,
    operation: &Value,
    read: &mut Vec<Operation>,
) -> Result<(), ScimError> {
    let syntax = |text: &str| ScimError::bad("invalidSyntax", text);
    let members = operation.as_object();
    let members = members.ok_or_else(|| syntax("an operation must be an object"))?;
    check_members(members)?;
    let verb = member(members, "op")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let verb = match verb.to_ascii_lowercase().as_str() {
        "add" => Verb::Add,
        "remove" => Verb::Remove,
        "replace" => Verb::Replace,
        _ => return Err(syntax("op must be add, remove or replace")),
    };
    let path = match member(members, "path") {
        None | Some(Value::Null) => None,
        Some(Value::String(path)) if path.is_empty() => None,
        Some(Value::String(path)) => Some(Path::parse(schema, path)?),
        Some(_) => return Err(syntax("path must be a string")),
    };
    let value = member(members, "value").cloned();
    match (verb, path, value) {
        (Verb::Remove, None, _) => Err(ScimError::bad("noTarget", "remove needs a path")),
        (_, Some(path), _) if path.is_read_only() => Err(read_only(&path)),
        (Verb::Remove, Some(path), value) => {
            read.push(Operation { verb, path, value });
            Ok(())
        }
        (_, _, None) => Err(ScimError::bad(
            "invalidValue",
            "add and replace need a value",
        )),
        (_, Some(path), value) => {
            read.push(Operation { verb, path, value });
            Ok(())
        }
        (_, None, Some(Value::Object(members))) => taken_apart(schema, id, verb, members, read),
        (_, None, Some(_)) => {
            let text = "without a path, value must be an object";
            Err(ScimError::bad("invalidValue", text))
        }
    }
}

fn read_only(path: &Path) -> ScimError {
    let text = format!("{} is read-only", path.target().path);
    ScimError::bad("mutability", text)
}

/// An operation for each member of the value of one without a path.
fn taken_apart(
    schema: &'static Schema,
    id: &str,
    verb: Verb,
    members: Map<String, Value>,
    read: &mut Vec<Operation>,
) -> Result<(), ScimError> {
    let mut seen = Vec::new();
    if members.len() > OPERATIONS_MAX {
        let text = format!("more than {OPERATIONS_MAX} members");
        return Err(ScimError::bad("tooMany", text));
    }
    for (name, value) in members {
        if ["schemas", "meta"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
        {
            continue;
        }
        let path = Path::parse(schema, &name)?;
        if path.target().path == "id" && value.as_str() == Some(id) {
            continue;
        }
        if path.is_read_only() {
            return Err(read_only(&path));
        }
        // Two spellings of one name: which counts would be chance.
        let target = (path.target().path, format!("{:?}", path.filter));
        if seen.contains(&target) {
            let text = format!("{} is given twice", target.0);
            return Err(ScimError::bad("invalidValue", text));
        }
        seen.push(target);
        let value = Some(value);
        read.push(Operation { verb, path, value });
    }
    let begin = read.len() - seen.len();
    if contradicts(&read[begin..]) {
        let text = "active contradicts accountStatus";
        return Err(ScimError::bad("invalidValue", text));
    }
    Ok(())
}

/// Whether the two names of a user's state say different things at once.
fn contradicts(operations: &[Operation]) -> bool {
    let said = |path: &str| {
        let mut operations = operations.iter();
        let found = operations.find(|one| one.path.target().path == path);
        let text = match found?.value.as_ref()? {
            Value::Bool(flag) => flag.to_string(),
            value => value.as_str()?.to_owned(),
        };
        Some(["true", "active"].contains(&text.to_ascii_lowercase().as_str()))
    };
    let (flag, status) = (said("active"), said("accountStatus"));
    flag.is_some() && status.is_some() && flag != status
}
