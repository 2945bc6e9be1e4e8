//! The functions: cheap, pure, bounded.
//!
//! An argument that should be a text is made one, as the imitated language
//! does: numbers, conditions, lists and targets have a text form; null has none
//! and mostly makes the result null.

use std::borrow::Cow;

use super::address::Range;
use super::encoding::{self, Charset};
use super::node::{self, Arguments};
use super::run::Run;
use super::text_form;
use super::value::Value;

/// A function without a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Array,
    Bool,
    Contains,
    DecodeBase64,
    DecodeBase64Url,
    DigestSha256,
    EncodeBase64,
    EncodeBase64Url,
    EscapeJson,
    FormDecode,
    FormEncode,
    IndexOf,
    Integer,
    IntegerWithRadix,
    IpMatch,
    Join,
    LastElement,
    Length,
    PercentDecode,
    PercentEncode(Charset),
    ToJson,
    ToLowerCase,
    ToText,
    ToUpperCase,
    Trim,
}

/// Functions by name, with the fewest and the most arguments they take.
pub(super) const FUNCTIONS: &[(&str, Function, usize, usize)] = &[
    ("array", Function::Array, 0, 16),
    ("bool", Function::Bool, 1, 1),
    ("contains", Function::Contains, 2, 2),
    ("decodeBase64", Function::DecodeBase64, 1, 1),
    ("decodeBase64url", Function::DecodeBase64Url, 1, 1),
    ("digestSha256", Function::DigestSha256, 1, 1),
    ("encodeBase64", Function::EncodeBase64, 1, 1),
    ("encodeBase64url", Function::EncodeBase64Url, 1, 1),
    ("escapeJson", Function::EscapeJson, 1, 1),
    ("formDecodeParameterNameOrValue", Function::FormDecode, 1, 1),
    ("formEncodeParameterNameOrValue", Function::FormEncode, 1, 1),
    ("indexOf", Function::IndexOf, 2, 2),
    ("integer", Function::Integer, 1, 1),
    ("integerWithRadix", Function::IntegerWithRadix, 2, 2),
    ("ipMatch", Function::IpMatch, 2, 2),
    ("join", Function::Join, 2, 2),
    ("lastElement", Function::LastElement, 1, 1),
    ("length", Function::Length, 1, 1),
    ("toJson", Function::ToJson, 1, 1),
    ("toLowerCase", Function::ToLowerCase, 1, 1),
    ("toString", Function::ToText, 1, 1),
    ("toUpperCase", Function::ToUpperCase, 1, 1),
    ("trim", Function::Trim, 1, 1),
    ("urlDecode", Function::FormDecode, 1, 1),
    ("urlDecodeFragment", Function::PercentDecode, 1, 1),
    ("urlDecodePathElement", Function::PercentDecode, 1, 1),
    (
        "urlDecodeQueryParameterNameOrValue",
        Function::PercentDecode,
        1,
        1,
    ),
    ("urlDecodeUserInfo", Function::PercentDecode, 1, 1),
    ("urlEncode", Function::FormEncode, 1, 1),
    (
        "urlEncodeFragment",
        Function::PercentEncode(Charset::Fragment),
        1,
        1,
    ),
    (
        "urlEncodePathElement",
        Function::PercentEncode(Charset::PathElement),
        1,
        1,
    ),
    (
        "urlEncodeQueryParameterNameOrValue",
        Function::PercentEncode(Charset::QueryParameter),
        1,
        1,
    ),
    (
        "urlEncodeUserInfo",
        Function::PercentEncode(Charset::UserInfo),
        1,
        1,
    ),
];

impl Function {
    pub(super) fn call<'a>(self, arguments: Arguments<'a>, scope: &Run<'a>) -> Value<'a> {
        let mut arguments = arguments.into_iter();
        if self == Self::Array {
            return array(arguments, scope);
        }
        let first = arguments.next().unwrap_or(Value::Null);
        let result = match arguments.next() {
            Some(second) => self.of_two(first, second, scope),
            None => self.of_value(first, scope),
        };
        result.unwrap_or(Value::Null)
    }

