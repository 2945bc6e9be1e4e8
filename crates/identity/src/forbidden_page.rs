//! The page for users whom only certain addresses may name.

use axum::response::Response;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use doorward_net::http::reply::FORBIDDEN_PAGE;

/// The response with the page, which no frame shows.
pub(super) fn forbidden_page() -> Response {
    let mut response = Response::new(axum::body::Body::from(FORBIDDEN_PAGE));
    *response.status_mut() = StatusCode::FORBIDDEN;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, html);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.insert(CONTENT_SECURITY_POLICY, nothing);
    response
}
