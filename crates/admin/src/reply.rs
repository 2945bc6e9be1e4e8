//! Answers of the Admin API.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// The type of every body.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Seconds until it is worth to ask again.
const SOON: HeaderValue = HeaderValue::from_static("1");

/// A JSON body.
pub(super) fn json(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// `{"message": …}`.
pub(super) fn message(status: StatusCode, message: impl Into<Value>) -> Response {
    json(status, &json!({"message": message.into()}))
}

/// 503 with `{"message": …}`, for what may be there in a moment.
pub(super) fn unavailable(message: &str) -> Response {
    let mut response = self::message(StatusCode::SERVICE_UNAVAILABLE, message);
    response.headers_mut().insert(header::RETRY_AFTER, SOON);
    response
}

/// No body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
