//! An answer's way back through the steps that its request took.

use bytes::Bytes;
use http::{Method, StatusCode, header};
use pingora::http::ResponseHeader;

use super::execute::{End, Execution, Phase};
use super::handler_context::Framing;
use super::{Case, Step};
use crate::answer;
use crate::context::Ctx;
use doorward_expr::Exceeded;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::{Session, is_interim};

/// Writes an answer that was made in this process, after the steps had their
/// say.
pub(crate) async fn reply(
    session: &mut Session,
    ctx: &mut Ctx,
    reply: Reply,
) -> pingora::Result<()> {
    let (mut head, body) = answer::compose(reply, session.req_header(), &ctx.additions())?;
    let other = unwind(session, ctx, &mut head).await?;
    answer::write(session, head, other.unwrap_or(body)).await
}

/// Gives the steps that ran, the last one first, their say in the answer with
/// this head; the body, if another answer takes its place.
pub(crate) async fn unwind(
    session: &mut Session,
    ctx: &mut Ctx,
    head: &mut ResponseHeader,
) -> pingora::Result<Option<Bytes>> {
    let mut other = None;
    let mut framing = Framing::of(&head.headers);
    while let Some((steps, at)) = ctx.journey.as_mut().and_then(|journey| journey.pop()) {
        match &steps[at] {
            Step::Filter { filter, .. } => {
                filter.on_response_to(session.req_header(), &ctx.exchange, head);
            }
            // An upgraded connection is no answer that another one can replace.
            Step::Switch { on_response, .. } if head.status != StatusCode::SWITCHING_PROTOCOLS => {
                let taken = taken(on_response, session, ctx, head);
                let phase = Phase::Response(head);
                let mut walk = Execution {
                    session,
                    ctx,
                    phase,
                };
                let end = match taken {
                    Ok(None) => continue,
                    Ok(Some(case)) => walk.through(&case.handler).await,
                    Err(Exceeded) => End::Reply(walk.exceeded()),
                };
                let reply = match end {
                    End::Reply(reply) => reply,
                    // Refused when it was loaded.
                    End::Proxy(_) => Reply::empty(StatusCode::INTERNAL_SERVER_ERROR),
                };
                let request = session.req_header();
                let (new, body) = answer::compose(reply, request, &ctx.additions())?;
                *head = new;
                framing = Framing::of(&head.headers);
                other = Some(body);
            }
            _ => {}
        }
    }
    framing.restore(head);
    Ok(other)
}

/// The first case whose condition is true for this answer.
fn taken<'c>(
    cases: &'c [Case],
    session: &Session,
    ctx: &Ctx,
    head: &ResponseHeader,
) -> Result<Option<&'c Case>, Exceeded> {
    let scope = ctx.exchange.scope_with_response(session.req_header(), head);
    for case in cases {
        let condition = case.condition.as_ref();
        if condition.map_or(Ok(true), |condition| condition.is_true(&scope))? {
            return Ok(Some(case));
        }
    }
    Ok(None)
}

/// Finishes the head of an upstream's answer. If another answer takes its
/// place, that one is written, and the engine is left with a head that it
/// ignores.
pub(crate) async fn proxied(
    session: &mut Session,
    ctx: &mut Ctx,
    head: &mut ResponseHeader,
) -> pingora::Result<()> {
    let status = head.status;
    if is_interim(status) {
        return Ok(());
    }
    if let Some(body) = unwind(session, ctx, head).await? {
        let ignored = ResponseHeader::build(StatusCode::EARLY_HINTS, Some(0))?;
        let head = std::mem::replace(head, ignored);
        session.set_ignore_info_resp(true);
        if let Some(journey) = &mut ctx.journey {
            journey.diverted = true;
        }
        return answer::write(session, head, body).await;
    }
    let asked = ctx
        .journey
        .as_ref()
        .and_then(|journey| journey.asked.as_ref());
    if asked == Some(&Method::HEAD) && !status.is_informational() {
        // The client asked for a body that the upstream was not asked for.
        head.remove_header(&header::TRANSFER_ENCODING);
        if status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED {
            head.insert_header(header::CONTENT_LENGTH, 0)?;
        }
    }
    Ok(())
}
