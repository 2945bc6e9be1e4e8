//! What is told of a request when it is over, and of those that failed.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::Duration;

use http::{HeaderValue, StatusCode, Version, header};
use pingora::http::RequestHeader;
use pingora::prelude::{Error, ErrorType};
use pingora::{ErrorSource, ImmutStr};

use super::answer;
use super::context::Ctx;
use super::own_headers::DefaultType;
use super::settings::Settings;
use doorward_core::clock;
use doorward_core::hex;
use doorward_core::model::token::AccessToken;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::access_log::{AccessLog, Entry, More};
use doorward_net::telemetry::client_aborts::Phase;
use doorward_net::telemetry::refused_requests::RefusedRequest;
use doorward_net::telemetry::traffic::Observation;
use doorward_plugin_api::filter;
use doorward_plugins::trace;

/// Kind of error: no target of an upstream can take the request.
pub(super) const NO_TARGET: &str = "NoTarget";

/// Kind of error: the request's body is longer than a filter allows.
const TOO_LARGE: &str = "BodyTooLarge";

/// The error that ends a request with a body longer than a filter allows.
pub(super) fn too_large() -> Box<Error> {
    let kind = ErrorType::Custom(TOO_LARGE);
    // The client's doing: else the engine would wait for an answer of HTTP/2.
    Error::explain(kind, "the body exceeds its limit").into_down()
}

/// The error that ends a request with a body that a filter can't decode.
pub(super) fn malformed_body() -> Box<Error> {
    let kind = ErrorType::Custom("MalformedBody");
    Error::explain(kind, "the body can't be decoded").into_down()
}

/// Whether it is [`too_large`].
pub(super) fn is_too_large(error: &Error) -> bool {
    *error.etype() == ErrorType::Custom(TOO_LARGE)
}

/// Whether the gateway itself ended the request: no upstream was asked, or the body
/// is longer than a filter allows.
pub(super) fn is_own_refusal(error: &Error) -> bool {
    use ErrorType as E;
    is_too_large(error) || matches!(error.etype(), E::Custom("NameResolution" | NO_TARGET))
}

/// An identifier for a request: 32 hexadecimal digits, unlikely to repeat,
/// not a secret.
pub(super) fn request_id() -> HeaderValue {
    thread_local! {
        static STATE: Cell<[u64; 2]> = Cell::new(seed());
    }
    fn seed() -> [u64; 2] {
        let bytes = clock::random_bytes::<16>();
        let (a, b) = bytes.split_at(8);
        [a, b].map(|half| half.iter().fold(1, |n, &b| (n << 8) | u64::from(b)))
    }
    // xorshift128+: fast, and nothing depends on its being unpredictable.
    let id = STATE.with(|state| {
        let [mut x, y] = state.get();
        x ^= x << 23;
        x ^= x >> 17;
        x ^= y ^ (y >> 26);
        state.set([y, x]);
        (u128::from(x.wrapping_add(y)) << 64) | u128::from(x)
    });
    let mut text = [0_u8; 32];
    hex::write(&id.to_be_bytes(), &mut text);
    let mut id = HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    // Over HTTP/2 it would push fields that come again out of the table (RFC 7541 §7.1.3).
    id.set_sensitive(true);
    id
}

