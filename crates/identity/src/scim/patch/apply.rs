//! What operations make of a record.

use serde_json::{Map, Value, json};

use super::{Operation, Path, Verb};
use crate::error::ScimError;
use crate::scim::change::keep_verified;
use crate::scim::filter::evaluate;
use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::schema::{Attribute, RecordError, Schema, Type, comparable};

/// What no record can be without, and what must be said rather than left out.
const STAYS: [&str; 4] = ["userName", "displayName", "accountStatus", "active"];

fn invalid(error: RecordError) -> ScimError {
    ScimError::bad("invalidValue", error.to_string())
}

/// Applies one operation to `record`, whose members are canonical.
pub(in crate::scim) fn apply(
    schema: &'static Schema,
    record: &mut Map<String, Value>,
    operation: &Operation,
) -> Result<(), ScimError> {
    let path = &operation.path;
    let last = path.last();
    let (parent, above) = path.chain.split_last().unwrap_or((&last, &[]));
    if operation.verb == Verb::Remove && !holds(record, above) {
        return Ok(());
    }
    let change = Change { schema, operation };
    let holder = descend(record, above);
    match parent.kind {
        Type::ComplexMany => change.many(holder)?,
        _ => change.one(holder)?,
    }
    drop_empty(record, above);
    match last.path {
        // Two names of one thing: the last word counts.
        "active" => record.remove("accountStatus"),
        "accountStatus" => record.remove("active"),
        _ => None,
    };
    Ok(())
}

fn holds(record: &Map<String, Value>, chain: &[&'static Attribute]) -> bool {
    let mut at = Some(record);
    for attribute in chain {
        at = at.and_then(|at| at.get(attribute.name())?.as_object());
    }
    at.is_some()
}

/// The object at the end of a chain, made where it is missing.
fn descend<'r>(
    record: &'r mut Map<String, Value>,
    chain: &[&'static Attribute],
) -> &'r mut Map<String, Value> {
    let Some((first, rest)) = chain.split_first() else {
        return record;
    };
    let inner = record.entry(first.name()).or_insert_with(|| json!({}));
    if !inner.is_object() {
        *inner = json!({});
    }
    match inner {
        Value::Object(inner) => descend(inner, rest),
        _ => unreachable!("it was made an object"),
    }
}

/// Removes objects along the chain in which nothing is left.
fn drop_empty(record: &mut Map<String, Value>, chain: &[&'static Attribute]) {
    let Some((first, rest)) = chain.split_first() else {
        return;
    };
    if let Some(Value::Object(inner)) = record.get_mut(first.name()) {
        drop_empty(inner, rest);
        if inner.is_empty() {
            record.remove(first.name());
        }
    }
}

struct Change<'o> {
    schema: &'static Schema,
    operation: &'o Operation,
}

