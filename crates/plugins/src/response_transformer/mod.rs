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
    FieldRules, RuleLists, check_header_names, check_header_pair, check_header_to_remove,
};
use doorward_core::model::schema::{Schema, Type};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{
    Exchange, Filter, FilterExplanation, Flow, ResponseFlow, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, words};

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

config! {
    /// The fields of `config`. The operations run in this order.
    struct Config {
        /// What is taken away, by its name.
        #[field(required)]
        remove: Removals,
        /// What gets another name, as old:new.
        #[field(required)]
        rename: Renames,
        /// What gets another value where it is there, as name:value.
        #[field(required)]
        replace: Values,
        /// What is added where it is not there, as name:value.
        #[field(required)]
        add: Values,
        /// What is added to what may be there, as name:value.
        #[field(required)]
        append: Values,
    }
}

config! {
    /// What is taken away.
    struct Removals {
        /// Members of a body in JSON.
        #[field(default(json!([])), required)]
        json: Vec<Box<str>>,
        /// Headers.
        #[field(kind(Type::array(Type::checked(check_header_to_remove))), default(json!([])), required)]
        headers: Vec<Box<str>>,
    }
}

config! {
    /// What gets another name.
    struct Renames {
        /// Members of a body in JSON.
        #[field(kind(Type::array(Type::checked(check_pair))), default(json!([])), required)]
        json: Vec<Box<str>>,
        /// Headers.
        #[field(kind(Type::array(Type::checked(check_header_names))), default(json!([])), required)]
        headers: Vec<Box<str>>,
    }
}

config! {
    /// What gets a value.
    struct Values {
        /// Members of a body in JSON.
        #[field(kind(Type::array(Type::checked(check_pair))), default(json!([])), required)]
        json: Vec<Box<str>>,
        /// The types of the values in json, in the same order.
        #[field(default(json!([])), required)]
        json_types: Vec<JsonType>,
        /// Headers.
        #[field(kind(Type::array(Type::checked(check_header_pair))), default(json!([])), required)]
        headers: Vec<Box<str>>,
    }
}

words! {
    /// What a text becomes in JSON.
    enum JsonType {
        /// True or false.
        Boolean = "boolean",
        /// A number.
        Number = "number",
        /// A text.
        Text = "string",
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
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
    let config = Config::read(config)?;
    let lists = RuleLists {
        remove: &config.remove.headers,
        rename: &config.rename.headers,
        replace: &config.replace.headers,
        add: &config.add.headers,
        append: &config.append.headers,
    };
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| format!("invalid value: {text}"))
    };
    Ok(Arc::new(ResponseTransformer {
        rules: FieldRules::read(&lists, value)?,
        json: Arc::new(JsonRules::new(&config)),
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

    fn on_upstream_request(&self, _: &Exchange, request: &mut UpstreamRequest<'_>) {
        if !self.json.is_empty() {
            let plain = HeaderValue::from_static("identity");
            request.fields().insert(ACCEPT_ENCODING, plain);
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
