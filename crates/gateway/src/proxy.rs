//! The data path: what happens to a request, in the order in which it happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{StatusCode, Version, header};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{Error, ErrorType, HttpPeer};

use super::attempt::Attempts;
use super::balance::Outcome;
use super::context::Ctx;
use super::decide::peer;
use super::handler::unwind;
use super::head::HeadFields;
use super::outgoing::finish_head;
use super::settings::Settings;
use super::snapshot::{Snapshot, Upstream};
use super::stopping::Stopping;
use super::tries::RetryBudget;
use super::upload::Uploads;
use super::{
    connection, forward, forward_auth, head, internal, log_phase, observe, own_cookies, responses,
    session_bound,
};
use doorward_expr as expr;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::{Session, is_interim};
use doorward_net::http::{accept, bridge};
use doorward_net::telemetry::metrics::Gauge;

/// Most targets whose names a request waits for in vain.
const UNRESOLVED: usize = 4;
/// Longest time for which a client may take nothing of an answer.
const WRITE_STALL: Duration = Duration::from_secs(60);

/// How long an upstream may be silent that sends events as they come, at least.
const EVENTS: Duration = Duration::from_secs(3600);

/// What happens to requests: one for each worker, sharing everything.
#[derive(Clone)]
pub struct Gateway {
    /// The snapshot in force.
    pub live: Arc<ArcSwap<Snapshot>>,
    /// What does not change while the process runs.
    pub settings: Arc<Settings>,
    /// Requests of this worker that are in flight.
    pub in_flight: Gauge,
    /// Further tries that this worker may make.
    pub retry_budget: Arc<RetryBudget>,
    /// Makes this worker's connections for long request bodies.
    pub uploads: Arc<Uploads>,
    /// Whether this worker has been told to stop.
    pub stopping: Stopping,
}

impl Gateway {
    /// Writes an answer that the gateway makes itself.
    pub(super) async fn reply(
        &self,
        session: &mut Session,
        ctx: &mut Ctx,
        reply: Reply,
    ) -> Result<()> {
        connection::close_if_stopping(session, ctx, ctx.started.elapsed());
        if ctx.journey.is_some() {
            return Box::pin(unwind::reply(session, ctx, reply)).await;
        }
        if ctx.exchange.stored {
            let compression = self.settings.compression.as_ref();
            return Box::pin(responses::stored(session, ctx, reply, compression)).await;
        }
        responses::own(session, ctx, reply).await
    }
}

