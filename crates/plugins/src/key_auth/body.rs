//! Keys in bodies: of forms, of forms in parts and of JSON objects. Others are not read.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};

use super::places::{Place, values};
use doorward_net::http::form::{is_form, is_json, is_multipart, without};
use doorward_net::http::multipart::MultipartForm;

/// The body of a request, as far as it can be read.
pub(super) enum Body<'a> {
    Form(&'a str),
    Parts(MultipartForm<'a>),
    Json(Map<String, Value>),
    Other,
}

impl<'a> Body<'a> {
    /// Reads a body by the type that its request names.
    pub(super) fn read(headers: &HeaderMap, body: &'a Bytes) -> Self {
        if is_form(headers) {
            return std::str::from_utf8(body).map_or(Self::Other, Self::Form);
        }
        if is_multipart(headers) {
            return MultipartForm::read(headers, body).map_or(Self::Other, Self::Parts);
        }
        if !is_json(headers) {
            return Self::Other;
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Self::Json(members),
            _ => Self::Other,
        }
    }

    /// The value of this name; a list has several.
    pub(super) fn find(&self, name: &str) -> Place<'a> {
        match self {
            Self::Form(form) => Place::of(values(form, name)),
            Self::Parts(form) => {
                let named = form.parts.iter().filter(|part| part.name == name);
                Place::of(named.map(|part| part.value))
            }
            Self::Json(members) => match members.get(name) {
                Some(Value::String(text)) => Place::Key(Cow::Owned(text.clone().into_bytes())),
                Some(Value::Array(_)) => Place::Twice,
                _ => Place::Nowhere,
            },
            Self::Other => Place::Nowhere,
        }
    }

    /// The body without these names; `None`: it has none of them.
    pub(super) fn without(self, names: &[&str]) -> Option<Bytes> {
        match self {
            Self::Form(form) => without(form, names).map(Into::into),
            Self::Parts(form) => form.without(names).map(Into::into),
            Self::Json(mut members) => {
                let before = members.len();
                members.retain(|name, _| !names.contains(&name.as_str()));
                let changed = members.len() != before;
                changed.then(|| Value::Object(members).to_string().into())
            }
            Self::Other => None,
        }
    }
}
