//! A listener that serves one `Router` to everybody: the admin listener, and
//! the identity provider's own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version, header, request};
use pingora::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::bridge::{self, Bounds, ClientInfo};
use super::greeting::{self, Doorkeeper, Greeter};
use super::handshake::Handshake;

use crate::telemetry::Gauge;

/// Seconds for which an idle connection is kept.
const KEEPALIVE_SECONDS: u64 = 60;

/// Whether a request's body is worth reading, by its head alone. The router
/// answers one that is not as if it had no body; it must refuse it.
pub type Gate = Arc<dyn Fn(&request::Parts) -> bool + Send + Sync>;

/// Serves one `Router`.
pub struct RouterApp {
    router: Router,
    gate: Option<Gate>,
    bounds: Bounds,
    options: HttpServerOptions,
    in_flight: Gauge,
}

impl RouterApp {
    /// Lets `router` answer every request within `bounds`, in HTTP/1 and
    /// HTTP/2. What `gate` does not admit is answered before its body is read.
    /// Requests that are being answered count in `in_flight`.
    pub fn greeter(
        router: Router,
        gate: Option<Gate>,
        bounds: Bounds,
        in_flight: &Gauge,
        keeper: Doorkeeper,
    ) -> Greeter<Self> {
        let speaking = |h2c| {
            let mut options = HttpServerOptions::default();
            options.h2c = h2c;
            options.h2_idle_timeout = Some(Duration::from_secs(KEEPALIVE_SECONDS));
            Arc::new(Self {
                router: router.clone(),
                gate: gate.clone(),
                bounds,
                options,
                in_flight: in_flight.clone(),
            })
        };
        Greeter {
            http1: speaking(false),
            http2: speaking(true),
            keeper,
        }
    }

    async fn answer(&self, session: &mut ServerSession) -> pingora::Result<()> {
        if let Some(reason) = malformed(session) {
            return refuse(session, StatusCode::BAD_REQUEST, reason).await;
        }
        let mut head = session.req_header().as_owned_parts();
        if self.gate.as_ref().is_some_and(|gate| !gate(&head)) {
            session.set_keepalive(None);
            head.extensions.insert(client(session));
            bridge::respond(session, &self.router, head, Bytes::new()).await?;
            return Ok(());
        }
        let body = match bridge::read_body(session, self.bounds).await {
            Ok(body) => body,
            Err(error) => {
                let status = error.status();
                return refuse(session, status, "Request body can't be read").await;
            }
        };
        head.extensions.insert(client(session));
        bridge::respond(session, &self.router, head, body).await?;
        Ok(())
    }
}

/// What is ambiguous about a request head, if anything: such a request could
/// be read differently by somebody else on its way (RFC 9112 §6.1, §6.3, §3.2).
pub fn malformed(session: &ServerSession) -> Option<&'static str> {
    let request = session.req_header();
    let headers = &request.headers;
    let raw = session
        .as_http1()
        .map(|http1| http1.get_headers_raw_bytes());
    if headers.contains_key(header::TRANSFER_ENCODING) {
        // The parser has dropped the length already: the bytes still tell.
        if raw.as_deref().is_some_and(names_a_length) {
            return Some("Both Transfer-Encoding and Content-Length");
        }
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let chunked = codings
            .next()
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !chunked || codings.next().is_some() {
            return Some("Unsupported Transfer-Encoding");
        }
    }
    if !has_one_length(headers) {
        return Some("Invalid Content-Length");
    }
    // The parser takes a line with too many words for a target with blanks.
    if raw.as_deref().is_some_and(|raw| !has_a_target(raw)) {
        return Some("Invalid request target");
    }
    if request.version == Version::HTTP_11 && !headers.contains_key(header::HOST) {
        return Some("Missing Host header");
    }
    None
}

/// Whether there is at most one `Content-Length`, and that a number: one value for
/// several equal ones would do as well (RFC 9110 §8.6), but nobody honest sends
/// them.
fn has_one_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return true;
    };
    let length = length.as_bytes();
    !length.is_empty() && length.iter().all(u8::is_ascii_digit) && lengths.next().is_none()
}

