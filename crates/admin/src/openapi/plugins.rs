//! Plugins: a schema for each kind, told apart by `name`.

use serde_json::{Map, Value, json};

use super::entities::{answer, request};
use doorward_core::model::schema::{Field, Schema, Type, View};
use doorward_core::openapi::{Document, reference};
use doorward_gateway::entities::Kind;
use doorward_gateway::schemas;
use doorward_plugins::REGISTRY;

/// Adds the schemas of plugins.
pub(super) fn add(document: &mut Document) {
    for kind in REGISTRY {
        let Ok(schema) = schemas::plugin(Some(&kind.name.into())) else {
            continue;
        };
        let config = (kind.schema)();
        let fields = [("answer", View::Answer), ("create", View::Create)];
        for (suffix, view) in fields {
            let name = format!("config-{}-{suffix}", kind.name);
            document.schema(name, config.to_json_schema(view));
        }
        let mut shown = answer(Kind::Plugin, schema);
        refine(&mut shown, kind.name, "answer");
        document.schema(answer_name(kind.name), shown);
        let mut sent = request(Kind::Plugin, schema, View::Create);
        refine(&mut sent, kind.name, "create");
        for (keyword, demands) in schema.demands(&[]) {
            sent[keyword] = demands;
        }
        document.schema(create_name(kind.name), sent);
    }
    document.schema("plugin", one_of(answer_name));
    document.schema("plugin-create", one_of(create_name));
    document.schema("plugin-update", update());
}

/// A change need not say what it changes, so its fields are those of any plugin.
fn update() -> Value {
    let mut schema = schemas::plugin_of(&Schema::default());
    schema.fields.retain(|field| field.name != "config");
    schema.fields.push(Field::new("config", Type::Any));
    let mut shown = request(Kind::Plugin, &schema, View::Update);
    shown["properties"]["config"] = json!({
        "type": "object",
        "description": "Fields of the plugin's configuration; others stay as they are.",
    });
    shown
}

/// Puts in what differs between kinds.
fn refine(plugin: &mut Value, name: &str, view: &str) {
    let properties = &mut plugin["properties"];
    properties["name"] = json!({"type": "string", "const": name});
    properties["config"] = reference(&format!("config-{name}-{view}"));
}

fn answer_name(kind: &str) -> String {
    format!("plugin-{kind}")
}

fn create_name(kind: &str) -> String {
    format!("plugin-{kind}-create")
}

fn one_of(component: fn(&str) -> String) -> Value {
    let names = REGISTRY.iter().map(|kind| kind.name);
    let all: Vec<Value> = names
        .clone()
        .map(|name| reference(&component(name)))
        .collect();
    let mapping: Map<String, Value> = names
        .map(|name| (name.to_owned(), reference(&component(name))["$ref"].take()))
        .collect();
    json!({"oneOf": all, "discriminator": {"propertyName": "name", "mapping": mapping}})
}
