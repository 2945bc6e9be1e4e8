//! The log phase: filters that observe are told of requests that are over.
//!
//! Where no filter wants to know of a request, it has no [`trail::Trail`], and each of
//! these functions looks at one word.

pub(crate) mod trail;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::{StatusCode, Version};
use pingora::http::RequestHeader;
use pingora::prelude::Error;

use super::chain::Link;
use super::context::Ctx;
use super::observe;
use super::settings::Settings;
use super::snapshot::Snapshot;
use doorward_core::calls;
use doorward_core::clock::Clock;
use doorward_net::http::authority;
use doorward_net::http::session::Session;
use doorward_net::telemetry::traffic::Observation;
use doorward_plugin_api::filter::{Exchange, Filter, Flow};
use doorward_plugin_api::record::{
    Latencies, RequestFacts, RequestRecord, ResponseFacts, TlsFacts, Try, UpstreamFacts, Wait,
    Waiter,
};
use trail::{Trail, TrailState};

/// Most tries of a request that are told.
const TRIES: usize = 64;
/// Most waits of a request that are told.
const WAITS: usize = 32;

/// The status of a request whose client left before an answer, as the imitated
/// gateway tells it.
const CLIENT_LEFT: u16 = 499;

/// Has a filter decide that has to wait. What it waited for is noted where filters
/// observe.
pub(super) async fn wait(
    filter: &dyn Filter,
    label: &str,
    session: &mut Session,
    exchange: &mut Exchange,
    (trail, started): (&mut TrailState, Instant),
) -> Flow {
    let decision = filter.on_request_slow(session, exchange);
    let Some(trail) = trail.begin() else {
        return decision.await;
    };
    let waiter = || Waiter::Filter(label.into());
    note_wait(decision, waiter, trail, started).await
}

/// Lets an upstream inside the process do this. What it waited for is noted where
/// filters observe.
pub(super) async fn wait_inside<T>(
    work: impl Future<Output = T>,
    trail: &mut TrailState,
    started: Instant,
) -> T {
    match trail.begin() {
        None => work.await,
        Some(trail) => Box::pin(note_wait(work, || Waiter::Upstream, trail, started)).await,
    }
}

async fn note_wait<T>(
    work: impl Future<Output = T>,
    waiter: impl FnOnce() -> Waiter,
    trail: &mut Trail,
    started: Instant,
) -> T {
    let began = Instant::now();
    let (output, calls) = calls::noted(work).await;
    if trail.waits.len() < WAITS {
        trail.waits.push(Wait {
            waiter: waiter(),
            after: began - started,
            took: began.elapsed(),
            calls,
        });
    }
    output
}

/// The filters have decided. Nothing more is noted of a request of which none wants to
/// know.
pub(super) fn settle(links: &[Link], exchange: &Exchange, trail: &mut TrailState) {
    if !trail.is_off()
        && !links
            .iter()
            .any(|link| link.filter.observes_request(exchange))
    {
        *trail = TrailState::Off;
    }
}

/// A peer is looked for.
pub(super) fn begin_choice(ctx: &mut Ctx) {
    if let Some(trail) = ctx.trail.begin() {
        let now = Instant::now();
        trail.upstream_started.get_or_insert(now);
        trail.choice_started = Some(now);
    }
}

/// A try at `address` begins.
pub(super) fn note_try(ctx: &mut Ctx, address: SocketAddr, clock: &Clock) {
    let Some(trail) = ctx.trail.begin() else {
        return;
    };
    let choice = trail.choice_started.map_or(Duration::ZERO, |t| t.elapsed());
    if trail.tries.len() < TRIES {
        trail.tries.push(Try {
            address,
            started_ms: clock.now_ms().saturating_sub(whole_millis(choice)),
            choice,
            failure: None,
        });
    }
}

/// The current try has failed.
pub(super) fn note_failure(ctx: &mut Ctx, error: &Error) {
    let Some(trail) = ctx.trail.begin() else {
        return;
    };
    if let Some(last) = trail.tries.last_mut() {
        let status = observe::failure(error).map(|(status, _)| status.as_u16());
        last.failure = Some(status.unwrap_or(502));
    }
}

/// The upstream's request is made.
pub(super) fn note_target(ctx: &mut Ctx, request: &RequestHeader) {
    let Some(trail) = ctx.trail.begin() else {
        return;
    };
    trail.upstream_started.get_or_insert_with(Instant::now);
    let target = request.uri.path_and_query();
    trail.upstream_uri = target.map_or("/", |target| target.as_str()).into();
}

/// The upstream has answered with this status.
pub(super) fn note_status(ctx: &mut Ctx, status: StatusCode) {
    if let Some(trail) = ctx.trail.begin() {
        trail.status = Some(status.as_u16());
    }
}

