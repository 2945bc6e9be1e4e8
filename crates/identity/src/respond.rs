//! Building responses.

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, PRAGMA, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// A JSON response.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(text) => json_text(status, text),
        Err(error) => {
            tracing::error!(%error, "a response could not be written as JSON");
            json_text(StatusCode::INTERNAL_SERVER_ERROR, String::new())
        }
    }
}

/// A response whose JSON is written already.
pub(super) fn json_text(status: StatusCode, bytes: String) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json;charset=UTF-8");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A response without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Forbids any cache to keep the response: it holds a token, a secret or what
/// is known of a person.
pub(super) fn never_stored(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
}
