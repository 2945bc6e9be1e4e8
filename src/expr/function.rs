//! The functions: cheap, pure, bounded.

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ipnet::IpNet;
use regex::{Regex, RegexBuilder};

use super::slot::{self, Object};
use super::value::Value;
use super::{MAX_TEXT, Scope};

/// Largest compiled form of a pattern, in bytes.
const MAX_PATTERN: usize = 1 << 20;
/// Longest list that a function makes.
const MAX_LIST: usize = 1024;

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
    IndexOf,
    Integer,
    IntegerWithRadix,
    IpMatch,
    Join,
    LastElement,
    Length,
    ToLowerCase,
    ToText,
    ToUpperCase,
    Trim,
    UrlDecode,
    UrlEncode,
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
    ("formDecodeParameterNameOrValue", Function::UrlDecode, 1, 1),
    ("formEncodeParameterNameOrValue", Function::UrlEncode, 1, 1),
    ("indexOf", Function::IndexOf, 2, 2),
    ("integer", Function::Integer, 1, 1),
    ("integerWithRadix", Function::IntegerWithRadix, 2, 2),
    ("ipMatch", Function::IpMatch, 2, 2),
    ("join", Function::Join, 2, 2),
    ("lastElement", Function::LastElement, 1, 1),
    ("length", Function::Length, 1, 1),
    ("toLowerCase", Function::ToLowerCase, 1, 1),
    ("toString", Function::ToText, 1, 1),
    ("toUpperCase", Function::ToUpperCase, 1, 1),
    ("trim", Function::Trim, 1, 1),
    ("urlDecode", Function::UrlDecode, 1, 1),
    ("urlEncode", Function::UrlEncode, 1, 1),
];

/// Functions of the imitated language that touch files or keys.
pub(super) const NEVER: &[&str] = &[
    "read",
    "readProperties",
    "fileToUrl",
    "pathToUrl",
    "pemCertificate",
];

impl Function {
    pub(super) fn call<'a>(self, arguments: Vec<Value<'a>>, scope: &Scope<'a>) -> Value<'a> {
        let mut arguments = arguments.into_iter();
        if self == Self::Array {
            return Value::List(arguments.collect());
        }
        let first = arguments.next().unwrap_or(Value::Null);
        let second = arguments.next().unwrap_or(Value::Null);
        let result = match self {
            Self::Array => None,
            Self::Bool => Some(Value::Bool(first.truth().unwrap_or(false))),
            Self::Contains => Some(Value::Bool(contains(first, &second))),
            Self::DecodeBase64 => text(&first).and_then(|t| decode(STANDARD.decode(t).ok()?)),
            Self::DecodeBase64Url => text(&first)
                .and_then(|t| decode(URL_SAFE_NO_PAD.decode(t.trim_end_matches('=')).ok()?)),
            Self::DigestSha256 => bytes(&first).map(digest),
            Self::EncodeBase64 => bytes(&first).map(|b| Value::owned_text(STANDARD.encode(b))),
            Self::EncodeBase64Url => {
                bytes(&first).map(|b| Value::owned_text(URL_SAFE_NO_PAD.encode(b)))
            }
            Self::IndexOf => index_of(&first, &second),
            Self::Integer => text(&first).and_then(|t| t.parse().ok().map(Value::Integer)),
            Self::IntegerWithRadix => integer_with_radix(&first, &second),
            Self::IpMatch => Some(Value::Bool(ip_match(&first, &second).unwrap_or(false))),
            Self::Join => join(first, &second),
            Self::LastElement => first.elements().and_then(|mut list| list.pop()),
            Self::Length => first
                .length()
                .and_then(|n| i64::try_from(n).ok())
                .map(Value::Integer),
            Self::ToLowerCase => mapped(first, lower_case),
            Self::ToUpperCase => mapped(first, upper_case),
            Self::Trim => mapped(first, trimmed),
            Self::ToText => Some(to_text(first, scope)),
            Self::UrlDecode => mapped(first, |t| match t {
                Cow::Borrowed(t) => slot::percent_decoded(t, true),
                Cow::Owned(t) => {
                    slot::percent_decoded(&t, true).map(|t| Cow::Owned(t.into_owned()))
                }
            }),
            Self::UrlEncode => text(&first).map(|t| {
                Value::owned_text(url::form_urlencoded::byte_serialize(t.as_bytes()).collect())
            }),
        };
        result.unwrap_or(Value::Null)
    }
}

