//! Schemas as JSON Schema (draft 2020-12, the dialect of OpenAPI 3.1).
//!
//! What the Admin API says of a record is made of the same fields that type and
//! check it. Checks that are functions have no form there: the program may refuse
//! what the JSON Schema admits, and never the other way round.

use serde_json::{Map, Value, json};

use super::{Field, Schema, Text, Type};

/// What a JSON Schema is to describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The body of a request that makes a record, or all of it anew.
    Create,
    /// The body of a request that changes some fields: none has to be there.
    Update,
    /// A record in an answer: every field is there but for rare ones.
    Answer,
}

impl Schema {
    /// The JSON Schema of such a record.
    pub fn to_json_schema(&self, view: View) -> Value {
        let mut map = self.object(view);
        match view {
            View::Create => map.extend(self.demands(&[])),
            View::Update => {}
            View::Answer => {
                let always = self.fields.iter().filter(|field| !field.is_rare);
                let names: Vec<&str> = always.map(|field| field.name).collect();
                map.insert("required".to_owned(), names.into());
            }
        }
        Value::Object(map)
    }

    /// As [`Schema::to_json_schema`], without a word on which of its own fields have
    /// to be there.
    pub fn to_open_json_schema(&self, view: View) -> Value {
        Value::Object(self.object(view))
    }

    /// Which fields a request to make a record has to have, besides those that are
    /// `given` in another way: keywords of JSON Schema, or none.
    pub fn demands(&self, given: &[&str]) -> Map<String, Value> {
        let mut names = Vec::new();
        let mut choices = Vec::new();
        for field in self.fields.iter().filter(|field| field.is_demanded()) {
            if given.contains(&field.name) {
                continue;
            }
            let inputs = self.inputs.iter();
            let inputs = inputs.filter(|input| input.stands_for.contains(&field.name));
            let others: Vec<&str> = inputs
                .map(|input| input.name)
                .chain(field.aliases.iter().copied())
                .collect();
            if others.is_empty() {
                names.push(field.name);
            } else {
                let all = std::iter::once(field.name).chain(others);
                let any: Vec<Value> = all.map(|name| json!({"required": [name]})).collect();
                choices.push(json!({"anyOf": any}));
            }
        }
        let mut keywords = Map::new();
        if !names.is_empty() {
            keywords.insert("required".to_owned(), names.into());
        }
        if !choices.is_empty() {
            keywords.insert("allOf".to_owned(), choices.into());
        }
        keywords
    }

    fn object(&self, view: View) -> Map<String, Value> {
        let mut properties = Map::new();
        for field in &self.fields {
            properties.insert(field.name.to_owned(), field.to_json_schema(view));
            for alias in field.aliases.iter().filter(|_| view != View::Answer) {
                let mut older = nullable(field.kind.to_json_schema(view));
                older["deprecated"] = true.into();
                older["description"] = format!("An older name of `{}`.", field.name).into();
                properties.insert((*alias).to_owned(), older);
            }
        }
        let mut map = Map::from_iter([("type".to_owned(), "object".into())]);
        if view != View::Answer {
            for input in &self.inputs {
                let mut shown = nullable(input.kind.to_json_schema(view));
                shown["description"] = input.description.into();
                properties.insert(input.name.to_owned(), shown);
            }
            map.insert("additionalProperties".to_owned(), false.into());
        }
        map.insert("properties".to_owned(), properties.into());
        map
    }
}

impl Field {
    /// Whether a record can't be made without a word on this field.
    fn is_demanded(&self) -> bool {
        let can_be_empty = match &self.kind {
            Type::Record(schema) => schema.demands(&[]).is_empty(),
            _ => false,
        };
        self.required && !self.auto && self.default.is_none() && !can_be_empty
    }

    fn to_json_schema(&self, view: View) -> Value {
        let mut shown = self.kind.to_json_schema(view);
        if self.len_min > 0 {
            shown["minItems"] = self.len_min.into();
        }
        let vault = "A reference to a vault, `{vault://…}`, may stand for it.";
        let says = [
            self.description,
            if self.referenceable { vault } else { "" },
        ];
        let says = says.join(" ");
        if !says.trim().is_empty() {
            shown["description"] = says.trim().into();
        }
        if !self.required || self.auto {
            shown = nullable(shown);
        }
        if let Some(default) = &self.default {
            shown["default"] = default.clone();
        }
        shown
    }
}

