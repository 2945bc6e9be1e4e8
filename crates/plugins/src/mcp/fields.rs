//! The fields of a request's head that say something of the message in its body.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{HeaderMap, HeaderValue};

use super::message::{Fault, HEADER_MISMATCH, INVALID_REQUEST, Message, Messages, PARSE_ERROR};
use super::sessions::SentSession;
use doorward_net::http::quality;
use doorward_plugin_api::filter::AwaitedEvents;

/// The only revision with batches: what a request without a version has, too.
const WITH_BATCHES: &str = "2025-03-26";
/// The first revision whose headers repeat what the body says.
const WITH_HEADERS: &str = "2026-07-28";

/// The fields that decide before the token is checked, found in one pass over the head.
#[derive(Default)]
pub(super) struct EarlyFields<'r> {
    /// The page that sent the request.
    pub(super) origin: Field<'r>,
    method: Option<&'r HeaderValue>,
    accepts_events: bool,
    /// Fields that few requests have.
    pub(super) rare: RareFields,
}

/// Which fields that few requests have are in a head: nobody looks for the others.
#[derive(Default, Clone, Copy)]
pub(super) struct RareFields {
    /// A session of the protocol, or what some servers take for one.
    pub(super) names_session: bool,
    pub(super) upgrades: bool,
    pub(super) resumes: bool,
}

impl<'r> EarlyFields<'r> {
    pub(super) fn of(headers: &'r HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            match name.as_str() {
                "origin" => fields.origin.add(value),
                "accept" => fields.accepts_events |= quality::names_events(value),
                "mcp-method" => fields.method = fields.method.or(Some(value)),
                "upgrade" => fields.rare.upgrades = true,
                "last-event-id" => fields.rare.resumes = true,
                other => fields.rare.names_session |= SentSession::may_be_named(other),
            }
        }
        fields
    }

    /// The events that a client awaits. A subscription is a `GET`, or in the newest
    /// revision the call whose method a header names.
    pub(super) fn awaited_events(&self, method: &Method) -> Option<AwaitedEvents> {
        let named = self.method.map(HeaderValue::as_bytes);
        let listens = named == Some(b"subscriptions/listen");
        self.accepts_events.then(|| {
            if listens || method == Method::GET {
                AwaitedEvents::OfSubscription
            } else {
                AwaitedEvents::OfCall
            }
        })
    }
}

/// The fields that say something of the message, found in one pass over the head.
#[derive(Default)]
pub(super) struct MessageFields<'r> {
    /// Whether the body has a content coding.
    is_coded: bool,
    media_type: Field<'r>,
    version: Field<'r>,
    method: Field<'r>,
    name: Field<'r>,
}

/// A field that may be there once.
#[derive(Default, Clone, Copy)]
pub(super) enum Field<'r> {
    #[default]
    Absent,
    Single(&'r HeaderValue),
    Repeated,
}

impl<'r> Field<'r> {
    fn add(&mut self, value: &'r HeaderValue) {
        *self = match self {
            Self::Absent => Self::Single(value),
            _ => Self::Repeated,
        };
    }

    fn text(self) -> Result<Option<&'r str>, Fault> {
        let unclear = Fault::new(HEADER_MISMATCH, "a header of the protocol is unclear");
        match self {
            Self::Absent => Ok(None),
            Self::Single(value) => {
                let text = value.to_str().map_err(|_| unclear)?;
                Ok(Some(text.trim()))
            }
            Self::Repeated => Err(unclear),
        }
    }
}

impl<'r> MessageFields<'r> {
    pub(super) fn of(headers: &'r HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            match name.as_str() {
                "content-encoding" => {
                    fields.is_coded |= !value.as_bytes().eq_ignore_ascii_case(b"identity");
                }
                "content-type" => fields.media_type.add(value),
                "mcp-protocol-version" => fields.version.add(value),
                "mcp-method" => fields.method.add(value),
                "mcp-name" => fields.name.add(value),
                _ => {}
            }
        }
        fields
    }

    /// Refuses bodies that a server might read as another text: in another character
    /// set, or after the decoding of a content coding.
    pub(super) fn check_encoding(&self) -> Result<(), Fault> {
        if self.is_coded {
            return Err(Fault::new(PARSE_ERROR, "the message has a content coding"));
        }
        let is_utf_8 = match self.media_type {
            Field::Absent => true,
            Field::Single(media_type) => is_utf_8(media_type),
            Field::Repeated => false,
        };
        if is_utf_8 {
            Ok(())
        } else {
            Err(Fault::new(PARSE_ERROR, "the message is not in UTF-8"))
        }
    }

    /// Refuses fields that say something else than the body, and batches where the
    /// revision has none.
    pub(super) fn check_messages(&self, messages: &Messages<'_>) -> Result<(), Fault> {
        let version = self.version.text()?;
        if messages.is_batch() && version.is_some_and(|version| version != WITH_BATCHES) {
            return Err(Fault::new(INVALID_REQUEST, "the revision has no batches"));
        }
        let (method, name) = (self.method.text()?, self.name.text()?);
        let required = version
            .is_some_and(|version| version.len() == WITH_HEADERS.len() && version >= WITH_HEADERS);
        if method.is_none() && name.is_none() && !required {
            return Ok(());
        }
        let mismatch = Fault::new(HEADER_MISMATCH, "the headers do not say what the body says");
        let Messages::Single(message) = messages else {
            return Err(mismatch);
        };
        let name = match name {
            Some(name) => Some(decoded(name).ok_or(mismatch)?),
            None => None,
        };
        if repeats(method, name.as_deref(), message, required) {
            Ok(())
        } else {
            Err(mismatch)
        }
    }
}

/// Whether a method and a name of the head are those of the message, and are there
/// where they are `required`.
fn repeats(
    method: Option<&str>,
    name: Option<&str>,
    message: &Message<'_>,
    required: bool,
) -> bool {
    let agrees = |field: Option<&str>, body: Option<&str>, required: bool| match (field, body) {
        (Some(field), Some(body)) => field == body,
        (Some(_), None) => false,
        (None, Some(_)) => !required,
        (None, None) => true,
    };
    let called = message.call().map(|(_, name)| name);
    agrees(method, message.method.as_deref(), required)
        && agrees(name, called, required && message.has_name_header())
}

/// Whether a media type names UTF-8 wherever it names a character set. Readers differ
/// in where they allow spaces and quotes, so these count nowhere.
fn is_utf_8(media_type: &HeaderValue) -> bool {
    if media_type.as_bytes() == b"application/json" {
        return true;
    }
    let Ok(text) = media_type.to_str() else {
        return false;
    };
    let text = text.to_ascii_lowercase();
    let text = text.replace([' ', '\t', '"'], "");
    let mut named = text.split("charset").skip(1);
    named.all(|rest| {
        let after = rest.strip_prefix("=utf-8");
        after.is_some_and(|after| after.is_empty() || after.starts_with([';', ',']))
    })
}

/// A name as the body has it: what no header can say is in Base64.
fn decoded(name: &str) -> Option<Cow<'_, str>> {
    let inside = name
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inside {
        Some(inside) => {
            let name = String::from_utf8(STANDARD.decode(inside).ok()?).ok()?;
            Some(Cow::Owned(name))
        }
        None => Some(Cow::Borrowed(name)),
    }
}
