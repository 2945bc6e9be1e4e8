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
use pingora::apps::ServerApp;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::{sleep, timeout};

use super::framing::{self, FramedStream};
use super::handshake::Handshake;
use super::proxy_protocol::ProxyNetworks;
use super::session::Session;
use super::tls::{self, TlsAcceptor};
use crate::telemetry::Gauge;
use crate::telemetry::listeners::ListenerCounters;

/// What the engine is told of connections that are kept: for ever. How long that is,
/// [`ProtocolDispatcher`] sees to, without a timer for each request.
pub const KEEP: u64 = 0;
/// How long a connection is kept that waits for a request.
const IDLE: Duration = Duration::from_secs(75);
/// How much longer the connection is kept once a part of a request head has come.
const REST_OF_HEAD: Duration = Duration::from_secs(15);

/// What a listener does with connections before anybody reads a request.
#[derive(Clone)]
pub struct ConnectionAcceptor {
    /// Who says first whose connection it is.
    pub proxies: ProxyNetworks,
    /// Handshakes, where TLS is spoken.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// Bounds on connections.
    pub limits: Limits,
    /// Counts them.
    pub counters: ListenerCounters,
    /// How many are open here: whoever stops waits for what they may still bring.
    pub open: Gauge,
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

/// A connection of HTTP/1 that waits for a whole request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeadWait {
    /// Until when.
    due: Instant,
    /// Whether the connection has served a request, and nothing of the next has come.
    idle: bool,
}

impl HeadWait {
    fn idle(now: Instant) -> Self {
        Self {
            due: now + IDLE,
            idle: true,
        }
    }

    /// The wait once a part of a head has come.
    fn begun(self) -> Self {
        if !self.idle {
            return self;
        }
        Self {
            due: self.due + REST_OF_HEAD,
            idle: false,
        }
    }
}

tokio::task_local! {
    /// What the task's connection waits for; nothing while a request is served.
    /// One deadline a connection, which is looked at now and then, spares a timer
    /// for each request.
    static HEAD_WAIT: Cell<Option<HeadWait>>;
}

/// Notes that a request head was read on this task's connection.
pub fn head_read() {
    // Streams of HTTP/2 have tasks of their own, and no such note.
    let _ = HEAD_WAIT.try_with(|wait| wait.set(None));
}

/// Notes that a part of a request head has come on this task's connection.
pub(super) fn head_begun() {
    let _ = HEAD_WAIT.try_with(|wait| wait.set(wait.get().map(HeadWait::begun)));
}

/// Notes that the request in `session` has got its answer: this task's connection
/// waits for the next head.
pub fn head_awaited(session: &Session) {
    framing::answered(session);
    let _ = HEAD_WAIT.try_with(|wait| wait.set(Some(HeadWait::idle(Instant::now()))));
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
impl<A: ServerApp + Send + Sync + 'static> ServerApp for ProtocolDispatcher<A> {
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
        let open = keeper.open.enter();
        tokio::spawn(async move {
            let (_admitted, _open) = (admitted, open);
            if let Some(stream) = greeter.keeper.begun(stream).await {
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
    /// The connection once a request may come on it. What this takes is boxed: its room
    /// would be the task's for as long as the connection lasts.
    async fn begun(&self, stream: Stream) -> Option<Stream> {
        let mut stream = stream;
        if !self.proxies.is_empty() {
            stream = Box::pin(self.proxied(stream)).await?;
        }
        match &self.tls {
            Some(tls) => Box::pin(self.handshake(tls, stream)).await,
            None => Some(stream),
        }
    }

    /// The connection behind the header of its proxy, if it has to have one; nothing
    /// if that is missing, malformed or late.
    async fn proxied(&self, stream: Stream) -> Option<Stream> {
        let digest = stream.get_socket_digest();
        let peer = || digest.as_ref().and_then(|digest| digest.peer_addr());
        let mut socket = tls::socket(stream)?;
        let read = timeout(self.limits.handshake, self.proxies.greet(&mut socket));
        let reason = match read.await {
            Ok(Ok(())) => return Some(socket),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it did not come in time".to_owned(),
        };
        self.counters.proxy_header.inc();
        let peer = peer().map(ToString::to_string).unwrap_or_default();
        tracing::debug!(%peer, reason, "no PROXY header, the connection is closed");
        None
    }

    /// The connection after its handshake; nothing if that failed, or was all that the
    /// client wanted.
    async fn handshake(&self, tls: &TlsAcceptor, stream: Stream) -> Option<Stream> {
        let peer = stream.get_socket_digest();
        match tls.accept(stream, self.limits.handshake).await {
            Ok(stream) => stream,
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

impl<A: ServerApp + Send + Sync + 'static> ProtocolDispatcher<A> {
    async fn greet(&self, stream: Stream, shutdown: ShutdownWatch) {
        let limit = self.keeper.limits.head;
        let due = Instant::now() + limit;
        let begun = timeout(limit, self.choose(stream)).await;
        // Silent for too long, or gone.
        let Ok(Some((app, stream))) = begun else {
            return;
        };
        let http2 = stream.is_http2();
        let (app, stream): (_, Stream) = (app.clone(), stream);
        let tls = stream.get_ssl_digest();
        let handshake = tls.as_deref().and_then(Handshake::of).cloned();
        let late = async {
            if http2 {
                first_request_late(handshake, limit).await;
                true
            } else {
                head_late(limit).await
            }
        };
        let first = HeadWait { due, idle: false };
        let served = HEAD_WAIT.scope(Cell::new(Some(first)), async {
            tokio::select! {
                biased;
                () = serve(app, stream, shutdown) => false,
                slow = late => slow,
            }
        });
        if served.await {
            self.keeper.counters.too_slow.inc();
        }
    }

    /// The application for a connection, which may speak HTTP/2; nothing for a
    /// connection that is gone.
    async fn choose(&self, stream: Stream) -> Option<(&Arc<A>, Box<FramedStream>)> {
        if stream.get_ssl_digest().is_some() {
            let http2 = matches!(stream.selected_alpn_proto(), Some(ALPN::H2));
            return Some((&self.http1, Box::new(FramedStream::new(stream, http2))));
        }
        let mut stream = Box::new(FramedStream::new(stream, false));
        stream.tell_protocol().await.ok()?;
        let app = if stream.is_http2() {
            &self.http2
        } else {
            &self.http1
        };
        Some((app, stream))
    }
}

/// Ends when a head is due on the connection of this task; looks only now and
/// then, so that requests need no timer. Whether the client was slow, and not idle.
async fn head_late(interval: Duration) -> bool {
    // A look at least this often finds every deadline in time.
    let interval = interval.min(IDLE);
    loop {
        let Some(wait) = HEAD_WAIT.with(Cell::get) else {
            sleep(interval).await;
            continue;
        };
        match wait.due.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return !wait.idle,
            left => sleep(left).await,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_head_makes_an_idle_connection_wait_longer_once() {
        let now = Instant::now();
        let idle = HeadWait::idle(now);
        assert_eq!(idle.due - now, IDLE);
        let begun = idle.begun();
        assert_eq!((begun.due - now, begun.idle), (IDLE + REST_OF_HEAD, false));
        assert_eq!(begun.begun(), begun, "a byte now and then gains nothing");
    }

    #[test]
    fn the_first_head_gains_no_time_by_a_part_of_it() {
        let due = Instant::now();
        let first = HeadWait { due, idle: false };
        assert_eq!(first.begun(), first);
    }
}
