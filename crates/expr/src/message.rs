//! What a message carries: headers, cookies, fields of forms, a body.

use std::borrow::Cow;
use std::collections::BTreeSet;

use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value as Json;
use url::form_urlencoded;

use super::MAX_LIST;
use super::context::{Fields, Object, Side};
use super::run::Run;
use super::target::lenient;
use super::value::Value;

/// What is looked at of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CookiePart {
    All,
    Value,
    /// An attribute of a cookie that an answer sets.
    Attribute(&'static str),
    /// Whether it has the attribute.
    Flag(&'static str),
}

fn headers_of<'a>(scope: &Run<'a>, side: Side) -> Option<&'a HeaderMap> {
    match side {
        Side::Request => Some(&scope.request.headers),
        Side::Response => scope.response.map(|response| response.headers),
    }
}

/// Value number `index` of a header; `None` where there is none.
pub(super) fn header<'a>(
    scope: &Run<'a>,
    side: Side,
    name: &HeaderName,
    index: usize,
) -> Option<Value<'a>> {
    let headers = headers_of(scope, side)?;
    // The first is found without walking the list.
    let found = match index {
        0 => headers.get(name),
        _ => headers.get_all(name).iter().nth(index),
    };
    found.map(text)
}

/// All values of a header; null where there is none.
pub(super) fn header_values<'a>(scope: &Run<'a>, side: Side, name: &HeaderName) -> Value<'a> {
    match headers_of(scope, side) {
        Some(headers) => list(headers.get_all(name).iter().map(text), scope),
        None => Value::Null,
    }
}

fn text(value: &HeaderValue) -> Value<'_> {
    lenient(value.as_bytes())
}

/// All cookies in their order: name, and value with attributes. Bytes, because
/// one cookie that is no text must not hide the others.
fn all_cookies<'a>(scope: &Run<'a>, side: Side) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let header = match side {
        Side::Request => COOKIE,
        Side::Response => SET_COOKIE,
    };
    let headers = headers_of(scope, side);
    let values = headers.into_iter().flat_map(move |h| h.get_all(&header));
    values
        .flat_map(move |value| {
            // A request has many in one line, an answer one with attributes.
            let most = if side == Side::Request { usize::MAX } else { 1 };
            value.as_bytes().splitn(most, |byte| *byte == b';')
        })
        .filter_map(|cookie| {
            let equals = cookie.iter().position(|byte| *byte == b'=')?;
            Some((cookie[..equals].trim_ascii(), &cookie[equals + 1..]))
        })
}

/// The cookies called `name`, in their order, each as its name's value and
/// attributes.
fn cookies<'a>(scope: &Run<'a>, side: Side, name: &str) -> impl Iterator<Item = &'a [u8]> {
    all_cookies(scope, side)
        .filter(move |(found, _)| *found == name.as_bytes())
        .map(|(_, rest)| rest)
}

/// A part of cookie number `index` with this name.
pub(super) fn cookie<'a>(
    scope: &Run<'a>,
    side: Side,
    name: &str,
    index: usize,
    part: CookiePart,
) -> Option<Value<'a>> {
    let cookie = cookies(scope, side, name).nth(index)?;
    match part {
        CookiePart::All => Some(Value::Object(Object::Cookie)),
        CookiePart::Value => Some(cookie_value(cookie)),
        CookiePart::Attribute(wanted) => attribute(cookie, wanted).map(lenient),
        CookiePart::Flag(wanted) => Some(Value::Bool(attribute(cookie, wanted).is_some())),
    }
}

/// The values of the cookies called `name`; null where there is none.
pub(super) fn cookie_values<'a>(scope: &Run<'a>, side: Side, name: &str) -> Value<'a> {
    list(cookies(scope, side, name).map(cookie_value), scope)
}

fn cookie_value(cookie: &[u8]) -> Value<'_> {
    let value = cookie.split(|byte| *byte == b';').next();
    let mut value = value.unwrap_or_default().trim_ascii();
    while let [b'"', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b'"'] = value {
        value = rest;
    }
    lenient(value)
}

fn attribute<'a>(cookie: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let attributes = cookie.split(|byte| *byte == b';').skip(1);
    attributes.into_iter().find_map(|attribute| {
        let equals = attribute.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => (&attribute[..at], &attribute[at + 1..]),
            None => (attribute, &[][..]),
        };
        let found = name.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes());
        found.then(|| value.trim_ascii())
    })
}

/// The values of the fields called `name`, in their order.
pub(super) fn fields<'a>(
    scope: &Run<'a>,
    from: Fields,
    name: &str,
) -> impl Iterator<Item = Cow<'a, str>> {
    pairs(scope, from)
        .filter(move |(found, _)| *found == name)
        .map(|(_, value)| value)
}