/// The path holds a secret: what is told of it is what the access log has.
pub(super) fn note_secret_path(ctx: &mut Ctx) {
    if let Some(trail) = ctx.trail.begin() {
        trail.secret_path = true;
        trail.upstream_uri = Box::default();
    }
}

/// The request is over.
pub(super) fn end(
    live: &ArcSwap<Snapshot>,
    settings: &Settings,
    session: &Session,
    ctx: &Ctx,
    seen: Observation,
) {
    match &ctx.route {
        Some(_) if ctx.trail.is_off() => {}
        Some(route) => {
            let fields = &route.secret_fields;
            tell(ctx.filters(), fields, settings, session, ctx, seen);
        }
        None => {
            let snapshot = live.load();
            if !snapshot.observers.is_empty() {
                tell(&snapshot.observers, &[], settings, session, ctx, seen);
            }
        }
    }
}

fn tell(
    links: &[Link],
    secret_fields: &[Box<str>],
    settings: &Settings,
    session: &Session,
    ctx: &Ctx,
    seen: Observation,
) {
    let wanted = |link: &&Link| link.filter.observes_request(&ctx.exchange);
    if !links.iter().any(|link| wanted(&link)) {
        return;
    }
    let latencies = latencies(ctx, seen);
    let written = session.answer_written();
    let record = RequestRecord {
        request: request(settings, session, ctx, seen),
        upstream: upstream(ctx),
        response: ResponseFacts {
            status: match seen.status {
                0 => CLIENT_LEFT,
                status => status,
            },
            headers: written.map(|head| &head.headers),
            body: seen.sent,
        },
        latencies,
        waits: ctx.trail.get().map_or(&[], |trail| &trail.waits),
        exchange: &ctx.exchange,
        route: ctx.route.as_ref().map(|route| &route.record().value),
        service: ctx.service().map(|service| &service.record().value),
        started_ms: (settings.clock.now_ms()).saturating_sub(whole_millis(latencies.request)),
        secret_fields,
    };
    for link in links.iter().filter(wanted) {
        link.filter.on_end(&record);
    }
}

fn request<'a>(
    settings: &Settings,
    session: &'a Session,
    ctx: &'a Ctx,
    seen: Observation,
) -> RequestFacts<'a> {
    let head = session.req_header();
    let original = ctx.exchange.original.as_deref();
    let method = original.map_or(&head.method, |original| &original.method);
    let uri = original.map_or(&head.uri, |original| &original.uri);
    let target = if ctx.trail.get().is_some_and(|trail| trail.secret_path) {
        ctx.path(head)
    } else {
        uri.path_and_query().map_or("/", |target| target.as_str())
    };
    let sent = ctx.journey.as_ref().and_then(|journey| {
        let host = journey.host.as_ref()?;
        host.to_str().ok()
    });
    let tls = session
        .digest()
        .and_then(|digest| digest.ssl_digest.as_ref());
    let line = method.as_str().len() + target.len() + " HTTP/1.1".len() + 5;
    let port = if tls.is_some() {
        settings.tls_port
    } else {
        settings.port
    };
    RequestFacts {
        id: ctx.request_id.as_ref().and_then(|id| id.to_str().ok()),
        method,
        target,
        authority: sent.or_else(|| authority::text(head)).unwrap_or(""),
        port,
        secure: ctx.exchange.secure,
        version: match head.version {
            Version::HTTP_2 => Version::HTTP_2,
            Version::HTTP_10 => Version::HTTP_10,
            _ => Version::HTTP_11,
        },
        headers: &head.headers,
        line_and_body: line as u64 + seen.received,
        tls: tls.map(|tls| TlsFacts {
            version: &tls.version,
            cipher: &tls.cipher,
            client_verified: ctx.exchange.client_certificate().is_some(),
        }),
    }
}

fn upstream(ctx: &Ctx) -> UpstreamFacts<'_> {
    let diverted = ctx.journey.as_ref().is_some_and(|journey| journey.diverted);
    let Some(trail) = ctx.trail.get() else {
        return UpstreamFacts::default();
    };
    UpstreamFacts {
        uri: &trail.upstream_uri,
        status: trail.status,
        tries: (!trail.tries.is_empty()).then_some(&trail.tries),
        answered: trail.status.is_some() && !ctx.answered && !diverted,
    }
}

fn latencies(ctx: &Ctx, seen: Observation) -> Latencies {
    let started = ctx.trail.get().and_then(|trail| trail.upstream_started);
    let gateway = started.map_or(seen.total, |asked| asked - ctx.started);
    Latencies {
        request: seen.total,
        gateway,
        upstream: seen.upstream,
        receive: seen.upstream.map_or(Duration::ZERO, |upstream| {
            seen.total.saturating_sub(gateway + upstream)
        }),
    }
}

fn whole_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