/// A time in whole milliseconds, as a header's value.
pub(super) fn whole_millis(time: Duration) -> HeaderValue {
    millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// A number of milliseconds, as a header's value. Nearly all are short.
pub(super) fn millis(millis: u64) -> HeaderValue {
    const SHORT: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let short = usize::try_from(millis).ok().and_then(|i| SHORT.get(i));
    short.map_or_else(
        || HeaderValue::from(millis),
        |s| HeaderValue::from_static(s),
    )
}

/// Status and message for a request that could not be proxied; `None` if
/// there is nobody left to tell.
pub(super) fn failure(error: &Error) -> Option<(StatusCode, Cow<'static, str>)> {
    use ErrorType as E;
    let known = |status, message| Some((status, Cow::Borrowed(message)));
    match error.etype() {
        E::Custom("NameResolution") => {
            known(StatusCode::SERVICE_UNAVAILABLE, "name resolution failed")
        }
        E::Custom(NO_TARGET) => known(
            StatusCode::SERVICE_UNAVAILABLE,
            "failure to get a peer from the ring-balancer",
        ),
        E::Custom(TOO_LARGE) => known(StatusCode::PAYLOAD_TOO_LARGE, filter::TOO_LARGE),
        E::HTTPStatus(code) => {
            let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::BAD_GATEWAY);
            let message = status.canonical_reason().unwrap_or("Error");
            Some((status, Cow::Borrowed(message)))
        }
        _ => match error.esource() {
            ErrorSource::Upstream => upstream_failure(error),
            ErrorSource::Downstream => match error.etype() {
                E::WriteError | E::ReadError | E::ConnectionClosed | E::WriteTimedout => None,
                E::ReadTimedout => known(StatusCode::REQUEST_TIMEOUT, "Request timed out"),
                _ => known(StatusCode::BAD_REQUEST, "Bad request"),
            },
            ErrorSource::Internal | ErrorSource::Unset => known(
                StatusCode::INTERNAL_SERVER_ERROR,
                "An unexpected error occurred",
            ),
        },
    }
}

/// Whether the system gave up a connection whose other side took nothing.
pub(super) fn is_given_up(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::TimedOut)
}

fn upstream_failure(error: &Error) -> Option<(StatusCode, Cow<'static, str>)> {
    use ErrorType as E;
    let timed_out = matches!(
        error.etype(),
        E::ConnectTimedout | E::ReadTimedout | E::WriteTimedout | E::TLSHandshakeTimedout
    ) || is_given_up(error);
    Some(if timed_out {
        (
            StatusCode::GATEWAY_TIMEOUT,
            Cow::Borrowed("The upstream server is timing out"),
        )
    } else {
        (
            StatusCode::BAD_GATEWAY,
            Cow::Borrowed("An invalid response was received from the upstream server"),
        )
    })
}

/// The answer for a failure of the engine. A client that names no format gets
/// the one that it sent itself, or plain text.
pub(super) fn engine_reply(
    status: StatusCode,
    message: Cow<'static, str>,
    request: &RequestHeader,
    (form, request_id): (DefaultType, Option<&HeaderValue>),
) -> Reply {
    let headers = &request.headers;
    let sent_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if headers.contains_key(header::ACCEPT) || sent_json {
        return Reply::message(status, message);
    }
    let mut reply = Reply::empty(status);
    reply.body = answer::unasked(form, &message, request_id);
    reply
}

/// Counts and logs a finished request.
pub(super) fn finished(
    settings: &Settings,
    session: &Session,
    error: Option<&Error>,
    ctx: &mut Ctx,
) -> Observation {
    let seen = Observation {
        status: session.answer_written().map_or(0, |r| r.status.as_u16()),
        total: ctx.started.elapsed(),
        upstream: ctx.upstream_time,
        sent: session.body_bytes_sent() as u64,
        received: session.body_bytes_read() as u64,
    };
    match (&ctx.route, ctx.journey.as_ref().and_then(|j| j.route())) {
        (Some(route), _) => route.traffic.observe(seen),
        (None, Some(route)) => route.traffic().observe(seen),
        (None, None) => settings.unrouted.observe(seen),
    }
    if seen.status >= 400
        && let Some(code) = &ctx.exchange.refusal
    {
        note_refusal(settings, session, ctx, (code, seen.status));
    }
    if error.is_some_and(|error| *error.esource() == ErrorSource::Downstream) {
        settings.client_aborts.count(match seen.status {
            0 => Phase::Request,
            _ => Phase::Response,
        });
    }
    if let Some(log) = &settings.access_log
        && log.takes(seen.status, seen.total)
    {
        log.note(&entry((settings, log), session, error, ctx, seen));
    }
    seen
}

/// Keeps a refused request for who asks why.
fn note_refusal(settings: &Settings, session: &Session, ctx: &Ctx, (code, status): (&str, u16)) {
    let request = session.req_header();
    settings.refused_requests.note(&RefusedRequest {
        time_ms: settings.clock.now_ms(),
        code,
        status,
        method: method(request, ctx),
        https: ctx.exchange.secure,
        host: host(request, ctx),
        path: ctx.path(request),
        client: ctx.exchange.client.ip().to_canonical(),
    });
}

