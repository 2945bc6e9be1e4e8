//! The request as the upstream sees it.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, header};
use pingora::http::RequestHeader;

use super::answer::VIA;
use super::router::path::upstream_path;
use super::snapshot::{LiveRoute, LiveService};

/// What of a request the forwarding needs.
pub(super) struct Origin<'a> {
    /// The normalised path.
    pub(super) path: &'a str,
    /// Length of the matched prefix.
    pub(super) matched: usize,
    /// The TCP peer.
    pub(super) peer: IpAddr,
    /// The client: the peer, or who a trusted peer speaks for.
    pub(super) client: IpAddr,
    /// Whether the peer's own `X-Forwarded-*` are believed.
    pub(super) trusted: bool,
    /// Whether the client used TLS.
    pub(super) secure: bool,
    /// Port of the listener.
    pub(super) port: u16,
    /// Identifier of the request, if it is to be shown.
    pub(super) request_id: Option<&'a HeaderValue>,
}

/// Turns the client's request into the upstream's.
///
/// Hop-by-hop headers have been removed; filters have their turn afterwards.
///
/// # Errors
/// When a header can't be represented, which the strict parse rules out.
pub(super) fn prepare(
    request: &mut RequestHeader,
    route: &LiveRoute,
    service: &LiveService,
    origin: &Origin<'_>,
) -> pingora::Result<()> {
    strip_owned(request, &route.owned_headers);
    forwarded(request, route, origin)?;
    set_path(request, route, service, origin)?;
    if !route.preserve_host {
        request.insert_header(header::HOST, service.host.clone())?;
    } else if let Some(host) = client_host(request) {
        request.insert_header(header::HOST, host)?;
    }
    Ok(())
}

/// The host that the client asked for: HTTP/2 has `:authority` in place of
/// the Host header.
fn client_host(request: &RequestHeader) -> Option<HeaderValue> {
    match request.headers.get(header::HOST) {
        Some(host) => Some(host.clone()),
        None => HeaderValue::from_str(request.uri.authority()?.as_str()).ok(),
    }
}

/// Removes what only the gateway may say. `_` counts as `-`, since many
/// upstreams read both as one.
fn strip_owned(request: &mut RequestHeader, owned: &[HeaderName]) {
    for name in owned {
        request.remove_header(name);
    }
    let twin = |name: &HeaderName| name.as_str().contains('_');
    if !request.headers.keys().any(twin) {
        return;
    }
    let doomed: Vec<HeaderName> = request
        .headers
        .keys()
        .filter(|name| twin(name))
        .filter(|name| {
            let dashed = name.as_str().replace('_', "-");
            owned.iter().any(|own| own.as_str() == dashed) || is_gateways(&dashed)
        })
        .cloned()
        .collect();
    for name in doomed {
        request.remove_header(&name);
    }
}

/// Headers that the gateway itself sets on every request.
fn is_gateways(name: &str) -> bool {
    name.starts_with("x-forwarded-") || name == "x-real-ip" || name == "x-kong-request-id"
}

fn forwarded(
    request: &mut RequestHeader,
    route: &LiveRoute,
    origin: &Origin<'_>,
) -> pingora::Result<()> {
    let peer = address(origin.peer);
    let chain = match request.headers.get("x-forwarded-for") {
        None => peer.clone(),
        Some(_) => appended(request, &peer),
    };
    let client = if origin.client == origin.peer {
        peer
    } else {
        address(origin.client)
    };
    request.insert_header("X-Forwarded-For", chain)?;
    request.insert_header("X-Real-IP", client)?;
    let keep =
        |request: &RequestHeader, name: &str| origin.trusted && request.headers.contains_key(name);
    if !keep(request, "x-forwarded-proto") {
        let proto = if origin.secure { "https" } else { "http" };
        request.insert_header("X-Forwarded-Proto", HeaderValue::from_static(proto))?;
    }
    if !keep(request, "x-forwarded-host") {
        match client_host(request) {
            Some(host) => request.insert_header("X-Forwarded-Host", host)?,
            None => {
                request.remove_header("x-forwarded-host");
            }
        }
    }
    if !keep(request, "x-forwarded-port") {
        request.insert_header("X-Forwarded-Port", HeaderValue::from(origin.port))?;
    }
    if !keep(request, "x-forwarded-path") {
        request.insert_header("X-Forwarded-Path", origin.path)?;
    }
    if !keep(request, "x-forwarded-prefix") {
        let prefix = origin.path.get(..origin.matched).unwrap_or("");
        if route.strip_path && prefix.len() > 1 {
            request.insert_header("X-Forwarded-Prefix", prefix)?;
        } else {
            request.remove_header("x-forwarded-prefix");
        }
    }
    request.append_header("Via", HeaderValue::from_static(VIA))?;
    match origin.request_id {
        Some(id) => request.insert_header("X-Kong-Request-Id", id.clone())?,
        None => {
            request.remove_header("x-kong-request-id");
        }
    }
    Ok(())
}

fn address(ip: IpAddr) -> HeaderValue {
    use std::fmt::Write;
    let mut text = compact_str::CompactString::const_new("");
    // Writing to a string can't fail.
    let _ = write!(text, "{}", ip.to_canonical());
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// All `X-Forwarded-For` values and the peer, as one.
fn appended(request: &RequestHeader, peer: &HeaderValue) -> HeaderValue {
    let mut chain = Vec::with_capacity(64);
    for value in request.headers.get_all("x-forwarded-for") {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.as_bytes());
    HeaderValue::from_bytes(&chain).unwrap_or_else(|_| peer.clone())
}

fn set_path(
    request: &mut RequestHeader,
    route: &LiveRoute,
    service: &LiveService,
    origin: &Origin<'_>,
) -> pingora::Result<()> {
    let path = upstream_path(
        service.path.as_deref(),
        origin.path,
        origin.matched,
        route.strip_path,
        route.v1_paths,
    );
    let sent = request.raw_path();
    let query = sent.iter().position(|&b| b == b'?');
    if &sent[..query.unwrap_or(sent.len())] == path.as_bytes() {
        return Ok(());
    }
    let mut target = path.into_owned().into_bytes();
    if let Some(query) = query {
        target.extend_from_slice(&sent[query..]);
    }
    request.set_raw_path(&target)
}
