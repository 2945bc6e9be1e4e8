//! What becomes of a request: its route, its filters, and its body where that
//! is read beforehand.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use pingora::Result;
use pingora::http::RequestHeader;

use super::answer::no_route;
use super::choose::{self, Arrival, Unrouted};
use super::context::Ctx;
use super::edge::https;
use super::log_phase::trail::TrailState;
use super::proxy::Gateway;
use super::snapshot::{LiveRoute, Snapshot};
use super::welcome::no_route_for;
use super::{admit, client_certificate, forward_auth, handler, log_phase};
use doorward_net::http::handshake::Handshake;
use doorward_net::http::listener::malformed;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::http::{authority, bridge};
use doorward_plugin_api::filter::{Exchange, Flow, RouteContext, RouteRecords, Verdict};

/// Asks which route and service a request gets.
const KONG_DEBUG: HeaderName = HeaderName::from_static("kong-debug");

/// Longest time that a client may take to send a short body.
const CLIENT_BODY: Duration = Duration::from_secs(60);

impl Gateway {
    /// Finds the route of a request and runs its filters; the reply, if the
    /// request ends here.
    pub(super) async fn decide(&self, session: &mut Session, ctx: &mut Ctx) -> Option<Reply> {
        if let Err(reply) = self.arrive(session, ctx) {
            return Some(reply);
        }
        if let Some(probes) = &self.settings.probes
            && let Some(probe) = probes.find(session.req_header().uri.path())
        {
            let is_stopping = self.stopping.has_begun();
            let method = &session.req_header().method;
            return Some(Box::pin(probes.answer(probe, method, is_stopping)).await);
        }
        if let Some(challenges) = &self.settings.challenges
            && let Some(token) = https::challenge_token(session.req_header().uri.path())
        {
            let answered = Box::pin(https::answer_challenge(challenges.as_ref(), token));
            if let Some(reply) = answered.await {
                return Some(reply);
            }
        }
        match self.find_route(session, ctx) {
            Ok(None) => {}
            Ok(Some(snapshot)) => {
                ctx.trail = TrailState::new(!snapshot.observers.is_empty());
                let destinations = &self.settings.destinations;
                // Boxed: what entity routes need not carry about.
                return Box::pin(handler::ask(session, ctx, &snapshot, destinations)).await;
            }
            Err(reply) => return Some(reply),
        }
        let protocols = ctx.route.as_ref()?.protocols;
        if let Some(reply) = protocols.refuse(session.req_header(), ctx.exchange.secure) {
            return Some(reply);
        }
        if ctx
            .route
            .as_ref()
            .is_some_and(|route| route.is_forward_auth())
        {
            let allowed = &self.settings.forward_auth_hosts;
            if let Err(reply) = forward_auth::restore(session, ctx, allowed) {
                return Some(reply);
            }
        }
        if !ctx.filters().is_empty() {
            ctx.introduce(session);
        }
        let Ctx {
            route,
            chain,
            exchange,
            gathered,
            path,
            trail,
            started,
            ..
        } = ctx;
        let route = route.as_ref()?;
        if route.tells_filters {
            let path = path.as_deref().unwrap_or(session.req_header().uri.path());
            exchange.route_context = Some(Box::new(route_context(route, path)));
        }
        let mut done = 0;
        let mut whose = None;
        while let Some(link) = chain.as_deref().unwrap_or(&route.filters).get(done) {
            if link.filter.wants_body(session.req_header(), exchange)
                && let Err(reply) = read_body(session, exchange, gathered).await
            {
                return Some(reply);
            }
            let flow = match link.filter.on_request(session, exchange) {
                Verdict::Now(flow) => flow,
                Verdict::Wait => {
                    let (filter, name) = (&*link.filter, &link.record.value.name);
                    let noted = (&mut *trail, *started);
                    log_phase::wait(filter, name, session, exchange, noted).await
                }
            };
            // It may have read the body itself.
            *gathered |= exchange.body.is_some();
            if let Flow::Respond(reply) = flow {
                return Some(reply);
            }
            done += 1;
            let consumer = exchange.consumer.as_ref().map(|consumer| consumer.id);
            if let Some(scoped) = &route.scoped
                && consumer != whose
            {
                whose = consumer;
                let current = chain.as_deref().unwrap_or(&route.filters);
                let caller = exchange.consumer.as_deref();
                let own = scoped.chain(route.place, caller, &route.filters, (current, done));
                *chain = own.or_else(|| chain.take());
            }
        }
        let links = chain.as_deref().unwrap_or(&route.filters);
        log_phase::settle(links, exchange, trail);
        match route.service {
            Some(_) => None,
            None => Some(Reply::message(
                StatusCode::SERVICE_UNAVAILABLE,
                "no Service found with those values",
            )),
        }
    }