/// Whether one of the head's lines is a `Content-Length`.
fn names_a_length(head: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    head.split(|&byte| byte == b'\n').any(|line| {
        line.get(..NAME.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
    })
}

/// Whether the method is followed by a path, by `*` or by a URL of http(s).
fn has_a_target(head: &[u8]) -> bool {
    let target = head.splitn(2, |&byte| byte == b' ').nth(1).unwrap_or(b"");
    match target.first() {
        Some(b'/') => true,
        Some(b'*') => target.get(1) == Some(&b' '),
        _ => [&b"http://"[..], b"https://"].iter().any(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        }),
    }
}

fn client(session: &ServerSession) -> ClientInfo {
    let addr = session
        .client_addr()
        .and_then(|addr| addr.as_inet().copied())
        .unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let secure = session.digest().is_some_and(|d| d.ssl_digest.is_some());
    ClientInfo { addr, secure }
}

fn note_request(session: &ServerSession) {
    let tls = session.digest().and_then(|d| d.ssl_digest.as_deref());
    if let Some(handshake) = tls.and_then(Handshake::of) {
        handshake.note_request();
    }
}

async fn refuse(
    session: &mut ServerSession,
    status: StatusCode,
    message: &str,
) -> pingora::Result<()> {
    let body = format!("{{\"message\":\"{message}\"}}");
    let mut head = ResponseHeader::build(status, Some(3))?;
    head.insert_header(header::CONTENT_TYPE, "application/json; charset=utf-8")?;
    head.insert_header(header::CONTENT_LENGTH, body.len())?;
    session.set_keepalive(None);
    session.write_response_header(Box::new(head)).await?;
    session.write_response_body(Bytes::from(body), true).await
}

/// Whether the client means to send more on its connection (RFC 9112 §9.3).
fn wants_more(request: &pingora::http::RequestHeader) -> bool {
    let says = |word: &[u8]| {
        let values = request.headers.get_all(header::CONNECTION);
        let mut words = values
            .iter()
            .flat_map(|v| v.as_bytes().split(|&b| b == b','));
        words.any(|w| w.trim_ascii().eq_ignore_ascii_case(word))
    };
    match request.version {
        Version::HTTP_10 | Version::HTTP_09 => says(b"keep-alive"),
        _ => !says(b"close"),
    }
}

#[async_trait]
impl HttpServerApp for RouterApp {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.read_request().await.ok()? {
            return None;
        }
        greeting::head_read();
        note_request(&session);
        let _in_flight = self.in_flight.enter();
        let keep = !*shutdown.borrow() && wants_more(session.req_header());
        session.set_keepalive(keep.then_some(KEEPALIVE_SECONDS));
        session.set_write_timeout(Some(self.bounds.time));
        session.set_total_drain_timeout(Some(self.bounds.time));
        if let Err(error) = self.answer(&mut session).await {
            tracing::debug!(%error, "answer not written");
            return None;
        }
        let settings = HttpPersistentSettings::for_session(&session);
        greeting::head_awaited();
        bridge::linger(&mut session).await;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_found_in_any_spelling_and_nowhere_else() {
        assert!(names_a_length(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-LENGTH: 4\r\n\r\n"
        ));
        assert!(!names_a_length(
            b"POST /content-length HTTP/1.1\r\nX: content-length: 4\r\n\r\n"
        ));
    }

    #[test]
    fn targets_are_paths_stars_and_urls() {
        for head in [
            "GET / HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET HTTP://a/ HTTP/1.1",
        ] {
            assert!(has_a_target(head.as_bytes()), "{head}");
        }
        for head in [
            "GE T / HTTP/1.1",
            "GET a HTTP/1.1",
            "GET *x HTTP/1.1",
            "GET",
        ] {
            assert!(!has_a_target(head.as_bytes()), "{head}");
        }
    }
}
