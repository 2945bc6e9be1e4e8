//! The proxy's application: a forwarding loop of the gateway's own for plain requests
//! of HTTP/1.1 and HTTP/2, and the engine for all others.
//!
//! Nearly all requests are plain: they have no body or a short one, ask for no other
//! protocol, and go to an upstream that speaks HTTP/1.1. For them the engine's two tasks,
//! its channels between them and its copied futures are most of what a request costs.
//! Both ways run the same steps of [`Gateway`].

mod attendants;
mod exchange;
mod handover;
mod pool;
mod relay;
mod streams;
mod timer;
mod upstream;

use std::sync::Arc;

use async_trait::async_trait;
use pingora::apps::{HttpPersistentSettings, HttpServerApp as _, ReusedHttpStream, ServerApp};
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;

use self::attendants::Attendants;
use self::pool::UpstreamPool;
use self::streams::Streams;
use self::timer::Timer;
use super::proxy::Gateway;
use doorward_net::http::accept::KEEP;
use doorward_net::http::framing::FramedStream;
use doorward_net::http::plain_session::PlainSession;
use doorward_net::telemetry::connections::Connection;

/// Serves the connections of one worker.
pub struct Forwarder {
    gateway: Gateway,
    /// What serves all that is not plain; its inner proxy is a [`Gateway`] too.
    engine: Arc<HttpProxy<Gateway>>,
    /// Makes connections to upstreams of HTTP/1.1.
    connector: TransportConnector,
    pool: UpstreamPool,
    attendants: Attendants,
}

/// A client's connection between two requests.
struct Idle {
    session: PlainSession,
    /// What is known of the connection, once it has had a request.
    connection: Option<Arc<Connection>>,
    /// What the engine keeps from one request to the next, with what it has read of it.
    settings: Option<HttpPersistentSettings>,
    timer: Timer,
}

impl Idle {
    fn new(stream: Box<FramedStream>) -> Self {
        Self {
            session: PlainSession::new(stream),
            connection: None,
            settings: None,
            timer: Timer::default(),
        }
    }

    /// The connection that the engine has given back.
    fn of(served: ReusedHttpStream) -> Option<Self> {
        let (stream, mut settings) = served.consume();
        let context = settings
            .as_mut()
            .and_then(HttpPersistentSettings::take_user_context);
        let connection = context.and_then(|context| context.downcast::<Arc<Connection>>().ok());
        let stream = stream.into_any().downcast::<FramedStream>().ok()?;
        Some(Self {
            connection: connection.map(|connection| *connection),
            settings,
            ..Self::new(stream)
        })
    }
}

/// Prepares a session of the engine that reads the next request of a connection.
fn prepare(session: &mut ServerSession) {
    session.set_keepalive(Some(KEEP));
    session.set_pipelining_enabled(true);
}

impl Forwarder {
    /// Serves plain requests as `gateway` says, over connections of which
    /// `options` says how many are kept, and leaves all others to `engine`.
    pub fn new(
        gateway: Gateway,
        engine: HttpProxy<Gateway>,
        mut options: ConnectorOptions,
    ) -> Self {
        let pool = UpstreamPool::new(options.keepalive_pool_size);
        // The engine's own pool is not used.
        options.keepalive_pool_size = 1;
        Self {
            gateway,
            engine: Arc::new(engine),
            connector: TransportConnector::new(Some(options)),
            pool,
            attendants: Attendants::default(),
        }
    }

    /// Serves the next request of a connection, and gives the connection back if
    /// another one may follow.
    async fn serve(
        self: &Arc<Self>,
        mut idle: Box<Idle>,
        shutdown: &ShutdownWatch,
    ) -> Option<Box<Idle>> {
        let stopping = &self.gateway.stopping;
        let is_plain = {
            let stream = idle.session.stream();
            let mut plain = std::pin::pin!(stream.awaits_plain_request());
            tokio::select! {
                biased;
                plain = &mut plain => plain.ok()?,
                () = stopping.begun() => Box::pin(stopping.linger(plain)).await?.ok()?,
            }
        };
        if is_plain && idle.session.take_request() {
            self.attendants.serve(self, idle, shutdown).await
        } else {
            // Boxed: plain requests need not carry about what it needs.
            let next = Box::pin(self.serve_by_engine(*idle, shutdown)).await;
            next.map(Box::new)
        }
    }

    async fn serve_by_engine(&self, idle: Idle, shutdown: &ShutdownWatch) -> Option<Idle> {
        let (stream, _) = idle.session.into_parts();
        let mut session = ServerSession::new_http1(stream);
        if let Some(settings) = idle.settings {
            settings.apply_to_session(&mut session);
        }
        prepare(&mut session);
        if let Some(connection) = idle.connection {
            session.set_connection_user_context(Some(Box::new(connection)));
        }
        self.run_engine(session, shutdown).await
    }

    /// Lets the engine serve the request that `session` has, or is about to read.
    async fn run_engine(&self, session: ServerSession, shutdown: &ShutdownWatch) -> Option<Idle> {
        let served = self.engine.process_new_http(session, shutdown).await?;
        Idle::of(served)
    }
}

#[async_trait]
impl ServerApp for Forwarder {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        // Every listener of the proxy wraps its connections so.
        let framed = stream.into_any().downcast::<FramedStream>().ok()?;
        if framed.is_http2() {
            let streams = Arc::new(Streams::new(self.clone()));
            streams.serve(framed, shutdown).await;
            return None;
        }
        let mut next = Some(Box::new(Idle::new(framed)));
        while let Some(idle) = next {
            next = self.serve(idle, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.gateway.stopping.begin();
        self.attendants.dismiss();
        self.engine.cleanup().await;
    }
}