impl Type {
    /// The JSON Schema of a value that is not null.
    fn to_json_schema(&self, view: View) -> Value {
        // Elements replace those that were there: each has to be whole.
        let inside = match view {
            View::Update => View::Create,
            view => view,
        };
        match self {
            Type::String(text) => text.to_json_schema(),
            Type::Integer(min, max) => {
                let mut shown = json!({"type": "integer"});
                for (name, bound) in [("minimum", *min), ("maximum", *max)] {
                    if bound != i64::MIN && bound != i64::MAX {
                        shown[name] = bound.into();
                    }
                }
                shown
            }
            Type::Choice(one_of) => json!({"type": "integer", "enum": one_of}),
            Type::Number => json!({"type": "number"}),
            Type::Between(min, max) => json!({"type": "number", "minimum": min, "maximum": max}),
            Type::Boolean => json!({"type": "boolean"}),
            Type::Array(of) => json!({"type": "array", "items": of.to_json_schema(inside)}),
            Type::Set(of) => {
                let items = of.to_json_schema(inside);
                json!({"type": "array", "items": items, "uniqueItems": true})
            }
            Type::Map(of) => {
                json!({"type": "object", "additionalProperties": of.to_json_schema(inside)})
            }
            Type::Members(known, other) => {
                let fields = known.fields.iter();
                let properties: Map<String, Value> = fields
                    .map(|field| (field.name.to_owned(), field.kind.to_json_schema(inside)))
                    .collect();
                let other = other.to_json_schema(inside);
                json!({"type": "object", "properties": properties, "additionalProperties": other})
            }
            Type::Record(schema) => schema.to_json_schema(view),
            Type::Foreign(entity) => reference(entity, view),
            Type::Any => json!({}),
        }
    }
}

impl Text {
    fn to_json_schema(&self) -> Value {
        let mut shown = json!({"type": "string"});
        if !self.one_of.is_empty() {
            shown["enum"] = self.one_of.into();
        }
        if let Some(format) = self.format {
            shown["format"] = format.into();
        }
        shown
    }
}

/// A request may name what it refers to.
fn reference(entity: &str, view: View) -> Value {
    let id = json!({"type": "string", "format": "uuid"});
    let mut shown = json!({
        "type": "object",
        "properties": {"id": id},
        "description": format!("One of the {entity}."),
    });
    if view == View::Answer {
        shown["required"] = json!(["id"]);
    } else {
        // By its id, or by the field that it is named by.
        shown["additionalProperties"] = json!({"type": "string"});
        shown["minProperties"] = 1.into();
    }
    shown
}

/// The same, and null.
pub fn nullable(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(kind @ Value::String(_)) => *kind = json!([kind.take(), "null"]),
        // Any value may be null already.
        _ => return schema,
    }
    if let Some(Value::Array(one_of)) = schema.get_mut("enum") {
        one_of.push(Value::Null);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let rate = Schema::new(vec![
            Field::new("count", Type::Integer(1, 100)).required(),
            Field::new("unit", Type::word(&["s", "m"])).default("s"),
        ]);
        let limits = Schema::new(vec![Field::new("burst", Type::Number).default(1)]);
        Schema::new(vec![
            Field::new("id", Type::formatted("uuid", |_| Ok(()))).auto(),
            Field::new("host", Type::text()).required(),
            Field::new("name", Type::text())
                .required()
                .aliases(&["title"]),
            Field::new("tags", Type::set(Type::text())),
            Field::new("code", Type::Choice(&[301, 302])).default(301),
            Field::new("rate", Type::Record(rate)).required(),
            Field::new("limits", Type::Record(limits)).required(),
            Field::new("service", Type::Foreign("services")),
            Field::new("extra", Type::Any),
        ])
        .input("url", Type::text(), &["host"], "Stands for `host`.")
    }

    #[test]
    fn a_request_to_make_a_record_names_what_has_to_be_there() {
        let shown = schema().to_json_schema(View::Create);
        assert_eq!(shown["required"], json!(["rate"]));
        assert_eq!(
            shown["allOf"],
            json!([
                {"anyOf": [{"required": ["host"]}, {"required": ["url"]}]},
                {"anyOf": [{"required": ["name"]}, {"required": ["title"]}]},
            ])
        );
        assert_eq!(shown["additionalProperties"], false);
        assert_eq!(
            shown["properties"]["rate"],
            json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "count": {"type": "integer", "minimum": 1, "maximum": 100},
                    "unit": {"type": ["string", "null"], "enum": ["s", "m", null], "default": "s"},
                },
                "required": ["count"],
            })
        );
        assert_eq!(shown["properties"]["title"]["deprecated"], true);
        let given = schema().demands(&["host", "name", "rate"]);
        assert!(given.is_empty(), "{given:?}");
    }

    #[test]
    fn a_request_to_change_a_record_demands_nothing() {
        let shown = schema().to_json_schema(View::Update);
        for part in [&shown, &shown["properties"]["rate"]] {
            assert_eq!(part.get("required"), None);
            assert_eq!(part.get("allOf"), None);
        }
    }

    #[test]
    fn an_answer_has_every_field_and_no_other_spelling() {
        let shown = schema().to_json_schema(View::Answer);
        assert_eq!(shown["required"].as_array().map(Vec::len), Some(9));
        assert_eq!(shown.get("additionalProperties"), None);
        let properties = &shown["properties"];
        assert_eq!(properties.get("title"), None);
        assert_eq!(properties.get("url"), None);
        assert_eq!(
            properties["id"],
            json!({"type": ["string", "null"], "format": "uuid"})
        );
        assert_eq!(
            properties["tags"],
            json!({"type": ["array", "null"], "items": {"type": "string"}, "uniqueItems": true})
        );
        assert_eq!(
            properties["code"],
            json!({"type": ["integer", "null"], "enum": [301, 302, null], "default": 301})
        );
        assert_eq!(properties["service"]["required"], json!(["id"]));
        assert_eq!(properties["extra"], json!({}));
    }
}
