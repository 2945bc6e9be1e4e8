//! The data path: what happens to a request, in the order in which it happens.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::{HeaderName, HeaderValue, StatusCode, Version, header};
use ipnet::IpNet;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{Error, ErrorType, HttpPeer};
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::{ErrorSource, Result};

use super::answer::{self, VIA};
use super::attempt::Attempts;
use super::balance::Outcome;
use super::chain::Link;
use super::choose::Arrival;
use super::forward::{self, Origin};
use super::resolve::ResolveError;
use super::snapshot::{LiveRoute, LiveService, Snapshot, Upstream};
use super::tries::{self, Again, NAME_RESOLUTION, RetryBudget, Tries};
use super::{admit, choose, client_certificate, head, internal, observe, passage};
use crate::clock::Clock;
use crate::filter::{Exchange, Flow, Verdict};
use crate::http::bridge;
use crate::http::greeting;
use crate::http::handshake::Handshake;
use crate::http::listener::malformed;
use crate::http::reply::Reply;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::connections::{Connection, Connections};
use crate::telemetry::metrics::{Gauge, Tallied};
use crate::telemetry::traffic::RouteTraffic;
use crate::telemetry::upstreams::{Failure, UpstreamMetrics};

/// Most targets whose names a request waits for in vain.
const UNRESOLVED: usize = 4;
/// Seconds for which an idle client connection is kept.
const KEEPALIVE_SECONDS: u64 = 75;
/// Longest time for which a client may take nothing of an answer.
const WRITE_STALL: Duration = Duration::from_secs(60);
/// Longest time that a client may take to send a short body.
const CLIENT_BODY: Duration = Duration::from_secs(60);
/// Longest time spent on reading a body that nobody wants any more.
const DRAIN: Duration = Duration::from_secs(5);

/// The proxy application: one for each worker, sharing everything.
pub struct Gateway {
    /// The snapshot in force.
    pub live: Arc<ArcSwap<Snapshot>>,
    /// What does not change while the process runs.
    pub settings: Arc<Settings>,
    /// Requests of this worker that are in flight.
    pub in_flight: Gauge,
    /// Further tries that this worker may make.
    pub retry_budget: Arc<RetryBudget>,
}

/// Settings and counters of the data path.
pub struct Settings {
    /// Wall time.
    pub clock: Clock,
    /// Proxies whose `X-Forwarded-*` are believed.
    pub trusted: Box<[IpNet]>,
    /// Port of the plain listener.
    pub port: u16,
    /// Port of the TLS listener.
    pub tls_port: u16,
    /// Both ports, plain and TLS, as text.
    pub port_texts: [HeaderValue; 2],
    /// Whether clients are asked for certificates.
    pub client_certificates: bool,
    /// Whether upstreams are told of clients' certificates.
    pub forward_certificates: bool,
    /// Whether `X-Kong-*` headers and `Via` are added for clients and upstreams.
    pub request_ids: bool,
    /// Where requests are logged, if they are.
    pub access_log: Option<Arc<AccessLog>>,
    /// Counters of requests that no route matched.
    pub unrouted: Arc<RouteTraffic>,
    /// Open client connections.
    pub connections: Connections,
    /// Failed tries at upstreams.
    pub upstreams: UpstreamMetrics,
}

/// What is known of one request while it passes.
pub struct Ctx {
    pub(super) started: Instant,
    pub(super) route: Option<Arc<LiveRoute>>,
    matched: usize,
    /// The filters, where they are not the route's.
    chain: Option<Box<[Link]>>,
    /// The normalised path, where it is not the one that was sent.
    pub(super) path: Option<Box<str>>,
    pub(super) exchange: Exchange,
    pub(super) request_id: Option<HeaderValue>,
    /// Whether the whole body was read beforehand.
    gathered: bool,
    tries: Tries,
    pub(super) attempts: Attempts,
    upstream_started: Option<Instant>,
    pub(super) upstream_time: Option<Duration>,
    /// The client's connection; set when the request begins.
    connection: Option<Arc<Connection>>,
    /// Counts this request until it is dropped.
    in_flight: Option<Tallied>,
}

