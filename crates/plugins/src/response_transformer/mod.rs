//! The `response-transformer` plugin: headers of answers, and members of JSON
//! objects in their bodies, are removed, renamed, replaced, added and appended.

mod body;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value, json};

use crate::field_rules::{
    FieldRules, check_header_names, check_header_pair, check_header_to_remove,
};
use crate::settings::Settings;
use doorward_core::model::schema::{Field, Schema, TextCheck, Type};
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{
    Exchange, Filter, FilterExplanation, Flow, ResponseFlow, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use body::{Change, JsonRules};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "response-transformer",
    priority: 800,
    of_consumers: true,
    schema,
    // It refuses nothing.
    codes: Vec::new,
    build,
};

/// What rules do, in this order.
const OPERATIONS: [&str; 5] = ["remove", "rename", "replace", "add", "append"];

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let fields = OPERATIONS.map(|operation| {
            let (headers, body): (TextCheck, Type) = match operation {
                "remove" => (check_header_to_remove, Type::some_text()),
                "rename" => (check_header_names, Type::checked(check_pair)),
                _ => (check_header_pair, Type::checked(check_pair)),
            };
            let list = |name, of| {
                Field::new(name, Type::array(of))
                    .default(json!([]))
                    .required()
            };
            let mut fields = vec![list("json", body)];
            if !["remove", "rename"].contains(&operation) {
                let types = Type::word(&["boolean", "number", "string"]);
                fields.push(list("json_types", types));
            }
            fields.push(list("headers", Type::checked(headers)));
            Field::new(operation, Type::Record(Schema::new(fields))).required()
        });
        Schema::new(fields.into())
    });
    &SCHEMA
}

fn check_pair(text: &str) -> Result<(), String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    if name.is_empty() || value.is_empty() {
        return Err(format!("invalid value: {text}"));
    }
    Ok(())
}

/// A running filter.
struct ResponseTransformer {
    rules: FieldRules<HeaderValue>,
    json: Arc<JsonRules>,
}

fn build(config: &Map<String, Value>, _: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| format!("invalid value: {text}"))
    };
    Ok(Arc::new(ResponseTransformer {
        rules: FieldRules::read(config, value)?,
        json: Arc::new(JsonRules::read(config)),
    }))
}

#[async_trait]
impl Filter for ResponseTransformer {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::passes("it changes answers alone"))
    }

    fn on_upstream_request(&self, _: &Exchange, request: &mut RequestHeader) {
        if !self.json.is_empty() {
            let plain = HeaderValue::from_static("identity");
            // A name and a value that are already those of a message.
            let _ = request.insert_header(ACCEPT_ENCODING, plain);
        }
    }

    fn sees_responses(&self) -> bool {
        !self.json.is_empty()
    }

    async fn on_upstream_response(
        &self,
        _: &RequestHeader,
        _: &mut Exchange,
        response: &mut ResponseHeader,
    ) -> ResponseFlow {
        if body::prepare(response) {
            return ResponseFlow::Filter(Box::new(Change::new(self.json.clone())));
        }
        ResponseFlow::Continue
    }

    fn on_response(&self, _: &Exchange, response: &mut ResponseHeader) {
        self.rules.apply(response, HeaderValue::clone);
    }

    fn on_own_response(&self, _: &RequestHeader, _: &Exchange, response: &mut ResponseHeader) {
        self.rules.apply(response, HeaderValue::clone);
    }

    fn on_own_body(
        &self,
        _: &Exchange,
        response: &mut ResponseHeader,
        body: &Bytes,
    ) -> Option<Bytes> {
        let changed = self.json.changed(body)?;
        body::prepare(response).then_some(changed)
    }

    fn warnings(&self) -> Vec<String> {
        self.json.warnings.clone()
    }
}