impl Gateway {
    /// 1. Find the route, run its filters in order, answer what ends here.
    pub(super) async fn filter_request(
        &self,
        session: &mut Session,
        ctx: &mut Box<Ctx>,
    ) -> Result<bool> {
        accept::head_read();
        self.settle_connection(session, ctx);
        if let Some(head) = ctx.decided.take() {
            *session.req_header_mut() = *head;
            return Ok(false);
        }
        ctx.in_flight = Some(self.in_flight.enter());
        self.retry_budget.deposit();
        if session.req_header().version == Version::HTTP_10 {
            connection::suppress_informational(session);
        }
        if expr::asks_for_spelling() {
            ctx.exchange.sent_names = head::spelling(session.req_header());
        }
        head::plain_request(session.req_header_mut());
        if ctx.connection.is_none() {
            let peer = peer(session);
            let text = forward::address(peer.ip());
            // Streams that the engine serves share no connection.
            let counted = !session.is_http2();
            let connection = self.settings.connections.opened(peer, text, counted);
            ctx.connection = Some(connection);
        }
        ctx.shown = self.settings.headers;
        ctx.compresses = self.settings.compression.is_some();
        ctx.pages = self.settings.error_pages;
        if self.settings.request_ids {
            ctx.request_id = Some(observe::request_id());
        }
        if let Some(reply) = self.decide(session, ctx).await {
            let unrouted = ctx.route.is_none() && ctx.journey.is_none();
            if unrouted && reply.status == StatusCode::BAD_REQUEST {
                // What follows on this connection may belong to this request.
                session.set_keepalive(None);
            }
            let reply = forward_auth::adapt(session, ctx, reply);
            self.reply(session, ctx, reply).await?;
            return Ok(true);
        }
        if ctx.dialect.is_some() {
            let mut request = forward_auth::draft(session);
            self.prepare_head(&mut UpstreamRequest::new(&mut request), ctx)?;
            Box::pin(forward_auth::pass(request, session, ctx)).await?;
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
        log_phase::note_target(ctx, &head);
        // Boxed: requests that are forwarded need not carry about what it needs.
        Box::pin(internal::respond(session, &router, head, ctx, started)).await?;
        Ok(true)
    }

    /// Tells the connection of a request how long it may be kept, and may stall.
    fn settle_connection(&self, session: &mut Session, ctx: &mut Ctx) {
        // HTTP/1.0 and `Connection: close` have switched it off.
        ctx.version = session.req_header().version;
        ctx.stopping = Some(self.stopping.clone());
        ctx.keep = !self.stopping.has_begun() && session.get_keepalive().is_some();
        session.set_keepalive(ctx.keep.then_some(accept::KEEP));
        session.set_write_timeout(Some(WRITE_STALL));
        session.set_total_drain_timeout(Some(bridge::LINGER_ALL));
        // What comes early waits for its turn (RFC 9112 §9.3.2).
        session.set_pipelining_enabled(true);
    }

    /// 2. Choose the peer; called again for every try.
    pub(super) async fn choose_peer(
        &self,
        session: &mut Session,
        ctx: &mut Box<Ctx>,
    ) -> Result<Box<HttpPeer>> {
        ctx.upstream_started.get_or_insert_with(Instant::now);
        log_phase::begin_choice(ctx);
        let nowhere = || Error::explain(ErrorType::InternalError, "no peer to proxy to");
        let service = ctx.service().ok_or_else(nowhere)?;
        let dialer = service.dialer.as_ref().ok_or_else(nowhere)?;
        let (peer, address) = match &service.upstream {
            Upstream::Peers(peers) => {
                let found = peers.pick(&ctx.tries.tried, dialer.patience()).await;
                let address = self.resolved(found)?;
                (
                    dialer.peer(address, connection::kept_host(session, ctx)),
                    address,
                )
            }
            Upstream::Balanced(balancer, resolver) => {
                let (service, resolver) = (service.clone(), resolver.clone());
                let dialer = service.dialer.as_ref().ok_or_else(nowhere)?;
                let balancer = balancer.clone();
                let mut found =
                    connection::located(session, ctx, &balancer, &resolver, dialer).await?;
                for _ in 1..UNRESOLVED {
                    if found.is_err() {
                        found =
                            connection::located(session, ctx, &balancer, &resolver, dialer).await?;
                    }
                }
                let address = self.resolved(found)?;
                let kept = connection::kept_host(session, ctx);
                let name = kept.or(ctx.attempts.server_name());
                (dialer.peer(address, name), address)
            }
            Upstream::Internal(_) => return Err(nowhere()),
        };
        if let Some(pause) = ctx.tries.pause(address) {
            tokio::time::sleep(pause).await;
        }
        ctx.tries.begin(address);
        log_phase::note_try(ctx, address, &self.settings.clock);
        let mut peer = peer;
        if let Some(dialer) = ctx.service().and_then(|service| service.dialer.as_ref()) {
            let local = || session.server_addr()?.as_inet().copied();
            dialer.name_client(&mut peer, ctx.exchange.client, local);
        }
        if ctx.exchange.awaits_events.is_some() {
            let limit = peer.options.read_timeout.unwrap_or(EVENTS);
            peer.options.read_timeout = Some(limit.max(EVENTS));
        }
        let session_bound = &self.settings.session_bound;
        ctx.upload = None;
        if !session_bound.bind(&mut peer, session.req_header(), &ctx.exchange) {
            self.uploads.bind(&mut peer, session, ctx);
        }
        Ok(peer)
    }

    /// 3. Turn the client's request into the upstream's.
    pub(super) fn prepare_upstream_request(
        &self,
        request: &mut RequestHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        if ctx.gathered {
            // The client was told to go on, and has.
            request.remove_header(&header::EXPECT);
        }
        ctx.substituted = false;
        // A further try begins with the first byte again.
        ctx.body_received = 0;
        if let Some(decoder) = &mut ctx.exchange.decoder {
            decoder.restart();
        }
        self.forward_head(request, ctx)?;
        ctx.sent_method = Some(request.method.clone());
        log_phase::note_target(ctx, request);
        if request.headers.contains_key(header::COOKIE) {
            self.settings.own_cookies.strip(request);
            own_cookies::strip_of_filters(&self.live.load().cookie_givers, request);
        }
        Ok(())
    }

    /// Ends a request whose body is too long or malformed, and gives upstreams what
    /// filters make of the client's.
    pub(super) fn filter_body(
        &self,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Ctx,
    ) -> Result<()> {
        let end = end || body.is_none();
        if let Some(limit) = ctx.exchange.body_limit {
            ctx.body_received += body.as_ref().map_or(0, |piece| piece.len() as u64);
            if ctx.body_received > limit {
                return Err(observe::too_large());
            }
        }
        if let Some(other) = &ctx.exchange.replacement {
            let first = !std::mem::replace(&mut ctx.substituted, true);
            *body = Some(if first { other.clone() } else { Bytes::new() });
        }
        if let Some(decoder) = &mut ctx.exchange.decoder
            && decoder.piece(body, end).is_err()
        {
            return Err(observe::malformed_body());
        }
        if end && body.as_ref().is_some_and(Bytes::is_empty) {
            // A last piece without a byte would be sent as the end, before the end: the
            // connection's next request would begin within this one.
            *body = None;
        }
        Ok(())
    }

    /// Notes whether the head of an answer says where that ends: afterwards every answer
    /// does.
    pub(super) fn note_upstream_head(
        &self,
        response: &ResponseHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        connection::count_interim(response, ctx)?;
        if responses::is_seen(ctx, response) {
            let headers = &response.headers;
            let framed = headers.contains_key(header::CONTENT_LENGTH)
                || headers.contains_key(header::TRANSFER_ENCODING);
            ctx.exchange.unframed = response.version < Version::HTTP_2 && !framed;
        }
        Ok(())
    }

    /// 4. Finish the response head for the client.
    pub(super) async fn filter_head(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        let fields = HeadFields::of(&response.headers);
        connection::refuse_unsound(session, response, fields)?;
        if !is_interim(response.status) {
            ctx.attempts
                .report(Outcome::Status(response.status.as_u16()));
            log_phase::note_status(ctx, response.status);
        }
        let now = Instant::now();
        ctx.upstream_time = ctx.upstream_started.map(|started| now - started);
        if let Some(Upstream::Peers(peers)) = ctx.service().map(|s| &s.upstream)
            && let Some(address) = ctx.tries.address
        {
            peers.reachable(address);
        }
        if !response.status.is_informational() {
            connection::keep_after_interim(session, ctx);
            connection::close_if_stopping(session, ctx, now - ctx.started);
        }
        if responses::is_seen(ctx, response)
            && let Some(reply) = Box::pin(responses::inspect(session, ctx, response)).await
        {
            return Box::pin(responses::divert(session, ctx, reply, response)).await;
        }
        if session.req_header().version == Version::HTTP_10 {
            connection::drop_chunked(session, response);
        }
        if fields.has(HeadFields::SET_COOKIE) {
            let filters = ctx.filters().iter().map(|link| &link.filter);
            let own = &self.settings.own_cookies;
            own.refuse(filters, &self.live.load().cookie_givers, response);
        }
        finish_head(session, response, fields, ctx, now)?;
        if ctx.journey.is_some() {
            Box::pin(unwind::proxied(session, ctx, response)).await?;
        }
        if let Some(compression) = &self.settings.compression {
            responses::compress(session, ctx, response, compression);
        }
        connection::prepare_way(session, ctx, response, fields);
        Ok(())
    }

    /// Drops what follows an answer that another one has replaced.
    pub(super) fn filter_piece(
        &self,
        session: &Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Ctx,
    ) -> Result<()> {
        session_bound::check(&ctx.exchange, session.was_upgraded())?;
        if ctx.diverted {
            *body = None;
        } else if !ctx.body_filters.is_empty() {
            ctx.body_filters.piece(body, end);
        }
        if ctx
            .journey
            .as_ref()
            .is_some_and(|journey| journey.drops_body())
        {
            *body = None;
        }
        Ok(())
    }

    /// 5. Count and log, whatever the outcome, and part as is proper.
    pub(super) async fn end(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Ctx) {
        accept::head_awaited(session);
        let seen = observe::finished(&self.settings, session, error, ctx);
        log_phase::end(&self.live, &self.settings, session, ctx, seen);
        if error.is_none() || ctx.answered {
            // The upstream has done its part.
            ctx.attempts = Attempts::default();
            bridge::linger(session).await;
        }
    }
}