impl Ctx {
    pub(super) fn path<'a>(&'a self, request: &'a RequestHeader) -> &'a str {
        match &self.path {
            Some(path) => path,
            None => request.uri.path(),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The filters of the request, in the order in which they run.
    fn filters(&self) -> &[Link] {
        let of_route = self.route.as_ref().map(|route| &*route.filters);
        self.chain.as_deref().or(of_route).unwrap_or_default()
    }

    fn service(&self) -> Option<&Arc<LiveService>> {
        self.route.as_ref().and_then(|route| route.service.as_ref())
    }

    fn origin<'a>(
        &'a self,
        connection: &'a Connection,
        path: &'a str,
        service: &'a LiveService,
        settings: &'a Settings,
    ) -> Origin<'a> {
        let (peer, client) = (connection.peer, self.exchange.client);
        let secure = self.exchange.secure;
        let [plain, tls] = &settings.port_texts;
        Origin {
            path,
            matched: self.matched,
            peer: &connection.peer_text,
            direct: peer == client,
            client: client.ip(),
            trusted: admit::is_trusted(peer.ip(), &settings.trusted),
            secure,
            port: if secure { tls } else { plain },
            request_id: self.request_id.as_ref(),
            host: self
                .attempts
                .authority(service.tls)
                .unwrap_or(&service.host),
        }
    }
}

impl Gateway {
    /// Finds the route of a request and runs its filters; the reply, if the
    /// request ends here.
    async fn decide(&self, session: &mut Session, ctx: &mut Ctx) -> Option<Reply> {
        if let Err(reply) = self.find_route(session, ctx) {
            return Some(reply);
        }
        let protocols = ctx.route.as_ref()?.protocols;
        if let Some(reply) = protocols.refuse(session.req_header(), ctx.exchange.secure) {
            return Some(reply);
        }
        let Ctx {
            route,
            chain,
            exchange,
            ..
        } = ctx;
        let route = route.as_ref()?;
        let mut done = 0;
        while let Some(link) = chain.as_deref().unwrap_or(&route.filters).get(done) {
            let flow = match link.filter.on_request(session, exchange) {
                Verdict::Now(flow) => flow,
                Verdict::Wait => link.filter.on_request_slow(session, exchange).await,
            };
            if let Flow::Respond(reply) = flow {
                return Some(reply);
            }
            done += 1;
            if let Some(scoped) = &route.scoped
                && let Some(consumer) = &exchange.consumer
                && chain.is_none()
            {
                *chain = scoped.chain(route.place, consumer.id, &route.filters, done);
            }
        }
        match route.service {
            Some(_) => None,
            None => Some(Reply::message(
                StatusCode::SERVICE_UNAVAILABLE,
                "no Service found with those values",
            )),
        }
    }

    fn find_route(&self, session: &Session, ctx: &mut Ctx) -> Result<(), Reply> {
        let request = session.req_header();
        let settings = &self.settings;
        let tls = session
            .digest()
            .and_then(|digest| digest.ssl_digest.as_ref());
        let peer = ctx
            .connection
            .as_ref()
            .map_or_else(|| peer(session), |c| c.peer);
        ctx.exchange.client = admit::client(request, peer, &settings.trusted);
        ctx.exchange.secure =
            choose::is_secure(tls.is_some(), request, peer.ip(), &settings.trusted);
        if let Some(reason) = malformed(session.as_downstream()) {
            return Err(Reply::message(StatusCode::BAD_REQUEST, reason));
        }
        let handshake = tls.and_then(|tls| Handshake::of(tls));
        if let Some(handshake) = handshake {
            handshake.note_request();
            ctx.exchange.handshake = Some(handshake.clone());
        }
        let port = if tls.is_some() {
            settings.tls_port
        } else {
            settings.port
        };
        let snapshot = self.live.load();
        if settings.client_certificates
            && let Some((host, _)) = admit::authority(request)
            && client_certificate::is_misdirected(&ctx.exchange, host, &snapshot.certificates)
        {
            let message = "This host needs a connection of its own";
            return Err(Reply::message(StatusCode::MISDIRECTED_REQUEST, message));
        }
        let arrival = Arrival {
            tls: tls.is_some(),
            sni: ctx.exchange.server_name(),
            port,
        };
        let (found, route) = choose::choose(&snapshot, request, arrival, &mut ctx.path)?;
        ctx.matched = found.matched;
        ctx.route = Some(route.clone());
        Ok(())
    }

    async fn reply(&self, session: &mut Session, ctx: &Ctx, reply: Reply) -> Result<()> {
        let headers = &ctx.exchange.response_headers;
        let id = ctx.request_id.as_ref();
        answer::send(session, reply, headers, id, ctx.elapsed_ms()).await
    }
}

