//! The request as the upstream sees it.

use std::net::IpAddr;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header, request};
use pingora::prelude::{ErrorType, OrErr};

use super::answer::{X_KONG_REQUEST_ID, via};
use super::head::HeadFields;
use super::router::path::upstream_path;
use super::snapshot::{LiveRoute, LiveService};
use doorward_plugin_api::identity;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PATH: HeaderName = HeaderName::from_static("x-forwarded-path");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// What of a route the forwarding needs.
pub(super) struct ForwardingRules<'a> {
    /// Headers that filters vouch for.
    pub(super) owned_headers: &'a [HeaderName],
    /// Whether strangers may not say who is calling ([`identity::HEADERS`]), also
    /// where no filter of the route vouches for it.
    pub(super) guards_identity: bool,
    /// Whether the matched prefix is cut off.
    pub(super) strip_path: bool,
    /// Whether the client's Host header is kept.
    pub(super) preserve_host: bool,
    /// Whether paths are joined the `v1` way.
    pub(super) v1_paths: bool,
    /// Path put in front of what the route leaves of the request's path.
    pub(super) path: Option<&'a str>,
}

impl<'a> ForwardingRules<'a> {
    /// As `route` and its service say.
    pub(super) fn of(route: &'a LiveRoute, service: &'a LiveService) -> Self {
        Self {
            owned_headers: &route.owned_headers,
            guards_identity: true,
            strip_path: route.strip_path,
            preserve_host: route.preserve_host,
            v1_paths: route.v1_paths,
            path: service.path.as_deref(),
        }
    }

    /// As it came, but for the Host.
    pub(super) fn plain(owned_headers: &'a [HeaderName]) -> Self {
        Self {
            owned_headers,
            guards_identity: false,
            strip_path: false,
            preserve_host: false,
            v1_paths: false,
            path: None,
        }
    }
}

/// What of a request the forwarding needs.
pub(super) struct ForwardedRequest<'a> {
    /// The normalised path.
    pub(super) path: &'a str,
    /// That of the client's request as it was sent, where a filter has put
    /// another one in its place.
    pub(super) client_path: Option<&'a str>,
    /// Length of the matched prefix.
    pub(super) matched: usize,
    /// The TCP peer, as text.
    pub(super) peer: &'a HeaderValue,
    /// Whether the peer is the client itself.
    pub(super) direct: bool,
    /// The client: the peer, or who a trusted peer speaks for.
    pub(super) client: IpAddr,
    /// Whether the peer's own `X-Forwarded-*` are believed.
    pub(super) trusted: bool,
    /// Whether the client used TLS.
    pub(super) secure: bool,
    /// The version of HTTP that the client speaks.
    pub(super) version: Version,
    /// Port of the listener, as text.
    pub(super) port: &'a HeaderValue,
    /// Identifier of the request, if it is to be shown.
    pub(super) request_id: Option<&'a HeaderValue>,
    /// What the client asked for, where the request does not say it any more.
    pub(super) asked: Option<&'a HeaderValue>,
    /// The Host header for the upstream, unless the client's is kept.
    pub(super) host: &'a HeaderValue,
}

/// Turns the client's request into the upstream's.
///
/// `fields` are those of the request. Hop-by-hop headers have been removed; filters have
/// their turn afterwards.
///
/// # Errors
/// When the path can't be represented, which the strict parse rules out.
pub(super) fn prepare(
    request: &mut request::Parts,
    fields: HeadFields,
    rules: &ForwardingRules<'_>,
    origin: &ForwardedRequest<'_>,
) -> pingora::Result<()> {
    // A trusted proxy in front may be a gateway that has asked.
    let guards_identity = rules.guards_identity && !origin.trusted;
    strip_owned(&mut request.headers, rules.owned_headers, guards_identity);
    let host = origin.asked.cloned().or_else(|| client_host(request));
    let path = origin.client_path.unwrap_or(request.uri.path());
    let path = HeaderValue::from_str(path).ok();
    let chain = if fields.has(HeadFields::FORWARDED_FOR) {
        appended(&request.headers, origin.peer)
    } else {
        origin.peer.clone()
    };
    // One growth of the map in place of several.
    request.headers.reserve(12);
    request.headers.insert(X_FORWARDED_FOR, chain);
    forwarded(&mut request.headers, rules, origin, host.as_ref(), path);
    set_path(request, rules, origin)?;
    if fields.has(HeadFields::COOKIES) {
        join_cookies(&mut request.headers);
    }
    let kept = host.filter(|_| rules.preserve_host);
    let host = kept.unwrap_or_else(|| origin.host.clone());
    request.headers.insert(header::HOST, host);
    Ok(())
}

/// HTTP/2 clients send a cookie a field; HTTP/1.1 knows one field for all
/// (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut joined = Vec::with_capacity(256);
    for value in headers.get_all(header::COOKIE) {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(value.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(header::COOKIE, joined);
    }
}

/// The host that the client asked for: HTTP/2 has `:authority` in place of
/// the Host header.
fn client_host(request: &request::Parts) -> Option<HeaderValue> {
    match request.headers.get(header::HOST) {
        Some(host) => Some(host.clone()),
        None => HeaderValue::from_str(request.uri.authority()?.as_str()).ok(),
    }
}

