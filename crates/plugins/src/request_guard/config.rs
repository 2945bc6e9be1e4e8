//! The `config` of a request guard.

use std::sync::LazyLock;

use http::HeaderName;
use serde_json::{Map, Value};

use super::request_values::spelt;
use crate::networks::Networks;
use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type};
use doorward_core::model::user::name;
use doorward_core::model::user::name_place::NamePlace;
use doorward_plugin_api::config::FieldValue;
use doorward_plugin_api::{ConfigError, config};

config! {
    /// The fields of `config`.
    struct Config {
        /// Headers that are looked at, all values of each, also under a name with _ for -.
        #[field(required, len_min(1))]
        header_names: Vec<WatchedHeader>,
        /// What requests must not say, in whatever spelling.
        #[field(kind(Type::array(Type::checked(check_text))), required, len_min(1))]
        values: Vec<String>,
        /// Query parameters, form fields and JSON members that must not say it either.
        /// Null: all that the provider reads names of users from.
        #[field(kind(Type::array(Type::checked(check_text))))]
        parameter_names: Option<Vec<Box<str>>>,
        /// Whether the user of basic authentication must not be it either. Null: yes.
        #[field(default(true))]
        basic_auth: Option<bool>,
        /// Addresses and networks from which everything passes.
        allow: Networks,
    }
}

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// The name of a header, in lower case, with `-` for `_`.
struct WatchedHeader(Box<str>);

impl WatchedHeader {
    fn parse(name: &str) -> Result<Self, String> {
        let header: HeaderName = name
            .parse()
            .map_err(|_| format!("'{name}' is no header name"))?;
        Ok(Self(header.as_str().replace('_', "-").into()))
    }
}

impl FieldValue for WatchedHeader {
    fn kind() -> Type {
        Type::checked(|name| Self::parse(name).map(drop))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let name = value.as_str().unwrap_or_default();
        Self::parse(name).map_err(|message| wrong("", message))
    }
}

fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("length must be at least 1".to_owned());
    }
    Ok(())
}

/// What a guard looks for, as it is configured.
#[derive(Debug)]
pub(super) struct Rules {
    /// In lower case, with `-` for `_`.
    pub(super) headers: Box<[Box<str>]>,
    /// As [`spelt`].
    pub(super) values: Box<[String]>,
    /// Those of the configuration, or else of all that the provider reads.
    pub(super) parameters: Box<[Box<str>]>,
    /// Whether the user of `Authorization: Basic` is looked at.
    pub(super) basic: bool,
    /// Longest text that can be one of `values`, in bytes.
    pub(super) longest: usize,
    pub(super) allow: Networks,
}

/// Bytes that a letter, its quotes and blanks may take to be written.
const WIDEST: usize = 8;

impl Rules {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = Config::read(config)?;
        for (field, empty) in [
            ("header_names", config.header_names.is_empty()),
            ("values", config.values.is_empty()),
        ] {
            if empty {
                return Err(wrong(field, "required field missing"));
            }
        }
        let headers = config.header_names.into_iter().map(|header| header.0);
        let values: Box<[_]> = config.values.iter().map(|value| spelt(value)).collect();
        let longest = values.iter().map(String::len).max().unwrap_or_default();
        Ok(Self {
            headers: headers.collect(),
            longest: longest.saturating_mul(WIDEST).max(name::MAX),
            values,
            parameters: match config.parameter_names {
                Some(names) => names.into(),
                None => NamePlace::parameters().map(Into::into).collect(),
            },
            basic: config.basic_auth.unwrap_or(true),
            allow: config.allow,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<Rules, ConfigError> {
        Rules::read(config.as_object().expect("an object"))
    }

    #[test]
    fn what_guards_nothing_is_refused() {
        for (config, field) in [
            (json!({"values": ["a"]}), "header_names"),
            (json!({"header_names": ["x"], "values": []}), "values"),
            (
                json!({"header_names": ["a b"], "values": ["a"]}),
                "header_names.1",
            ),
            (
                json!({"header_names": ["x"], "values": ["a"], "allow": ["10.0.0.0/33"]}),
                "allow",
            ),
        ] {
            assert_eq!(read(&config).expect_err("refused").field, field);
        }
    }
}