fn peer(session: &Session) -> SocketAddr {
    session
        .client_addr()
        .and_then(|addr| addr.as_inet().copied())
        .unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
}

#[async_trait]
impl ProxyHttp for Gateway {
    // Boxed: the engine moves its futures, and the context in them, many times.
    type CTX = Box<Ctx>;

    fn new_ctx(&self) -> Box<Ctx> {
        Box::new(Ctx {
            started: Instant::now(),
            route: None,
            matched: 0,
            chain: None,
            path: None,
            exchange: Exchange::default(),
            request_id: None,
            gathered: false,
            tries: Tries::default(),
            attempts: Attempts::default(),
            upstream_started: None,
            upstream_time: None,
            connection: None,
            in_flight: None,
        })
    }

    fn init_downstream_modules(&self, _modules: &mut pingora::modules::http::HttpModules) {}

    /// 1. Find the route, run its filters in order, answer what ends here.
    async fn request_filter(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<bool> {
        greeting::head_read();
        ctx.in_flight = Some(self.in_flight.enter());
        self.retry_budget.deposit();
        // Without this, a connection waits for its next request for ever.
        let stopping = session.is_process_shutting_down();
        // HTTP/1.0 and `Connection: close` have switched it off.
        let keep = !stopping && session.get_keepalive().is_some();
        session.set_keepalive(keep.then_some(KEEPALIVE_SECONDS));
        session.set_write_timeout(Some(WRITE_STALL));
        session.set_total_drain_timeout(Some(DRAIN));
        head::plain_request(session.req_header_mut());
        if ctx.connection.is_none() {
            let peer = peer(session);
            let text = forward::address(peer.ip());
            // Streams of one HTTP/2 connection share no context.
            let counted = !session.is_http2();
            let connection = self.settings.connections.opened(peer, text, counted);
            ctx.connection = Some(connection);
        }
        if self.settings.request_ids {
            ctx.request_id = Some(observe::request_id());
        }
        if let Some(reply) = self.decide(session, ctx).await {
            if ctx.route.is_none() && reply.status == StatusCode::BAD_REQUEST {
                // What follows on this connection may belong to this request.
                session.set_keepalive(None);
            }
            self.reply(session, ctx, reply).await?;
            return Ok(true);
        }
        let Some(Upstream::Internal(router)) = ctx.service().map(|s| &s.upstream) else {
            return self.gather_body(session, ctx).await;
        };
        let router = router.clone();
        let started = Instant::now();
        let mut head = session.req_header().clone();
        head::strip_hop_by_hop(&mut head);
        self.forward_head(&mut head, ctx)?;
        internal::respond(session, &router, head, ctx, started).await?;
        Ok(true)
    }

    /// 2. Choose the peer; called again for every try.
    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut Box<Ctx>,
    ) -> Result<Box<HttpPeer>> {
        ctx.upstream_started.get_or_insert_with(Instant::now);
        let nowhere = || Error::explain(ErrorType::InternalError, "no peer to proxy to");
        let service = ctx.service().ok_or_else(nowhere)?;
        let dialer = service.dialer.as_ref().ok_or_else(nowhere)?;
        let (peer, address) = match &service.upstream {
            Upstream::Peers(peers) => {
                let found = peers.pick(&ctx.tries.tried, dialer.patience()).await;
                let address = self.resolved(found)?;
                (
                    dialer.peer(address, passage::kept_host(session, ctx)),
                    address,
                )
            }
            Upstream::Balanced(balancer, resolver) => {
                let (service, resolver) = (service.clone(), resolver.clone());
                let dialer = service.dialer.as_ref().ok_or_else(nowhere)?;
                let balancer = balancer.clone();
                let mut found =
                    passage::located(session, ctx, &balancer, &resolver, dialer).await?;
                for _ in 1..UNRESOLVED {
                    if found.is_err() {
                        found =
                            passage::located(session, ctx, &balancer, &resolver, dialer).await?;
                    }
                }
                let address = self.resolved(found)?;
                let kept = passage::kept_host(session, ctx);
                let name = kept.or(ctx.attempts.server_name());
                (dialer.peer(address, name), address)
            }
            Upstream::Internal(_) => return Err(nowhere()),
        };
        if let Some(pause) = ctx.tries.pause(address) {
            tokio::time::sleep(pause).await;
        }
        ctx.tries.begin(address);
        Ok(peer)
    }

