//! The `config` of the plugin.

use std::sync::LazyLock;

use http::header::HOST;
use http::{HeaderValue, Method};
use serde_json::{Map, Value, json};

use super::query::QueryRules;
use crate::field_rules::{FieldRules, RuleLists, check_header_to_remove, header, pair};
use crate::settings::wrong;
use crate::template::Template;
use doorward_core::model::schema::{Schema, Type};
use doorward_plugin_api::config::AnyText;
use doorward_plugin_api::{ConfigError, config};

config! {
    /// The fields of `config`. The operations run in this order.
    struct Fields {
        /// The method that the upstream gets in the place of the client's.
        #[field(kind(Type::checked(check_method)))]
        http_method: Option<Box<str>>,
        /// What is taken away, by its name.
        #[field(required)]
        remove: Removals,
        /// What gets another name, as old:new.
        #[field(required)]
        rename: Renames,
        /// What gets another value where it is there, as name:value.
        #[field(required)]
        replace: Replacements,
        /// What is added where it is not there, as name:value.
        #[field(required)]
        add: Additions,
        /// What is added to what may be there, as name:value.
        #[field(required)]
        append: Additions,
    }
}

config! {
    /// What is taken away.
    struct Removals {
        /// Members of the body, where that is JSON or a form.
        #[field(kind(Type::array(Type::text())), default(json!([])), required)]
        body: Vec<Box<str>>,
        /// Headers.
        #[field(kind(Type::array(Type::checked(check_header_to_remove))), default(json!([])), required)]
        headers: Vec<Box<str>>,
        /// Parameters of the query.
        #[field(kind(Type::array(Type::text())), default(json!([])), required)]
        querystring: Vec<Box<str>>,
    }
}

config! {
    /// What gets another name.
    struct Renames {
        /// Members of the body, where that is JSON or a form.
        #[field(kind(Type::array(Type::checked(check_value))), default(json!([])), required)]
        body: Vec<Box<str>>,
        /// Headers.
        #[field(kind(Type::array(Type::checked(check_rename))), default(json!([])), required)]
        headers: Vec<Box<str>>,
        /// Parameters of the query.
        #[field(kind(Type::array(Type::checked(check_value))), default(json!([])), required)]
        querystring: Vec<Box<str>>,
    }
}

config! {
    /// What gets another value.
    struct Replacements {
        /// Members of the body, where that is JSON or a form.
        #[field(kind(Type::array(Type::checked(check_value))), default(json!([])), required)]
        body: Vec<Box<str>>,
        /// Headers.
        #[field(kind(Type::array(Type::checked(check_field))), default(json!([])), required)]
        headers: Vec<Box<str>>,
        /// Parameters of the query.
        #[field(kind(Type::array(Type::checked(check_value))), default(json!([])), required)]
        querystring: Vec<Box<str>>,
        /// The path that the upstream gets in the place of the client's.
        #[field(kind(Type::checked(check_template)))]
        uri: Option<AnyText>,
    }
}

config! {
    /// What is added.
    struct Additions {
        /// Members of the body, where that is JSON or a form.
        #[field(kind(Type::array(Type::checked(check_value))), default(json!([])), required)]
        body: Vec<Box<str>>,
        /// Headers.
        #[field(kind(Type::array(Type::checked(check_field))), default(json!([])), required)]
        headers: Vec<Box<str>>,
        /// Parameters of the query.
        #[field(kind(Type::array(Type::checked(check_value))), default(json!([])), required)]
        querystring: Vec<Box<str>>,
    }
}

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Fields::fields()));
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
        let fields = Fields::read(config)?;
        let mut templates = Vec::new();
        let uri = fields.replace.uri.as_ref();
        let uri = uri
            .map(|text| Text::read(&text.0, &mut templates))
            .transpose();
        let mut headers =
            FieldRules::read(&fields.headers(), |text| Text::read(text, &mut templates))?;
        let host = take_host(&mut headers);
        Ok(Self {
            method: fields.http_method.as_deref().map(method).transpose()?,
            uri: uri.map_err(|message| wrong("replace.uri", message))?,
            host,
            headers,
            query: QueryRules::read("querystring", &fields.query(), |text| {
                Text::read(text, &mut templates)
            })?,
            body: QueryRules::read("body", &fields.body(), |text| {
                Text::read_any(text, &mut templates)
            })?,
            templates,
        })
    }
}

impl Fields {
    /// The lists of headers.
    fn headers(&self) -> RuleLists<'_> {
        RuleLists {
            remove: &self.remove.headers,
            rename: &self.rename.headers,
            replace: &self.replace.headers,
            add: &self.add.headers,
            append: &self.append.headers,
        }
    }

    /// The lists of parameters of the query.
    fn query(&self) -> RuleLists<'_> {
        RuleLists {
            remove: &self.remove.querystring,
            rename: &self.rename.querystring,
            replace: &self.replace.querystring,
            add: &self.add.querystring,
            append: &self.append.querystring,
        }
    }

    /// The lists of members of the body.
    fn body(&self) -> RuleLists<'_> {
        RuleLists {
            remove: &self.remove.body,
            rename: &self.rename.body,
            replace: &self.replace.body,
            add: &self.add.body,
            append: &self.append.body,
        }
    }
}

fn method(text: &str) -> Result<Method, ConfigError> {
    if ["HEAD", "CONNECT", "TRACE"].contains(&text) {
        let message = format!("'{text}' can't take the place of another: its answer has no body");
        return Err(wrong("http_method", message));
    }
    let method = Method::from_bytes(text.as_bytes());
    method.map_err(|_| wrong("http_method", "is no method"))
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
