//! What a request says of the members of a group.

use serde_json::Value;
use uuid::Uuid;

use super::patch::{Operation, Verb};
use crate::error::ScimError;
use doorward_core::model::group::MemberChange;
use doorward_core::model::query::{Filter, Op, Operand};

/// Most members that one request names.
const MAX: usize = 20_000;

fn invalid(text: impl Into<String>) -> ScimError {
    ScimError::bad("invalidValue", text)
}

/// The users that `value` names: an array, or one alone; each an object with a
/// `value`, or just that.
pub(super) fn read(value: &Value) -> Result<Vec<Uuid>, ScimError> {
    let values = match value {
        Value::Null => &[],
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    if values.len() > MAX {
        let text = format!("more than {MAX} members in one request");
        return Err(ScimError::bad("tooMany", text));
    }
    values.iter().map(one).collect()
}

fn one(value: &Value) -> Result<Uuid, ScimError> {
    let mut id = value.as_str();
    if let Value::Object(members) = value {
        for (name, value) in members {
            match name.to_ascii_lowercase().as_str() {
                "value" => id = value.as_str(),
                "type" => match value.as_str() {
                    None if value.is_null() => {}
                    Some(kind) if kind.eq_ignore_ascii_case("User") => {}
                    _ => return Err(invalid("members can be users only, not groups")),
                },
                "$ref" | "display" => {}
                _ => {
                    let text = format!("members.{name:.100}: no such attribute");
                    return Err(ScimError::bad("invalidSyntax", text));
                }
            }
        }
    }
    let id = id.ok_or_else(|| invalid("members.value: expected a string"))?;
    id.parse().map_err(|_| unknown(id))
}

/// There is no user of this identifier.
pub(super) fn unknown(id: impl std::fmt::Display) -> ScimError {
    invalid(format!("members: there is no user {id:.100}"))
}

/// Adds what an operation on `members` does to `change`.
pub(super) fn patch(change: &mut MemberChange, operation: &Operation) -> Result<(), ScimError> {
    let path = &operation.path;
    if path.part.is_some() {
        let text = "members come and go whole: their parts can't be changed";
        return Err(ScimError::bad("mutability", text));
    }
    let sent = operation
        .value
        .as_ref()
        .map(read)
        .transpose()?
        .unwrap_or_default();
    match (&path.filter, operation.verb) {
        (Some(filter), Verb::Remove) => {
            let mut named = Vec::new();
            chosen(filter, &mut named)?;
            step(change, false, named)
        }
        (Some(_), _) => {
            let text = "members that are chosen can only be removed";
            Err(ScimError::bad("invalidPath", text))
        }
        (None, Verb::Add) => step(change, true, sent),
        // None of those that are named, where none is.
        (None, Verb::Remove) if !operation.means_all() => step(change, false, sent),
        (None, Verb::Remove | Verb::Replace) => {
            *change = MemberChange {
                clear: true,
                steps: Vec::new(),
            };
            step(change, true, sent)
        }
    }
}

fn step(change: &mut MemberChange, comes: bool, ids: Vec<Uuid>) -> Result<(), ScimError> {
    change.steps.extend(ids.into_iter().map(|id| (comes, id)));
    if change.steps.len() > MAX {
        let text = format!("more than {MAX} members in one request");
        return Err(ScimError::bad("tooMany", text));
    }
    Ok(())
}

/// The identifiers that `value eq "…"`, or several of them joined by `or`, name.
fn chosen(filter: &Filter, named: &mut Vec<Uuid>) -> Result<(), ScimError> {
    match filter {
        Filter::Or(any) => any.iter().try_for_each(|one| chosen(one, named)),
        Filter::Compare(attribute, Op::Equal, Operand::Text(id))
            if attribute.path == "members.value" =>
        {
            // Who can't be a user is no member either.
            named.extend(id.parse::<Uuid>());
            Ok(())
        }
        _ => {
            let text = "members are chosen by value eq only";
            Err(ScimError::bad("invalidPath", text))
        }
    }
}
