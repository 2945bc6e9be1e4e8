//! Filling of defaults, validation, and merging of partial updates.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::read::is_uuid;
use super::{Field, Schema, Text, Type, Violation, Violations};
use crate::model::vault;

impl Schema {
    /// The record with every field of the schema, defaults filled in, if it
    /// satisfies the schema.
    ///
    /// Null is a value: it is kept, not replaced by the default, and refused
    /// where the field is required. Fields that are made up when absent must
    /// be there already.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn complete(
        &self,
        mut record: Map<String, Value>,
    ) -> Result<Map<String, Value>, Violations> {
        self.fill(&mut record);
        let violations = self.validate(&record);
        violations.or(record)
    }

    /// Fills absent fields with their defaults, in nested records too.
    pub fn fill(&self, record: &mut Map<String, Value>) {
        if let Some(prefill) = self.prefill {
            prefill(record);
        }
        for field in &self.fields {
            if field.is_rare {
                if record.get(field.name).is_some_and(Value::is_null) {
                    record.remove(field.name);
                }
                continue;
            }
            if !record.contains_key(field.name) {
                record.insert(field.name.to_owned(), field.initial());
            }
            if let Some(value) = record.get_mut(field.name) {
                fill_inside(&field.kind, value);
            }
        }
    }

    /// Everything that is wrong with a filled record.
    pub fn validate(&self, record: &Map<String, Value>) -> Violations {
        let mut violations = Violations::default();
        for key in record.keys() {
            if self.field(key).is_none() {
                violations.put(key, "unknown field");
            }
        }
        for field in &self.fields {
            let value = record.get(field.name).unwrap_or(&Value::Null);
            if let Some(violation) = field.violation(value) {
                violations.put(field.name, violation);
            }
        }
        for check in &self.checks {
            check(record, &mut violations);
        }
        violations
    }
}

/// Applies a partial update: records merge, all else is replaced; null clears.
pub fn merge(schema: &Schema, record: &mut Map<String, Value>, update: Map<String, Value>) {
    for (key, new) in update {
        let inside = schema.field(&key).and_then(|field| match &field.kind {
            Type::Record(inside) => Some(inside),
            _ => None,
        });
        match (inside, record.get_mut(&key), new) {
            (Some(inside), Some(Value::Object(old)), Value::Object(new)) => {
                merge(inside, old, new);
            }
            (_, _, new) => {
                record.insert(key, new);
            }
        }
    }
}

impl Field {
    /// The value of the field when it is absent.
    fn initial(&self) -> Value {
        match (&self.default, &self.kind) {
            (Some(default), _) => default.clone(),
            (None, Type::Record(_)) if self.required => Value::Object(Map::new()),
            (None, _) => Value::Null,
        }
    }

    fn violation(&self, value: &Value) -> Option<Violation> {
        if value.is_null() {
            return (self.required && !self.auto).then(|| "required field missing".into());
        }
        let refers = value.as_str().is_some_and(vault::is_reference);
        if self.referenceable && refers && matches!(self.kind, Type::String(_)) {
            return None;
        }
        if let Some(violation) = self.kind.violation(value) {
            return Some(violation);
        }
        match value {
            Value::Array(list) if list.len() < self.len_min => {
                Some(format!("length must be at least {}", self.len_min).into())
            }
            _ => None,
        }
    }
}

