//! Methods on values, as the imitated language's texts, lists and maps have
//! them.

use std::borrow::Cow;

use super::function::{self, contains, index_of, lower_case, trimmed, upper_case};
use super::node::{self, Arguments};
use super::run::Run;
use super::value::Value;
use super::{message, text_form};

/// A method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    CharAt,
    CompareTo,
    Concat,
    Contains,
    ContainsKey,
    EndsWith,
    Equals,
    EqualsIgnoreCase,
    Get,
    GetFirst,
    GetOrDefault,
    IndexOf,
    IsBlank,
    IsEmpty,
    LastIndexOf,
    Length,
    Repeat,
    Replace,
    StartsWith,
    Substring,
    ToLowerCase,
    ToText,
    ToUpperCase,
    Trim,
}

/// Methods by name, with the fewest and the most arguments they take. Those
/// with a pattern are found among the patterns.
pub(super) const METHODS: &[(&str, Method, usize, usize)] = &[
    ("charAt", Method::CharAt, 1, 1),
    ("compareTo", Method::CompareTo, 1, 1),
    ("concat", Method::Concat, 1, 1),
    ("contains", Method::Contains, 1, 1),
    ("containsKey", Method::ContainsKey, 1, 1),
    ("endsWith", Method::EndsWith, 1, 1),
    ("equals", Method::Equals, 1, 1),
    ("equalsIgnoreCase", Method::EqualsIgnoreCase, 1, 1),
    ("get", Method::Get, 1, 1),
    ("getFirst", Method::GetFirst, 1, 1),
    ("getOrDefault", Method::GetOrDefault, 2, 2),
    ("indexOf", Method::IndexOf, 1, 2),
    ("isBlank", Method::IsBlank, 0, 0),
    ("isEmpty", Method::IsEmpty, 0, 0),
    ("lastIndexOf", Method::LastIndexOf, 1, 1),
    ("length", Method::Length, 0, 0),
    ("repeat", Method::Repeat, 1, 1),
    ("replace", Method::Replace, 2, 2),
    ("size", Method::Length, 0, 0),
    ("startsWith", Method::StartsWith, 1, 2),
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
        arguments: Arguments<'a>,
        scope: &Run<'a>,
    ) -> Value<'a> {
        if of == Value::Null {
            return Value::Null;
        }
        let mut arguments = arguments.into_iter();
        let first = arguments.next().unwrap_or(Value::Null);
        let second = arguments.next();
        let result = match of {
            Value::Text(text) => self.of_text(text, first, second, scope),
            of => self.of_other(of, first, second, scope),
        };
        result.unwrap_or(Value::Null)
    }

    /// Methods of lists, maps and parts of the context.
    fn of_other<'a>(
        self,
        of: Value<'a>,
        first: Value<'a>,
        second: Option<Value<'a>>,
        scope: &Run<'a>,
    ) -> Option<Value<'a>> {
        Some(match self {
            Self::Contains => Value::Bool(contains(&of, &first)),
            Self::ContainsKey => Value::Bool(get(of, &first, scope) != Value::Null),
            Self::Equals => Value::Bool(of == first),
            Self::Get => get(of, &first, scope),
            Self::GetFirst => get(of, &first, scope).at(&Value::Integer(0)),
            Self::GetOrDefault => match get(of, &first, scope) {
                Value::Null => second?,
                found => found,
            },
            Self::IndexOf => {
                let list = of.elements()?;
                let place = list.iter().position(|element| *element == first);
                Value::Integer(place.map_or(-1, |i| i64::try_from(i).unwrap_or(-1)))
            }
            Self::IsEmpty => Value::Bool(node::length(&of, scope)? == 0),
            Self::Length => Value::Integer(i64::try_from(node::length(&of, scope)?).ok()?),
            Self::ToText => Value::Text(text_form::text(of, scope)?),
            _ => return None,
        })
    }

    fn of_text<'a>(
        self,
        text: Cow<'a, str>,
        first: Value<'a>,
        second: Option<Value<'a>>,
        scope: &Run<'a>,
    ) -> Option<Value<'a>> {
        Some(match self {
            Self::IsBlank => Value::Bool(text.trim().is_empty()),
            Self::IsEmpty => Value::Bool(text.is_empty()),
            Self::Length => Value::Integer(i64::try_from(text.chars().count()).ok()?),
            Self::ToLowerCase => Value::Text(lower_case(text)),
            Self::ToUpperCase => Value::Text(upper_case(text)),
            Self::Trim => Value::Text(trimmed(text)),
            Self::ToText => Value::Text(text),
            Self::CharAt => {
                let at = first.as_index()?;
                return part(text, at, Some(at.checked_add(1)?));
            }
            Self::Substring => {
                let end = match second {
                    Some(end) => Some(end.as_index()?),
                    None => None,
                };
                return part(text, first.as_index()?, end);
            }
            Self::Repeat => {
                let times = first.as_index()?;
                scope.allows(text.len().saturating_mul(times))?;
                Value::owned_text(text.repeat(times))
            }
            // A text equals nothing but a text.
            Self::Equals => Value::Bool(matches!(&first, Value::Text(other) if *other == text)),
            Self::Get | Self::GetFirst | Self::GetOrDefault | Self::ContainsKey => return None,
            _ => {
                let other = text_form::text(first, scope)?;
                return self.of_two_texts(&text, &other, second, scope);
            }
        })
    }

    fn of_two_texts<'a>(
        self,
        text: &str,
        other: &str,
        second: Option<Value<'a>>,
        scope: &Run<'a>,
    ) -> Option<Value<'a>> {
        Some(match self {
            Self::CompareTo => Value::Integer(text.cmp(other) as i64),
            Self::Concat => {
                scope.allows(text.len() + other.len())?;
                Value::owned_text(format!("{text}{other}"))
            }
            Self::Contains => Value::Bool(text.contains(other)),
            Self::EndsWith => Value::Bool(text.ends_with(other)),
            Self::StartsWith => match second {
                None => Value::Bool(text.starts_with(other)),
                Some(from) => {
                    let rest = offset(text, from.as_index()?).and_then(|at| text.get(at..));
                    Value::Bool(rest.is_some_and(|rest| rest.starts_with(other)))
                }
            },
            Self::EqualsIgnoreCase => Value::Bool(
                text.eq_ignore_ascii_case(other) || text.to_lowercase() == other.to_lowercase(),
            ),
            Self::IndexOf => match second {
                None => Value::Integer(index_of(text, other)),
                Some(from) => {
                    let from = from.as_index().unwrap_or(0);
                    let rest = offset(text, from).and_then(|at| text.get(at..));
                    let place = rest.map_or(-1, |rest| index_of(rest, other));
                    let before = i64::try_from(from).ok()?;
                    Value::Integer(if place < 0 { -1 } else { place + before })
                }
            },
            Self::LastIndexOf => Value::Integer(function::position(text, text.rfind(other))),
            Self::Replace => replace(text, other, &text_form::text(second?, scope)?, scope)?,
            _ => return None,
        })
    }
}

