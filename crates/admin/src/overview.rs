//! The page at `GET /`: what runs, and what to try next.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};

use super::State;
use super::info::Listener;
use doorward_gateway::answer::escape;

/// The page, with `@NAME@` where the node's own facts go.
const PAGE: &str = include_str!("overview/page.html");
/// What the page may load: nothing, and the styles in it. Nobody may frame it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
);

/// The page of this node.
pub(super) fn page(state: &State) -> Response {
    let entities = state.control.entities();
    let counts = [
        ("services", entities.services.len()),
        ("routes", entities.routes.len()),
        ("plugins", entities.plugins.len()),
        ("consumers", entities.consumers.len()),
        ("upstreams", entities.upstreams.len()),
        ("certificates", entities.certificates.len()),
    ];
    let counts = counts.map(|(name, count)| {
        format!("<li><a href=\"/{name}?declared=true\"><b>{count}</b> {name}</a></li>")
    });
    let metrics = if state.metrics {
        "<a href=\"/metrics\">/metrics</a>, "
    } else {
        ""
    };
    let page = PAGE
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@HOST@", &escape(state.node.hostname()))
        .replace("@PROXY@", &addresses(&state.proxy_listeners))
        .replace("@ADMIN@", &addresses(&state.admin_listeners))
        .replace("@PROXY_URL@", &reachable(&state.proxy_listeners))
        .replace("@ADMIN_URL@", &reachable(&state.admin_listeners))
        .replace("@COUNTS@", &counts.concat())
        .replace("@METRICS@", metrics);
    let mut response = Response::new(Body::from(page));
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn addresses(of: &[Listener]) -> String {
    let shown = of.iter().map(|listener| {
        let scheme = if listener.tls { "https" } else { "http" };
        format!("{scheme}://{}", listener.address)
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The first listener as a command on this machine reaches it.
fn reachable(of: &[Listener]) -> String {
    let Some(listener) = of.first() else {
        return String::new();
    };
    let scheme = if listener.tls { "https" } else { "http" };
    let address = listener.address;
    if address.ip().is_unspecified() || address.ip().is_loopback() {
        format!("{scheme}://localhost:{}", address.port())
    } else {
        format!("{scheme}://{address}")
    }
}
