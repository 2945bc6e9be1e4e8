//! What becomes of a request that no entity route has taken.

use std::sync::Arc;

use http::StatusCode;

use super::ProxySettings;
use super::destination::Destinations;
use super::execute::{End, Execution, Phase};
use super::handler_context::{HandlerContext, origin_form};
use crate::answer;
use crate::context::Ctx;
use crate::router::path;
use crate::snapshot::Snapshot;
use crate::welcome::no_route_for;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;

/// Paths at and below this are the gateway's own, and never a route file's.
const RESERVED: &str = "/openig";

/// Whether route files may see requests for `path`.
pub(crate) fn is_open(path: &str) -> bool {
    let rest = path.strip_prefix(RESERVED);
    !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Asks the route files of `snapshot`. The answer, or nothing if the request
/// is to be proxied to the journey's destination.
pub(crate) async fn ask(
    session: &mut Session,
    ctx: &mut Ctx,
    snapshot: &Snapshot,
    destinations: &Destinations,
) -> Option<Reply> {
    ctx.journey = Some(Box::new(HandlerContext::begin(
        session,
        ctx.path.as_deref(),
    )));
    ctx.introduce(session);
    let phase = Phase::Request(destinations);
    let mut walk = Execution {
        session,
        ctx,
        phase,
    };
    let mut entered = walk.enter(&snapshot.files).await;
    if let (Ok(None), Some(mount)) = (&entered, snapshot.mounted()) {
        entered = walk.enter(mount).await;
    }
    let end = match entered {
        Ok(Some(handler)) => walk.through(handler).await,
        Ok(None) => {
            ctx.journey = None;
            ctx.answer_without_route(snapshot);
            return Some(no_route_for(session.req_header(), &ctx.exchange));
        }
        Err(reply) => End::Reply(reply),
    };
    match end {
        End::Reply(reply) => {
            restore(session, ctx);
            Some(reply)
        }
        End::Proxy(settings) => {
            let bound = bind(session, ctx, settings, snapshot, destinations);
            restore(session, ctx);
            bound.err()
        }
    }
}

/// Settles where the request goes, and what for.
fn bind(
    session: &mut Session,
    ctx: &mut Ctx,
    settings: &Arc<ProxySettings>,
    snapshot: &Snapshot,
    destinations: &Destinations,
) -> Result<(), Reply> {
    let Some(journey) = &mut ctx.journey else {
        return Err(answer::no_route());
    };
    let uri = &session.req_header().uri;
    if path::normalize(uri.path()).is_err() {
        let message = "Invalid request path";
        ctx.exchange.refusal = Some("malformed_request".into());
        return Err(Reply::message(StatusCode::BAD_REQUEST, message));
    }
    let mut refuse = |code: &'static str| {
        ctx.exchange.refusal = Some(code.into());
        Reply::message(StatusCode::BAD_GATEWAY, "no upstream for this request")
    };
    let met = journey.base.take().filter(|base| base.matches(uri));
    let base = match (met, uri.scheme_str(), uri.authority()) {
        (Some(base), ..) => base,
        // A filter said so.
        (None, Some(scheme), Some(authority)) => {
            let base = destinations.base(&format!("{scheme}://{authority}"));
            base.map_err(|error| {
                tracing::debug!(%error, "a filter's target is none");
                refuse("bad_base_uri")
            })?
        }
        // To ask the host that the client names would be an open proxy.
        _ => return Err(refuse("no_base_uri")),
    };
    let service = destinations.service(&base, settings, snapshot);
    journey.destination = Some(service.map_err(|error| {
        destinations.tell(&base, &error);
        refuse("no_upstream")
    })?);
    Ok(())
}

/// Puts back what the engine reads from the client's request: its method and
/// framing; the target is in origin form from here on.
fn restore(session: &mut Session, ctx: &mut Ctx) {
    let Some(journey) = &mut ctx.journey else {
        return;
    };
    let request = session.req_header_mut();
    journey.framing.restore(request);
    if request.method != journey.method {
        journey.asked = Some(request.method.clone());
        request.set_method(journey.method.clone());
    }
    if ctx.exchange.original.is_some() {
        let normal = path::normalize(request.uri.path()).ok();
        let normal = normal.filter(|path| *path != request.uri.path());
        let normal = normal.map(|path| path.into_owned());
        ctx.exchange.upstream = request.uri.authority().cloned();
        if normal.is_some() || request.uri.authority().is_some() {
            let uri = origin_form(&request.uri, normal.as_deref());
            request.set_uri(uri);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_paths_are_not_for_route_files() {
        assert!(!is_open("/openig"));
        assert!(!is_open("/openig/api/system"));
        assert!(is_open("/openigloo"));
        assert!(is_open("/"));
    }
}
