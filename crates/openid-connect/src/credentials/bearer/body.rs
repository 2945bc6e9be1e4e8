//! The token in a request body, and reading the body so that it can still be
//! sent to the upstream.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Version};
use pingora::http::RequestHeader;
use serde::Deserialize;
use serde_json::Value;

use crate::credentials::bearer::{BearerToken, Places, ShownToken, bytes, parameters, put};
use crate::decide::refusal::Refusal;
use doorward_core::jose::json;
use doorward_net::http::bridge::{self, BUFFERED_MAX, BodyError};
use doorward_net::http::form::{is_form as is_form_body, is_json};
use doorward_net::http::session::Session;

/// The bodies that may hold a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    UrlEncoded,
    Json,
}

impl Places {
    /// Whether the body has to be read to know if there is a token.
    pub(crate) fn may_be_in_body(&self, request: &RequestHeader) -> bool {
        self.body && is_searchable(request)
    }

    /// The token in a body that has been read.
    pub(crate) fn find_in_read_body(
        &self,
        request: &RequestHeader,
        body: Option<&[u8]>,
    ) -> Result<Option<BearerToken<'static>>, Refusal> {
        let mut found = None;
        let Some(body) = body.filter(|_| self.may_be_in_body(request)) else {
            return Ok(None);
        };
        match form(&request.headers) {
            Some(Form::UrlEncoded) => {
                for token in parameters(body) {
                    put(&mut found, bytes(token), false)?;
                }
            }
            Some(Form::Json) => {
                let token = json_token(body);
                if let Some(token) = token {
                    put(&mut found, Cow::Owned(token.into_bytes()), false)?;
                }
            }
            None => {}
        }
        let found = found.map(ShownToken::token).transpose()?;
        Ok(found.map(BearerToken::into_owned))
    }
}

/// Whether a body may come that can be searched.
pub(crate) fn is_searchable(request: &RequestHeader) -> bool {
    !matches!(request.method, Method::GET | Method::HEAD)
        && form(&request.headers).is_some()
        && match length(&request.headers) {
            Some(length) => (1..=BUFFERED_MAX).contains(&length),
            None => of_unknown_length(request),
        }
}

/// Whether the body is read although the head may say all there is to know. A
/// JSON of unknown length is not: most of those are uploads, which would be
/// refused for being long.
pub(crate) fn is_read_ahead(request: &RequestHeader) -> bool {
    is_searchable(request) && (length(&request.headers).is_some() || is_form(&request.headers))
}

/// Whether the body is a form, as opposed to JSON.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    form(headers) == Some(Form::UrlEncoded)
}

/// The parameters in a body that has been read: of JSON the members on top, of
/// which those that are no texts say nothing. A JSON object with a member twice
/// has none.
pub(crate) fn parameters_of(headers: &HeaderMap, body: &[u8]) -> Vec<(String, String)> {
    match form(headers) {
        Some(Form::UrlEncoded) => url::form_urlencoded::parse(body).into_owned().collect(),
        Some(Form::Json) => {
            let members = json::object(body).unwrap_or_default().into_iter();
            let texts = members.map(|(name, value)| match value {
                Value::String(text) => (name, text),
                _ => (name, String::new()),
            });
            texts.collect()
        }
        None => Vec::new(),
    }
}

/// The token in a JSON object. Arrays, other types and repeated members hold none.
fn json_token(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Members {
        access_token: Option<String>,
    }
    // A list would be read as the members in their order.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let members: Members = serde_json::from_slice(body).ok().filter(|_| is_object)?;
    members.access_token
}

fn form(headers: &HeaderMap) -> Option<Form> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    if is_form_body(headers) {
        Some(Form::UrlEncoded)
    } else if is_json(headers) {
        Some(Form::Json)
    } else {
        None
    }
}

/// The announced length; `None` also where the framing says something else.
fn length(headers: &HeaderMap) -> Option<usize> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    bridge::announced_length(headers)
}

/// Whether a body may come whose length nobody has told: in chunks, or in the
/// frames of HTTP/2.
fn of_unknown_length(request: &RequestHeader) -> bool {
    let headers = &request.headers;
    headers.contains_key(TRANSFER_ENCODING)
        || (request.version == Version::HTTP_2 && !headers.contains_key(CONTENT_LENGTH))
}

/// Reads the whole body, which stays available for the upstream.
///
/// # Errors
/// When it is too long, or does not come in time or not whole; then the
/// connection is of no further use and will be closed.
pub(crate) async fn read(session: &mut Session) -> Result<Bytes, Refusal> {
    let body = bridge::buffer_body(session).await;
    body.map_err(|error| match error {
        BodyError::TooLarge => Refusal::BodyTooLong,
        BodyError::TooSlow => Refusal::BodyTimeout,
        BodyError::Broken(_) => Refusal::MalformedRequest,
    })
}
