//! Takes a connection over from the engine: tells HTTP/2 in the clear from
//! HTTP/1 by its first bytes, and serves it in a task of its own.
//!
//! The engine's own look waits for the whole preface of HTTP/2, for ever: a
//! request shorter than that would never be answered, and a silent connection
//! never closed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use tokio::time::timeout;

/// How a connection of HTTP/2 begins; no method of HTTP/1 does.
const HTTP2: &[u8; 3] = b"PRI";
/// Length of the preface that it is the beginning of (RFC 9113 §3.4).
const PREFACE: usize = 24;
/// How long a connection may stay silent at first.
const FIRST_BYTES: Duration = Duration::from_secs(60);

/// Hands a connection to one of two applications that differ in protocol only.
pub struct Greeter<A> {
    /// For HTTP/1, and for TLS, where the handshake has settled the protocol.
    pub http1: Arc<A>,
    /// For HTTP/2 in the clear: its options have `h2c`.
    pub http2: Arc<A>,
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for Greeter<A> {
    /// The engine's task is made for handshakes, and would hold the room for
    /// one as long as the connection lasts: it ends here.
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let (greeter, shutdown) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            if let Some((app, stream)) = greeter.choose(stream).await {
                serve(app, stream, shutdown).await;
            }
        });
        None
    }

    async fn cleanup(&self) {
        self.http1.cleanup().await;
        self.http2.cleanup().await;
    }
}

impl<A> Greeter<A> {
    /// The application for a connection; none for one that stays silent.
    async fn choose(&self, mut stream: Stream) -> Option<(Arc<A>, Stream)> {
        if stream.get_ssl_digest().is_some() {
            return Some((self.http1.clone(), stream));
        }
        let mut start = [0_u8; HTTP2.len()];
        let peeked = timeout(FIRST_BYTES, stream.try_peek(&mut start)).await;
        // Silent for too long, or gone.
        peeked.ok()?.ok()?;
        let http2 = start == *HTTP2;
        if http2 {
            // The engine waits for the rest of the preface without a limit.
            let mut preface = [0_u8; PREFACE];
            let peeked = timeout(FIRST_BYTES, stream.try_peek(&mut preface)).await;
            peeked.ok()?.ok()?;
        }
        let app = if http2 { &self.http2 } else { &self.http1 };
        Some((app.clone(), stream))
    }
}

async fn serve<A: ServerApp + Send + Sync>(app: Arc<A>, stream: Stream, shutdown: ShutdownWatch) {
    let mut next = Some(stream);
    while let Some(stream) = next {
        next = app.process_new(stream, &shutdown).await;
    }
}
