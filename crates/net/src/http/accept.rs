//! Takes a connection over from the engine: admits it if there is room, makes
//! the TLS handshake, tells HTTP/2 in the clear from HTTP/1 by its first
//! bytes, and serves it in a task of its own.
//!
//! The engine's own look waits for the whole preface of HTTP/2, for ever: a
//! request shorter than that would never be answered, and a silent connection
//! never closed. Nor does it bound the time for a whole request head: a client
//! that sends a byte now and then would hold its connection for days.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::http::ServerSession;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::{sleep, timeout};

use super::framing::{self, FramedStream};
use super::handshake::Handshake;
use super::tls::TlsAcceptor;
use crate::telemetry::listeners::ListenerCounters;

/// How a connection of HTTP/2 begins; no method of HTTP/1 does.
const HTTP2: &[u8; 3] = b"PRI";
/// Length of the preface that it is the beginning of (RFC 9113 §3.4).
const PREFACE: usize = 24;
/// Longest time for a whole request head after the request before, longer
/// than any idle connection is kept.
const NEXT_HEAD: Duration = Duration::from_secs(90);

/// What a listener does with connections before anybody reads a request.
#[derive(Clone)]
pub struct ConnectionAcceptor {
    /// Handshakes, where TLS is spoken.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// Bounds on connections.
    pub limits: Limits,
    /// Counts them.
    pub counters: ListenerCounters,
}

/// Bounds on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most open connections.
    pub connections: usize,
    /// Longest time for a TLS handshake.
    pub handshake: Duration,
    /// Longest time for the first request head, from the start of the
    /// connection or the end of its handshake.
    pub head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: usize::MAX,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(60),
        }
    }
}

tokio::task_local! {
    /// Until when the task's connection may wait for a whole request head;
    /// nothing while a request is being served.
    static HEAD_DUE: Cell<Option<Instant>>;
}

/// Notes that a request head was read on this task's connection.
pub fn head_read() {
    // Streams of HTTP/2 have tasks of their own, and no such note.
    let _ = HEAD_DUE.try_with(|due| due.set(None));
}

/// Notes that the request in `session` has got its answer: this task's connection
/// waits for the next head.
pub fn head_awaited(session: &ServerSession) {
    framing::answered(session);
    let _ = HEAD_DUE.try_with(|due| due.set(Some(Instant::now() + NEXT_HEAD)));
}

/// Hands a connection to one of two applications that differ in protocol only.
pub struct ProtocolDispatcher<A> {
    /// For HTTP/1, and for TLS, where the handshake has settled the protocol.
    pub http1: Arc<A>,
    /// For HTTP/2 in the clear: its options have `h2c`.
    pub http2: Arc<A>,
    /// What comes before a request.
    pub keeper: ConnectionAcceptor,
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for ProtocolDispatcher<A> {
    /// The engine's task is made for handshakes, and would hold the room for
    /// one as long as the connection lasts: it ends here.
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let keeper = &self.keeper;
        let admitted = keeper.counters.admit(keeper.limits.connections)?;
        let (greeter, shutdown) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            let _admitted = admitted;
            if let Some(stream) = greeter.keeper.handshake(stream).await {
                greeter.greet(stream, shutdown).await;
            }
        });
        None
    }

    async fn cleanup(&self) {
        self.http1.cleanup().await;
        self.http2.cleanup().await;
    }
}

impl ConnectionAcceptor {
    /// The connection after its handshake, if it needs one; nothing if that
    /// failed.
    async fn handshake(&self, stream: Stream) -> Option<Stream> {
        let Some(tls) = &self.tls else {
            return Some(stream);
        };
        let peer = stream.get_socket_digest();
        match tls.accept(stream, self.limits.handshake).await {
            Ok(stream) => Some(stream),
            Err((failure, error)) => {
                self.counters.handshake_failed(failure);
                let peer = peer.as_ref().and_then(|digest| digest.peer_addr());
                let peer = peer.map(ToString::to_string).unwrap_or_default();
                tracing::debug!(%peer, reason = failure.label(), %error, "TLS handshake failed");
                None
            }
        }
    }
}

impl<A: HttpServerApp + Send + Sync + 'static> ProtocolDispatcher<A> {
    async fn greet(&self, stream: Stream, shutdown: ShutdownWatch) {
        let limit = self.keeper.limits.head;
        let due = Instant::now() + limit;
        let begun = timeout(limit, self.choose(stream)).await;
        // Silent for too long, or gone.
        let Ok(Some((app, stream, http2))) = begun else {
            return;
        };
        let stream: Stream = Box::new(FramedStream::new(stream, http2));
        let tls = stream.get_ssl_digest();
        let handshake = tls.as_deref().and_then(Handshake::of).cloned();
        let late = async {
            if http2 {
                first_request_late(handshake, limit).await;
            } else {
                head_late(limit).await;
            }
        };
        let served = HEAD_DUE.scope(Cell::new(Some(due)), async {
            tokio::select! {
                biased;
                () = serve(app, stream, shutdown) => false,
                () = late => true,
            }
        });
        if served.await {
            self.keeper.counters.too_slow.inc();
        }
    }

    /// The application for a connection, and whether that speaks HTTP/2;
    /// nothing for a connection that is gone.
    async fn choose(&self, mut stream: Stream) -> Option<(Arc<A>, Stream, bool)> {
        if stream.get_ssl_digest().is_some() {
            let http2 = matches!(stream.selected_alpn_proto(), Some(ALPN::H2));
            return Some((self.http1.clone(), stream, http2));
        }
        let mut start = [0_u8; HTTP2.len()];
        stream.try_peek(&mut start).await.ok()?;
        let http2 = start == *HTTP2;
        if http2 {
            // The engine waits for the rest of the preface without a limit.
            let mut preface = [0_u8; PREFACE];
            stream.try_peek(&mut preface).await.ok()?;
        }
        let app = if http2 { &self.http2 } else { &self.http1 };
        Some((app.clone(), stream, http2))
    }
}

/// Ends when a head is due on the connection of this task; looks only now and
/// then, so that requests need no timer.
async fn head_late(interval: Duration) {
    loop {
        let due = HEAD_DUE.with(Cell::get);
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        match left {
            Some(Duration::ZERO) => return,
            Some(left) => sleep(left).await,
            None => sleep(interval).await,
        }
    }
}

/// Ends when no request has come on a connection of HTTP/2 for `limit` after
/// its handshake; never once one has come, since the engine closes idle ones.
async fn first_request_late(handshake: Option<Arc<Handshake>>, limit: Duration) {
    let Some(handshake) = handshake else {
        // In the clear, the preface was waited for.
        return std::future::pending().await;
    };
    sleep(limit).await;
    if handshake.is_used() {
        std::future::pending().await
    }
}

async fn serve<A: ServerApp + Send + Sync>(app: Arc<A>, stream: Stream, shutdown: ShutdownWatch) {
    let mut next = Some(stream);
    while let Some(stream) = next {
        next = app.process_new(stream, &shutdown).await;
    }
}