impl Change<'_> {
    fn path(&self) -> &Path {
        &self.operation.path
    }

    /// A value of `attribute`, checked.
    fn value(&self, attribute: &Attribute, value: &Value) -> Result<Option<Value>, ScimError> {
        let value = relaxed(self.schema, attribute, value);
        let value = self.schema.value(attribute, attribute.path, &value);
        value.map_err(invalid)
    }

    /// The attribute has one value.
    fn one(&self, holder: &mut Map<String, Value>) -> Result<(), ScimError> {
        let attribute = self.path().last();
        let name = attribute.name();
        let sent = match (self.operation.verb, &self.operation.value) {
            (Verb::Remove, _) | (_, None) => None,
            (_, Some(value)) => self.value(attribute, value)?,
        };
        let Some(sent) = sent else {
            if STAYS.contains(&attribute.path) && self.path().chain.len() == 1 {
                let kept =
                    attribute.path == "displayName" && self.schema.find("userName").is_some();
                if !kept {
                    let text = format!("{name} can't be removed");
                    return Err(ScimError::bad("mutability", text));
                }
            }
            holder.remove(name);
            return Ok(());
        };
        match (holder.get_mut(name), sent) {
            // Sub-attributes that are not named stay (§3.5.2.3).
            (Some(Value::Object(known)), Value::Object(sent))
                if attribute.kind == Type::Complex =>
            {
                merge(known, sent);
            }
            (_, sent) => {
                holder.insert(name.to_owned(), sent);
            }
        }
        Ok(())
    }

    /// The attribute has many values.
    fn many(&self, holder: &mut Map<String, Value>) -> Result<(), ScimError> {
        let attribute = self.path().last();
        let name = attribute.name();
        let mut values = match holder.remove(name) {
            Some(Value::Array(values)) => values,
            _ => Vec::new(),
        };
        match (&self.path().filter, self.path().part) {
            (None, None) => self.all(attribute, &mut values)?,
            (filter, part) => self.chosen(attribute, filter.as_ref(), part, &mut values)?,
        }
        if !values.is_empty() {
            let checked = self.schema.value(attribute, name, &Value::Array(values));
            holder.extend(
                checked
                    .map_err(invalid)?
                    .map(|value| (name.to_owned(), value)),
            );
        }
        Ok(())
    }

    /// The operation is about the values as a whole.
    fn all(&self, attribute: &Attribute, values: &mut Vec<Value>) -> Result<(), ScimError> {
        let sent = match &self.operation.value {
            None | Some(Value::Null) => Vec::new(),
            Some(sent) => self.elements(attribute, sent)?,
        };
        match self.operation.verb {
            Verb::Remove if self.operation.means_all() => values.clear(),
            Verb::Remove => {
                values.retain(|known| !sent.iter().any(|one| self.same(attribute, known, one)))
            }
            Verb::Replace => {
                let mut sent = sent;
                if attribute.path == "emails" {
                    keep_verified(values, &mut sent);
                }
                *values = sent;
            }
            Verb::Add => {
                let moves = sent.iter().any(is_primary);
                if moves {
                    values.iter_mut().for_each(not_primary);
                }
                for one in sent {
                    match values
                        .iter_mut()
                        .find(|known| self.same(attribute, known, &one))
                    {
                        Some(known) => update(known, one),
                        None => values.push(one),
                    }
                }
            }
        }
        Ok(())
    }

    /// The values that were sent: an array, or one alone.
    fn elements(&self, attribute: &Attribute, sent: &Value) -> Result<Vec<Value>, ScimError> {
        let many = match sent {
            Value::Array(_) => sent.clone(),
            one => Value::Array(vec![one.clone()]),
        };
        match self.value(attribute, &many)? {
            Some(Value::Array(values)) => Ok(values),
            _ => Ok(Vec::new()),
        }
    }

    /// Whether two values are one: RFC 7643 §2.4 has no two of one value and
    /// type.
    fn same(&self, attribute: &Attribute, one: &Value, other: &Value) -> bool {
        let part = |value: &Value, name: &str| {
            let found = match value {
                Value::Object(members) => members.get(name),
                plain if name == "value" => Some(plain),
                _ => None,
            };
            let part = self.schema.part(attribute, name)?;
            comparable(part, found?)
        };
        let value = part(one, "value");
        let types = part(one, "type") == part(other, "type") || part(other, "type").is_none();
        one == other || (value.is_some() && value == part(other, "value") && types)
    }

    /// The operation is about some of the values, or about a part of them.
    fn chosen(
        &self,
        attribute: &'static Attribute,
        filter: Option<&Filter>,
        part: Option<&'static Attribute>,
        values: &mut Vec<Value>,
    ) -> Result<(), ScimError> {
        let fits = |value: &Value| filter.is_none_or(|filter| evaluate::element(filter, value));
        let mut found: Vec<usize> = (0..values.len()).filter(|at| fits(&values[*at])).collect();
        if found.is_empty() {
            if self.operation.verb != Verb::Add {
                let text = format!("no value of {} is meant", attribute.name());
                return Err(ScimError::bad("noTarget", text));
            }
            values.push(Value::Object(filter.map(seeds).unwrap_or_default()));
            found.push(values.len() - 1);
        }
        if self.operation.verb == Verb::Remove && part.is_none() {
            let mut at = 0;
            values.retain(|_| {
                at += 1;
                !found.contains(&(at - 1))
            });
            return Ok(());
        }
        for at in &found {
            self.change_value(attribute, part, &mut values[*at])?;
        }
        let primary: Vec<_> = found
            .iter()
            .filter(|at| is_primary(&values[**at]))
            .collect();
        match primary.as_slice() {
            [] => {}
            [one] => {
                let one = **one;
                let others = values.iter_mut().enumerate().filter(|(at, _)| *at != one);
                others.for_each(|(_, value)| not_primary(value));
            }
            _ => {
                let text = format!(
                    "more than one value of {} would be primary",
                    attribute.name()
                );
                return Err(ScimError::bad("invalidValue", text));
            }
        }
        Ok(())
    }

    fn change_value(
        &self,
        attribute: &'static Attribute,
        part: Option<&'static Attribute>,
        known: &mut Value,
    ) -> Result<(), ScimError> {
        let sent = self.operation.value.as_ref();
        let Some(part) = part else {
            let sent = sent.unwrap_or(&Value::Null);
            let sent = relaxed(self.schema, attribute, sent);
            let sent = self.schema.element(attribute, attribute.path, &sent);
            let sent = sent.map_err(invalid)?.unwrap_or_else(|| json!({}));
            let before = known.get("value").cloned();
            let vouches = sent.get("verified").is_some();
            match self.operation.verb {
                Verb::Add => update(known, sent),
                _ => *known = sent,
            }
            // Nobody has verified another address.
            if attribute.path == "emails"
                && !vouches
                && known.get("value") != before.as_ref()
                && let Value::Object(members) = known
            {
                members.remove("verified");
            }
            return Ok(());
        };
        let value = match (self.operation.verb, sent) {
            (Verb::Remove, _) | (_, None) => None,
            (_, Some(sent)) => self.value(part, sent)?,
        };
        let mut members = match known.take() {
            Value::Object(members) => members,
            Value::Null => Map::new(),
            // A plain value is what its object calls `value`.
            plain => Map::from_iter([("value".to_owned(), plain)]),
        };
        let other = members.get(part.name()) != value.as_ref();
        match value {
            Some(value) => members.insert(part.name().to_owned(), value),
            None => members.remove(part.name()),
        };
        // Nobody has verified the new one.
        if other && part.path == "emails.value" {
            members.remove("verified");
        }
        *known = Value::Object(members);
        Ok(())
    }
}

