//! Methods on values, as the imitated language's texts, lists and maps have
//! them.

use std::borrow::Cow;

use super::function::{contains, index_of, lower_case, mapped, text, to_text, trimmed, upper_case};
use super::node::named;
use super::value::Value;
use super::{MAX_TEXT, Scope};

/// A method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    CharAt,
    Concat,
    Contains,
    ContainsKey,
    EndsWith,
    Equals,
    EqualsIgnoreCase,
    Get,
    IndexOf,
    IsBlank,
    IsEmpty,
    LastIndexOf,
    Length,
    Replace,
    StartsWith,
    Substring,
    ToLowerCase,
    ToText,
    ToUpperCase,
    Trim,
}

/// Methods by name, with the fewest and the most arguments they take.
/// `matches` and `split` take a pattern and are found among the patterns.
pub(super) const METHODS: &[(&str, Method, usize, usize)] = &[
    ("charAt", Method::CharAt, 1, 1),
    ("concat", Method::Concat, 1, 1),
    ("contains", Method::Contains, 1, 1),
    ("containsKey", Method::ContainsKey, 1, 1),
    ("endsWith", Method::EndsWith, 1, 1),
    ("equals", Method::Equals, 1, 1),
    ("equalsIgnoreCase", Method::EqualsIgnoreCase, 1, 1),
    ("get", Method::Get, 1, 1),
    ("indexOf", Method::IndexOf, 1, 1),
    ("isBlank", Method::IsBlank, 0, 0),
    ("isEmpty", Method::IsEmpty, 0, 0),
    ("lastIndexOf", Method::LastIndexOf, 1, 1),
    ("length", Method::Length, 0, 0),
    ("replace", Method::Replace, 2, 2),
    ("size", Method::Length, 0, 0),
    ("startsWith", Method::StartsWith, 1, 1),
    ("strip", Method::Trim, 0, 0),
    ("substring", Method::Substring, 1, 2),
    ("toLowerCase", Method::ToLowerCase, 0, 0),
    ("toString", Method::ToText, 0, 0),
    ("toUpperCase", Method::ToUpperCase, 0, 0),
    ("trim", Method::Trim, 0, 0),
];

impl Method {
    /// The method's result; null on null, and where the value has no such
    /// method.
    pub(super) fn call<'a>(
        self,
        of: Value<'a>,
        arguments: Vec<Value<'a>>,
        scope: &Scope<'a>,
    ) -> Value<'a> {
        if of == Value::Null {
            return Value::Null;
        }
        let mut arguments = arguments.into_iter();
        let first = arguments.next().unwrap_or(Value::Null);
        let second = arguments.next();
        let result = match self {
            Self::CharAt => char_at(&of, &first),
            Self::Concat => concat(&of, &first),
            Self::Contains => Some(Value::Bool(contains(of, &first))),
            Self::ContainsKey => Some(Value::Bool(get(of, &first, scope) != Value::Null)),
            Self::EndsWith => both(&of, &first, |a, b| a.ends_with(b)),
            Self::Equals => Some(Value::Bool(of == first)),
            Self::EqualsIgnoreCase => {
                both(&of, &first, |a, b| a.to_lowercase() == b.to_lowercase())
            }
            Self::Get => Some(get(of, &first, scope)),
            Self::IndexOf => index_of(&of, &first),
            Self::IsBlank => text(&of).map(|t| Value::Bool(t.trim().is_empty())),
            Self::IsEmpty => of.length().map(|n| Value::Bool(n == 0)),
            Self::LastIndexOf => last_index_of(&of, &first),
            Self::Length => of
                .length()
                .and_then(|n| i64::try_from(n).ok())
                .map(Value::Integer),
            Self::Replace => replace(&of, &first, second.as_ref()),
            Self::StartsWith => both(&of, &first, |a, b| a.starts_with(b)),
            Self::Substring => substring(of, &first, second.as_ref()),
            Self::ToLowerCase => mapped(of, lower_case),
            Self::ToUpperCase => mapped(of, upper_case),
            Self::Trim => mapped(of, trimmed),
            Self::ToText => Some(to_text(of, scope)),
        };
        result.unwrap_or(Value::Null)
    }
}

fn get<'a>(of: Value<'a>, key: &Value<'_>, scope: &Scope<'a>) -> Value<'a> {
    match (of, key) {
        (Value::Object(object), Value::Text(name)) => named(object, name, scope),
        (value, key) => value.at(key),
    }
}

fn both(
    of: &Value<'_>,
    other: &Value<'_>,
    test: impl FnOnce(&str, &str) -> bool,
) -> Option<Value<'static>> {
    Some(Value::Bool(test(text(of)?, text(other)?)))
}

fn char_at(of: &Value<'_>, at: &Value<'_>) -> Option<Value<'static>> {
    let found = text(of)?.chars().nth(at.as_index()?)?;
    Some(Value::owned_text(found.to_string()))
}

fn concat(of: &Value<'_>, other: &Value<'_>) -> Option<Value<'static>> {
    let (of, other) = (text(of)?, text(other)?);
    if of.len() + other.len() > MAX_TEXT {
        return None;
    }
    Some(Value::owned_text(format!("{of}{other}")))
}

fn last_index_of(of: &Value<'_>, what: &Value<'_>) -> Option<Value<'static>> {
    let (of, what) = (text(of)?, text(what)?);
    let position = match of.rfind(what) {
        Some(at) => i64::try_from(of[..at].chars().count()).ok()?,
        None => -1,
    };
    Some(Value::Integer(position))
}

/// Every occurrence replaced; null if the result is too long, found out before
/// it is made.
fn replace(of: &Value<'_>, what: &Value<'_>, with: Option<&Value<'_>>) -> Option<Value<'static>> {
    let (of, what, with) = (text(of)?, text(what)?, text(with?)?);
    let length = of.len() + of.matches(what).count().checked_mul(with.len())?;
    (length <= MAX_TEXT).then(|| Value::owned_text(of.replace(what, with)))
}

/// Characters from `from` up to `to` (or the end); null if they are not in the
/// text.
fn substring<'a>(of: Value<'a>, from: &Value<'_>, to: Option<&Value<'_>>) -> Option<Value<'a>> {
    let whole = text(&of)?;
    let start = offset(whole, from.as_index()?)?;
    let end = match to {
        Some(to) => offset(whole, to.as_index()?)?,
        None => whole.len(),
    };
    if start > end {
        return None;
    }
    mapped(of, |whole| {
        Some(match whole {
            Cow::Borrowed(whole) => Cow::Borrowed(&whole[start..end]),
            Cow::Owned(whole) => Cow::Owned(whole[start..end].to_owned()),
        })
    })
}

/// The byte where character number `index` begins, or the end behind the last.
fn offset(text: &str, index: usize) -> Option<usize> {
    text.char_indices()
        .map(|(at, _)| at)
        .chain(std::iter::once(text.len()))
        .nth(index)
}
