//! The proxy's application: a forwarding loop of the gateway's own for plain requests
//! of HTTP/1.1, and the engine for all others.
//!
//! Nearly all requests are plain: they have no body, ask for no other protocol, and
//! go to an upstream that speaks HTTP/1.1. For them the engine's two tasks, its
//! channels between them and its copied futures are most of what a request costs.
//! Both ways run the same steps of [`Gateway`], on the engine's own sessions.

mod exchange;
mod handover;
mod relay;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use pingora::apps::{HttpPersistentSettings, HttpServerApp as _, ServerApp};
use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::v1::Connector;
use pingora::modules::http::HttpModules;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::proxy::{HttpProxy, Session};
use pingora::server::ShutdownWatch;

use super::proxy::Gateway;
use super::stopping::Stopping;
use doorward_net::http::accept::KEEP;
use doorward_net::http::framing::FramedStream;
use doorward_net::telemetry::connections::Connection;

/// Serves the connections of one worker.
pub struct Forwarder {
    gateway: Gateway,
    /// What serves all that is not plain; its inner proxy is a [`Gateway`] too.
    engine: Arc<HttpProxy<Gateway>>,
    /// Connections to upstreams of HTTP/1.1.
    connector: Connector,
    modules: HttpModules,
    stopping: Stopping,
}

/// A client's connection between two requests.
struct Idle {
    stream: Stream,
    /// What is known of the connection, once it has had a request.
    connection: Option<Arc<Connection>>,
    /// What was read of the next request.
    prefix: Option<BytesMut>,
    /// What the engine keeps from one request to the next, where it served the last.
    settings: Option<HttpPersistentSettings>,
}

impl Forwarder {
    /// Serves plain requests as `gateway` says, over connections of which
    /// `options` says how many are kept, and leaves all others to `engine`.
    pub fn new(gateway: Gateway, engine: HttpProxy<Gateway>, options: ConnectorOptions) -> Self {
        Self {
            stopping: gateway.stopping.clone(),
            gateway,
            engine: Arc::new(engine),
            connector: Connector::new(Some(options)),
            modules: HttpModules::new(),
        }
    }

    /// Serves the next request of a connection, and gives the connection back if
    /// another one may follow.
    async fn serve(&self, idle: Idle, shutdown: &ShutdownWatch) -> Option<Idle> {
        let Idle {
            stream,
            connection,
            prefix,
            settings,
        } = idle;
        // Every listener of the proxy wraps its connections so.
        let mut framed = stream.into_any().downcast::<FramedStream>().ok()?;
        let is_plain = tokio::select! {
            biased;
            plain = framed.awaits_plain_request() => plain.ok()?,
            () = self.stopping.begun() => return None,
        };
        let idle = Idle {
            stream: framed,
            connection,
            prefix,
            settings,
        };
        if is_plain {
            self.serve_plain(idle, shutdown).await
        } else {
            // Boxed: plain requests need not carry about what it needs.
            Box::pin(self.serve_by_engine(idle, shutdown)).await
        }
    }

    async fn serve_by_engine(&self, idle: Idle, shutdown: &ShutdownWatch) -> Option<Idle> {
        let mut session = ServerSession::new_http1(idle.stream);
        session.set_keepalive(Some(KEEP));
        if let Some(settings) = idle.settings {
            settings.apply_to_session(&mut session);
        }
        if let Some(prefix) = idle.prefix {
            session.set_pipelined_prefix(prefix);
        }
        if let Some(connection) = idle.connection {
            session.set_connection_user_context(Some(Box::new(connection)));
        }
        self.run_engine(session, shutdown).await
    }

    /// Lets the engine serve the request that `session` has, or is about to read.
    async fn run_engine(&self, session: ServerSession, shutdown: &ShutdownWatch) -> Option<Idle> {
        let served = self.engine.process_new_http(session, shutdown).await?;
        let (stream, mut settings) = served.consume();
        let context = settings
            .as_mut()
            .and_then(HttpPersistentSettings::take_user_context);
        let connection = context.and_then(|context| context.downcast::<Arc<Connection>>().ok());
        Some(Idle {
            stream,
            connection: connection.map(|connection| *connection),
            prefix: None,
            settings,
        })
    }

    /// A session that reads the next request of a connection.
    fn session(&self, stream: Stream, prefix: Option<BytesMut>) -> Session {
        let mut session = Session::new_h1_with_modules(stream, &self.modules);
        session.set_keepalive(Some(KEEP));
        session.set_pipelining_enabled(true);
        if let Some(prefix) = prefix {
            session.set_pipelined_prefix(prefix);
        }
        session
    }
}

#[async_trait]
impl ServerApp for Forwarder {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let framed = stream.as_any().downcast_ref::<FramedStream>();
        if framed.is_none_or(FramedStream::is_http2) {
            return self.engine.process_new(stream, shutdown).await;
        }
        let mut next = Some(Idle {
            stream,
            connection: None,
            prefix: None,
            settings: None,
        });
        while let Some(idle) = next {
            next = self.serve(idle, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.stopping.begin();
        self.engine.cleanup().await;
    }
}
