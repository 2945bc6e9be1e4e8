//! Upstreams inside the process: the identity provider, and `echo`.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, Method, Uri};
use pingora::http::RequestHeader;
use serde_json::{Value, json};

use super::context::Ctx;
use super::handler::unwind;
use super::head::HeadFields;
use super::outgoing::finish_head;
use super::{answer, connection, log_phase, responses};
use doorward_net::http::bridge::{self, BodyError, Bounds, ClientInfo, RequestId, SecretPath};
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::TOO_LARGE;

/// Lets `router` answer the request `head` and writes the answer.
pub(super) async fn respond(
    session: &mut Session,
    router: &Router,
    head: RequestHeader,
    ctx: &mut Ctx,
    started: Instant,
) -> pingora::Result<()> {
    let replaced = ctx.exchange.replacement.take();
    let body = match replaced.or_else(|| ctx.exchange.body.take()) {
        Some(body) => body,
        None => match bridge::read_body(session, bounds(ctx)).await {
            Ok(body) => body,
            Err(error) => return unreadable(session, ctx, &error).await,
        },
    };
    let mut head = http::request::Parts::from(head);
    head.extensions.insert(ClientInfo {
        addr: ctx.exchange.client,
        secure: ctx.exchange.secure,
    });
    if let Some(id) = ctx.request_id.as_ref().and_then(|id| id.to_str().ok()) {
        head.extensions.insert(RequestId(id.into()));
    }
    let answer = bridge::ask(router, head, body);
    let answer = log_phase::wait_inside(answer, &mut ctx.trail, ctx.started);
    let (mut head, body) = answer.await?;
    let now = Instant::now();
    ctx.upstream_time = Some(now - started);
    log_phase::note_status(ctx, head.status);
    connection::close_if_stopping(session, ctx, now - ctx.started);
    let fields = HeadFields::of(&head.headers);
    if responses::is_seen(ctx, &head)
        && let Some(reply) = Box::pin(responses::inspect(session, ctx, &mut head)).await
    {
        return responses::own(session, ctx, reply).await;
    }
    if session.req_header().version == http::Version::HTTP_10 {
        connection::drop_chunked(session, &mut head);
    }
    finish_head(session, &mut head, fields, ctx, now)?;
    if head.extensions.get::<SecretPath>().is_some() {
        let path = ctx.path(session.req_header());
        let front = path.rsplit_once('/').map_or("", |(front, _)| front);
        ctx.path = Some(format!("{front}/*").into());
        log_phase::note_secret_path(ctx);
    }
    if ctx.journey.is_some()
        && let Some(other) = Box::pin(unwind::unwind(session, ctx, &mut head)).await?
    {
        return answer::write(session, head, other).await;
    }
    let filters = &mut ctx.body_filters;
    bridge::write_filtered(session, head, body, |piece, end| {
        filters.piece(piece, end);
    })
    .await?;
    Ok(())
}

/// The usual bounds on a body, or a filter's narrower one.
fn bounds(ctx: &Ctx) -> Bounds {
    let usual = Bounds::default();
    let limit = ctx.exchange.body_limit;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    Bounds {
        body: limit.map_or(usual.body, |limit| limit.min(usual.body)),
        ..usual
    }
}

async fn unreadable(
    session: &mut Session,
    ctx: &mut Ctx,
    error: &BodyError,
) -> pingora::Result<()> {
    let reply = match error {
        BodyError::TooLarge if ctx.exchange.body_limit.is_some() => {
            Reply::message(error.status(), TOO_LARGE)
        }
        _ => Reply::message(error.status(), error.to_string()),
    };
    session.set_keepalive(None);
    if ctx.journey.is_some() {
        return Box::pin(unwind::reply(session, ctx, reply)).await;
    }
    answer::send(session, reply, &ctx.additions()).await
}

/// The upstream `echo`: says what it was asked, for trying things out.
pub fn echo() -> Router {
    Router::new().fallback(echo_request)
}

async fn echo_request(
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> axum::Json<Value> {
    let mut shown: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in &headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        shown.entry(name.as_str()).or_default().push(value);
    }
    let headers: serde_json::Map<String, Value> = shown
        .into_iter()
        .map(|(name, mut values)| {
            let value = match values.len() {
                1 => Value::from(values.remove(0)),
                _ => Value::from(values),
            };
            (name.to_owned(), value)
        })
        .collect();
    axum::Json(json!({
        "method": method.as_str(),
        "path": uri.path(),
        "query": uri.query(),
        "headers": headers,
        "body": String::from_utf8_lossy(&body),
    }))
}
