//! The `config` of the plugin.

use std::sync::LazyLock;

use http::HeaderValue;
use serde_json::{Value, json};

use super::origins::{self, Origins};
use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type};
use doorward_plugin_api::config::FieldValue;
use doorward_plugin_api::{ConfigError, config};

const METHODS: &[&str] = &[
    "GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT",
];

config! {
    /// The fields of `config`. Values of headers are made once.
    pub(super) struct Config {
        /// The origins whose pages may call: texts, patterns, or an asterisk for all.
        pub(super) origins: Origins,
        /// The request headers that pages may send. Null: those that they ask for.
        pub(super) headers: JoinedList,
        /// The response headers that pages may read.
        pub(super) exposed_headers: JoinedList,
        /// The methods that pages may use.
        #[field(kind(Type::array(Type::word(METHODS))), default(json!(METHODS)))]
        pub(super) methods: JoinedList,
        /// How long a browser may remember the answer to a preflight, in seconds.
        pub(super) max_age: Option<MaxAge>,
        /// Whether pages may send cookies and other credentials.
        #[field(default(false), required)]
        pub(super) credentials: bool,
        /// Whether pages of public networks may call a private one.
        #[field(default(false), required)]
        pub(super) private_network: bool,
        /// Whether preflights go on to the upstream.
        #[field(default(false), required)]
        pub(super) preflight_continue: bool,
    }
}

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// Texts as one value of a header; none, if there are none.
pub(super) struct JoinedList(pub(super) Option<HeaderValue>);

impl FieldValue for JoinedList {
    fn kind() -> Type {
        Type::array(Type::some_text())
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self(None))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let texts = <Vec<String> as FieldValue>::read(value)?;
        if texts.is_empty() {
            return Ok(Self(None));
        }
        let value = HeaderValue::try_from(texts.join(","));
        let value = value.map_err(|_| wrong("", "has a character that no header can have"))?;
        Ok(Self(Some(value)))
    }
}

/// A number of seconds as the value of a header.
pub(super) struct MaxAge(pub(super) HeaderValue);

impl FieldValue for MaxAge {
    fn kind() -> Type {
        Type::Number
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let value = HeaderValue::try_from(number(value));
        value.map(Self).map_err(|_| wrong("", "expected a number"))
    }
}

impl FieldValue for Origins {
    fn kind() -> Type {
        Type::array(Type::checked(origins::check))
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self::Any)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let texts = <Vec<String> as FieldValue>::read(value)?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Self::read(&texts).map_err(|message| wrong("", message))
    }
}

impl Config {
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
