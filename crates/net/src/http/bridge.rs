//! An axum `Router` under Pingora: the request is handed over inside the
//! process, with no socket in between.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, Request, StatusCode, header, request};
use http_body_util::BodyExt;
use pingora::http::ResponseHeader;
use tokio::time::timeout;
use tower::ServiceExt;
use uuid::Uuid;

use crate::http::session::Session;

/// How long the next bytes of a refused body are waited for.
const LINGER: Duration = Duration::from_secs(5);
/// How long the rest of a refused body may take: on a busy machine the upload of
/// an honest client is slow.
pub const LINGER_ALL: Duration = Duration::from_secs(30);
/// How much of it is dropped, in bytes: what comes faster is no honest upload's.
const LINGER_BYTES: usize = 64 << 20;

/// Who sent a request: an extension of every request that a `Router` gets.
#[derive(Debug, Clone, Copy)]
pub struct ClientInfo {
    /// The client's address: the TCP peer, or what a trusted proxy vouched for.
    pub addr: SocketAddr,
    /// Whether the client used TLS.
    pub secure: bool,
}

/// What the access log calls a request: an extension of those that have a name.
#[derive(Debug, Clone)]
pub struct RequestId(pub Box<str>);

/// An extension of an answer: the last part of the path that was called is a
/// secret, and in no log.
#[derive(Debug, Clone, Copy)]
pub struct SecretPath;

/// An extension of an answer with tokens: the user whom they are for. No answer
/// carries it out of the process.
#[derive(Debug, Clone, Copy)]
pub struct ForUser(pub Uuid);

/// Bounds on a request to a `Router`.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Longest body in bytes; a longer one is answered with 413.
    pub body: usize,
    /// Longest time to read it.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            time: Duration::from_secs(60),
        }
    }
}

/// Why no body could be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Longer than the bound.
    #[error("request body is too large")]
    TooLarge,
    /// Slower than the bound.
    #[error("request body took too long")]
    TooSlow,
    /// The connection failed.
    #[error("request body can't be read")]
    Broken(#[source] Box<pingora::Error>),
}

impl BodyError {
    /// What an error of the engine means: its patience ends at about the same time as
    /// that of whoever waits here.
    fn of(error: Box<pingora::Error>) -> Self {
        if error.etype() == &pingora::ErrorType::ReadTimedout {
            Self::TooSlow
        } else {
            Self::Broken(error)
        }
    }

