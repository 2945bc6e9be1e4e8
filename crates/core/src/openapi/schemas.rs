//! Short ways to write schemas of bodies.

use serde_json::{Map, Value, json};

use crate::model::schema::{Field, Schema, View};

/// Any text.
pub fn text() -> Value {
    json!({"type": "string"})
}

/// The schema of this name among the document's.
pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An answer with all of these fields; those that are not `required` may be null.
pub fn of_fields(fields: Vec<Field>) -> Value {
    Schema::new(fields).to_json_schema(View::Answer)
}

/// An object with these members, of which those have to be there that are named.
pub fn fields<const N: usize>(members: [(&str, Value); N], required: &[&str]) -> Value {
    let members = members.map(|(name, schema)| (name.to_owned(), schema));
    let properties = Map::from_iter(members);
    let mut shown = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        shown["required"] = required.into();
    }
    shown
}

/// A page of a list, as the Admin API gives it (gateway-admin-api §3).
pub fn list_of(records: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["data", "next"],
        "properties": {
            "data": {"type": "array", "items": records},
            "next": {"type": ["string", "null"], "description": "The path of the next page."},
            "offset": {"type": "string", "description": "Where the next page begins."},
        },
    })
}
