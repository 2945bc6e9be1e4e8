//! Values as texts, the way the imitated language writes them.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value as Json;

use super::context::Object;
use super::run::Run;
use super::slot::Slot;
use super::target::Target;
use super::value::{self, Value};

/// The text form of a value; `None` for null, for what has none, and where the
/// evaluation is over.
pub(super) fn text<'a>(value: Value<'a>, scope: &Run<'a>) -> Option<Cow<'a, str>> {
    match value {
        Value::Null => None,
        Value::Object(Object::Uri(which)) => Target::of(scope, which).whole().into_text(),
        Value::Object(Object::Entity) => match Slot::EntityText.read(scope) {
            Value::Text(text) => Some(text),
            _ => None,
        },
        Value::List(list) => {
            let shown = list.into_iter().map(|value| match value {
                Value::Null => Some(Cow::Borrowed("null")),
                value => text(value, scope),
            });
            brackets(shown, scope)
        }
        Value::Texts(list) => brackets(list.iter().map(|text| Some(text.as_str().into())), scope),
        Value::Array(list) => within(scope, |out| list_of(&list, out)),
        Value::Map(map) => within(scope, |out| map_of(map.iter(), out)),
        plain => plain.into_text(),
    }
}

fn brackets<'a>(
    elements: impl Iterator<Item = Option<Cow<'a, str>>>,
    scope: &Run<'_>,
) -> Option<Cow<'a, str>> {
    let mut out = String::from("[");
    for (i, element) in elements.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&element?);
        scope.allows(out.len())?;
    }
    out.push(']');
    Some(Cow::Owned(out))
}

fn within(scope: &Run<'_>, write: impl FnOnce(&mut String)) -> Option<Cow<'static, str>> {
    let mut out = String::new();
    write(&mut out);
    scope.allows(out.len())?;
    Some(Cow::Owned(out))
}

fn list_of(list: &[Json], out: &mut String) {
    out.push('[');
    for (i, element) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        json(element, out);
    }
    out.push(']');
}

fn map_of<'j>(map: impl Iterator<Item = (&'j String, &'j Json)>, out: &mut String) {
    out.push('{');
    for (i, (key, value)) in map.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(key);
        out.push('=');
        json(value, out);
    }
    out.push('}');
}

fn json(json: &Json, out: &mut String) {
    match json {
        Json::Array(list) => list_of(list, out),
        Json::Object(map) => map_of(map.iter(), out),
        Json::String(text) => out.push_str(text),
        Json::Number(number) if number.is_f64() => {
            out.push_str(&value::float(number.as_f64().unwrap_or_default()));
        }
        plain => {
            // Writing into a text does not fail.
            let _ = write!(out, "{plain}");
        }
    }
}
