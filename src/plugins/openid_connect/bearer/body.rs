//! The token in a request body, and reading the body so that it can still be
//! sent to the upstream.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, Method};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use serde::Deserialize;

use super::{Found, Places, parameters, put};
use crate::plugins::openid_connect::refusal::Refusal;

/// Longer bodies are not searched: Pingora can replay no more than this.
const BODY_MAX: usize = 64 * 1024;
/// A body that takes longer is refused.
const READ_MAX: Duration = Duration::from_secs(10);

/// The bodies that may hold a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    UrlEncoded,
    Json,
}

impl Places {
    /// Whether the body has to be read to know if there is a token.
    pub(in super::super) fn may_be_in_body(&self, request: &RequestHeader) -> bool {
        self.body
            && !matches!(request.method, Method::GET | Method::HEAD)
            && form(&request.headers).is_some()
            && length(&request.headers).is_some_and(|length| (1..=BODY_MAX).contains(&length))
    }

    /// The token in a body that has been read.
    pub(in super::super) fn find_in_read_body(
        &self,
        request: &RequestHeader,
        body: Option<&[u8]>,
    ) -> Result<Option<Found<'static>>, Refusal> {
        let mut found = None;
        let Some(body) = body.filter(|_| self.may_be_in_body(request)) else {
            return Ok(found);
        };
        match form(&request.headers) {
            Some(Form::UrlEncoded) => {
                for token in parameters(body) {
                    put(&mut found, Cow::Owned(token.into_owned()), false)?;
                }
            }
            Some(Form::Json) => {
                let token = serde_json::from_slice(body)
                    .ok()
                    .and_then(|body: JsonBody| body.access_token);
                if let Some(token) = token {
                    put(&mut found, Cow::Owned(token), false)?;
                }
            }
            None => {}
        }
        Ok(found)
    }
}

/// Arrays, other types and repeated members hold no token.
#[derive(Deserialize)]
struct JsonBody {
    access_token: Option<String>,
}

fn form(headers: &HeaderMap) -> Option<Form> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        Some(Form::UrlEncoded)
    } else if essence.eq_ignore_ascii_case("application/json") {
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
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads the whole body, which stays available for the upstream.
///
/// # Errors
/// When it does not come in time or not whole; then the connection is of no
/// further use and will be closed.
pub(in super::super) async fn read(session: &mut Session) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(READ_MAX, read_all(session)).await {
        Ok(Ok(body)) => Ok(body),
        failure => {
            session.set_keepalive(None);
            Err(match failure {
                Err(_) => Refusal::BodyTimeout,
                Ok(_) => Refusal::MalformedRequest,
            })
        }
    }
}

async fn read_all(session: &mut Session) -> Result<Bytes, Refusal> {
    // Before the first read, or proxying would wait for a body that is gone.
    session.enable_retry_buffering();
    if expects_continue(session.req_header()) {
        let written = session.as_downstream_mut().write_continue_response().await;
        written.map_err(|_| Refusal::MalformedRequest)?;
    }
    let mut body = BytesMut::new();
    loop {
        match session.as_downstream_mut().read_request_body().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => return Ok(body.freeze()),
            Err(_) => return Err(Refusal::MalformedRequest),
        }
        if body.len() > BODY_MAX || session.retry_buffer_truncated() {
            return Err(Refusal::MalformedRequest);
        }
    }
}

/// Pingora leaves the answer to `Expect: 100-continue` to whoever reads.
fn expects_continue(request: &RequestHeader) -> bool {
    let expected = request.headers.get(EXPECT);
    request.version >= http::Version::HTTP_11
        && expected.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