fn get<'a>(of: Value<'a>, key: &Value<'_>, scope: &Run<'a>) -> Value<'a> {
    match (of, key) {
        (Value::Object(object), Value::Text(name)) => message::named(object, name, scope),
        (value, key) => value.at(key),
    }
}

/// Every occurrence replaced; that the result is too long is found out before
/// it is made.
fn replace(of: &str, what: &str, with: &str, scope: &Run<'_>) -> Option<Value<'static>> {
    let times = of.matches(what).count();
    let kept = of.len() - times * what.len();
    scope.allows(kept.saturating_add(times.saturating_mul(with.len())))?;
    Some(Value::owned_text(of.replace(what, with)))
}

/// Characters from `from` up to `to` (or the end); null if they are not in the
/// text.
fn part(text: Cow<'_, str>, from: usize, to: Option<usize>) -> Option<Value<'_>> {
    let start = offset(&text, from)?;
    let end = match to {
        Some(to) => offset(&text, to)?,
        None => text.len(),
    };
    Some(match text {
        Cow::Borrowed(text) => Value::borrowed_text(text.get(start..end)?),
        Cow::Owned(text) => Value::owned_text(text.get(start..end)?.to_owned()),
    })
}

/// The byte where character number `index` begins, or the end behind the last.
fn offset(text: &str, index: usize) -> Option<usize> {
    text.char_indices()
        .map(|(at, _)| at)
        .chain(std::iter::once(text.len()))
        .nth(index)
}
