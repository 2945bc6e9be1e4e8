//! Tells HTTP/2 in the clear from HTTP/1 by the first bytes of a connection.
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
    async fn process_new(
        self: &Arc<Self>,
        mut stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        if stream.get_ssl_digest().is_some() {
            return self.http1.process_new(stream, shutdown).await;
        }
        let mut start = [0_u8; HTTP2.len()];
        let read = timeout(FIRST_BYTES, stream.try_peek(&mut start)).await;
        match read {
            Ok(Ok(_)) if start == *HTTP2 => self.http2.process_new(stream, shutdown).await,
            Ok(Ok(_)) => self.http1.process_new(stream, shutdown).await,
            // Silent for too long, or gone.
            Err(_) | Ok(Err(_)) => None,
        }
    }

    async fn cleanup(&self) {
        self.http1.cleanup().await;
        self.http2.cleanup().await;
    }
}