/// Removes what only the gateway may say. `_` counts as `-`, since many
/// upstreams read both as one.
fn strip_owned(headers: &mut HeaderMap, owned: &[HeaderName], guards_identity: bool) {
    // Few names are as long as an owned one; a search for each costs more.
    let bit = |name: &HeaderName| 1_u64 << (name.as_str().len() & 63);
    let lengths = owned.iter().fold(0, |bits, name| bits | bit(name));
    let is_identity = |name: &str| {
        let mut all = identity::HEADERS.iter();
        guards_identity && name.starts_with("x-") && all.any(|own| own.as_str() == name)
    };
    let named = |name: &HeaderName| {
        lengths & bit(name) != 0 && owned.contains(name) || is_identity(name.as_str())
    };
    let twin = |name: &HeaderName| name.as_str().as_bytes().contains(&b'_');
    let is_owned = |name: &HeaderName| {
        let dashed = name.as_str().replace('_', "-");
        owned.iter().any(|own| own.as_str() == dashed)
            || matches!(&*dashed, "content-length" | "transfer-encoding")
            || is_gateways(&dashed)
            || is_identity(&dashed)
    };
    let is_doomed =
        |name: &&HeaderName| named(name) || is_of_proxies(name) || twin(name) && is_owned(name);
    // Of most requests none, which takes no memory.
    let doomed: Vec<HeaderName> = headers.keys().filter(is_doomed).cloned().collect();
    for name in doomed {
        headers.remove(&name);
    }
}

/// Headers between a client and its proxy, `Proxy` above all: programs that get
/// headers as variables take it for the proxy that they shall use themselves.
fn is_of_proxies(name: &HeaderName) -> bool {
    let rest = name.as_str().strip_prefix("proxy");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

/// Headers that the gateway itself sets on every request.
fn is_gateways(name: &str) -> bool {
    name.starts_with("x-forwarded-") || name == "x-real-ip" || name == "x-kong-request-id"
}

fn forwarded(
    headers: &mut HeaderMap,
    rules: &ForwardingRules<'_>,
    origin: &ForwardedRequest<'_>,
    host: Option<&HeaderValue>,
    path: Option<HeaderValue>,
) {
    let client = if origin.direct {
        origin.peer.clone()
    } else {
        address(origin.client)
    };
    headers.insert(X_REAL_IP, client);
    let proto = if origin.secure { "https" } else { "http" };
    let prefix = origin.path.get(..origin.matched).unwrap_or("");
    let prefix = (rules.strip_path && prefix.len() > 1).then_some(prefix);
    let mut say = |name: HeaderName, value: Option<HeaderValue>| {
        if origin.trusted && headers.contains_key(&name) {
            return;
        }
        match value {
            Some(value) => headers.insert(name, value),
            None => headers.remove(name),
        };
    };
    say(X_FORWARDED_PROTO, Some(HeaderValue::from_static(proto)));
    say(X_FORWARDED_HOST, host.map(bare_host));
    say(X_FORWARDED_PORT, Some(origin.port.clone()));
    say(X_FORWARDED_PATH, path);
    say(
        X_FORWARDED_PREFIX,
        prefix.and_then(|prefix| HeaderValue::from_str(prefix).ok()),
    );
    headers.append(header::VIA, via(origin.version));
    match origin.request_id {
        Some(id) => headers.insert(X_KONG_REQUEST_ID, id.clone()),
        None => headers.remove(X_KONG_REQUEST_ID),
    };
}

/// The host of a Host header in lower case, without its port.
fn bare_host(host: &HeaderValue) -> HeaderValue {
    let Ok(text) = host.to_str() else {
        return host.clone();
    };
    let bare = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => text,
    };
    if bare.len() == text.len() && !bare.bytes().any(|b| b.is_ascii_uppercase()) {
        return host.clone();
    }
    HeaderValue::from_str(&bare.to_ascii_lowercase()).unwrap_or_else(|_| host.clone())
}

/// An address as a header's value.
pub(super) fn address(ip: IpAddr) -> HeaderValue {
    use std::fmt::Write;
    let mut text = compact_str::CompactString::const_new("");
    // Writing to a string can't fail.
    let _ = write!(text, "{}", ip.to_canonical());
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// All `X-Forwarded-For` values and the peer, as one.
fn appended(headers: &HeaderMap, peer: &HeaderValue) -> HeaderValue {
    let mut chain = Vec::with_capacity(64);
    for value in headers.get_all(X_FORWARDED_FOR) {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.as_bytes());
    HeaderValue::from_bytes(&chain).unwrap_or_else(|_| peer.clone())
}

/// Sets the target in origin form: path and query, nothing else.
fn set_path(
    parts: &mut request::Parts,
    rules: &ForwardingRules<'_>,
    origin: &ForwardedRequest<'_>,
) -> pingora::Result<()> {
    let path = upstream_path(
        rules.path,
        origin.path,
        origin.matched,
        rules.strip_path,
        rules.v1_paths,
    );
    if parts.uri.path() == path && parts.uri.authority().is_none() {
        return Ok(());
    }
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.into_owned(),
    };
    let target = PathAndQuery::try_from(target)
        .or_err(ErrorType::InvalidHTTPHeader, "path for the upstream")?;
    parts.uri = Uri::from(target);
    Ok(())
}
