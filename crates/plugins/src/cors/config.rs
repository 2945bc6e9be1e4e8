//! The `config` of the plugin.

use std::sync::LazyLock;

use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::origins::{self, Origins};
use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_plugin_api::ConfigError;

const METHODS: &[&str] = &[
    "GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT",
];

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let flag = |name| Field::new(name, Type::Boolean).default(false).required();
        let texts = || Type::array(Type::some_text());
        Schema::new(vec![
            Field::new("origins", Type::array(Type::checked(origins::check))),
            Field::new("headers", texts()),
            Field::new("exposed_headers", texts()),
            Field::new("methods", Type::array(Type::word(METHODS))).default(json!(METHODS)),
            Field::new("max_age", Type::Number),
            flag("credentials"),
            flag("private_network"),
            flag("preflight_continue"),
        ])
    });
    &SCHEMA
}

/// A configuration as it runs: values of headers are made once.
pub(super) struct Config {
    pub(super) origins: Origins,
    pub(super) headers: Option<HeaderValue>,
    pub(super) exposed_headers: Option<HeaderValue>,
    pub(super) methods: Option<HeaderValue>,
    pub(super) max_age: Option<HeaderValue>,
    pub(super) credentials: bool,
    pub(super) private_network: bool,
    pub(super) preflight_continue: bool,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = Settings(config);
        let joined = |field| {
            let all: Vec<_> = config.texts(field).collect();
            if all.is_empty() {
                return Ok(None);
            }
            let value = HeaderValue::try_from(all.join(","));
            value
                .map(Some)
                .map_err(|_| wrong(field, "has a character that no header can have"))
        };
        let origins: Vec<_> = config.texts("origins").collect();
        Ok(Self {
            origins: Origins::read(&origins).map_err(|message| wrong("origins", message))?,
            headers: joined("headers")?,
            exposed_headers: joined("exposed_headers")?,
            methods: joined("methods")?,
            max_age: config
                .get("max_age")
                .and_then(|seconds| HeaderValue::try_from(number(seconds)).ok()),
            credentials: config.flag("credentials"),
            private_network: config.flag("private_network"),
            preflight_continue: config.flag("preflight_continue"),
        })
    }

    /// What an operator may not have meant.
    pub(super) fn warnings(&self) -> Vec<String> {
        if self.credentials && self.origins.is_any() {
            let warning = "credentials: with any origin allowed, scripts of every site read \
                           answers with the cookies of their visitors; list the origins";
            return vec![warning.to_owned()];
        }
        Vec::new()
    }
}

/// A number as the imitated gateway writes it: whole ones without a fraction.
fn number(value: &Value) -> String {
    let float = value
        .as_f64()
        .filter(|n| n.fract() == 0.0 && n.abs() < 1e15);
    float.map_or_else(|| value.to_string(), |float| format!("{float:.0}"))
}
