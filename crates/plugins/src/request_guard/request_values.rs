//! The values of a request in the places that the guard watches.

use std::borrow::Cow;
use std::fmt;

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::config::Rules;
use doorward_core::model::user::name;
use doorward_net::http::{basic, encoded_word};

/// A body in which parameters can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// JSON, whatever its exact type.
    Json,
    /// A form or JSON by its type, but compressed or the like.
    Unknown,
}

/// The body is not what its type says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

impl BodyKind {
    /// The kind that the headers announce; `None`: one without parameters.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let types = headers.get_all(CONTENT_TYPE).iter();
        let mut kinds = types.filter_map(|value| Self::of_type(value.as_bytes()));
        let kind = kinds.next()?;
        let encoded = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        // Two types at once: who knows which one the upstream believes.
        if encoded || kinds.any(|other| other != kind) {
            Some(Self::Unknown)
        } else {
            Some(kind)
        }
    }

    fn of_type(value: &[u8]) -> Option<Self> {
        let essence = value.split(|byte| *byte == b';').next()?.trim_ascii();
        let essence = essence.to_ascii_lowercase();
        match essence.as_slice() {
            b"application/x-www-form-urlencoded" => Some(Self::Form),
            b"application/json" | b"text/json" => Some(Self::Json),
            other if other.ends_with(b"+json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// `text` with all differences removed that do not count: blanks and quotes around
/// it, and what makes no difference to those who look up users ([`name::key`]).
pub(super) fn spelt(text: &str) -> String {
    // Folded, it may turn out to have other quotes and blanks around it.
    name::key(bare(&name::key(bare(text))))
}

fn bare(text: &str) -> &str {
    let text = text.trim();
    let unquoted = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    unquoted.unwrap_or(text).trim()
}

impl Rules {
    /// Whether any value of a watched header is one that is confined. Names
    /// are compared without case and with `_` for `-`, since some upstreams
    /// read both as one.
    pub(super) fn in_headers(&self, headers: &HeaderMap) -> bool {
        let watched = headers
            .iter()
            .any(|(name, value)| self.watches(name.as_str()) && self.is_value(value.as_bytes()));
        watched || (self.basic && self.in_basic(headers))
    }

    /// Whether a password comes with a confined name.
    fn in_basic(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        values.any(|value| basic::names(value).iter().any(|name| self.says(name)))
    }

    fn watches(&self, name: &str) -> bool {
        let same = |(a, b): (u8, u8)| a == b || (a == b'_' && b == b'-');
        self.headers.iter().any(|watched| {
            watched.len() == name.len() && name.bytes().zip(watched.bytes()).all(same)
        })
    }

    fn is_value(&self, value: &[u8]) -> bool {
        // What is no text can still be one for an upstream that reads Latin-1.
        let text = encoded_word::text(value)
            .unwrap_or_else(|| value.iter().copied().map(char::from).collect());
        self.says(&text)
    }

    fn says(&self, text: &str) -> bool {
        let text = bare(text);
        let said = |value: &String| text.eq_ignore_ascii_case(value);
        self.values.iter().any(said) || (self.may_fold(text) && self.values.contains(&spelt(text)))
    }

    /// Whether `text` could be a value in other letters. One that is too long for
    /// that is not folded: a stranger must not make that dear.
    pub(super) fn may_fold(&self, text: &str) -> bool {
        !text.is_ascii() && text.len() <= self.longest
    }

    fn is_parameter(&self, name: &str) -> bool {
        let mut watched = self.parameters.iter();
        watched.any(|watched| watched.eq_ignore_ascii_case(name))
    }

    /// Whether a watched parameter of a query or form has a confined value.
    pub(super) fn in_form(&self, form: &[u8]) -> bool {
        !self.parameters.is_empty()
            && url::form_urlencoded::parse(form)
                .any(|(name, value)| self.is_parameter(&name) && self.says(&value))
    }

    /// Whether a watched member of a JSON text, at any depth, has a confined
    /// value, or holds one: of repeated members each counts.
    ///
    /// # Errors
    /// [`Unreadable`] when it is no JSON.
    pub(super) fn in_json(&self, text: &[u8]) -> Result<bool, Unreadable> {
        if text.trim_ascii().is_empty() {
            return Ok(false);
        }
        let mut json = serde_json::Deserializer::from_slice(text);
        let look = Look {
            config: self,
            watched: false,
        };
        let said = look.deserialize(&mut json).map_err(|_| Unreadable)?;
        json.end().map_err(|_| Unreadable)?;
        Ok(said)
    }
}

/// Looks through a JSON value without building it.
#[derive(Clone, Copy)]
struct Look<'a> {
    config: &'a Rules,
    /// Whether the value belongs to a watched member.
    watched: bool,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        Ok(self.watched && self.config.says(text))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut said = false;
        while let Some(one) = items.next_element_seed(self)? {
            said |= one;
        }
        Ok(said)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        let mut said = false;
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            let watched = self.watched || self.config.is_parameter(&name);
            said |= members.next_value_seed(Look { watched, ..self })?;
        }
        Ok(said)
    }
}