fn pairs<'a>(scope: &Run<'a>, from: Fields) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
    let query = match from {
        Fields::Body => None,
        Fields::Query | Fields::Both => scope.request.uri.query(),
    };
    let body = match from {
        Fields::Query => None,
        Fields::Body | Fields::Both if is_form(scope.request) => scope.body(),
        Fields::Body | Fields::Both => None,
    };
    let (query, body) = (query.unwrap_or_default(), body.unwrap_or_default());
    let (query, body) = match scope.read(query.len() + body.len()) {
        Some(()) => (query.as_bytes(), body),
        None => Default::default(),
    };
    form_urlencoded::parse(query).chain(form_urlencoded::parse(body))
}

/// Whether the body of a request is a form.
pub(super) fn is_form(request: &Parts) -> bool {
    let Some(media_type) = request.headers.get(CONTENT_TYPE) else {
        return false;
    };
    let media_type = media_type.to_str().unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default();
    media_type
        .trim()
        .eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// What a JSON text says; `None` where it is none.
pub(super) fn json(text: &[u8], scope: &Run<'_>) -> Option<Value<'static>> {
    scope.read(text.len())?;
    match serde_json::from_slice::<Json>(text) {
        Ok(json) => Some(Value::of_owned_json(json)),
        // Another reader may take it: to this one it is too deep.
        Err(error) if error.to_string().starts_with("recursion limit") => scope.exceeded(),
        Err(_) => None,
    }
}

/// The member of a part of the context whose members the request names.
pub(super) fn named<'a>(object: Object, name: &str, scope: &Run<'a>) -> Value<'a> {
    match object {
        Object::Headers(side) => match HeaderName::try_from(name) {
            Ok(name) => header_values(scope, side, &name),
            Err(_) => Value::Null,
        },
        Object::Fields(from) => list(fields(scope, from, name).map(Value::Text), scope),
        Object::Cookies(side) => cookie_values(scope, side, name),
        Object::OpenId => scope.claim(name),
        Object::Attributes => {
            let mut all = scope.attributes.iter();
            let found = all.find(|(known, _)| **known == *name);
            found.map_or(Value::Null, |(_, value)| value.clone())
        }
        _ => Value::Null,
    }
}

/// The first name of a header for which `wanted` holds, as it was sent where that is
/// known.
fn first_header<'a>(scope: &Run<'a>, side: Side, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
    let mut names = headers_of(scope, side)?.keys().map(HeaderName::as_str);
    let name = names.find(|name| wanted(name))?;
    let sent = match side {
        Side::Request => scope.sent,
        Side::Response => &[],
    };
    let spelt = sent.iter().find(|sent| sent.eq_ignore_ascii_case(name));
    Some(spelt.map_or(name, |spelt| spelt))
}

/// The first name in a part of the context for which `wanted` holds; names of
/// headers are told apart, because they have no case.
pub(super) fn first_name<'a>(
    object: Object,
    scope: &Run<'a>,
    wanted: impl Fn(&str, bool) -> bool,
) -> Option<Value<'a>> {
    match object {
        Object::Headers(side) => {
            first_header(scope, side, |name| wanted(name, true)).map(Value::borrowed_text)
        }
        Object::Fields(from) => pairs(scope, from)
            .map(|(name, _)| name)
            .find(|name| wanted(name, false))
            .map(Value::Text),
        Object::Cookies(side) => all_cookies(scope, side)
            .filter_map(|(name, _)| std::str::from_utf8(name).ok())
            .find(|name| wanted(name, false))
            .map(Value::borrowed_text),
        Object::OpenId => {
            let keys = scope.token?.claims.keys();
            let key = keys.map(String::as_str).find(|key| wanted(key, false));
            key.map(Value::borrowed_text)
        }
        _ => None,
    }
}

/// How many members a part of the context has, where the request names them.
pub(super) fn count(object: Object, scope: &Run<'_>) -> Option<usize> {
    match object {
        Object::Headers(side) => Some(headers_of(scope, side)?.keys_len()),
        Object::Fields(from) => distinct(pairs(scope, from).map(|(name, _)| name), scope),
        Object::Cookies(side) => {
            headers_of(scope, side)?;
            distinct(all_cookies(scope, side).map(|(name, _)| name), scope)
        }
        Object::Entity => scope.body().map(<[u8]>::len),
        _ => None,
    }
}

/// How many different names there are.
fn distinct<N: Ord>(names: impl Iterator<Item = N>, run: &Run<'_>) -> Option<usize> {
    let mut found = BTreeSet::new();
    for name in names {
        found.insert(name);
        if found.len() > MAX_LIST {
            return run.exceeded();
        }
    }
    Some(found.len())
}

/// A list of what a message has under a name; null where it has nothing.
pub(super) fn list<'a>(values: impl Iterator<Item = Value<'a>>, scope: &Run<'a>) -> Value<'a> {
    let values: Vec<_> = values.take(MAX_LIST + 1).collect();
    match values.len() {
        0 => Value::Null,
        _ => scope.bounded(Value::List(values)),
    }
}
