//! The `config` of a request guard.

use std::sync::LazyLock;

use http::HeaderName;
use ipnet::IpNet;
use serde_json::{Map, Value};

use super::request_values::spelt;
use crate::networks::{self, network};
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_core::model::user::name;
use doorward_core::model::user::name_place::NamePlace;
use doorward_plugin_api::ConfigError;

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let names = || Type::array(Type::checked(check_header));
        let texts = || Type::array(Type::checked(check_text));
        Schema::new(vec![
            Field::new("header_names", names()).required().len_min(1),
            Field::new("values", texts()).required().len_min(1),
            Field::new("parameter_names", texts()),
            Field::new("basic_auth", Type::Boolean).default(true),
            Field::new("allow", Type::array(Type::checked(networks::check))),
        ])
    });
    &SCHEMA
}

/// A configuration as it will run.
#[derive(Debug)]
pub(super) struct Config {
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
    pub(super) allow: Box<[IpNet]>,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let headers = each(config, "header_names", |name| {
            let name = header(name)?;
            Ok(name.as_str().replace('_', "-").into())
        })?;
        let values = each(config, "values", |value| Ok(spelt(value)))?;
        for (field, empty) in [
            ("header_names", headers.is_empty()),
            ("values", values.is_empty()),
        ] {
            if empty {
                return Err(error(field, "required field missing"));
            }
        }
        let parameters = match config.get("parameter_names") {
            None | Some(Value::Null) => NamePlace::parameters().map(Into::into).collect(),
            Some(_) => each(config, "parameter_names", |name| Ok(name.into()))?,
        };
        let basic = match config.get("basic_auth") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(basic)) => *basic,
            Some(_) => return Err(error("basic_auth", "expected a boolean")),
        };
        let longest = values.iter().map(String::len).max().unwrap_or_default();
        Ok(Self {
            headers,
            longest: longest.saturating_mul(WIDEST).max(name::MAX),
            values,
            parameters,
            basic,
            allow: each(config, "allow", network)?,
        })
    }
}

/// Bytes that a letter, its quotes and blanks may take to be written.
const WIDEST: usize = 8;

fn error(field: &str, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.to_owned(),
        message: message.into(),
    }
}

/// The texts of a list, read one by one; absent and null are empty.
fn each<T>(
    config: &Map<String, Value>,
    field: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Box<[T]>, ConfigError> {
    let texts = match config.get(field) {
        None | Some(Value::Null) => return Ok(Box::default()),
        Some(Value::Array(texts)) => texts,
        Some(_) => return Err(error(field, "expected an array")),
    };
    let read = |text: &Value| read(text.as_str().ok_or("expected a string")?);
    let all: Result<_, String> = texts.iter().map(read).collect();
    all.map_err(|message| error(field, message))
}

fn header(name: &str) -> Result<HeaderName, String> {
    name.parse()
        .map_err(|_| format!("'{name}' is no header name"))
}

fn check_header(name: &str) -> Result<(), String> {
    header(name).map(drop)
}

fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("length must be at least 1".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<Config, ConfigError> {
        Config::read(config.as_object().expect("an object"))
    }

    #[test]
    fn addresses_and_networks_of_both_families_are_read() {
        for (text, network) in [
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(super::network(text).expect(text).to_string(), network);
        }
    }

    #[test]
    fn what_guards_nothing_is_refused() {
        for (config, field) in [
            (json!({"values": ["a"]}), "header_names"),
            (json!({"header_names": ["x"], "values": []}), "values"),
            (
                json!({"header_names": ["a b"], "values": ["a"]}),
                "header_names",
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