impl Type {
    /// What is wrong with a value that is not null.
    fn violation(&self, value: &Value) -> Option<Violation> {
        match (self, value) {
            (Type::Any, _) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => {
                None
            }
            (Type::String(text), Value::String(value)) => text.violation(value),
            (Type::Between(min, max), Value::Number(number)) => {
                #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
                let bounds = (*min as f64)..=(*max as f64);
                let inside = number.as_f64().is_some_and(|n| bounds.contains(&n));
                (!inside).then(|| format!("value should be between {min} and {max}").into())
            }
            (Type::Integer(min, max), value) => match value.as_i64() {
                Some(n) if (min..=max).contains(&&n) => None,
                Some(_) => Some(format!("value should be between {min} and {max}").into()),
                None if value.is_u64() => {
                    Some(format!("value should be between {min} and {max}").into())
                }
                None => Some("expected an integer".into()),
            },
            (Type::Choice(one_of), value) => match value.as_i64() {
                Some(n) if one_of.contains(&n) => None,
                Some(_) => {
                    let all: Vec<String> = one_of.iter().map(ToString::to_string).collect();
                    Some(format!("expected one of: {}", all.join(", ")).into())
                }
                None => Some("expected an integer".into()),
            },
            (Type::Array(of) | Type::Set(of), Value::Array(list)) => {
                let wrong: BTreeMap<usize, Violation> = list
                    .iter()
                    .enumerate()
                    .filter_map(|(i, item)| Some((i, of.element_violation(item)?)))
                    .collect();
                (!wrong.is_empty()).then_some(Violation::List(wrong))
            }
            // What is wrong with one member is said of the map: a key is no name of a
            // field, and clients of the imitated gateway look for none.
            (Type::Map(of), Value::Object(map)) => {
                map.values().find_map(|item| of.element_violation(item))
            }
            (Type::Members(..), Value::Object(map)) => {
                let mut wrong = Violations::default();
                for (key, item) in map {
                    let violation = self.of_member(key).element_violation(item);
                    if let Some(violation) = violation {
                        wrong.put(key, violation);
                    }
                }
                (!wrong.is_empty()).then_some(Violation::Record(wrong))
            }
            (Type::Record(schema), Value::Object(map)) => {
                let wrong = schema.validate(map);
                (!wrong.is_empty()).then_some(Violation::Record(wrong))
            }
            (Type::Foreign(_), Value::Object(map)) => reference_violation(map),
            (other, _) => Some(format!("expected {}", other.noun()).into()),
        }
    }

    /// The type of a value of this map.
    pub(super) fn of_member(&self, name: &str) -> &Type {
        match self {
            Type::Members(known, other) => known.field(name).map_or(other, |field| &field.kind),
            Type::Map(of) => of,
            other => other,
        }
    }

    fn element_violation(&self, value: &Value) -> Option<Violation> {
        if value.is_null() && !matches!(self, Type::Any) {
            return Some(format!("expected {}", self.noun()).into());
        }
        self.violation(value)
    }

    fn noun(&self) -> &'static str {
        match self {
            Type::String(_) => "a string",
            Type::Integer(..) | Type::Choice(_) => "an integer",
            Type::Number | Type::Between(..) => "a number",
            Type::Boolean => "a boolean",
            Type::Array(_) => "an array",
            Type::Set(_) => "a set",
            Type::Map(_) | Type::Members(..) => "a map",
            Type::Record(_) | Type::Foreign(_) => "a record",
            Type::Any => "a value",
        }
    }
}

impl Text {
    pub(super) fn violation(&self, value: &str) -> Option<Violation> {
        if !self.one_of.is_empty() && !self.one_of.contains(&value) {
            return Some(format!("expected one of: {}", self.one_of.join(", ")).into());
        }
        self.check
            .and_then(|check| check(value).err())
            .map(Violation::from)
    }
}

fn reference_violation(map: &Map<String, Value>) -> Option<Violation> {
    let mut wrong = Violations::default();
    // Without its key nothing else of a reference means anything.
    let Some(id) = map.get("id").filter(|id| !id.is_null()) else {
        wrong.put("id", "missing primary key");
        return Some(Violation::Record(wrong));
    };
    match id {
        Value::String(id) if is_uuid(id) => {}
        Value::String(_) => wrong.put("id", "expected a valid UUID"),
        _ => wrong.put("id", "expected a string"),
    }
    for key in map.keys().filter(|key| *key != "id") {
        wrong.put(key, "not a primary key");
    }
    (!wrong.is_empty()).then_some(Violation::Record(wrong))
}

fn fill_inside(kind: &Type, value: &mut Value) {
    match (kind, value) {
        (Type::Record(schema), Value::Object(map)) => schema.fill(map),
        (Type::Array(of) | Type::Set(of), Value::Array(list)) => {
            for item in list {
                fill_inside(of, item);
            }
        }
        (Type::Map(_) | Type::Members(..), Value::Object(map)) => {
            for (key, item) in map.iter_mut() {
                fill_inside(kind.of_member(key), item);
            }
        }
        _ => {}
    }
}
