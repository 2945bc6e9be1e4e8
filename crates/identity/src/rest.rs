//! What the endpoints below `/json` have in common: versions, bodies, errors.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::api_version::{self, SelectedVersion, Version};
use super::error::JsonError;
use super::form::Form;
use super::{Call, respond};
use doorward_core::jose::json;
use doorward_net::http::form::is_json;

/// The version that answers, or the refusal.
pub(super) fn version(call: &Call, offered: &[Version]) -> Result<SelectedVersion, JsonError> {
    let api = &call.live.config.api;
    api_version::choose(call.headers(), offered, api).map_err(JsonError::from)
}

/// The response, which no cache keeps and which says what version answered.
pub(super) fn finish(chosen: SelectedVersion, answer: Result<Response, JsonError>) -> Response {
    let mut response = answer.unwrap_or_else(JsonError::response);
    respond::never_stored(&mut response);
    chosen.stamp(&mut response, "CREST");
    response
}

/// The parameters of the address.
pub(super) fn query(call: &Call) -> Result<Form<'_>, JsonError> {
    let query = call.parts.uri.query().unwrap_or_default();
    let bad = |error: super::form::FormError| bad_request(error.to_string());
    Form::parse(query.as_bytes()).map_err(bad)
}

/// The body, if it is an object with members. Where there is no body, its kind
/// does not matter.
pub(super) fn body(call: &Call) -> Result<Option<Map<String, Value>>, JsonError> {
    if call.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    if !is_json(call.headers()) {
        let text = "Unsupported Media Type";
        return Err(JsonError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    match json::object(&call.body) {
        Ok(body) => Ok(Some(body).filter(|body| !body.is_empty())),
        Err(_) => Err(bad_request("The body is no JSON object")),
    }
}

/// The action that the address names (`_action`).
pub(super) fn action<'f>(query: &'f Form<'_>) -> Result<&'f str, JsonError> {
    let missing = || bad_request("Missing parameter: _action");
    query.get("_action").ok_or_else(missing)
}

/// An action that the resource does not have.
pub(super) fn no_such_action(action: &str) -> JsonError {
    let shown: String = action.chars().take(64).collect();
    bad_request(format!("Unsupported action: {shown}"))
}

pub(super) fn bad_request(text: impl Into<String>) -> JsonError {
    JsonError::new(StatusCode::BAD_REQUEST, text)
}

/// The caller has no session, or not a good one.
pub(super) fn denied() -> JsonError {
    JsonError::new(StatusCode::UNAUTHORIZED, "Access Denied")
}

/// The caller's session is not for this.
pub(super) fn forbidden() -> JsonError {
    JsonError::new(StatusCode::FORBIDDEN, "Forbidden")
}
