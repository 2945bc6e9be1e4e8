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

use super::accept::{self, ConnectionAcceptor, ProtocolDispatcher};
use super::bridge::{self, Bounds, ClientInfo};
use super::framing::{self, Refusal};
use super::handshake::Handshake;
use super::session::Session;

use crate::telemetry::Gauge;

/// Seconds for which an idle connection is kept.
const HTTP2_IDLE: Duration = Duration::from_secs(60);

/// Whether a request's body is worth reading, by its head alone. The router
/// answers one that is not as if it had no body; it must refuse it.
pub type Gate = Arc<dyn Fn(&request::Parts) -> bool + Send + Sync>;

/// What a request is answered with that reaches no router, by status and message.
pub type RefusalAnswer = fn(StatusCode, &str) -> http::Response<String>;

/// Serves one `Router`.
pub struct RouterApp {
    router: Router,
    refusal: RefusalAnswer,
    gate: Option<Gate>,
    bounds: Bounds,
    options: HttpServerOptions,
    in_flight: Gauge,
}

impl RouterApp {
    /// Lets `router` answer every request within `bounds`, in HTTP/1 and
    /// HTTP/2. What `gate` does not admit is answered before its body is read,
    /// and what is malformed with what `refusal` makes.
    /// Requests that are being answered count in `in_flight`.
    pub fn greeter(
        router: Router,
        refusal: RefusalAnswer,
        gate: Option<Gate>,
        bounds: Bounds,
        in_flight: &Gauge,
        keeper: ConnectionAcceptor,
    ) -> ProtocolDispatcher<Self> {
        let speaking = |h2c| {
            let mut options = HttpServerOptions::default();
            options.h2c = h2c;
            options.h2_idle_timeout = Some(HTTP2_IDLE);
            Arc::new(Self {
                router: router.clone(),
                refusal,
                gate: gate.clone(),
                bounds,
                options,
                in_flight: in_flight.clone(),
            })
        };
        ProtocolDispatcher {
            http1: speaking(false),
            http2: speaking(true),
            keeper,
        }
    }

    async fn answer(&self, session: &mut ServerSession) -> pingora::Result<()> {
        if let Some(refusal) = malformed(session) {
            let answer = (self.refusal)(refusal.status, refusal.message);
            return refuse(session, answer).await;
        }
        let has_body = !session.is_body_empty();
        let mut head = session.req_header().as_owned_parts();
        if has_body && self.gate.as_ref().is_some_and(|gate| !gate(&head)) {
            session.set_keepalive(None);
            head.extensions.insert(client(session));
            bridge::respond(session, &self.router, head, Bytes::new()).await?;
            return Ok(());
        }
        // The end of a stream that announces nothing is not waited for: anybody could
        // leave it open.
        let read = if has_body {
            bridge::read_body(session, self.bounds).await
        } else {
            Ok(Bytes::new())
        };
        let body = match read {
            Ok(body) => body,
            Err(error) => {
                let answer = (self.refusal)(error.status(), "Request body can't be read");
                return refuse(session, answer).await;
            }
        };
        head.extensions.insert(client(session));
        bridge::respond(session, &self.router, head, body).await?;
        Ok(())
    }
}

/// Why a request is refused before anybody looks at it, if it is: somebody else on
/// its way could have read it differently.
pub fn malformed(session: &Session) -> Option<Refusal> {
    let request = session.req_header();
    if request.version == Version::HTTP_2 && !has_one_length(&request.headers) {
        return Some(Refusal {
            status: StatusCode::BAD_REQUEST,
            message: "Invalid Content-Length",
        });
    }
    framing::refusal(session)
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
    answer: http::Response<String>,
) -> pingora::Result<()> {
    let (parts, body) = answer.into_parts();
    let mut head = ResponseHeader::from(parts);
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
        accept::head_read();
        note_request(&session);
        let _in_flight = self.in_flight.enter();
        let keep = !*shutdown.borrow() && wants_more(session.req_header());
        session.set_keepalive(keep.then_some(accept::KEEP));
        session.set_write_timeout(Some(self.bounds.time));
        session.set_total_drain_timeout(Some(self.bounds.time));
        if let Err(error) = self.answer(&mut session).await {
            tracing::debug!(%error, "answer not written");
            return None;
        }
        let settings = HttpPersistentSettings::for_session(&session);
        accept::head_awaited(&session);
        bridge::linger(&mut session).await;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}