/// A function whose pattern is compiled when the configuration is loaded.
#[derive(Debug)]
pub(super) struct Pattern {
    operation: Operation,
    regex: Regex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Anywhere in the text.
    Find,
    /// The whole text.
    Match,
    /// The groups of the first match.
    Groups,
    /// The text between matches.
    Split,
    /// The first key of a map that matches as a whole.
    Key,
}

/// Functions with a constant pattern as second argument. `matches` searches
/// anywhere, as the imitated function does in spite of its name.
pub(super) const PATTERNS: &[(&str, Operation)] = &[
    ("find", Operation::Find),
    ("matches", Operation::Find),
    ("matchesWithRegex", Operation::Match),
    ("findGroups", Operation::Groups),
    ("matchingGroups", Operation::Groups),
    ("split", Operation::Split),
    ("keyMatch", Operation::Key),
];

impl Pattern {
    /// Compiles the pattern, within a size limit. Matching takes time linear
    /// in the text, whatever the pattern.
    pub(super) fn new(operation: Operation, pattern: &str) -> Result<Self, String> {
        let whole = format!(r"\A(?:{pattern})\z");
        let pattern = match operation {
            Operation::Match | Operation::Key => &whole,
            Operation::Find | Operation::Groups | Operation::Split => pattern,
        };
        let regex = RegexBuilder::new(pattern)
            .size_limit(MAX_PATTERN)
            .nest_limit(64)
            .build()
            .map_err(|error| reason(&error))?;
        Ok(Self { operation, regex })
    }

    pub(super) fn apply<'a>(&self, of: Value<'a>) -> Value<'a> {
        if self.operation == Operation::Key {
            return match of {
                Value::Map(map) => map
                    .keys()
                    .find(|key| self.regex.is_match(key))
                    .map_or(Value::Null, |key| Value::owned_text(key.clone())),
                _ => Value::Null,
            };
        }
        let text = text(&of);
        match (self.operation, text) {
            (Operation::Find | Operation::Match, text) => {
                Value::Bool(text.is_some_and(|text| self.regex.is_match(text)))
            }
            (Operation::Groups, Some(text)) => self.groups(text),
            (Operation::Split, Some(text)) => self.split(text),
            _ => Value::Null,
        }
    }

    /// The whole match, then the groups; null without a match.
    fn groups(&self, text: &str) -> Value<'static> {
        let Some(found) = self.regex.captures(text) else {
            return Value::Null;
        };
        let group = |group: Option<regex::Match<'_>>| match group {
            Some(group) => Value::owned_text(group.as_str().to_owned()),
            None => Value::Null,
        };
        Value::List(found.iter().take(MAX_LIST).map(group).collect())
    }

    /// The pieces between matches, without the empty ones at the end.
    fn split(&self, text: &str) -> Value<'static> {
        let mut pieces: Vec<&str> = self.regex.split(text).take(MAX_LIST + 1).collect();
        if pieces.len() > MAX_LIST {
            return Value::Null;
        }
        while pieces.len() > 1 && pieces.last().is_some_and(|piece| piece.is_empty()) {
            pieces.pop();
        }
        Value::List(
            pieces
                .into_iter()
                .map(|piece| Value::owned_text(piece.to_owned()))
                .collect(),
        )
    }
}

/// The last line of a pattern error, which says what is wrong without
/// repeating the pattern.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("bad pattern: {}", last.trim_start_matches("error: "))
        }
    }
}

