//! The `config` of the plugin.

use std::sync::LazyLock;

use http::header::HOST;
use http::{HeaderValue, Method};
use serde_json::{Map, Value, json};

use super::query::QueryRules;
use crate::field_rules::{FieldRules, check_header_to_remove, header, pair};
use crate::settings::{Settings, wrong};
use crate::template::Template;
use doorward_core::model::schema::{Field, Schema, TextCheck, Type};
use doorward_plugin_api::ConfigError;

/// What rules do, in this order.
const OPERATIONS: [&str; 5] = ["remove", "rename", "replace", "add", "append"];

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let records = OPERATIONS.map(|operation| {
            let (of_headers, of_others): (TextCheck, Option<TextCheck>) = match operation {
                "remove" => (check_header_to_remove, None),
                "rename" => (check_rename, Some(check_value)),
                _ => (check_field, Some(check_value)),
            };
            let list = |name, of| {
                Field::new(name, Type::array(of))
                    .default(json!([]))
                    .required()
            };
            let others = || of_others.map_or_else(Type::text, Type::checked);
            let mut fields = vec![
                list("body", others()),
                list("headers", Type::checked(of_headers)),
                list("querystring", others()),
            ];
            if operation == "replace" {
                fields.push(Field::new("uri", Type::checked(check_template)));
            }
            Field::new(operation, Type::Record(Schema::new(fields))).required()
        });
        let mut fields = vec![Field::new("http_method", Type::checked(check_method))];
        fields.extend(records);
        Schema::new(fields)
    });
    &SCHEMA
}

fn check_method(text: &str) -> Result<(), String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_uppercase()) {
        return Err(format!("invalid value: {text}"));
    }
    Ok(())
}

fn check_template(text: &str) -> Result<(), String> {
    Template::read(text).map(drop)
}

/// An entry `name:value` of a header.
fn check_field(text: &str) -> Result<(), String> {
    let (name, value) = pair(text).ok_or_else(|| format!("invalid value: {text}"))?;
    header(name)?;
    Text::read(value, &mut Vec::new()).map(drop)
}

/// An entry `old:new` of a header.
fn check_rename(text: &str) -> Result<(), String> {
    crate::field_rules::check_header_names(text)
}

/// An entry `name:value` of a query or a body.
fn check_value(text: &str) -> Result<(), String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    if name.is_empty() || value.is_empty() {
        return Err(format!("key '{name}' has no value"));
    }
    check_template(value)
}

/// A value: the same for every request, or the number of a template.
#[derive(Debug)]
pub(super) enum Text {
    /// With what it is as a header's value, where it can be one.
    Constant(Box<str>, HeaderValue),
    Template(usize),
}

impl Text {
    /// Reads a value that need not be one of a header.
    fn read_any(text: &str, templates: &mut Vec<Template>) -> Result<Self, String> {
        let template = Template::read(text)?;
        Ok(match template.constant() {
            Some(constant) => {
                let value = HeaderValue::from_bytes(constant.as_bytes());
                let value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
                Self::Constant(constant.into(), value)
            }
            None => {
                templates.push(template);
                Self::Template(templates.len() - 1)
            }
        })
    }

    /// Reads a value; a template is added to `templates`.
    fn read(text: &str, templates: &mut Vec<Template>) -> Result<Self, String> {
        let template = Template::read(text)?;
        let Some(constant) = template.constant() else {
            templates.push(template);
            return Ok(Self::Template(templates.len() - 1));
        };
        let value = HeaderValue::from_bytes(constant.as_bytes());
        let value = value.map_err(|_| format!("invalid value: {text}"))?;
        Ok(Self::Constant(constant.into(), value))
    }
}

/// A configuration as it runs.
pub(super) struct Config {
    pub(super) method: Option<Method>,
    pub(super) uri: Option<Text>,
    pub(super) host: Option<Text>,
    pub(super) headers: FieldRules<Text>,
    pub(super) query: QueryRules,
    pub(super) body: QueryRules,
    pub(super) templates: Vec<Template>,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = Settings(config);
        let mut templates = Vec::new();
        let uri = config.record("replace").text("uri");
        let uri = uri.map(|text| Text::read(text, &mut templates)).transpose();
        let mut headers = FieldRules::read(config, |text| Text::read(text, &mut templates))?;
        let host = take_host(&mut headers);
        Ok(Self {
            method: method(config)?,
            uri: uri.map_err(|message| wrong("replace.uri", message))?,
            host,
            headers,
            query: QueryRules::read(config, "querystring", |text| {
                Text::read(text, &mut templates)
            })?,
            body: QueryRules::read(config, "body", |text| Text::read_any(text, &mut templates))?,
            templates,
        })
    }
}

fn method(config: Settings<'_>) -> Result<Option<Method>, ConfigError> {
    let Some(text) = config.text("http_method") else {
        return Ok(None);
    };
    if ["HEAD", "CONNECT", "TRACE"].contains(&text) {
        let message = format!("'{text}' can't take the place of another: its answer has no body");
        return Err(wrong("http_method", message));
    }
    let method = Method::from_bytes(text.as_bytes());
    let method = method.map_err(|_| wrong("http_method", "is no method"))?;
    Ok(Some(method))
}

/// The rule for `Host`, which the gateway always writes: it can be replaced and
/// nothing else.
fn take_host(rules: &mut FieldRules<Text>) -> Option<Text> {
    let keep = |list: &mut Box<[(http::HeaderName, Text)]>| {
        let all = std::mem::take(list).into_vec();
        let (host, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name == HOST);
        *list = others.into();
        host.into_iter().next_back().map(|(_, text)| text)
    };
    let host = keep(&mut rules.replace);
    drop(keep(&mut rules.add));
    drop(keep(&mut rules.append));
    let others = rules.remove.iter().filter(|name| **name != HOST);
    rules.remove = others.cloned().collect();
    let others = rules.rename.iter();
    let others = others.filter(|(old, new)| old != HOST && new != HOST);
    rules.rename = others.cloned().collect();
    host
}