    /// The status that tells the client.
    pub fn status(&self) -> StatusCode {
        match self {
            BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyError::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// The length of a request's body, in bytes, where its head says it.
pub fn announced_length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Reads the whole request body, asking for it first where the client waits
/// to be asked (`Expect: 100-continue`).
///
/// # Errors
/// [`BodyError`] when it is longer or slower than `bounds`.
pub async fn read_body(session: &mut Session, bounds: Bounds) -> Result<Bytes, BodyError> {
    let announced = announced_length(&session.req_header().headers);
    if announced.is_some_and(|length| length > bounds.body) {
        return Err(BodyError::TooLarge);
    }
    invite_body(session).await.map_err(BodyError::of)?;
    let mut read = std::pin::pin!(read_pieces(session, bounds.body));
    // What has come already needs no clock.
    if let Some(body) = read.as_mut().now_or_never() {
        return body;
    }
    let read = timeout(bounds.time, read).await;
    read.map_err(|_| BodyError::TooSlow)?
}

/// Reads what is left of a body, of at most `most` bytes.
async fn read_pieces(session: &mut Session, most: usize) -> Result<Bytes, BodyError> {
    let mut body = BytesMut::new();
    while let Some(piece) = session.read_request_body().await.map_err(BodyError::of)? {
        if body.len() + piece.len() > most {
            return Err(BodyError::TooLarge);
        }
        if body.is_empty() && session.is_body_done() {
            return Ok(piece);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// Asks for the request's body where the client waits to be asked.
///
/// # Errors
/// When the client can't be written to.
pub async fn invite_body(session: &mut Session) -> pingora::Result<()> {
    let request = session.req_header();
    let waits = request.version >= http::Version::HTTP_11
        && (request.headers.get(header::EXPECT))
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if waits {
        let keepalive = session.get_keepalive();
        session.write_continue_response().await?;
        // The engine takes it for an answer before the body has come.
        session.set_keepalive(keepalive);
    }
    Ok(())
}

/// Longest body that [`buffer_body`] reads: the engine replays no more.
pub const BUFFERED_MAX: usize = 64 << 10;

/// Reads the whole request body for a filter, within ten seconds; see
/// [`buffer_body_within`].
///
/// # Errors
/// As there.
pub async fn buffer_body(session: &mut Session) -> Result<Bytes, BodyError> {
    buffer_body_within(session, Duration::from_secs(10)).await
}

/// Reads the whole request body so that it can still be sent to an upstream.
///
/// # Errors
/// [`BodyError`] when it is longer than [`BUFFERED_MAX`], takes longer than
/// `time`, or does not come whole; then the connection is of no further
/// use and is closed after the answer.
pub async fn buffer_body_within(session: &mut Session, time: Duration) -> Result<Bytes, BodyError> {
    if let Some(body) = session.take_ready_body(BUFFERED_MAX) {
        return Ok(body);
    }
    // Before the first read, or proxying would wait for a body that is gone.
    session.enable_retry_buffering();
    let bounds = Bounds {
        body: BUFFERED_MAX,
        time,
    };
    let mut read = read_body(session, bounds).await;
    if read.is_ok() && session.retry_buffer_truncated() {
        read = Err(BodyError::TooLarge);
    }
    if read.is_err() {
        session.set_keepalive(None);
    }
    read
}

/// Reads a request body of at most `most` bytes for a filter that sends it on as the
/// replacement of what the client sent. Beyond [`BUFFERED_MAX`] the length must have
/// been announced: the engine sends nothing without a piece that it can replay, and
/// only then is it known which piece is the last.
///
/// # Errors
/// As [`buffer_body_within`].
pub async fn take_body(
    session: &mut Session,
    most: usize,
    time: Duration,
) -> Result<Bytes, BodyError> {
    let length = announced_length(&session.req_header().headers);
    let read = match length {
        Some(length) if length > most => Err(BodyError::TooLarge),
        Some(length) if length > BUFFERED_MAX => timeout(time, take_long_body(session, length))
            .await
            .unwrap_or(Err(BodyError::TooSlow)),
        _ => {
            let body = buffer_body_within(session, time).await?;
            if body.len() <= most {
                Ok(body)
            } else {
                Err(BodyError::TooLarge)
            }
        }
    };
    if read.is_err() {
        session.set_keepalive(None);
    }
    read
}

async fn take_long_body(session: &mut Session, length: usize) -> Result<Bytes, BodyError> {
    let downstream = session;
    invite_body(downstream).await.map_err(BodyError::of)?;
    let mut body = BytesMut::new();
    loop {
        if length.saturating_sub(body.len()) <= BUFFERED_MAX {
            downstream.enable_retry_buffering();
        }
        let piece = downstream.read_request_body().await;
        let Some(piece) = piece.map_err(BodyError::of)? else {
            break;
        };
        if body.len() + piece.len() > length {
            return Err(BodyError::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    if body.len() < length || downstream.get_retry_buffer().is_none() {
        let broken = pingora::Error::explain(
            pingora::ErrorType::ReadError,
            "the body is not as long as announced",
        );
        return Err(BodyError::Broken(broken));
    }
    Ok(body.freeze())
}

/// Says that the answer to a request that has not come whole is complete, then
/// drops what the client still sends, for a short while. A connection cut under
/// its hands would take the answer with it (RFC 9112 §9.6), and so would a
/// reset stream: RFC 9113 §8.1 allows that, but clients take it for a failure.
/// A connection of HTTP/1 that stays open is left alone: the engine skips the
/// rest before it reads the next request.
pub async fn linger(session: &mut Session) {
    if session.was_upgraded() || session.is_body_done() {
        return;
    }
    if session.may_keep() {
        return;
    }
    if session.finish_body().await.is_err() {
        return;
    }
    session.close_write().await;
    let drop_rest = async {
        let mut dropped = 0;
        while dropped < LINGER_BYTES
            && let Ok(Ok(Some(piece))) = timeout(LINGER, session.read_request_body()).await
        {
            dropped += piece.len();
        }
    };
    // Whether the rest arrives is of no interest.
    let _ = timeout(LINGER_ALL, drop_rest).await;
}

/// Lets `router` answer the request in `head`, whose body has been read, and
/// writes the answer. Returns its status.
///
/// # Errors
/// When the client can't be written to.
pub async fn respond(
    session: &mut Session,
    router: &Router,
    head: request::Parts,
    body: Bytes,
) -> pingora::Result<StatusCode> {
    let (head, body) = ask(router, head, body).await?;
    write(session, head, body).await
}

/// Lets `router` answer the request in `head`, whose body has been read: the
/// head of the answer, and what follows it.
///
/// # Errors
/// When the head can't be represented.
pub async fn ask(
    router: &Router,
    head: request::Parts,
    body: Bytes,
) -> pingora::Result<(ResponseHeader, Body)> {
    let request = Request::from_parts(head, Body::from(body));
    let response = match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (mut parts, body) = response.into_parts();
    parts.version = http::Version::HTTP_11;
    let status = parts.status;
    let known_length = http_body::Body::size_hint(&body).exact();
    let mut head = ResponseHeader::from(parts);
    if let Some(length) = known_length
        && !head.headers.contains_key(header::CONTENT_LENGTH)
        && !bodiless(status)
    {
        head.insert_header(header::CONTENT_LENGTH, length)?;
    }
    Ok((head, body))
}

/// Writes an answer, `body` as it comes. Returns its status.
///
/// # Errors
/// When the client can't be written to: it has left.
pub async fn write(
    session: &mut Session,
    head: ResponseHeader,
    body: Body,
) -> pingora::Result<StatusCode> {
    write_filtered(session, head, body, |_, _| {}).await
}

/// The same, where each piece of the body goes through `filter`, which is told the
/// end.
///
/// # Errors
/// When the client can't be written to: it has left.
pub async fn write_filtered(
    session: &mut Session,
    head: ResponseHeader,
    body: Body,
    filter: impl FnMut(&mut Option<Bytes>, bool),
) -> pingora::Result<StatusCode> {
    let written = write_to_client(session, head, body, filter).await;
    written.map_err(|error| error.into_down())
}

async fn write_to_client(
    session: &mut Session,
    head: ResponseHeader,
    mut body: Body,
    mut filter: impl FnMut(&mut Option<Bytes>, bool),
) -> pingora::Result<StatusCode> {
    let status = head.status;
    session.write_response_header(Box::new(head)).await?;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            // The answer is cut short, and the connection says so.
            session.set_keepalive(None);
            return Ok(status);
        };
        if let Ok(data) = frame.into_data() {
            let mut piece = Some(data);
            filter(&mut piece, false);
            // An empty piece would end a chunked body.
            if let Some(data) = piece.filter(|data| !data.is_empty()) {
                session.write_response_body(data, false).await?;
            }
        }
    }
    let mut rest = None;
    filter(&mut rest, true);
    let rest = rest.unwrap_or_default();
    session.write_response_body(rest, true).await?;
    Ok(status)
}

/// Statuses that never have a body, nor a length (RFC 9110 §6.4.1).
fn bodiless(status: StatusCode) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
}
