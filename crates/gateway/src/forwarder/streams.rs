//! Connections of HTTP/2: the engine reads them, and each stream is a request.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;

use super::Forwarder;
use doorward_net::http::stream;

/// Serves the streams of a connection.
pub(super) struct Streams(pub(super) Arc<Forwarder>);

#[async_trait]
impl HttpServerApp for Streams {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !stream::is_plain(&session) {
            return self.0.engine.process_new_http(session, shutdown).await;
        }
        self.0.serve_stream(session, shutdown).await;
        None
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.0.engine.server_options()
    }

    fn h2_options(&self) -> Option<H2Options> {
        self.0.engine.h2_options()
    }
}
