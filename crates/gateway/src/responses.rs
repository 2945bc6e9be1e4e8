//! Answers of upstreams, as filters see them: before their heads are finished, and
//! piece by piece.

pub(crate) mod body_filters;

use http::{Method, StatusCode, Version, header};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType, Result};

use super::context::Ctx;
use super::edge::compression::Compression;
use super::{answer, connection};
use doorward_net::http::reply::Reply;
use doorward_net::http::session::{Session, is_interim};
use doorward_plugin_api::filter::ResponseFlow;

/// Asks the filters of the route about an upstream's answer. The answer that takes
/// its place, if one does.
pub(super) async fn inspect(
    session: &mut Session,
    ctx: &mut Ctx,
    response: &mut ResponseHeader,
) -> Option<Reply> {
    let Ctx {
        route,
        chain,
        exchange,
        body_filters,
        ..
    } = ctx;
    let route = route.as_ref()?;
    let links = chain.as_deref().unwrap_or(&route.filters);
    body_filters.0.clear();
    let request = session.req_header();
    for link in links.iter().rev() {
        let filter = &link.filter;
        // Who has stored the answer knows it.
        if !filter.sees_response(exchange) || exchange.stored && filter.response_cache().is_some() {
            continue;
        }
        match filter
            .on_upstream_response(request, exchange, response)
            .await
        {
            ResponseFlow::Continue => {}
            ResponseFlow::Filter(filter) => body_filters.0.push(filter),
            ResponseFlow::Replace(reply) => {
                body_filters.0.clear();
                return Some(reply);
            }
        }
    }
    if body_filters.is_empty() {
        return None;
    }
    if !may_have_body(&request.method, response.status) {
        if is_whole(response.status) {
            // All filters let the head pass, and it is all that comes.
            body_filters.end_without_body();
        }
        body_filters.0.clear();
        return None;
    }
    let framed = |name| response.headers.contains_key(name);
    if framed(&header::CONTENT_LENGTH) || framed(&header::TRANSFER_ENCODING) {
        return None;
    }
    match request.version {
        Version::HTTP_11 => {
            // A name and a value that are already those of a message.
            let _ = response.insert_header(header::TRANSFER_ENCODING, "chunked");
        }
        // The end of the connection ends the body (RFC 9112 §6.1).
        Version::HTTP_10 => session.set_keepalive(None),
        _ => {}
    }
    None
}

fn may_have_body(method: &Method, status: StatusCode) -> bool {
    let none = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    method != Method::HEAD && !none && !status.is_informational()
}

/// Whether an answer without a body is one by itself: no beginning of another protocol,
/// and none that says that the client has it already.
fn is_whole(status: StatusCode) -> bool {
    status != StatusCode::NOT_MODIFIED && !status.is_informational()
}

/// Whether a filter may want to see the answer.
pub(super) fn is_seen(ctx: &Ctx, response: &ResponseHeader) -> bool {
    let mut filters = ctx.filters().iter();
    filters.any(|link| link.filter.sees_response(&ctx.exchange)) && !is_interim(response.status)
}

/// Writes `reply` in the place of an upstream's answer. The engine is left with a
/// head that it ignores. An upstream that has changed the protocol has no answer that
/// it could end with: the engine parts with it, and the client gets the status.
pub(super) async fn divert(
    session: &mut Session,
    ctx: &mut Ctx,
    reply: Reply,
    head: &mut ResponseHeader,
) -> Result<()> {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        let kind = ErrorType::HTTPStatus(reply.status.as_u16());
        return Error::e_explain(kind, "a filter refuses the change of protocol");
    }
    *head = ResponseHeader::build(StatusCode::EARLY_HINTS, Some(0))?;
    session.set_ignore_info_resp(true);
    ctx.diverted = true;
    own(session, ctx, reply).await
}

/// Writes an answer that the gateway makes itself, as the filters want its head.
pub(super) async fn own(session: &mut Session, ctx: &mut Ctx, reply: Reply) -> Result<()> {
    let (mut head, mut body) = answer::compose(reply, session.req_header(), &ctx.additions())?;
    before_own(session, ctx, &head).await;
    for link in ctx.filters() {
        let request = session.req_header();
        link.filter
            .on_own_response(request, &ctx.exchange, &mut head);
    }
    if !body.is_empty() {
        // Heads are finished before any body is looked at.
        for link in ctx.filters() {
            let filter = &link.filter;
            if filter.sees_responses()
                && let Some(other) = filter.on_own_body(&ctx.exchange, &mut head, &body)
            {
                head.insert_header(header::CONTENT_LENGTH, other.len())?;
                body = other;
            }
        }
    }
    answer::write(session, head, body).await
}

/// Has the filters of the route do what comes before an answer with this head.
async fn before_own(session: &mut Session, ctx: &mut Ctx, head: &ResponseHeader) {
    let Ctx {
        route,
        chain,
        exchange,
        ..
    } = ctx;
    let own = route.as_ref().map(|route| &*route.filters);
    let links = chain.as_deref().or(own).unwrap_or_default();
    let request = session.req_header();
    for link in links {
        if link.filter.sees_responses() {
            link.filter
                .before_own_response(request, exchange, head)
                .await;
        }
    }
}

/// Has an upstream's answer compressed behind all filters, where it may be and the
/// client wants it.
pub(super) fn compress(
    session: &Session,
    ctx: &mut Ctx,
    response: &mut ResponseHeader,
    compression: &Compression,
) {
    let other = ctx.journey.as_ref().is_some_and(|it| it.drops_body());
    if !other && let Some(filter) = compression.begin(session.req_header(), response) {
        ctx.body_filters.0.push(filter);
    }
}

/// Writes what a filter has stored of an upstream's answers: to the others it is one.
pub(super) async fn stored(
    session: &mut Session,
    ctx: &mut Ctx,
    reply: Reply,
    compression: Option<&Compression>,
) -> Result<()> {
    let is_head = session.req_header().method == Method::HEAD;
    let is_announced = reply.announces_length();
    let (mut head, body) = answer::compose(reply, session.req_header(), &ctx.additions())?;
    if is_head && !is_announced {
        // Nobody knows how long the body is that `GET` gets (RFC 9110 §8.6).
        head.remove_header(&header::CONTENT_LENGTH);
    }
    if let Some(other) = inspect(session, ctx, &mut head).await {
        return own(session, ctx, other).await;
    }
    for link in ctx.filters() {
        let request = session.req_header();
        link.filter
            .on_response_to(request, &ctx.exchange, &mut head);
    }
    if let Some(compression) = compression {
        compress(session, ctx, &mut head, compression);
    }
    let mut body = Some(body);
    ctx.body_filters.piece(&mut body, true);
    let body = body.unwrap_or_default();
    if !ctx.body_filters.is_empty() && !is_head {
        head.remove_header(&header::TRANSFER_ENCODING);
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
    }
    connection::close_if_stopping(session, ctx, ctx.started.elapsed());
    // It tells how old the answer is: the engine would write the time of now.
    if let Some(date) = head.headers.get(header::DATE) {
        session.keep_date(date.as_bytes());
    }
    answer::write(session, head, body).await
}
