//! Reading the `config` of an object of a route file.
//!
//! Texts may be expressions that need no request; objects stand inline or are
//! named. Errors carry the dotted path of the field at fault.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Display;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::ObjectLookup;
use super::object::{Field, FieldType, GivenValue};
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
            path: "".into(),
            config: Rc::new(config.clone()),
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
#[derive(Clone)]
pub(crate) struct Settings<'a> {
    reading: &'a Reading<'a>,
    /// Of the object: empty, or with a dot at its end.
    path: Rc<str>,
    config: Rc<Map<String, Value>>,
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
    /// The field that has one of these names: its current name, then others.
    ///
    /// # Errors
    /// [`ConfigError`] for a value that the type refuses.
    pub(crate) fn field<T: FieldType<'a>>(
        &self,
        names: &[&'static str],
    ) -> Result<Field<'a, T>, ConfigError> {
        let given = names.iter().find(|name| self.value(name).is_some());
        let place = self.place(given.or(names.first()).copied().unwrap_or_default());
        let value = T::read(&place)?;
        Ok(Field { place, value })
    }

    /// The field of such names, which has this value if it is absent.
    ///
    /// # Errors
    /// [`ConfigError`] for a value that the type refuses.
    pub(crate) fn field_or<T: GivenValue<'a>>(
        &self,
        names: &[&'static str],
        default: impl FnOnce() -> T,
    ) -> Result<Field<'a, T>, ConfigError> {
        let Field { place, value } = self.field::<Option<T>>(names)?;
        let value = value.unwrap_or_else(default);
        Ok(Field { place, value })
    }

    /// The member whose name the file chooses.
    ///
    /// # Errors
    /// [`ConfigError`] for a value that the type refuses.
    pub(crate) fn member<T: GivenValue<'a>>(
        &self,
        name: &str,
    ) -> Result<Field<'a, Option<T>>, ConfigError> {
        let place = self.place(name);
        let value = FieldType::read(&place)?;
        Ok(Field { place, value })
    }

    /// The place of the field `name`.
    fn place(&self, name: &str) -> Place<'a> {
        Place {
            settings: self.clone(),
            name: name.into(),
        }
    }

    /// Warns of fields that mean nothing here: those without a name among `known` and
    /// `idle`. The idle ones are accepted, and some have a reason for it that is told.
    pub(crate) fn warn_of_others(&self, known: &[&str], idle: &[(&str, Option<&str>)]) {
        let is_known = |name: &str| {
            let mut names = known.iter().chain(idle.iter().map(|(name, _)| name));
            names.any(|known| *known == name)
        };
        for name in self.config.keys().filter(|name| !is_known(name)) {
            self.place(name).warn("has no meaning here and is ignored");
        }
        for (name, reason) in idle {
            if let Some(reason) = reason
                && self.value(name).is_some()
            {
                self.place(name).warn(&format!("has no effect: {reason}"));
            }
        }
    }

    /// The value of a field that is not null.
    fn value(&self, name: &str) -> Option<&Value> {
        self.config.get(name).filter(|value| !value.is_null())
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
                path: format!("{field}.config.").into(),
                config: Rc::new(config),
                depth: self.depth + 1,
            },
        })
    }
}

/// The place of a field in the `config` of an object.
#[derive(Clone)]
pub(crate) struct Place<'a> {
    settings: Settings<'a>,
    name: Rc<str>,
}

impl<'a> Place<'a> {
    /// The place of something inside.
    pub(crate) fn at(&self, inner: impl Display) -> Self {
        Self {
            settings: self.settings.clone(),
            name: format!("{}.{inner}", self.name).into(),
        }
    }

    /// The value that is not null.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.settings.value(&self.name)
    }

    /// Whether there is a value that is not null.
    pub(crate) fn is_given(&self) -> bool {
        self.value().is_some()
    }

    /// The error of the field.
    pub(crate) fn wrong(&self, message: impl Into<String>) -> ConfigError {
        wrong(self.path(), message)
    }

    /// Says what an operator should know of the field.
    pub(crate) fn warn(&self, message: &str) {
        let warning = format!("{} {message}", self.path());
        self.settings.reading.warnings.borrow_mut().push(warning);
    }

    /// Says that a file is about to be read, so that its changes are noticed.
    pub(crate) fn looks_at(&self, file: &Path) {
        self.settings.reading.constants.looks_at(file);
    }

    /// A text that may be an expression without a request.
    pub(crate) fn evaluated(&self, text: &str) -> Result<String, ConfigError> {
        if !text.contains("${") {
            return Ok(text.to_owned());
        }
        match expr::at_load_with(text, self.settings.reading.constants) {
            Ok(expr::Value::Text(text)) => Ok(text.into_owned()),
            Ok(expr::Value::Integer(number)) => Ok(number.to_string()),
            Ok(expr::Value::Bool(flag)) => Ok(flag.to_string()),
            Ok(_) => Err(self.wrong("the expression does not give a text")),
            Err(fault) => Err(self.wrong(fault.to_string())),
        }
    }

    /// Compiles a text.
    pub(crate) fn compile(&self, text: &str) -> Result<Expression, ConfigError> {
        let compiled = Expression::compile_with(text, self.settings.reading.constants)
            .map_err(|fault| self.wrong(fault.to_string()))?;
        for unknown in compiled.unknown() {
            self.warn(&format!("is null in part: {unknown}"));
        }
        Ok(compiled)
    }

    /// The `config` that an object inside is.
    pub(super) fn inner(&self, object: &Map<String, Value>) -> Settings<'a> {
        Settings {
            path: format!("{}.", self.path()).into(),
            config: Rc::new(object.clone()),
            ..self.settings.clone()
        }
    }

    /// The object that the value names or holds.
    pub(super) fn declared(&self) -> Result<Option<Declared<'a>>, ConfigError> {
        let value = self.value();
        value
            .map(|value| self.settings.resolve(&self.path(), value))
            .transpose()
    }

    /// The objects that a list names or holds; one may stand alone.
    pub(super) fn all_declared(&self) -> Result<Vec<Declared<'a>>, ConfigError> {
        let field = self.path();
        match self.value() {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.settings.resolve(&format!("{field}[{index}]"), item))
                .collect(),
            Some(single) => Ok(vec![self.settings.resolve(&field, single)?]),
        }
    }

    fn path(&self) -> String {
        format!("{}{}", self.settings.path, self.name)
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