pub(super) fn text<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn bytes<'v>(value: &'v Value<'_>) -> Option<&'v [u8]> {
    match value {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// `map` of a text, borrowed if that changes nothing.
pub(super) fn mapped<'a>(
    value: Value<'a>,
    map: impl FnOnce(Cow<'a, str>) -> Option<Cow<'a, str>>,
) -> Option<Value<'a>> {
    match value {
        Value::Text(text) if text.len() <= MAX_TEXT => map(text).map(Value::Text),
        _ => None,
    }
}

pub(super) fn lower_case(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if text
        .bytes()
        .all(|b| b.is_ascii() && !b.is_ascii_uppercase())
    {
        return Some(text);
    }
    Some(Cow::Owned(text.to_lowercase()))
}

pub(super) fn upper_case(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if text
        .bytes()
        .all(|b| b.is_ascii() && !b.is_ascii_lowercase())
    {
        return Some(text);
    }
    Some(Cow::Owned(text.to_uppercase()))
}

pub(super) fn trimmed(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    Some(match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    })
}

/// A text form of any plain value; null stays null.
pub(super) fn to_text<'a>(value: Value<'a>, scope: &Scope<'a>) -> Value<'a> {
    match value {
        Value::Null => Value::Null,
        Value::Object(Object::Uri) => slot::whole_uri(scope),
        Value::Array(list) => serde_json::to_string(&list).map_or(Value::Null, Value::owned_text),
        Value::Map(map) => serde_json::to_string(&map).map_or(Value::Null, Value::owned_text),
        other => other.into_text().map_or(Value::Null, Value::Text),
    }
}

/// Whether a text has the other text in it, or a list the value.
pub(super) fn contains(of: Value<'_>, what: &Value<'_>) -> bool {
    match (&of, what) {
        (Value::Text(text), Value::Text(what)) => text.contains(&**what),
        _ => of
            .elements()
            .is_some_and(|list| list.iter().any(|element| element == what)),
    }
}

/// Position, in characters, of one text in the other; -1 where it is not.
pub(super) fn index_of(of: &Value<'_>, what: &Value<'_>) -> Option<Value<'static>> {
    let (of, what) = (text(of)?, text(what)?);
    let position = match of.find(what) {
        Some(at) => i64::try_from(of[..at].chars().count()).ok()?,
        None => -1,
    };
    Some(Value::Integer(position))
}

fn integer_with_radix(value: &Value<'_>, radix: &Value<'_>) -> Option<Value<'static>> {
    let radix = radix.as_index().and_then(|r| u32::try_from(r).ok())?;
    if !(2..=36).contains(&radix) {
        return None;
    }
    i64::from_str_radix(text(value)?, radix)
        .ok()
        .map(Value::Integer)
}

/// Whether an address lies in a network (`10.0.0.0/8`), in a range
/// (`10.0.0.1-10.0.0.9`), or is the other address.
fn ip_match(value: &Value<'_>, range: &Value<'_>) -> Option<bool> {
    let ip: IpAddr = slot::address(text(value)?.trim())?;
    let range = text(range)?.trim();
    if let Ok(network) = range.parse::<IpNet>() {
        return Some(network.contains(&ip));
    }
    if let Some((from, to)) = range.split_once('-') {
        let (from, to) = (slot::address(from.trim())?, slot::address(to.trim())?);
        return Some(from.is_ipv4() == ip.is_ipv4() && (from..=to).contains(&ip));
    }
    Some(slot::address(range)? == ip)
}

fn join<'a>(list: Value<'a>, separator: &Value<'_>) -> Option<Value<'a>> {
    let separator = text(separator)?;
    let mut joined = String::new();
    for (i, element) in list.elements()?.into_iter().enumerate() {
        let element = element.into_text()?;
        if joined.len() + separator.len() + element.len() > MAX_TEXT {
            return None;
        }
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&element);
    }
    Some(Value::owned_text(joined))
}

fn decode(bytes: Vec<u8>) -> Option<Value<'static>> {
    String::from_utf8(bytes).ok().map(Value::owned_text)
}

fn digest(bytes: &[u8]) -> Value<'static> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    Value::Bytes(digest.as_ref().to_vec())
}
