//! Reading the `config` of an object of a route file.
//!
//! Texts may be expressions that need no request; objects stand inline or are
//! named. Errors carry the dotted path of the field at fault.

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use url::Url;

use super::ObjectLookup;
use doorward_expr::duration::{self, Length};
use doorward_expr::{self as expr, Constants, Expression};
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Parts};

/// Objects that may refer to one another, deepest.
const MAX_DEPTH: u8 = 8;
/// Objects that are there without a declaration.
const BUILT_IN: &[&str] = &[
    "ClientHandler",
    "ForgeRockClientHandler",
    "ReverseProxyHandler",
    "SystemAndEnvSecretStore",
    "TrustAllManager",
];

/// What all objects of one filter share while it is read.
pub(crate) struct Reading<'a> {
    named: ObjectLookup<'a>,
    constants: &'a Constants,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Reading<'a> {
    /// Nothing read yet.
    pub(crate) fn new(parts: &'a Parts, named: ObjectLookup<'a>) -> Self {
        Self {
            named,
            constants: &parts.constants,
            warnings: RefCell::default(),
        }
    }

    /// The `config` of the filter itself.
    pub(crate) fn config(&'a self, config: &'a Map<String, Value>) -> Settings<'a> {
        Settings {
            reading: self,
            path: String::new(),
            config: Cow::Borrowed(config),
            depth: 0,
        }
    }

    /// The filter that `read` makes of its `config`. `warned` is where it keeps what
    /// an operator should know of what was read.
    ///
    /// # Errors
    /// What `read` refuses.
    pub(super) fn filter<F: Filter + 'static>(
        self,
        config: &Map<String, Value>,
        read: impl FnOnce(&Settings<'_>) -> Result<F, ConfigError>,
        warned: impl FnOnce(&mut F) -> &mut Vec<String>,
    ) -> Result<Arc<dyn Filter>, ConfigError> {
        let mut filter = read(&self.config(config))?;
        *warned(&mut filter) = self.into_warnings();
        Ok(Arc::new(filter))
    }

    /// What an operator should know of what was read.
    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }
}

/// The `config` of an object.
pub(crate) struct Settings<'a> {
    reading: &'a Reading<'a>,
    /// Of the object: empty, or with a dot at its end.
    path: String,
    config: Cow<'a, Map<String, Value>>,
    depth: u8,
}

/// An object that a field names or holds.
pub(crate) struct Declared<'a> {
    /// Its `type`.
    pub(crate) kind: String,
    /// The field that refers to it.
    pub(crate) field: String,
    /// Its `config`.
    pub(crate) settings: Settings<'a>,
}

impl<'a> Settings<'a> {
    /// Says that a file is about to be read, so that its changes are noticed.
    pub(crate) fn looks_at(&self, file: &Path) {
        self.reading.constants.looks_at(file);
    }

    /// The error of the field `name`.
    pub(crate) fn wrong(&self, name: &str, message: impl Into<String>) -> ConfigError {
        wrong(format!("{}{name}", self.path), message)
    }

    /// Says what an operator should know of the field `name`.
    pub(crate) fn warn(&self, name: &str, message: &str) {
        let warning = format!("{}{name} {message}", self.path);
        self.reading.warnings.borrow_mut().push(warning);
    }

    /// Warns of fields that mean nothing here.
    pub(crate) fn known(&self, names: &[&str]) {
        for name in self.config.keys().filter(|n| !names.contains(&n.as_str())) {
            self.warn(name, "has no meaning here and is ignored");
        }
    }

    /// Says that fields are accepted and have no effect.
    pub(crate) fn idle(&self, names: &[&str], reason: &str) {
        for name in names.iter().filter(|name| self.has(name)) {
            self.warn(name, &format!("has no effect: {reason}"));
        }
    }

