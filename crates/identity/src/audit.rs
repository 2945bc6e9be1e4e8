//! What the audit log is told of requests to the provider.
//!
//! While a request is answered, a trail goes along: who asks, about whom, for
//! what. Wherever one of these is learned, a line adds it here ([`client`],
//! [`user`], [`actor`], [`because`]). Events are made of the trail: of what was
//! done, together with the write itself ([`with`]), and of what came of the
//! request, at its end ([`follow`]).

use std::borrow::Cow;
use std::future::Future;
use std::net::IpAddr;

use axum::response::Response;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use uuid::Uuid;

use super::bearer::ValidToken;
use super::clients::LiveClient;
use super::issue::Issue;
use super::{Call, State};
use doorward_core::model::audit::{Actor, Detail, Event, Kind, PendingAudit, Trace};
use doorward_core::model::user::User;
use doorward_net::http::ClientInfo;
use doorward_net::http::bridge::RequestId;

tokio::task_local! {
    static TRAIL: Mutex<Trail>;
}

/// What is known of a request so far.
#[derive(Debug)]
struct Trail {
    realm: String,
    address: Option<IpAddr>,
    trace: Trace,
    actor: Actor,
    client_id: Option<String>,
    user: Option<(Uuid, String)>,
    reason: Option<Cow<'static, str>>,
    details: Vec<(&'static str, Detail)>,
    /// Whether what the request is for was told with its write.
    told: bool,
}

/// An extension of an answer that says no: why, as a code.
#[derive(Clone, Debug)]
pub(super) struct Reason(pub(super) Cow<'static, str>);

fn on_trail(add: impl FnOnce(&mut Trail)) {
    // Not every request is followed.
    let _ = TRAIL.try_with(|trail| add(&mut trail.lock()));
}

/// The request is from this client, or says so; `proven`: it did not just say so.
pub(super) fn client(client: &LiveClient, proven: bool) {
    on_trail(|trail| {
        trail.client_id = Some(client.id().to_owned());
        if proven && trail.actor == Actor::Anonymous {
            trail.actor = Actor::Client(client.id().to_owned());
        }
    });
}

/// The request concerns the client of this identifier.
pub(super) fn of_client(id: &str) {
    on_trail(|trail| trail.client_id = Some(id.to_owned()));
}

/// The request shows this good access token.
pub(super) fn bearer(token: &ValidToken) {
    on_trail(|trail| {
        if trail.actor == Actor::Anonymous {
            trail.actor = match &token.user {
                Some(user) => Actor::User(user.id),
                None => Actor::Client(token.issued.client_id().to_owned()),
            };
            trail.client_id = Some(token.issued.client_id().to_owned());
        }
    });
}

/// The request concerns this user.
pub(super) fn user(user: &User) {
    on_trail(|trail| trail.user = Some((user.id, user.user_name.clone())));
}

/// Who asks is known.
pub(super) fn actor(actor: Actor) {
    on_trail(|trail| trail.actor = actor);
}

/// The token that the request is answered with has this `auditTrackingId`.
pub(super) fn traced(tracking_id: &str) {
    on_trail(|trail| {
        if trail.trace.tracking_id.is_none() {
            trail.trace.tracking_id = Some(tracking_id.to_owned());
        }
    });
}

/// A fact that goes into the request's event. Never a value that is secret.
pub(super) fn detail(name: &'static str, detail: impl Into<Detail>) {
    on_trail(|trail| {
        trail.details.retain(|(known, _)| *known != name);
        trail.details.push((name, detail.into()));
    });
}

/// The request is answered with these tokens.
pub(super) fn tokens(issue: &Issue<'_>) {
    on_trail(|trail| {
        trail.client_id = Some(issue.client.id().to_owned());
        // Its client may know the user by a pseudonym.
        if let Some(id) = issue.user.filter(|_| trail.user.is_none()) {
            trail.user = Some((id, issue.subject.to_owned()));
        }
    });
    detail("grant_type", issue.grant_type);
    detail(
        "scope",
        issue.scopes.iter().map(String::as_str).collect::<Detail>(),
    );
    if issue.user.is_some() {
        // Of clients on their own behalf each token has its own.
        detail("grant", issue.grant_id);
    }
}

/// Why the request is refused, more exactly than the answer says: as a code.
pub(super) fn because(reason: &'static str) {
    on_trail(|trail| trail.reason = Some(Cow::Borrowed(reason)));
}

/// An event of this kind as far as the trail tells.
fn event(kind: Kind) -> (Event, Trace) {
    let made = TRAIL.try_with(|trail| {
        let trail = trail.lock();
        let mut event = Event::new(kind, trail.actor.clone())
            .realm(&trail.realm)
            .address(trail.address);
        if let Some((id, name)) = &trail.user {
            event = event.user(*id, name);
        }
        if let Some(client_id) = &trail.client_id {
            event = event.client(client_id);
        }
        for (name, detail) in &trail.details {
            event = event.with(name, detail.clone());
        }
        (event, trail.trace.clone())
    });
    made.unwrap_or_else(|_| (Event::new(kind, Actor::System), Trace::default()))
}

/// Does `act`, a write to the store, together with the record that this has
/// been done, as far as the trail and `more` tell. The act gets the record for its
/// write.
///
/// # Errors
/// Those of `act`.
pub(super) async fn with<T, E>(
    state: &State,
    kind: Kind,
    more: impl FnOnce(Event) -> Event,
    act: impl AsyncFnOnce(Option<&PendingAudit>) -> Result<T, E>,
) -> Result<T, E> {
    with_if(state, kind, more, act, |_| true).await
}

/// As [`with`], unless `did` says of the outcome that nothing was done.
///
/// # Errors
/// Those of `act`.
pub(super) async fn with_if<T, E>(
    state: &State,
    kind: Kind,
    more: impl FnOnce(Event) -> Event,
    act: impl AsyncFnOnce(Option<&PendingAudit>) -> Result<T, E>,
    did: impl Fn(&T) -> bool,
) -> Result<T, E> {
    let (event, trace) = event(kind);
    let now_ms = state.clock.now_ms();
    let told = (more(event), trace);
    let done = state.audit.with(told, now_ms, act, &did).await?;
    if did(&done) {
        on_trail(|trail| trail.told = true);
    }
    Ok(done)
}

/// For what needs no more than the trail.
pub(super) fn as_it_is(event: Event) -> Event {
    event
}

/// Notes that something was refused, or has come of the request besides.
pub(super) fn note(state: &State, kind: Kind, more: impl FnOnce(Event) -> Event) {
    let (event, trace) = event(kind);
    state.audit.note(more(event), trace, state.clock.now_ms());
}

/// As [`note`], and durable when it returns.
pub(super) async fn keep(state: &State, kind: Kind, more: impl FnOnce(Event) -> Event) {
    let (event, trace) = event(kind);
    let now_ms = state.clock.now_ms();
    state.audit.keep(more(event), trace, now_ms).await;
}

/// As [`keep`], of several things that were done at once: one wait for the disk.
pub(super) async fn keep_each<T>(
    state: &State,
    kind: Kind,
    each: &[T],
    more: impl Fn(Event, &T) -> Event,
) {
    let events = each.iter().map(|one| {
        let (event, trace) = event(kind);
        (more(event, one), trace)
    });
    state.audit.keep_all(events, state.clock.now_ms()).await;
}

/// Answers the request of `call` while its trail goes along, and tells what came
/// of it where that was not told with a write.
pub(super) async fn follow(
    rule: AuditRule,
    call: &Call,
    answered: impl Future<Output = Response>,
) -> Response {
    let Some(about) = about(rule, &call.parts.method) else {
        return answered.await;
    };
    let trail = Mutex::new(Trail::of(call));
    TRAIL
        .scope(trail, async {
            let response = answered.await;
            conclude(&call.state, about, &response);
            response
        })
        .await
}

impl Trail {
    fn of(call: &Call) -> Self {
        let extensions = &call.parts.extensions;
        let id = extensions.get::<RequestId>();
        Self {
            realm: call.realm.path.clone(),
            address: extensions.get::<ClientInfo>().map(|info| info.addr.ip()),
            trace: Trace {
                request_id: id.map(|id| id.0.to_string()),
                tracking_id: None,
            },
            actor: Actor::Anonymous,
            client_id: None,
            user: None,
            reason: None,
            details: Vec::new(),
            told: false,
        }
    }
}

/// What the end of a request to an endpoint adds to the audit log.
#[derive(Clone, Copy, Debug)]
pub(super) enum AuditRule {
    /// Nothing.
    Silent,
    /// A refusal, and a success that no write has recorded.
    Outcome(Kind),
    /// A refusal.
    Refusal(Kind),
    /// A refusal; the method says of what, if it is recorded at all.
    RefusalOf(fn(&Method) -> Option<Kind>),
}

/// What the end of a request tells.
#[derive(Clone, Copy, Debug)]
struct About {
    /// What it was for, if it succeeds without a write that tells.
    done: Option<Kind>,
    /// What was refused.
    refused: Kind,
}

fn about(rule: AuditRule, method: &Method) -> Option<About> {
    let (done, refused) = match rule {
        AuditRule::Silent => return None,
        AuditRule::Outcome(kind) => (Some(kind), kind),
        AuditRule::Refusal(kind) => (None, kind),
        AuditRule::RefusalOf(kind) => (None, kind(method)?),
    };
    Some(About { done, refused })
}

fn conclude(state: &State, about: About, response: &Response) {
    let status = response.status();
    let (told, reason) = TRAIL.with(|trail| {
        let trail = trail.lock();
        (trail.told, trail.reason.clone())
    });
    let said = response.extensions().get::<Reason>();
    let said = said.map(|Reason(said)| said.clone());
    let refused = status.is_client_error() || status.is_server_error();
    // An answer that leads a browser back with an error is a refusal, too.
    if refused || said.is_some() {
        // What is wrong with the form of a request is of no interest.
        let uninteresting = matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_ACCEPTABLE
        );
        if uninteresting && reason.is_none() {
            return;
        }
        let reason = reason.or(said);
        let reason = reason.unwrap_or_else(|| Cow::Borrowed(reason_of(status)));
        note(state, about.refused, |event| event.failed(reason));
    } else if let Some(done) = about.done.filter(|_| !told) {
        note(state, done, |event| event);
    }
}

/// What a status says of a refusal, as a code.
pub(super) fn reason_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 | 412 => "conflict",
        413 => "too_large",
        429 => "too_many_requests",
        500..=599 => "server_error",
        _ => "invalid_request",
    }
}
