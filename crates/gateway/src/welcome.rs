//! The first page: what somebody sees who opens a door that has no route for `/`.

use bytes::Bytes;
use http::header::CONTENT_SECURITY_POLICY;
use http::{HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;

use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::filter::Exchange;

use super::answer::{no_route, prefers_html};

/// The page. It tells nothing of the configuration.
const PAGE: &[u8] = include_bytes!("welcome/page.html");
/// What the page may load: nothing, and the styles in it.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");

/// The answer to a request that no route wants: for a browser on this machine that
/// opens `/`, a page that says what to do next, otherwise the usual message. The
/// status is the same, so that no program takes the page for an application.
pub(super) fn no_route_for(request: &RequestHeader, exchange: &Exchange) -> Reply {
    let is_page = request.uri.path() == "/"
        && matches!(request.method, Method::GET | Method::HEAD)
        && exchange.client.ip().to_canonical().is_loopback()
        && prefers_html(&request.headers);
    if !is_page {
        return no_route();
    }
    let mut reply = Reply::empty(StatusCode::NOT_FOUND).header(CONTENT_SECURITY_POLICY, POLICY);
    reply.body = ReplyBody::Raw("text/html; charset=utf-8", Bytes::from_static(PAGE));
    reply
}