    fn of_two<'a>(self, first: Value<'a>, second: Value<'a>, scope: &Run<'a>) -> Option<Value<'a>> {
        Some(match self {
            Self::Contains => Value::Bool(contains(&first, &second)),
            Self::Join => return join(first, &text_form::text(second, scope)?, scope),
            Self::IndexOf => {
                let texts = text_form::text(first, scope).zip(text_form::text(second, scope));
                Value::Integer(texts.map_or(-1, |(of, what)| index_of(&of, &what)))
            }
            Self::IntegerWithRadix => {
                let radix = second.as_index().and_then(|r| u32::try_from(r).ok())?;
                if !(2..=36).contains(&radix) {
                    return None;
                }
                let text = text_form::text(first, scope)?;
                return i64::from_str_radix(&text, radix).ok().map(Value::Integer);
            }
            Self::IpMatch => {
                let range = text_form::text(second, scope).and_then(|range| Range::read(&range));
                Value::Bool(range.is_some_and(|range| range.contains_text(&first)))
            }
            _ => return None,
        })
    }

    /// Functions of any value.
    fn of_value<'a>(self, value: Value<'a>, scope: &Run<'a>) -> Option<Value<'a>> {
        Some(match self {
            Self::Bool => {
                let text = text_form::text(value, scope);
                Value::Bool(text.is_some_and(|text| text.eq_ignore_ascii_case("true")))
            }
            Self::Length => {
                let length = node::length(&value, scope).unwrap_or(0);
                Value::Integer(i64::try_from(length).ok()?)
            }
            Self::LastElement => value.elements()?.pop()?,
            Self::DigestSha256 => encoding::sha256(&bytes(value, scope)?),
            Self::EncodeBase64 => encoding::base64(&bytes(value, scope)?),
            Self::EncodeBase64Url => encoding::base64_url(&bytes(value, scope)?),
            Self::ToJson => match value {
                Value::Text(text) => encoding::json(&text, scope)?,
                value => value,
            },
            _ => return self.of_text(text_form::text(value, scope)?),
        })
    }

    fn of_text<'a>(self, text: Cow<'a, str>) -> Option<Value<'a>> {
        Some(match self {
            Self::ToText => Value::Text(text),
            Self::ToLowerCase => Value::Text(lower_case(text)),
            Self::ToUpperCase => Value::Text(upper_case(text)),
            Self::Trim => Value::Text(trimmed(text)),
            Self::Integer => Value::Integer(text.parse().ok()?),
            Self::DecodeBase64 => encoding::of_base64(&text)?,
            Self::DecodeBase64Url => encoding::of_base64_url(&text)?,
            Self::EscapeJson => encoding::escaped_json(&text)?,
            Self::FormDecode => Value::Text(encoding::percent_decode(text, true)?),
            Self::PercentDecode => Value::Text(encoding::percent_decode(text, false)?),
            Self::FormEncode => encoding::form(&text),
            Self::PercentEncode(charset) => Value::Text(charset.encode(text)),
            _ => return None,
        })
    }
}

/// A list of texts.
fn array<'a>(arguments: impl Iterator<Item = Value<'a>>, scope: &Run<'a>) -> Value<'a> {
    let texts =
        arguments.map(|value| text_form::text(value, scope).map_or(Value::Null, Value::Text));
    Value::List(texts.collect())
}

fn bytes<'a>(value: Value<'a>, scope: &Run<'a>) -> Option<Cow<'a, [u8]>> {
    match value {
        Value::Bytes(bytes) => Some(bytes),
        value => Some(match text_form::text(value, scope)? {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }),
    }
}

/// `text` changed by `change`; kept as it is, borrowed or not, where `same`
/// says that this would change nothing.
fn changed<'a>(
    text: Cow<'a, str>,
    same: impl Fn(u8) -> bool,
    change: impl FnOnce(&str) -> String,
) -> Cow<'a, str> {
    if text.bytes().all(|b| b.is_ascii() && same(b)) {
        return text;
    }
    Cow::Owned(change(&text))
}

pub(super) fn lower_case(text: Cow<'_, str>) -> Cow<'_, str> {
    changed(text, |b| !b.is_ascii_uppercase(), str::to_lowercase)
}

pub(super) fn upper_case(text: Cow<'_, str>) -> Cow<'_, str> {
    changed(text, |b| !b.is_ascii_lowercase(), str::to_uppercase)
}

pub(super) fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => match text.trim() {
            trimmed if trimmed.len() == text.len() => Cow::Owned(text),
            trimmed => Cow::Owned(trimmed.to_owned()),
        },
    }
}

/// Whether a text has the other text in it, or a list the value.
pub(super) fn contains(of: &Value<'_>, what: &Value<'_>) -> bool {
    match (of, what) {
        (Value::Text(text), Value::Text(what)) => text.contains(&**what),
        (Value::Texts(list), Value::Text(what)) => list.iter().any(|text| text == &**what),
        (Value::List(list), what) => list.iter().any(|element| element == what),
        (Value::Array(list), what) => list.iter().any(|json| Value::of_json(json) == *what),
        _ => false,
    }
}

/// Position, in characters, of one text in the other; -1 where it is not.
pub(super) fn index_of(of: &str, what: &str) -> i64 {
    position(of, of.find(what))
}

/// The character number of a byte offset; -1 for none.
pub(super) fn position(of: &str, at: Option<usize>) -> i64 {
    at.and_then(|at| of.get(..at))
        .and_then(|before| i64::try_from(before.chars().count()).ok())
        .unwrap_or(-1)
}

fn join<'a>(list: Value<'a>, separator: &str, scope: &Run<'a>) -> Option<Value<'a>> {
    let mut joined = String::new();
    for (i, element) in list.elements()?.into_iter().enumerate() {
        let element = match element {
            Value::Null => Cow::Borrowed(""),
            element => text_form::text(element, scope)?,
        };
        scope.allows(joined.len() + separator.len() + element.len())?;
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&element);
    }
    Some(Value::owned_text(joined))
}
