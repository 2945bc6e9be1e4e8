//! Keys in bodies: of forms, of forms in parts and of JSON objects. Others are not read.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};

use super::places::{Place, values};
use doorward_net::http::form::{is_form, is_json, is_multipart, media_type, without};
use doorward_net::http::multipart::{self, Part};

/// The body of a request, as far as it can be read.
pub(super) enum Body<'a> {
    Form(&'a str),
    Parts {
        boundary: String,
        parts: Vec<Part<'a>>,
    },
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
            return Self::in_parts(headers, body).unwrap_or(Self::Other);
        }
        if !is_json(headers) {
            return Self::Other;
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Self::Json(members),
            _ => Self::Other,
        }
    }

    fn in_parts(headers: &HeaderMap, body: &'a [u8]) -> Option<Self> {
        let boundary = multipart::boundary(media_type(headers)).ok()?;
        Some(Self::Parts {
            parts: multipart::parts(boundary, body).ok()?,
            boundary: boundary.to_owned(),
        })
    }

    /// The value of this name; a list has several.
    pub(super) fn find(&self, name: &str) -> Place<'a> {
        match self {
            Self::Form(form) => Place::of(values(form, name)),
            Self::Parts { parts, .. } => {
                let named = parts.iter().filter(|part| part.name == name);
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
            Self::Parts { boundary, parts } => {
                let is_other = |part: &&Part<'_>| !names.contains(&part.name);
                let others = parts.iter().filter(is_other);
                if others.clone().count() == parts.len() {
                    return None;
                }
                let others = others.map(|part| (part.head, part.value));
                // What was read with this boundary has none inside.
                multipart::written(&boundary, others).ok().map(Bytes::from)
            }
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
