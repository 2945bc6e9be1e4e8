//! Connections of HTTP/2: the engine reads them, and each stream is a request.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp as _};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;

use super::Forwarder;
use doorward_net::http::cork::Cork;
use doorward_net::http::framing::FramedStream;
use doorward_net::http::stream;
use doorward_net::telemetry::connections::Connection;

/// Serves the streams of a connection.
pub(super) struct Streams {
    forwarder: Arc<Forwarder>,
    /// What is the same for all of them, once one has been served.
    connection: OnceLock<Arc<Connection>>,
    /// Says when their frames are sent.
    cork: Arc<Cork>,
}

impl Streams {
    pub(super) fn new(forwarder: Arc<Forwarder>) -> Self {
        Self {
            forwarder,
            connection: OnceLock::new(),
            cork: Arc::default(),
        }
    }

    /// Serves the streams of `connection`, until it ends.
    pub(super) async fn serve(
        self: Arc<Self>,
        mut connection: Box<FramedStream>,
        shutdown: &ShutdownWatch,
    ) {
        connection.cork(self.cork.clone());
        let served = self.process_new(connection, shutdown);
        self.cork.drive(served).await;
    }
}

#[async_trait]
impl HttpServerApp for Streams {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let _served = self.cork.stream();
        if !stream::is_plain(&session) {
            let engine = &self.forwarder.engine;
            return engine.process_new_http(session, shutdown).await;
        }
        let forwarder = &self.forwarder;
        forwarder
            .serve_stream(session, &self.connection, shutdown)
            .await;
        None
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.forwarder.engine.server_options()
    }

    fn h2_options(&self) -> Option<H2Options> {
        self.forwarder.engine.h2_options()
    }
}
