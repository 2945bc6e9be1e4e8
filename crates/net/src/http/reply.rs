//! An answer made by the gateway itself.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

/// The page that says no (interface 7), as web servers have written it for long.
pub const FORBIDDEN_PAGE: &str = "<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n\
    <html><head>\n<title>403 Forbidden</title>\n</head><body>\n<h1>Forbidden</h1>\n\
    <p>You don't have permission to access this resource.</p>\n</body></html>\n";

/// An answer made inside the process, not yet written.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status of the answer.
    pub status: StatusCode,
    /// The reason phrase, if it is not to be the usual one of the status.
    pub reason: Option<Box<str>>,
    /// Headers besides the gateway's own; `Content-Type` only with [`ReplyBody::Own`],
    /// and `Content-Length` only of what answers `HEAD`.
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
    /// Bytes of the `Content-Type` among the headers, or else plain text.
    Own(Bytes),
}

impl Reply {
    /// `status` without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self {
            status,
            reason: None,
            headers: Vec::new(),
            body: ReplyBody::Empty,
        }
    }

    /// Whether the headers tell the length of a body, which an answer to `HEAD` has not.
    pub fn announces_length(&self) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|name| *name == header::CONTENT_LENGTH)
    }

    /// `status` with a message for the client.
    pub fn message(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            reason: None,
            headers: Vec::new(),
            body: ReplyBody::Message(message.into()),
        }
    }

    /// 403 with [`FORBIDDEN_PAGE`], whatever the client accepts.
    pub fn forbidden_page() -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            reason: None,
            headers: Vec::new(),
            body: ReplyBody::Raw(
                "text/html; charset=utf-8",
                Bytes::from_static(FORBIDDEN_PAGE.as_bytes()),
            ),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}