    /// 3. Turn the client's request into the upstream's.
    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        if ctx.gathered {
            // The client was told to go on, and has.
            request.remove_header(&header::EXPECT);
        }
        self.forward_head(request, ctx)
    }

    /// 4. Finish the response head for the client.
    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        ctx.attempts
            .report(Outcome::Status(response.status.as_u16()));
        let now = Instant::now();
        ctx.upstream_time = ctx.upstream_started.map(|started| now - started);
        if let Some(Upstream::Peers(peers)) = ctx.service().map(|s| &s.upstream)
            && let Some(address) = ctx.tries.address
        {
            peers.reachable(address);
        }
        if session.req_header().version == Version::HTTP_10 {
            passage::unchunk(session, response);
        }
        finish_head(response, ctx, now)
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        ctx: &mut Box<Ctx>,
        reused: bool,
    ) -> Box<Error> {
        if passage::waits_for_client(session, &error) {
            // Neither the upstream's fault nor cured by another one.
            let mut error = error.into_down();
            error.set_retry(false);
            return error;
        }
        let unseen = tries::is_unseen(&error);
        if !unseen {
            ctx.attempts.report_error(&error, reused);
        }
        let mut error = error.more_context(format!("Peer: {peer}"));
        let upstreams = tries::is_upstreams(&error);
        if upstreams && !unseen {
            self.count_failure(&error);
        }
        let replayable = !session.as_ref().retry_buffer_truncated();
        let unanswered = session.response_written().is_none();
        let again = if upstreams && replayable && unanswered {
            let method = &session.req_header().method;
            let retries = ctx.service().map_or(0, |service| service.retries);
            let budget = &self.retry_budget;
            if unseen {
                ctx.tries.unconnected(retries, true, budget)
            } else {
                ctx.tries.broken(retries, method, reused, budget)
            }
        } else {
            Again::No
        };
        self.set_retry(&mut error, again);
        error
    }

    fn fail_to_connect(
        &self,
        session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Box<Ctx>,
        mut error: Box<Error>,
    ) -> Box<Error> {
        self.count_failure(&error);
        if tries::classify(&error) == Failure::Tls && passage::kept_host(session, ctx).is_some() {
            // The client chose the name that the upstream has no certificate
            // for: no other one has, and none of them is sick.
            self.set_retry(&mut error, Again::No);
            return error;
        }
        ctx.attempts.report_error(&error, false);
        let service = ctx.service().cloned();
        let retries = service.as_ref().map_or(0, |service| service.retries);
        let mut others = false;
        if let Some(Upstream::Peers(peers)) = service.as_ref().map(|s| &s.upstream)
            && let Some(address) = ctx.tries.address
        {
            peers.unreachable(address);
            others = peers.has_others(&ctx.tries.tried);
        }
        let again = ctx.tries.unconnected(retries, others, &self.retry_budget);
        self.set_retry(&mut error, again);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut Box<Ctx>,
    ) -> FailToProxy {
        let given_up = |code| FailToProxy {
            error_code: code,
            can_reuse_downstream: false,
        };
        let Some((status, message)) = observe::failure(error) else {
            return given_up(0);
        };
        if session.response_written().is_some() {
            return given_up(status.as_u16());
        }
        let reply = observe::engine_reply(status, message, session.req_header());
        session.set_keepalive(None);
        if let Err(error) = self.reply(session, ctx, reply).await {
            tracing::debug!(%error, "error answer not written");
        }
        given_up(status.as_u16())
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Box<Ctx>, error: &Error) -> bool {
        // Clients leave all the time; the access log shows that they did.
        *error.esource() == ErrorSource::Downstream
    }

    /// What the engine logs of a failed request: no query, it may hold a token.
    fn request_summary(&self, session: &Session, ctx: &Box<Ctx>) -> String {
        let request = session.req_header();
        format!("{} {}", request.method, ctx.path(request))
    }

    fn persist_connection_context(
        &self,
        _session: &Session,
        ctx: &Box<Ctx>,
    ) -> Option<Box<dyn Any + Send + Sync>> {
        let connection = ctx.connection.clone()?;
        Some(Box::new(connection))
    }

    fn on_connection_reuse(
        &self,
        _session: &mut Session,
        ctx: &mut Box<Ctx>,
        previous: Box<dyn Any + Send + Sync>,
    ) {
        ctx.connection = previous.downcast::<Arc<Connection>>().ok().map(|c| *c);
    }

    /// 5. Count and log, whatever the outcome.
    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Box<Ctx>) {
        greeting::head_awaited();
        observe::finished(&self.settings, session, error, ctx);
    }
}

