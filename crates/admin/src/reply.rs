//! Answers of the Admin API.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::body::essence;

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

/// The answer with the request's identifier in its body, if that is the
/// message of a refusal.
pub(super) async fn identified(response: Response, id: &str) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| essence(kind) == "application/json");
    if response.status().as_u16() < 400 || !is_json {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // It was made here, and is in memory.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(head, Body::empty());
    };
    let mut value = serde_json::from_slice(&bytes);
    let body = match &mut value {
        Ok(Value::Object(told)) if told.contains_key("message") => {
            told.insert("request_id".to_owned(), id.into());
            head.headers.remove(header::CONTENT_LENGTH);
            Body::from(Value::Object(std::mem::take(told)).to_string())
        }
        _ => Body::from(bytes),
    };
    Response::from_parts(head, body)
}

/// No body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