    /// Whether a field is there and not null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of a field that is not null.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.config.get(name).filter(|value| !value.is_null())
    }

    /// The first of these fields that is there: its current name, then others.
    pub(crate) fn one_of<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => self.evaluated(name, text).map(Some),
            Some(_) => Err(self.wrong(name, "must be a text")),
        }
    }

    /// A text that must be there and not be empty.
    pub(crate) fn required(&self, name: &str) -> Result<String, ConfigError> {
        let text = self.text(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(name, "is required"))
    }

    /// A text that may be an expression without a request.
    pub(crate) fn evaluated(&self, name: &str, text: &str) -> Result<String, ConfigError> {
        if !text.contains("${") {
            return Ok(text.to_owned());
        }
        match expr::at_load_with(text, self.reading.constants) {
            Ok(expr::Value::Text(text)) => Ok(text.into_owned()),
            Ok(expr::Value::Integer(number)) => Ok(number.to_string()),
            Ok(expr::Value::Bool(flag)) => Ok(flag.to_string()),
            Ok(_) => Err(self.wrong(name, "the expression does not give a text")),
            Err(fault) => Err(self.wrong(name, fault.to_string())),
        }
    }

    /// True or false, also as text.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, ConfigError> {
        let flag = match self.value(name) {
            None => Some(default),
            Some(Value::Bool(flag)) => Some(*flag),
            Some(Value::String(text)) => {
                let text = self.evaluated(name, text)?;
                let is = |word: &str| text.eq_ignore_ascii_case(word);
                is("true").then_some(true).or(is("false").then_some(false))
            }
            Some(_) => None,
        };
        flag.ok_or_else(|| self.wrong(name, "must be true or false"))
    }

    /// A duration such as `10 seconds`.
    pub(crate) fn length(&self, name: &str) -> Result<Option<Length>, ConfigError> {
        let message = "must be a text such as `10 seconds`";
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(_)) => {
                let text = self.text(name)?.unwrap_or_default();
                let length = duration::parse(&text);
                length
                    .map(Some)
                    .map_err(|fault| self.wrong(name, fault.to_string()))
            }
            Some(_) => Err(self.wrong(name, message)),
        }
    }

    /// An absolute URL of HTTP.
    pub(crate) fn url(&self, name: &str) -> Result<Option<Url>, ConfigError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let url = Url::parse(&text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        url.map(Some)
            .ok_or_else(|| self.wrong(name, "must be an http or https URL"))
    }

    /// Texts: a list of them, or one alone.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<&str>, ConfigError> {
        let wrong = || self.wrong(name, "must be a list of texts");
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text]),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().ok_or_else(wrong))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    /// A list of texts, or one alone, for each of the names in an object.
    pub(crate) fn lists(&self, name: &str) -> Result<Vec<(String, Vec<String>)>, ConfigError> {
        let object = match self.value(name) {
            None => return Ok(Vec::new()),
            Some(Value::Object(object)) => object,
            Some(_) => return Err(self.wrong(name, "must be an object of lists of texts")),
        };
        let inner = Settings {
            reading: self.reading,
            path: format!("{}{name}.", self.path),
            config: Cow::Borrowed(object),
            depth: self.depth,
        };
        let entry = |key: &String| {
            let texts = inner.list(key)?.into_iter().map(str::to_owned);
            Ok((key.clone(), texts.collect()))
        };
        object.keys().map(entry).collect()
    }

    /// Compiles the text of the field `name`.
    pub(crate) fn compile(&self, name: &str, text: &str) -> Result<Expression, ConfigError> {
        let compiled = Expression::compile_with(text, self.reading.constants)
            .map_err(|fault| self.wrong(name, fault.to_string()))?;
        for unknown in compiled.unknown() {
            self.warn(name, &format!("is null in part: {unknown}"));
        }
        Ok(compiled)
    }

    /// An expression.
    pub(crate) fn expression(&self, name: &str) -> Result<Option<Expression>, ConfigError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => self.compile(name, text).map(Some),
            Some(_) => Err(self.wrong(name, "must be a text")),
        }
    }

    /// An object inside this one.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Settings<'a>>, ConfigError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Settings {
                reading: self.reading,
                path: format!("{}{name}.", self.path),
                config: Cow::Owned(object.clone()),
                depth: self.depth,
            })),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }

    /// The object that a field names or holds.
    pub(crate) fn declared(&self, name: &str) -> Result<Option<Declared<'a>>, ConfigError> {
        let value = self.value(name);
        value
            .map(|value| self.resolve(&format!("{}{name}", self.path), value))
            .transpose()
    }

    /// The objects that a list names or holds; one may stand alone.
    pub(crate) fn all_declared(&self, name: &str) -> Result<Vec<Declared<'a>>, ConfigError> {
        let field = format!("{}{name}", self.path);
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.resolve(&format!("{field}[{index}]"), item))
                .collect(),
            Some(single) => Ok(vec![self.resolve(&field, single)?]),
        }
    }

    fn resolve(&self, field: &str, value: &Value) -> Result<Declared<'a>, ConfigError> {
        if self.depth == MAX_DEPTH {
            return Err(wrong(
                field,
                "refers to objects that refer to others too deeply",
            ));
        }
        let object = match value {
            Value::String(name) => match (self.reading.named)(name) {
                Some(Value::Object(object)) => Cow::Owned(object),
                Some(_) => return Err(wrong(field, format!("{name:?} is no object"))),
                None if BUILT_IN.contains(&name.as_str()) => {
                    let kind = ("type".to_owned(), Value::from(name.as_str()));
                    Cow::Owned(Map::from_iter([kind]))
                }
                None => return Err(wrong(field, format!("there is no object {name:?}"))),
            },
            Value::Object(object) => Cow::Borrowed(object),
            _ => {
                return Err(wrong(
                    field,
                    "must be the name of an object, or an object with `type`",
                ));
            }
        };
        let Some(kind) = object.get("type").and_then(Value::as_str) else {
            return Err(wrong(format!("{field}.type"), "is required"));
        };
        let config = match object.get("config") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(config)) => config.clone(),
            Some(_) => return Err(wrong(format!("{field}.config"), "must be an object")),
        };
        Ok(Declared {
            kind: kind.to_owned(),
            field: field.to_owned(),
            settings: Settings {
                reading: self.reading,
                path: format!("{field}.config."),
                config: Cow::Owned(config),
                depth: self.depth + 1,
            },
        })
    }
}

impl Declared<'_> {
    /// The error of an object of a type that can't stand here; `wanted` says
    /// what can.
    pub(crate) fn unfit(&self, wanted: &str) -> ConfigError {
        let message = match super::refused(&self.kind) {
            Some(reason) => format!("{}: {reason}", self.kind),
            None => format!("{} can't stand here: use {wanted}", self.kind),
        };
        wrong(format!("{}.type", self.field), message)
    }
}

fn wrong(field: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.into(),
        message: message.into(),
    }
}
