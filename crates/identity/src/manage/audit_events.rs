//! What the audit log is told of changes.

use axum::response::Response;
use serde_json::Value;

use super::error::ManageError;
use super::{Answer, Call};
use doorward_core::model::audit::{Actor, Detail, Event, Kind, PendingAudit, Trace};

/// Answers a request that changes something; the record of it goes into the
/// store with the change.
pub(super) async fn record_change(
    kind: Kind,
    call: Call,
    handler: fn(Call) -> Answer,
) -> Result<Response, ManageError> {
    let state = call.state.clone();
    let now_ms = call.now_ms;
    let event = event(kind, &call);
    let with_trace = (event.clone(), Trace::default());
    let audit = &state.audit;
    let act = async |audit: Option<&PendingAudit>| {
        let pending = audit.cloned();
        handler(Call { pending, ..call }).await
    };
    let outcome = audit.with(with_trace, now_ms, act, |_| true).await;
    if let Err(error) = &outcome {
        audit.note(event.failed(error.reason()), Trace::default(), now_ms);
    }
    outcome
}

/// What the request itself tells. Handlers complete it where they know more.
fn event(kind: Kind, call: &Call) -> Event {
    let mut event = match &call.operator {
        Some(operator) => operator.mark(Event::new(kind, operator.actor.clone())),
        None => Event::new(kind, Actor::Admin),
    };
    event = event.address(call.address);
    let realm = call.realm().map(|realm| realm.path.clone());
    let named = call.param(0);
    event = match kind {
        Kind::RealmCreate | Kind::RealmUpdate | Kind::RealmDelete => {
            let path = format!("/{}", named.trim_matches('/'));
            // A realm that is to be made is known by the body alone.
            if named.is_empty() {
                event
            } else {
                event.realm(&path)
            }
        }
        _ => match realm {
            Ok(path) => event.realm(&path),
            Err(_) => event,
        },
    };
    if let Some(name) = parameter(call, "client_id") {
        event = event.client(&name);
    }
    match kind {
        Kind::ClientUpdate | Kind::ClientSecret | Kind::ClientDelete => {
            event = event.client(named);
        }
        Kind::SessionEnd if !named.is_empty() => {
            event = event.target(&format!("sessions/{named}"));
        }
        Kind::InitialTokenDelete => event = event.target(&format!("initial-tokens/{named}")),
        _ => {}
    }
    if kind == Kind::SessionEnd {
        event = event.with("cause", "admin");
    }
    let members = members(call);
    if members.is_empty() {
        return event;
    }
    event.with(
        "members",
        members.iter().map(String::as_str).collect::<Detail>(),
    )
}

fn parameter(call: &Call, name: &str) -> Option<String> {
    let query = call.query().ok()?;
    query.get(name).map(str::to_owned)
}

/// The names of what the body sets: never the values.
fn members(call: &Call) -> Vec<String> {
    let object = call.object().unwrap_or_default();
    // A version names what is meant, and sets nothing.
    let named = object.keys().filter(|name| *name != "version");
    let mut names: Vec<String> = named.cloned().collect();
    if let Some(Value::Object(settings)) = object.get("settings") {
        names.extend(settings.keys().map(|name| format!("settings.{name}")));
    }
    names
}
