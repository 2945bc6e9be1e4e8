//! The audit events of changes to the gateway.

use axum::response::Response;
use http::StatusCode;

use super::State;
use super::call::Call;
use super::draft::Key;
use super::endpoint::Endpoint;
use super::error::ApiError;
use doorward_core::model::audit::{Actor, Event, Kind, Operator, PendingAudit, Trace};
use doorward_core::model::credential::MASK;
use doorward_net::http::ClientInfo;

/// What a request is for that changes something.
fn kind(endpoint: &Endpoint, method: &str) -> Option<Kind> {
    if method == "GET" {
        return None;
    }
    match endpoint.path {
        "/explain" | "/schemas/plugins/validate" | "/schemas/{entity}/validate" => None,
        // Nothing is there that it could change.
        "/cache" | "/cache/{key}" => None,
        path if path.starts_with("/debug/") => Some(Kind::LogLevel),
        "/config" => Some(Kind::EntityImport),
        path if path.ends_with("healthy") => Some(Kind::TargetHealth),
        path if path.starts_with("/throttling") => Some(Kind::ThrottlingReset),
        "/broker/tokens/revoke" | "/broker/applications/{id}/tokens" => Some(Kind::TokenRevoke),
        "/broker/applications/{id}/secret" => Some(Kind::ClientSecret),
        "/sessions/{id}" => Some(Kind::LoginEnd),
        path if path.starts_with("/openid-connect/sessions") => Some(Kind::LoginEnd),
        _ => Some(match method {
            "POST" => Kind::EntityCreate,
            "DELETE" => Kind::EntityDelete,
            _ => Kind::EntityUpdate,
        }),
    }
}

/// Answers a request; if it changes something, the record of it goes into the
/// store with the change.
pub(super) async fn answer(
    endpoint: &Endpoint,
    call: Call,
    request_id: &str,
) -> Result<Response, ApiError> {
    let Some(kind) = kind(endpoint, call.method.as_str()) else {
        return (endpoint.handler)(call).await;
    };
    let state = call.state.clone();
    let now_ms = state.clock.now_ms();
    let operator = call.operator.as_ref();
    let actor = operator.map_or(Actor::Admin, |operator| operator.actor.clone());
    let event = Event::new(kind, actor)
        .address(call.client.map(|info| info.addr.ip()))
        .target(&target(endpoint, &call));
    let event = match operator {
        Some(operator) => by_operator(event, operator),
        None => event,
    };
    let told = (event.clone(), trace(request_id));
    let act = async |audit: Option<&PendingAudit>| {
        let pending = audit.cloned();
        let answered = (endpoint.handler)(Call { pending, ..call }).await;
        let response = answered.unwrap_or_else(ApiError::into_response);
        match response.status().as_u16() {
            ..400 => Ok(response),
            _ => Err(response),
        }
    };
    // Entities are told with their write; where nothing is written, nothing was
    // changed.
    let unwritten = matches!(
        kind,
        Kind::TargetHealth | Kind::ThrottlingReset | Kind::LogLevel
    );
    let outcome = state.audit.with(told, now_ms, act, |_| unwritten).await;
    Ok(outcome.unwrap_or_else(|refusal| {
        let event = event.failed(reason(refusal.status()));
        state.audit.note(event, trace(request_id), now_ms);
        refusal
    }))
}

/// What an operator does whom another part of the process has let in. Of a person
/// it is found by name and realm.
fn by_operator(event: Event, operator: &Operator) -> Event {
    let event = operator.mark(event);
    match &operator.actor {
        Actor::Person(person) => event.realm(&person.realm).user(person.id, &person.name),
        _ => event,
    }
}

/// What a request is about. A key in a path is not told.
fn target(endpoint: &Endpoint, call: &Call) -> String {
    let path = call.path.trim_start_matches('/');
    let secret = ["/{keyauth_credentials}", "/{oauth2_tokens}"];
    let by_key = secret.iter().any(|part| endpoint.path.contains(part));
    match call
        .params
        .last()
        .filter(|_| by_key)
        .map(|text| Key::of(text))
    {
        Some(Key::Name(key)) => path.replace(&key, MASK),
        _ => path.to_owned(),
    }
}

/// A request that may not use the listener.
pub(super) fn refused(
    state: &State,
    (client, actor): (Option<ClientInfo>, Actor),
    status: StatusCode,
    request_id: &str,
) {
    let event = Event::new(Kind::AdminRefuse, actor);
    let event = event.address(client.map(|info| info.addr.ip()));
    let event = event.failed(reason(status));
    let now_ms = state.clock.now_ms();
    state.audit.note(event, trace(request_id), now_ms);
}

fn trace(request_id: &str) -> Trace {
    Trace {
        request_id: Some(request_id.to_owned()),
        ..Trace::default()
    }
}

fn reason(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        413 => "too_large",
        500..=599 => "server_error",
        _ => "invalid_request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints;

    #[test]
    fn whatever_changes_something_is_told() {
        let untold: Vec<_> = endpoints::all()
            .flat_map(|endpoint| {
                endpoint
                    .methods
                    .iter()
                    .map(move |method| (endpoint, method))
            })
            .filter(|(endpoint, method)| **method != "GET" && kind(endpoint, method).is_none())
            .map(|(endpoint, _)| endpoint.path)
            .collect();
        let changes_nothing = [
            "/explain",
            "/schemas/plugins/validate",
            "/schemas/{entity}/validate",
            "/cache",
            "/cache/{key}",
        ];
        assert_eq!(untold, changes_nothing);
    }
}
