//! What a try at an upstream asks of the request that it is for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora::prelude::{Error, ErrorType};

use super::balance::endpoint::Endpoint;
use super::balance::{Balancer, key};
use super::context::Ctx;
use super::head::HeadFields;
use super::peer::{Dialer, host_of};
use super::resolve::{ResolveError, Resolver};
use super::stopping::Stopping;
use super::{observe, tries};
use doorward_net::http::session::{Session, is_interim};
use doorward_net::http::{accept, authority, framing};

/// What is no time to speak of.
const SHORT: Duration = Duration::from_millis(10);

/// So many interim answers of a request are handed on.
const MOST_INTERIM: u8 = 100;

/// The next target, at its address: known, or found now for the first time.
pub(super) async fn located(
    session: &Session,
    ctx: &mut Ctx,
    balancer: &Balancer,
    resolver: &Arc<Resolver>,
    dialer: &Dialer,
) -> Result<std::result::Result<SocketAddr, ResolveError>> {
    let endpoint = target(session, ctx, balancer)?;
    if let Some(address) = endpoint.address() {
        return Ok(Ok(address));
    }
    let name = resolver.name(endpoint.host());
    let all = name.answer(dialer.patience()).await;
    Ok(all.map(|all| all[0].address(endpoint.port())))
}

/// Whether the upstream is silent only because the client has not sent it
/// the whole request.
pub(super) fn waits_for_client(session: &mut Session, error: &Error) -> bool {
    let waiting = tries::is_upstreams(error)
        && *error.etype() == ErrorType::ReadTimedout
        && session.answer_written().is_none()
        && !session.is_body_done();
    // A client that waits for 100 is kept waiting by the upstream.
    let asked = session.req_header().headers.contains_key(header::EXPECT);
    waiting && (!asked || session.body_bytes_read() > 0)
}

/// The client's own Host where the upstream gets to see it: it is also the
/// name that a certificate has to be for.
pub(super) fn kept_host<'a>(session: &'a Session, ctx: &Ctx) -> Option<&'a str> {
    let route = ctx.route.as_ref().filter(|route| route.preserve_host)?;
    route
        .service
        .as_ref()?
        .dialer
        .as_ref()
        .filter(|dialer| dialer.is_tls())?;
    let (host, _) = authority::of(session.req_header())?;
    Some(host_of(host))
}

/// A client of HTTP/1.0 would take an interim response for the answer (RFC 9110
/// §15.2), and waits for none.
pub(super) fn suppress_informational(session: &mut Session) {
    session.set_ignore_info_resp(true);
    session.req_header_mut().remove_header(&header::EXPECT);
}

/// Keeps a connection that was to be kept: the engine takes an interim response for
/// an answer that comes before the whole request.
pub(super) fn keep_after_interim(session: &mut Session, ctx: &Ctx) {
    let interim = |head: &ResponseHeader| is_interim(head.status);
    if ctx.keep && session.response_written().is_some_and(interim) {
        session.set_keepalive(Some(accept::KEEP));
    }
}

/// Counts the interim answers of a request, which have no bodies that anything else
/// would bound.
pub(super) fn count_interim(response: &ResponseHeader, ctx: &mut Ctx) -> Result<()> {
    if !is_interim(response.status) {
        return Ok(());
    }
    if ctx.interim == MOST_INTERIM {
        let why = format!("more than {MOST_INTERIM} interim answers");
        return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
    }
    ctx.interim += 1;
    Ok(())
}

/// Promises no next request where the process has begun to stop while this one,
/// for so long, was under way.
pub(super) fn close_if_stopping(session: &mut Session, ctx: &Ctx, taken: Duration) {
    // Of short ones it was asked before.
    if taken > SHORT && ctx.stopping.as_ref().is_some_and(Stopping::has_begun) {
        session.set_keepalive(None);
    }
}

/// Refuses an answer whose end others would see elsewhere (RFC 9112 §6.1), and a
/// change of protocol that the client has not asked for (RFC 9110 §15.2.2).
pub(super) fn refuse_unsound(
    session: &Session,
    response: &ResponseHeader,
    fields: HeadFields,
) -> Result<()> {
    let unsound = |reason| Err(Error::explain(ErrorType::InvalidHTTPHeader, reason).into_up());
    if fields.has(HeadFields::TRANSFER_ENCODING) {
        let mut codings = response.headers.get_all(header::TRANSFER_ENCODING).iter();
        let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !codings.next().is_some_and(chunked) || codings.next().is_some() {
            return unsound("unsupported Transfer-Encoding in the answer");
        }
    }
    if response.status == StatusCode::SWITCHING_PROTOCOLS && !framing::asks_for_upgrade(session) {
        return unsound("another protocol that was not asked for");
    }
    Ok(())
}

/// Lets the way to the client be what the answer needs: one that leaves it its date,
/// a tunnel after a change of protocol, or one on which nothing waits for more.
pub(super) fn prepare_way(
    session: &Session,
    ctx: &Ctx,
    response: &ResponseHeader,
    fields: HeadFields,
) {
    // Filters may have given it another one.
    let dated = fields.has(HeadFields::DATE) || ctx.has_filters();
    if dated && let Some(date) = response.headers.get(header::DATE) {
        session.keep_date(date.as_bytes());
    }
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        framing::open_tunnel(session);
    }
    if ctx.route.as_ref().is_some_and(|route| route.sends_at_once) {
        session.send_at_once();
    }
}

/// HTTP/1.0 knows no chunks: the end of the connection ends the body (RFC 9112
/// §6.1).
pub(super) fn drop_chunked(session: &mut Session, response: &mut ResponseHeader) {
    if response.remove_header(&header::TRANSFER_ENCODING).is_some() {
        session.set_keepalive(None);
    }
}

/// The target of an upstream for the next try.
fn target<'c>(session: &Session, ctx: &'c mut Ctx, balancer: &Balancer) -> Result<&'c Endpoint> {
    let Ctx {
        attempts,
        exchange,
        route,
        path,
        ..
    } = ctx;
    let request = session.req_header();
    let hash = || {
        let hashed = balancer.hash(&key::Request {
            consumer: exchange.consumer.as_ref().map(|consumer| consumer.id),
            client: exchange.client.ip(),
            headers: &request.headers,
            path: path.as_deref().unwrap_or(request.uri.path()),
            query: request.uri.query(),
            groups: route.as_ref().and_then(|route| route.groups.as_ref()),
        });
        if let Some(cookie) = hashed.cookie {
            exchange.response_headers.push((header::SET_COOKIE, cookie));
        }
        hashed.hash
    };
    attempts
        .next(balancer, hash)
        .map_err(|error| Error::explain(ErrorType::Custom(observe::NO_TARGET), error.to_string()))
}