/// The method of the client's request.
fn method<'a>(request: &'a RequestHeader, ctx: &'a Ctx) -> &'a str {
    let original = ctx.exchange.original.as_ref();
    original.map_or(&request.method, |o| &o.method).as_str()
}

/// The host that the client's request names. A name and a password before it may be
/// secrets.
fn host<'a>(request: &'a RequestHeader, ctx: &'a Ctx) -> &'a str {
    let journey = ctx.journey.as_ref();
    let asked = journey.and_then(|journey| journey.host.as_ref()?.to_str().ok());
    let authority = request.uri.authority().map(|a| a.as_str());
    let named = || request.headers.get(header::HOST)?.to_str().ok();
    let host = asked.or(authority).or_else(named).unwrap_or("");
    host.rsplit_once('@').map_or(host, |(_, host)| host)
}

fn entry<'a>(
    (settings, log): (&Settings, &AccessLog),
    session: &'a Session,
    error: Option<&Error>,
    ctx: &'a mut Ctx,
    seen: Observation,
) -> Entry<'a> {
    if ctx.exchange.refusal.is_none() {
        ctx.exchange.refusal = error.map(error_code);
    }
    let request = session.req_header();
    let text = |name| {
        let value = request.headers.get(name);
        value.and_then(|v: &HeaderValue| v.to_str().ok())
    };
    let file = ctx.journey.as_ref().and_then(|journey| journey.route());
    Entry {
        time_ms: settings.clock.now_ms(),
        request_id: ctx.request_id.as_ref().and_then(|id| id.to_str().ok()),
        // As everywhere else: a listener for both families maps the one to the other.
        client: ctx.exchange.client.ip().to_canonical(),
        method: method(request, ctx),
        host: host(request, ctx),
        path: ctx.path(request),
        http: match request.version {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        },
        status: seen.status,
        route: (ctx.route.as_ref().map(|route| &*route.label)).or(file.map(|file| file.name())),
        service: ctx.service().map(|service| &*service.label),
        total_us: micros(seen.total),
        upstream_us: seen.upstream.map(micros),
        received: seen.received,
        sent: seen.sent,
        consumer: ctx
            .exchange
            .consumer
            .as_deref()
            .and_then(|caller| caller.label()),
        certificate: ctx
            .exchange
            .client_certificate()
            .map(|c| c.subject.as_str()),
        refusal: ctx.exchange.refusal.as_deref(),
        mcp_method: ctx.exchange.mcp_call.as_ref().map(|call| &*call.method),
        mcp_name: (ctx.exchange.mcp_call.as_ref()).and_then(|call| call.name.as_deref()),
        user_agent: text(header::USER_AGENT).unwrap_or(""),
        more: more(log, session, ctx),
    }
}

/// What not every format of the access log has.
fn more<'a>(log: &AccessLog, session: &'a Session, ctx: &'a Ctx) -> More<'a> {
    let headers = &session.req_header().headers;
    let tls = session.digest().and_then(|d| d.ssl_digest.as_ref());
    let token = ctx.exchange.token.as_deref();
    let claim = |name| token.and_then(|token| token.claims.get(name)?.as_str());
    let referer = headers.get(header::REFERER);
    let trace_id = || trace::trace_id(&ctx.exchange, headers);
    More {
        subject: token.and_then(AccessToken::subject),
        client_id: claim("client_id").or_else(|| claim("azp")),
        trace_id: log.wants_trace_id().then(trace_id).flatten(),
        upstream: ctx.tries.address,
        retries: ctx.tries.made.saturating_sub(1),
        tls: tls.map(|tls| (&*tls.version, &*tls.cipher)),
        referer: referer.and_then(|value| value.to_str().ok()),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn error_code(error: &Error) -> Cow<'static, str> {
    let source = match error.esource() {
        ErrorSource::Upstream => "upstream",
        ErrorSource::Downstream => "client",
        ErrorSource::Internal | ErrorSource::Unset => "internal",
    };
    let kind: ImmutStr = error.etype().as_str().into();
    Cow::Owned(format!("{source}_{}", snake(kind.as_str())))
}

fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
