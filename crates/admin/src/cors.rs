//! What browsers ask before and after a request: `OPTIONS`, and the headers of
//! cross-origin sharing (gateway-admin-api §1).

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::reply;

/// The answer to `OPTIONS`, with the methods that a path knows.
pub(super) fn options(allow: &str, request: &HeaderMap) -> Response {
    let mut response = reply::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    insert(headers, header::ALLOW, allow);
    insert(headers, header::ACCESS_CONTROL_ALLOW_METHODS, allow);
    let wanted = request
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .cloned()
        .unwrap_or(HeaderValue::from_static("Content-Type"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    response
}

/// Sets a header, if `value` can be one's.
pub(super) fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// An origin that got this far is the listener's own, or one that is allowed.
pub(super) fn allow_origin(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let origin = origin.unwrap_or(HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        HeaderValue::from_static("true"),
    );
}