    /// Notes whom a request comes from and how, and refuses what is none.
    fn arrive(&self, session: &Session, ctx: &mut Ctx) -> Result<(), Reply> {
        let request = session.req_header();
        let settings = &self.settings;
        let tls = session
            .digest()
            .and_then(|digest| digest.ssl_digest.as_ref());
        let peer = ctx
            .connection
            .as_ref()
            .map_or_else(|| peer(session), |c| c.peer);
        ctx.exchange.client = {
            let header = settings.real_ip_header.as_ref();
            admit::client(request, peer, &settings.trusted, header)
        };
        ctx.exchange.secure =
            choose::is_secure(tls.is_some(), request, peer.ip(), &settings.trusted);
        ctx.exchange.trusted = admit::is_trusted(peer.ip(), &settings.trusted);
        if ctx.exchange.secure {
            ctx.hsts.clone_from(&settings.hsts);
        }
        if let Some(refusal) = malformed(session) {
            ctx.exchange.refusal = Some(Cow::Borrowed("malformed_request"));
            return Err(Reply::message(refusal.status, refusal.message));
        }
        // An echo of the request would show what proxies on the way have added, and
        // a tunnel would be a way around all that follows.
        if matches!(request.method, Method::TRACE | Method::CONNECT) {
            let message = "Method not allowed";
            return Err(Reply::message(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let handshake = tls.and_then(|tls| Handshake::of(tls));
        if let Some(handshake) = handshake {
            handshake.note_request();
            ctx.exchange.handshake = Some(handshake.clone());
        }
        Ok(())
    }

    /// The redirect of a request without TLS, where such requests are redirected.
    fn redirected(&self, request: &RequestHeader, exchange: &Exchange) -> Option<Reply> {
        if exchange.secure {
            return None;
        }
        let settings = &self.settings;
        settings.https_redirect.answer(request, settings.tls_port)
    }

    /// Finds the entity route; the snapshot, if there is none and its route
    /// files are to be asked.
    fn find_route(&self, session: &Session, ctx: &mut Ctx) -> Result<Option<Arc<Snapshot>>, Reply> {
        let request = session.req_header();
        let settings = &self.settings;
        let tls = session
            .digest()
            .and_then(|digest| digest.ssl_digest.as_ref());
        let port = if tls.is_some() {
            settings.tls_port
        } else {
            settings.port
        };
        let snapshot = self.live.load();
        if settings.client_certificates
            && let Some((host, _)) = authority::of(request)
            && client_certificate::is_misdirected(&ctx.exchange, host, &snapshot.certificates)
        {
            let message = "This host needs a connection of its own";
            return Err(Reply::message(StatusCode::MISDIRECTED_REQUEST, message));
        }
        let redirect = self.redirected(request, &ctx.exchange);
        if redirect.is_none()
            && let Some(reply) = snapshot.resource_metadata.answer(request)
        {
            return Err(reply);
        }
        let arrival = Arrival {
            tls: tls.is_some(),
            sni: ctx.exchange.server_name(),
            port,
        };
        match choose::choose(&snapshot, request, arrival, &mut ctx.path) {
            Ok((found, route)) => {
                ctx.matched = found.matched;
                ctx.route = Some(route.clone());
                ctx.trail = TrailState::new(route.observed);
                ctx.exchange.route = Some(route.id());
                ctx.exchange.service = route.place.service;
                if settings.allow_debug_header && request.headers.contains_key(KONG_DEBUG) {
                    tell_route(route, &mut ctx.exchange);
                }
                // A proxy's question is not a client's request.
                redirect
                    .filter(|_| !route.is_forward_auth())
                    .map_or(Ok(None), Err)
            }
            Err(Unrouted::Refused(reply)) => {
                ctx.exchange.refusal = Some(Cow::Borrowed("malformed_request"));
                Err(reply)
            }
            Err(Unrouted::NoRoute) if redirect.is_some() => redirect.map_or(Ok(None), Err),
            Err(Unrouted::NoRoute)
                if (!snapshot.files.is_empty() || snapshot.mounted().is_some())
                    && handler::is_open(ctx.path(request)) =>
            {
                Ok(Some(Guard::into_inner(snapshot)))
            }
            Err(Unrouted::NoRoute) => {
                ctx.answer_without_route(&snapshot);
                // The operator's own page, where there is one, says what this one would.
                Err(if ctx.pages.is_some() {
                    no_route()
                } else {
                    no_route_for(request, &ctx.exchange)
                })
            }
        }
    }

    /// Reads a short body before a peer is chosen, so that a slow client keeps
    /// no upstream waiting; whether the request ends here.
    pub(super) async fn gather_body(
        &self,
        session: &mut Session,
        ctx: &mut Box<Ctx>,
    ) -> Result<bool> {
        let wanted = ctx.route.as_ref().is_none_or(|route| route.gathers_body);
        ctx.gathered |= wanted && session.take_ready_body(bridge::BUFFERED_MAX).is_some();
        if ctx.gathered {
            return Ok(false);
        }
        let length = bridge::announced_length(&session.req_header().headers);
        let short = length.is_some_and(|n| (1..=bridge::BUFFERED_MAX).contains(&n));
        if !wanted || !short || session.is_body_done() {
            if ctx.exchange.replacement.is_some() {
                // It is sent when the client's own body comes.
                bridge::invite_body(session).await?;
            }
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
}

/// What the route knows of a request for this path, for filters that want to know.
fn route_context(route: &Arc<LiveRoute>, path: &str) -> RouteContext {
    let groups = route.groups.as_ref();
    let records: Arc<dyn RouteRecords> = route.clone();
    RouteContext {
        records: Some(records),
        captures: groups.map_or_else(Vec::new, |groups| groups.all(path)),
        owned_headers: route.owned_headers.clone(),
    }
}

/// Has the answer name route and service, as clients ask for by `Kong-Debug`.
fn tell_route(route: &LiveRoute, exchange: &mut Exchange) {
    let record = &route.record().value;
    let service = route
        .service
        .as_ref()
        .map(|service| &service.record().value);
    let facts = [
        ("kong-route-id", Some(record.id.to_string())),
        ("kong-route-name", record.name.clone()),
        (
            "kong-service-id",
            service.map(|service| service.id.to_string()),
        ),
        (
            "kong-service-name",
            service.and_then(|service| service.name.clone()),
        ),
    ];
    for (name, value) in facts {
        // A name that is not ASCII can't be said in a header.
        let value = value.and_then(|value| HeaderValue::try_from(value).ok());
        let told = value.map(|value| (HeaderName::from_static(name), value));
        exchange.response_headers.extend(told);
    }
}

/// Reads the body of a request for something that looks at it, once.
pub(super) async fn read_body(
    session: &mut Session,
    exchange: &mut Exchange,
    gathered: &mut bool,
) -> Result<(), Reply> {
    if exchange.body.is_none() {
        let body = bridge::buffer_body(session).await;
        let body = body.map_err(|error| Reply::message(error.status(), error.to_string()))?;
        exchange.body = Some(body);
        *gathered = true;
    }
    Ok(())
}

/// The peer of the client's connection.
pub(super) fn peer(session: &Session) -> SocketAddr {
    session
        .client_addr()
        .and_then(|addr| addr.as_inet().copied())
        .unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
}
