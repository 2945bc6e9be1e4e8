//! The route of a request, and whether it came by a protocol of that route.
//! The data path and `explain` both ask here.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, StatusCode, Version, header};
use ipnet::IpNet;
use pingora::http::RequestHeader;

use super::admit;
use super::edge::https::redirection;
use super::router::{Match, Query, path};
use super::snapshot::{LiveRoute, Snapshot};
use doorward_core::model::route::Route;
use doorward_net::http::reply::Reply;

/// How a request came in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival<'a> {
    /// Whether the connection itself uses TLS.
    pub(super) tls: bool,
    /// The server name of its handshake.
    pub(super) sni: Option<&'a str>,
    /// Port of the listener.
    pub(super) port: u16,
}

/// Why a request has no route.
#[derive(Debug)]
pub(super) enum Unrouted {
    /// It is refused.
    Refused(Reply),
    /// None matches.
    NoRoute,
}

/// Finds the route of `request`. `normal` is set if the path is not the one
/// that was sent, also where the request is refused.
///
/// # Errors
/// [`Unrouted`] for a request that is refused, or that no route matches.
pub(super) fn choose<'s>(
    snapshot: &'s Snapshot,
    request: &RequestHeader,
    arrival: Arrival<'_>,
    normal: &mut Option<Box<str>>,
) -> Result<(Match, &'s Arc<LiveRoute>), Unrouted> {
    let admitted = admit::admit(request).map_err(Unrouted::Refused)?;
    let found = snapshot.find(&query(request, &admitted, arrival));
    if let Cow::Owned(path) = admitted.path {
        *normal = Some(path.into());
    }
    let (found, route) = found.ok_or(Unrouted::NoRoute)?;
    let path = normal.as_deref().unwrap_or(request.uri.path());
    if route.strip_path && path::climbs_when_stripped(path, found.matched) {
        let message = "Invalid request path";
        let reply = Reply::message(StatusCode::BAD_REQUEST, message);
        return Err(Unrouted::Refused(reply));
    }
    Ok((found, route))
}

/// What of `request` decides its route.
pub(super) fn query<'a>(
    request: &'a RequestHeader,
    admitted: &'a admit::Admitted<'a>,
    arrival: Arrival<'a>,
) -> Query<'a> {
    Query {
        host: admitted.host,
        port: admitted.port.unwrap_or(arrival.port),
        path: &admitted.path,
        method: &request.method,
        headers: &request.headers,
        tls: arrival.tls,
        sni: arrival.sni,
    }
}

/// Whether the client used TLS, itself or with the trusted peer in front.
pub(super) fn is_secure(tls: bool, request: &RequestHeader, peer: IpAddr, own: &[IpNet]) -> bool {
    tls || (admit::is_trusted(peer, own)
        && request
            .headers
            .get("x-forwarded-proto")
            .is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https")))
}

/// The protocols of a route, as far as they restrict it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocols {
    /// Over TLS or not.
    Any,
    /// Over TLS; what answers others: 426 or a redirect.
    Https(u16),
    /// gRPC, over TLS or not.
    Grpc,
    /// gRPC over TLS.
    Grpcs,
}

impl Protocols {
    /// The protocols of `route`.
    pub fn of(route: &Route) -> Self {
        let has = |name: &str| route.protocols.iter().any(|protocol| protocol == name);
        match (has("grpc"), has("grpcs"), has("http"), has("https")) {
            (true, _, false, false) => Protocols::Grpc,
            (false, true, false, false) => Protocols::Grpcs,
            (_, _, false, true) => Protocols::Https(route.https_redirect_status_code),
            _ => Protocols::Any,
        }
    }

    /// The answer to a request that came otherwise (gateway-admin-api §9).
    pub(super) fn refuse(self, request: &RequestHeader, secure: bool) -> Option<Reply> {
        match self {
            Protocols::Any => None,
            Protocols::Https(_) if secure => None,
            Protocols::Https(code) => Some(https_required(code, request)),
            Protocols::Grpc => not_grpc(request),
            Protocols::Grpcs => {
                not_grpc(request).or_else(|| (!secure).then(|| upgrade(HTTPS, "TLS/1.2, HTTP/2")))
            }
        }
    }
}

const HTTPS: &str = "Please use HTTPS protocol";

fn not_grpc(request: &RequestHeader) -> Option<Reply> {
    let kind = request.headers.get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        let message = "Non-gRPC request matched gRPC route";
        return Some(Reply::message(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    (request.version != Version::HTTP_2).then(|| upgrade("Please use HTTP2 protocol", "HTTP/2"))
}

/// The answer to plain HTTP on a route that is for https only.
fn https_required(code: u16, request: &RequestHeader) -> Reply {
    let status = StatusCode::from_u16(code).ok();
    let status = status.filter(StatusCode::is_redirection);
    let redirect = status.and_then(|status| redirection(status, request, 0));
    redirect.unwrap_or_else(|| upgrade(HTTPS, "TLS/1.2, HTTP/1.1"))
}

fn upgrade(message: &'static str, to: &'static str) -> Reply {
    Reply::message(StatusCode::UPGRADE_REQUIRED, message)
        .header(header::CONNECTION, HeaderValue::from_static("Upgrade"))
        .header(header::UPGRADE, HeaderValue::from_static(to))
}
