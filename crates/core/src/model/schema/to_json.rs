//! Schemas as the `/schemas` endpoints show them (gateway-admin-api §7).

use serde_json::{Map, Value, json};

use super::{Field, Schema, Text, Type};

impl Schema {
    /// The fields, as `[{"name": {"type": …, "default": …}}, …]`.
    pub fn to_json(&self) -> Value {
        self.fields
            .iter()
            .map(|field| json!({field.name: field.to_json()}))
            .collect()
    }

    /// The other names of fields, in the same format.
    pub fn shorthands_to_json(&self) -> Value {
        self.fields
            .iter()
            .flat_map(|field| {
                field
                    .aliases
                    .iter()
                    .map(|alias| json!({*alias: field.kind.to_json()}))
            })
            .collect()
    }
}

impl Field {
    fn to_json(&self) -> Value {
        let mut map = self.kind.to_json();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        if !self.description.is_empty() {
            put("description", self.description.into());
        }
        if let Some(default) = &self.default {
            put("default", default.clone());
        }
        if self.required {
            put("required", true.into());
        }
        if self.auto {
            put("auto", true.into());
        }
        if self.unique {
            put("unique", true.into());
        }
        if self.referenceable {
            put("referenceable", true.into());
        }
        if self.len_min > 0 {
            put("len_min", self.len_min.into());
        }
        Value::Object(map)
    }
}

impl Type {
    fn to_json(&self) -> Map<String, Value> {
        let shown = match self {
            Type::String(Text { one_of: [], .. }) => json!({"type": "string"}),
            Type::String(Text { one_of, .. }) => json!({"type": "string", "one_of": one_of}),
            Type::Integer(i64::MIN, i64::MAX) => json!({"type": "integer"}),
            Type::Integer(min, max) => json!({"type": "integer", "between": [min, max]}),
            Type::Choice(one_of) => json!({"type": "integer", "one_of": one_of}),
            Type::Number => json!({"type": "number"}),
            Type::Between(min, max) => json!({"type": "number", "between": [min, max]}),
            Type::Boolean => json!({"type": "boolean"}),
            Type::Array(of) => json!({"type": "array", "elements": of.to_json()}),
            Type::Set(of) => json!({"type": "set", "elements": of.to_json()}),
            Type::Map(of) => {
                json!({"type": "map", "keys": {"type": "string"}, "values": of.to_json()})
            }
            Type::Members(..) => {
                json!({"type": "map", "keys": {"type": "string"}, "values": {"type": "json"}})
            }
            Type::Record(schema) => {
                let mut map = json!({"type": "record", "fields": schema.to_json()});
                if schema.fields.iter().any(|field| !field.aliases.is_empty()) {
                    map["shorthand_fields"] = schema.shorthands_to_json();
                }
                map
            }
            Type::Foreign(entity) => json!({"type": "foreign", "reference": entity}),
            Type::Any => json!({"type": "json"}),
        };
        match shown {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}
