//! An answer made by the gateway itself.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

/// An answer made inside the process, not yet written.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status of the answer.
    pub status: StatusCode,
    /// Headers besides `Content-Type`, `Content-Length` and the gateway's own.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: ReplyBody,
}

/// The body of a [`Reply`].
#[derive(Clone, Debug)]
pub enum ReplyBody {
    /// No body, no `Content-Type`.
    Empty,
    /// A message, rendered as the client's `Accept` header asks: by default
    /// `{"message":"…"}`.
    Message(Cow<'static, str>),
    /// Bytes of a given `Content-Type`.
    Raw(&'static str, Bytes),
}

impl Reply {
    /// `status` without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: ReplyBody::Empty,
        }
    }

    /// `status` with a message for the client.
    pub fn message(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: ReplyBody::Message(message.into()),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}
