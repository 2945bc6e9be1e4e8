//! The fields of a request's head that say something of the message in its body.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN, UPGRADE,
};

use super::message::{Fault, HEADER_MISMATCH, INVALID_REQUEST, Message, Messages, PARSE_ERROR};
use super::sessions::SentSession;
use doorward_net::http::quality;
use doorward_plugin_api::filter::AwaitedEvents;

/// The only revision with batches: what a request without a version has, too.
const WITH_BATCHES: &str = "2025-03-26";
/// The first revision whose headers repeat what the body says.
const WITH_FIELDS: &str = "2026-07-28";

/// The headers that repeat it.
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// The fields that decide before the token is checked, and what the head says of the
/// message in the body, found in one pass.
#[derive(Default)]
pub(super) struct EarlyFields<'r> {
    /// The page that sent the request.
    pub(super) origin: Field<'r>,
    method: Option<&'r HeaderValue>,
    accepts_events: bool,
    /// What decides once the token is known to be good.
    pub(super) later: LaterFields,
}

/// What a head says that decides once the token is known to be good.
#[derive(Default, Clone, Copy)]
pub(super) struct LaterFields {
    /// Whether a session of the protocol is named, or what some servers take for one.
    pub(super) names_session: bool,
    pub(super) upgrades: bool,
    pub(super) resumes: bool,
    pub(super) message: MessageFields,
}

impl<'r> EarlyFields<'r> {
    pub(super) fn of(headers: &'r HeaderMap) -> Self {
        let mut fields = Self::default();
        let mut media_type = Field::Absent;
        let mut version = Field::Absent;
        for (name, value) in headers {
            // Names of the standard are numbers, which are compared at once.
            if *name == ACCEPT {
                fields.accepts_events |= quality::names_events(value);
            } else if *name == CONTENT_TYPE {
                media_type.add(value);
            } else if *name == ORIGIN {
                fields.origin.add(value);
            } else if *name == UPGRADE {
                fields.later.upgrades = true;
            } else if *name == CONTENT_ENCODING {
                let is_coded = !value.as_bytes().eq_ignore_ascii_case(b"identity");
                fields.later.message.is_coded |= is_coded;
            } else {
                match name.as_str() {
                    "mcp-protocol-version" => version.add(value),
                    METHOD => {
                        fields.method = fields.method.or(Some(value));
                        fields.later.message.names_call = true;
                    }
                    NAME => fields.later.message.names_call = true,
                    "last-event-id" => fields.later.resumes = true,
                    other => fields.later.names_session |= SentSession::may_be_named(other),
                }
            }
        }
        fields.later.message.is_utf_8 = match media_type {
            Field::Absent => true,
            Field::Single(media_type) => is_utf_8(media_type),
            Field::Repeated => false,
        };
        fields.later.message.revision = version.text().map(Revision::of);
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

/// What a head says of the message in the body.
#[derive(Clone, Copy)]
pub(super) struct MessageFields {
    /// Whether the body has a content coding.
    is_coded: bool,
    is_utf_8: bool,
    /// Whether a field repeats the method or the name.
    names_call: bool,
    /// The revision of the protocol, or what is wrong with its field.
    revision: Result<Revision, Fault>,
}

impl Default for MessageFields {
    fn default() -> Self {
        Self {
            is_coded: false,
            is_utf_8: true,
            names_call: false,
            revision: Ok(Revision::Unnamed),
        }
    }
}

/// What of a revision of the protocol decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revision {
    Unnamed,
    WithBatches,
    /// It has neither batches nor fields that repeat what the body says.
    Plain,
    WithFields,
}

impl Revision {
    fn of(version: Option<&str>) -> Self {
        match version {
            None => Self::Unnamed,
            Some(WITH_BATCHES) => Self::WithBatches,
            Some(version) if version.len() == WITH_FIELDS.len() && version >= WITH_FIELDS => {
                Self::WithFields
            }
            Some(_) => Self::Plain,
        }
    }
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
    fn of(headers: &'r HeaderMap, name: &str) -> Self {
        let mut field = Self::Absent;
        headers
            .get_all(name)
            .iter()
            .for_each(|value| field.add(value));
        field
    }

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
                Ok(Some(text.trim_ascii()))
            }
            Self::Repeated => Err(unclear),
        }
    }
}

impl MessageFields {
    /// Refuses bodies that a server might read as another text: in another character
    /// set, or after the decoding of a content coding.
    pub(super) fn check_encoding(self) -> Result<(), Fault> {
        if self.is_coded {
            return Err(Fault::new(PARSE_ERROR, "the message has a content coding"));
        }
        if self.is_utf_8 {
            Ok(())
        } else {
            Err(Fault::new(PARSE_ERROR, "the message is not in UTF-8"))
        }
    }

    /// Refuses fields that say something else than the body, and batches where the
    /// revision has none.
    /// `headers` are those that these were found in.
    pub(super) fn check_messages(
        self,
        headers: &HeaderMap,
        messages: &Messages<'_>,
    ) -> Result<(), Fault> {
        let revision = self.revision?;
        let has_batches = matches!(revision, Revision::Unnamed | Revision::WithBatches);
        if messages.is_batch() && !has_batches {
            return Err(Fault::new(INVALID_REQUEST, "the revision has no batches"));
        }
        let required = revision == Revision::WithFields;
        if !self.names_call && !required {
            return Ok(());
        }
        let method = Field::of(headers, METHOD).text()?;
        let name = Field::of(headers, NAME).text()?;
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