fn merge(known: &mut Map<String, Value>, sent: Map<String, Value>) {
    for (name, value) in sent {
        match (known.get_mut(&name), value) {
            (Some(Value::Object(inner)), Value::Object(value)) => merge(inner, value),
            (_, value) => {
                known.insert(name, value);
            }
        }
    }
}

/// Adds what was sent to a value.
fn update(known: &mut Value, sent: Value) {
    match (known, sent) {
        (Value::Object(known), Value::Object(sent)) => known.extend(sent),
        (known, sent) => *known = sent,
    }
}

fn is_primary(value: &Value) -> bool {
    value.get("primary") == Some(&Value::Bool(true))
}

fn not_primary(value: &mut Value) {
    if let Some(primary) = value.get_mut("primary") {
        *primary = Value::Bool(false);
    }
}

/// What a value has that `filter` finds, as far as it says so.
fn seeds(filter: &Filter) -> Map<String, Value> {
    match filter {
        Filter::And(all) => all.iter().flat_map(seeds).collect(),
        Filter::Compare(attribute, Op::Equal, Operand::Text(text)) => {
            let value = match attribute.kind {
                Type::Boolean => json!(text == "true"),
                _ => json!(text),
            };
            Map::from_iter([(attribute.name().to_owned(), value)])
        }
        _ => Map::new(),
    }
}

/// The value in the form of the schema, where clients are known to send others:
/// booleans in quotes, the one value of an attribute in an array of objects, a
/// manager by its identifier alone.
fn relaxed(schema: &Schema, attribute: &Attribute, value: &Value) -> Value {
    match (attribute.kind, value) {
        (Type::Boolean, Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => value.clone(),
        },
        (Type::Complex, Value::String(_)) if schema.part(attribute, "value").is_some() => {
            json!({"value": value})
        }
        (Type::Complex | Type::ComplexMany, Value::Object(members)) => {
            let members = members.iter().map(|(name, value)| {
                let part = schema.part(attribute, name);
                let value = part.map_or_else(|| value.clone(), |part| relaxed(schema, part, value));
                (name.clone(), value)
            });
            Value::Object(members.collect())
        }
        (Type::ComplexMany, Value::Array(values)) => {
            let values = values.iter().map(|value| relaxed(schema, attribute, value));
            Value::Array(values.collect())
        }
        (Type::Text | Type::Exact | Type::Boolean, Value::Array(_)) => unwrapped(value)
            .map_or_else(|| value.clone(), |inner| relaxed(schema, attribute, inner)),
        _ => value.clone(),
    }
}

/// The value in `[{"value": …}]`.
fn unwrapped(value: &Value) -> Option<&Value> {
    match value.as_array().map(Vec::as_slice) {
        Some([one]) => one.get("value"),
        _ => None,
    }
}