impl Gateway {
    /// Reads a short body before a peer is chosen, so that a slow client keeps
    /// no upstream waiting; whether the request ends here.
    async fn gather_body(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<bool> {
        let length = session.req_header().headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let wanted = ctx.route.as_ref().is_some_and(|route| route.gathers_body);
        let short = length.is_some_and(|n| (1..=bridge::BUFFERED_MAX).contains(&n));
        if !wanted || !short || session.as_mut().is_body_done() {
            return Ok(false);
        }
        match bridge::buffer_body_within(session, CLIENT_BODY).await {
            Ok(_) => {
                ctx.gathered = true;
                Ok(false)
            }
            Err(error) => {
                let reply = Reply::message(error.status(), error.to_string());
                self.reply(session, ctx, reply).await?;
                Ok(true)
            }
        }
    }

    fn resolved(&self, found: std::result::Result<SocketAddr, ResolveError>) -> Result<SocketAddr> {
        let explain = |error: ResolveError| Error::explain(NAME_RESOLUTION, error.to_string());
        found
            .map_err(explain)
            .inspect_err(|error| self.count_failure(error))
    }

    fn count_failure(&self, error: &Error) {
        let failure = tries::classify(error);
        self.settings.upstreams.failures(failure).inc();
        tracing::debug!(kind = failure.as_str(), %error, "a try at an upstream failed");
    }

    fn set_retry(&self, error: &mut Error, again: Again) {
        error.set_retry(again == Again::Yes);
        let upstreams = &self.settings.upstreams;
        match again {
            Again::Yes => upstreams.retries.inc(),
            Again::Refused => upstreams.retries_refused.inc(),
            Again::No => {}
        }
    }

    fn forward_head(&self, request: &mut RequestHeader, ctx: &Ctx) -> Result<()> {
        let (Some(route), Some(connection)) = (&ctx.route, &ctx.connection) else {
            return Ok(());
        };
        let Some(service) = &route.service else {
            return Ok(());
        };
        let uri = request.uri.clone();
        let path = ctx.path.as_deref().unwrap_or(uri.path());
        let origin = ctx.origin(connection, path, service, &self.settings);
        forward::prepare(request, route, service, &origin)?;
        if self.settings.forward_certificates {
            client_certificate::forward(&ctx.exchange, request)?;
        } else if self.settings.client_certificates {
            client_certificate::strip(request);
        }
        for link in ctx.filters() {
            link.filter.on_upstream_request(&ctx.exchange, request);
        }
        Ok(())
    }
}

const X_KONG_UPSTREAM_LATENCY: HeaderName = HeaderName::from_static("x-kong-upstream-latency");
const X_KONG_PROXY_LATENCY: HeaderName = HeaderName::from_static("x-kong-proxy-latency");
const X_KONG_REQUEST_ID: HeaderName = HeaderName::from_static("x-kong-request-id");

/// Adds the gateway's and the filters' headers to a response.
pub(super) fn finish_head(response: &mut ResponseHeader, ctx: &Ctx, now: Instant) -> Result<()> {
    let total = now - ctx.started;
    let upstream = ctx.upstream_time.unwrap_or_default();
    let own = total.saturating_sub(upstream);
    let (mut parts, reason) = head::take_response(response);
    let headers = &mut parts.headers;
    head::strip_nominated(headers);
    headers.reserve(4);
    headers.append(header::VIA, HeaderValue::from_static(VIA));
    headers.insert(X_KONG_UPSTREAM_LATENCY, observe::millis(upstream));
    headers.insert(X_KONG_PROXY_LATENCY, observe::millis(own));
    if let Some(id) = &ctx.request_id {
        headers.insert(X_KONG_REQUEST_ID, id.clone());
    }
    for (name, value) in &ctx.exchange.response_headers {
        headers.append(name.clone(), value.clone());
    }
    *response = ResponseHeader::from(parts);
    if let Some(reason) = reason {
        response.set_reason_phrase(Some(&reason))?;
    }
    for link in ctx.filters() {
        link.filter.on_response(&ctx.exchange, response);
    }
    Ok(())
}
