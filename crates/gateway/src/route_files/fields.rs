//! Fields of objects: read with clear errors, unknown ones told.

use std::time::Duration;

use serde_json::{Map, Value};

use super::builder::RouteFileBuilder;
use doorward_core::yaml::PathSegment;
use doorward_expr::duration::{self, Length};
use doorward_expr::{self as expr, Expression};

/// What takes the place of a length of time without end.
const ENDLESS: Duration = Duration::from_secs(365 * 86_400);

/// A place in a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Place(pub(super) Vec<PathSegment>);

impl Place {
    /// The place one step further.
    pub(super) fn at(&self, step: impl Into<PathSegment>) -> Self {
        let mut path = self.0.clone();
        path.push(step.into());
        Self(path)
    }
}

/// The fields of one object.
pub(super) struct Fields<'a> {
    builder: &'a RouteFileBuilder<'a>,
    map: &'a Map<String, Value>,
    /// Where the object is.
    pub(super) place: Place,
}

impl<'a> Fields<'a> {
    pub(super) fn new(
        builder: &'a RouteFileBuilder<'a>,
        map: &'a Map<String, Value>,
        place: Place,
    ) -> Self {
        Self {
            builder,
            map,
            place,
        }
    }

    /// The object itself.
    pub(super) fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// Warns of members of a declaration that are none of `known`.
    pub(super) fn unknown_decorators(&self, known: &[&str]) {
        for name in self.map.keys().map(String::as_str) {
            if !known.contains(&name) && !is_comment(name) {
                let message = "is taken for a decorator and has no effect";
                self.builder.warn(&self.at(name), message);
            }
        }
    }

    /// The value of a field, which is none if it is null.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Where a field is.
    pub(super) fn at(&self, name: &str) -> Place {
        self.place.at(name)
    }

    /// Says what is wrong with a field.
    pub(super) fn wrong<T>(&self, name: &str, message: impl Into<String>) -> Option<T> {
        self.builder.wrong(&self.at(name), message);
        None
    }

    /// Warns of fields that are neither `known` nor `idle`; the latter are
    /// known to have no effect, and that is said.
    pub(super) fn known(&self, known: &[&str], idle: &[&str]) {
        for name in self.map.keys().map(String::as_str) {
            if idle.contains(&name) {
                self.builder.warn(&self.at(name), "has no effect here");
            } else if !known.contains(&name) && !is_comment(name) {
                self.builder
                    .warn(&self.at(name), "is not known and has no effect");
            }
        }
    }

    /// The items of an array; nothing if it is absent.
    pub(super) fn array(&self, name: &str) -> Option<&'a [Value]> {
        match self.value(name) {
            None => Some(&[]),
            Some(Value::Array(items)) => Some(items),
            Some(_) => self.wrong(name, "expected an array"),
        }
    }

    /// A text that may be an expression without a request; `Some(None)`: the
    /// field is absent, `None`: it is wrong.
    pub(super) fn text(&self, name: &str) -> Option<Option<String>> {
        match self.value(name) {
            None => Some(None),
            Some(Value::String(text)) => match self.at_load(text) {
                Ok(text) => Some(Some(text)),
                Err(message) => self.wrong(name, message),
            },
            Some(Value::Number(number)) => Some(Some(number.to_string())),
            Some(_) => self.wrong(name, "expected a string"),
        }
    }

    /// A whole number within bounds, also as text.
    pub(super) fn integer(&self, name: &str, least: i64, most: i64) -> Option<Option<i64>> {
        let found = match self.value(name) {
            None => return Some(None),
            Some(Value::Number(number)) => number.as_i64(),
            Some(Value::String(text)) => match self.at_load(text) {
                Ok(text) => text.trim().parse().ok(),
                Err(message) => return self.wrong(name, message),
            },
            Some(_) => None,
        };
        match found.filter(|n| (least..=most).contains(n)) {
            Some(n) => Some(Some(n)),
            None => {
                let message = format!("expected a whole number between {least} and {most}");
                self.wrong(name, message)
            }
        }
    }

    /// True or false, also as text.
    pub(super) fn boolean(&self, name: &str) -> Option<Option<bool>> {
        let found = match self.value(name) {
            None => return Some(None),
            Some(Value::Bool(yes)) => Some(*yes),
            Some(Value::String(text)) => match self.at_load(text).as_deref() {
                Ok("true") => Some(true),
                Ok("false") => Some(false),
                _ => None,
            },
            Some(_) => None,
        };
        match found {
            Some(yes) => Some(Some(yes)),
            None => self.wrong(name, "expected true or false"),
        }
    }

    /// A length of time.
    pub(super) fn duration(&self, name: &str) -> Option<Option<Duration>> {
        let Some(text) = self.text(name)? else {
            return Some(None);
        };
        match duration::parse(&text) {
            Ok(Length::Finite(length)) => Some(Some(length.min(ENDLESS))),
            Ok(Length::Unlimited) => Some(Some(ENDLESS)),
            Err(error) => self.wrong(name, error.to_string()),
        }
    }

    /// An expression that is to be true or false for each request; it may be
    /// written as true or false.
    pub(super) fn condition(&self, name: &str) -> Option<Option<Expression>> {
        let compiled = match self.value(name) {
            None => return Some(None),
            Some(Value::Bool(yes)) => {
                let text = Value::String(format!("${{{yes}}}"));
                self.builder.expression(&text, &self.at(name))?
            }
            Some(value) => self.builder.expression(value, &self.at(name))?,
        };
        Some(Some(compiled))
    }

    fn at_load(&self, text: &str) -> Result<String, String> {
        if !text.contains("${") {
            return Ok(text.to_owned());
        }
        match expr::at_load_with(text, &self.builder.constants) {
            Ok(expr::Value::Text(text)) => Ok(text.into_owned()),
            Ok(expr::Value::Integer(n)) => Ok(n.to_string()),
            Ok(expr::Value::Bool(yes)) => Ok(yes.to_string()),
            Ok(_) => Err("the expression gives neither a text nor a number".to_owned()),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

/// Whether a key says nothing to the machine.
pub(super) fn is_comment(key: &str) -> bool {
    key.starts_with('_') || key.starts_with('#') || key == "comment" || key == "comments"
}
