//! Descriptions of HTTP interfaces in OpenAPI 3.1.
//!
//! A part of the program that serves a table of endpoints says of each row what it
//! takes and gives, as an [`Operation`]. A [`Document`] gathers them: it names
//! operations, declares the open parts of paths, and lists the refusals.

mod names;
mod operation;
mod schemas;
#[cfg(feature = "testing")]
pub mod testing;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

pub use names::open_parts;
pub use operation::{Operation, Parameter};
pub use schemas::{fields, list_of, of_fields, reference, text};

/// The media type of JSON bodies.
pub const JSON: &str = "application/json";

/// A description that is being put together.
pub struct Document {
    info: Value,
    servers: Vec<String>,
    security: Value,
    security_schemes: Value,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    responses: Map<String, Value>,
    tags: Vec<Value>,
    /// The names of operations.
    ids: BTreeSet<String>,
}

impl Document {
    /// A description without paths, of an interface in this version.
    pub fn new(title: &str, version: &str, description: &str) -> Self {
        Self {
            info: json!({"title": title, "version": version, "description": description}),
            servers: Vec::new(),
            security: Value::Null,
            security_schemes: json!({}),
            paths: Map::new(),
            schemas: Map::new(),
            responses: Map::new(),
            tags: Vec::new(),
            ids: BTreeSet::new(),
        }
    }

    /// Says where the interface is: an address, or a path on the description's host.
    pub fn server(&mut self, url: impl Into<String>) {
        self.servers.push(url.into());
    }

    /// Says how requests prove who sends them. `required`: what each has to have,
    /// unless an operation says otherwise; null: nothing.
    pub fn security(&mut self, schemes: Value, required: Value) {
        self.security_schemes = schemes;
        self.security = required;
    }

    /// Adds a schema that others refer to by [`reference()`].
    pub fn schema(&mut self, name: impl Into<String>, schema: Value) {
        self.schemas.insert(name.into(), schema);
    }

    /// Adds the refusals with a status, which operations refer to; `default` are all
    /// others. `schema` is that of the body; null: there is none.
    pub fn refusal(&mut self, status: &str, description: &str, schema: &Value) {
        let mut response = json!({"description": description});
        if !schema.is_null() {
            response["content"] = json!({JSON: {"schema": schema}});
        }
        self.responses.insert(refusal_name(status), response);
    }

    /// Adds what a tag of operations stands for.
    pub fn tag(&mut self, name: &str, description: &str) {
        self.tags
            .push(json!({"name": name, "description": description}));
    }

    /// Adds an operation: what `method` does at `path`, whose open parts stand in
    /// braces.
    pub fn add(&mut self, method: &str, path: &str, operation: Operation) {
        let path = names::template(path);
        let mut shown = operation.to_json(&names::open_parts(&path), refusal_name);
        let mut id = names::operation_id(method, &path, false);
        if !self.ids.insert(id.clone()) {
            id = names::operation_id(method, &path, true);
            self.ids.insert(id.clone());
        }
        shown["operationId"] = id.into();
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        item[method.to_ascii_lowercase()] = shown;
    }

    /// The whole description.
    pub fn into_json(self) -> Value {
        let servers = self.servers.iter().map(|url| json!({"url": url}));
        let mut document = json!({
            "openapi": "3.1.1",
            "info": self.info,
            "servers": servers.collect::<Vec<_>>(),
            "tags": self.tags,
            "paths": self.paths,
            "components": {
                "schemas": self.schemas,
                "responses": self.responses,
                "securitySchemes": self.security_schemes,
            },
        });
        if !self.security.is_null() {
            document["security"] = self.security;
        }
        document
    }
}

/// What the component of a refusal is called.
fn refusal_name(status: &str) -> String {
    format!("refusal-{status}")
}

#[cfg(test)]
mod tests;
