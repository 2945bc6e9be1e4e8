//! From records to a document.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::entities::{Entities, Item, Kind};
use crate::records;
use doorward_core::model::schema::{Schema, Type};
use doorward_core::yaml;

/// All entities as a declarative document, which [`super::load`] and
/// [`super::load_stored`] read back to the same entities: flat, with ids, with
/// every field that is not null by itself. Secrets are told as they are held.
pub fn document(entities: &Entities) -> Value {
    let mut root = Map::from_iter([("_format_version".to_owned(), Value::from("3.0"))]);
    let mut lists: BTreeMap<Kind, Vec<Value>> = BTreeMap::new();
    for item in entities.items() {
        let list = lists.entry(item.kind()).or_default();
        list.push(Value::Object(told(&*item)));
    }
    root.extend(
        lists
            .into_iter()
            .map(|(kind, list)| (kind.plural().to_owned(), Value::Array(list))),
    );
    Value::Object(root)
}

/// [`document`] as YAML.
pub fn export(entities: &Entities) -> String {
    yaml::write(&document(entities))
}

fn told(item: &dyn Item) -> Map<String, Value> {
    let mut doc = item.doc();
    if let Ok(schema) = records::any(item.kind()).schema(&doc) {
        leave_out(schema, &mut doc);
    }
    doc
}

/// Takes out what reading would put in again: null where that is the default.
fn leave_out(schema: &Schema, doc: &mut Map<String, Value>) {
    for field in &schema.fields {
        let made_up = matches!(field.kind, Type::Record(_)) && field.required;
        let by_itself = field.default.is_none() && !made_up && !field.auto;
        match (doc.get_mut(field.name), &field.kind) {
            (Some(Value::Null), _) if by_itself => {
                doc.remove(field.name);
            }
            (Some(Value::Object(inside)), Type::Record(schema)) => leave_out(schema, inside),
            _ => {}
        }
    }
}
