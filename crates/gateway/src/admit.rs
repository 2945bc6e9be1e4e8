//! The one strict parse of a request: what is ambiguous is refused before any
//! filter sees it, and everything later works on what was read here.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, Method, StatusCode};
use ipnet::IpNet;
use pingora::http::RequestHeader;

use super::router::path;
use doorward_net::http::reply::Reply;
use doorward_net::http::{authority, framing, networks};

/// Longest request head, names and values added up.
const HEAD_LIMIT: usize = 32 << 10;

/// What was read of a request.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    /// Host without port, as sent; empty in HTTP/1.0 without Host.
    pub(super) host: &'a str,
    /// The port that the Host header names.
    pub(super) port: Option<u16>,
    /// The normalised path.
    pub(super) path: Cow<'a, str>,
}

/// Reads `request`, or says why it is refused.
pub(super) fn admit(request: &RequestHeader) -> Result<Admitted<'_>, Reply> {
    let bad = |message: &'static str| Reply::message(StatusCode::BAD_REQUEST, message);
    let target = request.raw_path();
    let mut size = target.len();
    for (name, value) in &request.headers {
        size += name.as_str().len() + value.len();
    }
    if size > HEAD_LIMIT || request.headers.len() > framing::MAX_FIELDS {
        return Err(bad("Request header or cookie too large"));
    }
    let (host, port) = authority::of(request).ok_or_else(|| bad("Invalid Host header"))?;
    let path = match origin_form(request) {
        Some(raw) => path::normalize(raw).map_err(|_| bad("Invalid request path"))?,
        None => return Err(bad("Invalid request path")),
    };
    Ok(Admitted { host, port, path })
}

/// The path as sent, if it is text.
fn origin_form(request: &RequestHeader) -> Option<&str> {
    if request.raw_path_is_utf8() {
        return match request.uri.path() {
            // `OPTIONS *` asks the server itself; no route can mean it. No other
            // method may ask so (RFC 9112 §3.2.4).
            "*" => (request.method == Method::OPTIONS).then_some("/"),
            path => Some(path),
        };
    }
    None
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The client: `peer`, or who a trusted peer says it speaks for.
///
/// `real_ip_header` names the header that says so. Without one it is
/// `X-Forwarded-For` where there is one, and else `X-Real-IP`: proxies that
/// keep a chain may pass on an `X-Real-IP` that a client made up.
pub(super) fn client(
    request: &RequestHeader,
    peer: SocketAddr,
    trusted: &[IpNet],
    real_ip_header: Option<&HeaderName>,
) -> SocketAddr {
    if !is_trusted(peer.ip(), trusted) {
        return peer;
    }
    let chained = request.headers.contains_key(X_FORWARDED_FOR);
    let default = if chained { X_FORWARDED_FOR } else { X_REAL_IP };
    let header = real_ip_header.unwrap_or(&default);
    if *header == X_FORWARDED_FOR {
        return end_of_chain(request, peer, trusted);
    }
    // Of several values none is the one that the proxy has set.
    let mut values = request.headers.get_all(header).iter();
    let value = values.next();
    let alone = value.filter(|_| values.next().is_none());
    let ip = alone.and_then(|value| hop_address(value.to_str().ok()?));
    ip.map_or(peer, |ip| SocketAddr::new(ip, 0))
}

/// The last address that no trusted proxy speaks for. The chain is read from
/// the right, past trusted addresses: what is left of the first stranger may
/// be made up.
fn end_of_chain(request: &RequestHeader, peer: SocketAddr, trusted: &[IpNet]) -> SocketAddr {
    let mut client = peer;
    let values: Vec<_> = request.headers.get_all(X_FORWARDED_FOR).iter().collect();
    let hops = values.iter().rev().map(|value| value.as_bytes());
    // Split as bytes: one that is no text must not take the others with it.
    for hop in hops.flat_map(|value| value.rsplit(|byte| *byte == b',')) {
        let Some(ip) = std::str::from_utf8(hop).ok().and_then(hop_address) else {
            break;
        };
        client = SocketAddr::new(ip, 0);
        if !is_trusted(ip, trusted) {
            break;
        }
    }
    client
}

/// The address of a hop, which some proxies write with its port.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let address = hop.parse::<SocketAddr>().map(|address| address.ip());
    hop.parse().or(address).ok()
}

/// Whether `ip` is one of the proxies whose `X-Forwarded-*` is believed.
pub(super) fn is_trusted(ip: IpAddr, trusted: &[IpNet]) -> bool {
    networks::include(trusted, ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_itself_is_asked_for_its_options_alone() {
        let path = |method| {
            let mut request = RequestHeader::build(method, b"*", None).expect("a request");
            request.insert_header("host", "a.test").expect("a header");
            let admitted = admit(&request).map(|admitted| admitted.path.into_owned());
            admitted.map_err(|reply| reply.status)
        };
        assert_eq!(path("OPTIONS"), Ok("/".to_owned()));
        assert_eq!(path("GET"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(path("POST"), Err(StatusCode::BAD_REQUEST));
    }

    fn client_behind(chains: &[&[u8]]) -> String {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        for chain in chains {
            let value = http::HeaderValue::from_bytes(chain).expect("a value");
            request
                .append_header("x-forwarded-for", value)
                .expect("a header");
        }
        let trusted = ["127.0.0.0/8".parse().expect("a network")];
        let peer = SocketAddr::from(([127, 0, 0, 1], 5));
        client(&request, peer, &trusted, None).ip().to_string()
    }

    #[test]
    fn the_client_is_the_last_that_no_trusted_proxy_stands_for() {
        assert_eq!(client_behind(&[]), "127.0.0.1");
        assert_eq!(client_behind(&[b"10.0.0.1, 192.0.2.1"]), "192.0.2.1");
        assert_eq!(client_behind(&[b"192.0.2.1, 127.0.0.2"]), "192.0.2.1");
        assert_eq!(client_behind(&[b"10.0.0.1", b"192.0.2.1"]), "192.0.2.1");
        assert_eq!(client_behind(&[b"192.0.2.1:4711"]), "192.0.2.1");
        assert_eq!(client_behind(&[b"[2001:db8::1]:4711"]), "2001:db8::1");
    }

    #[test]
    fn bytes_that_are_no_text_do_not_uncover_a_forged_address() {
        assert_eq!(client_behind(&[b"10.0.0.1, \xff, 192.0.2.1"]), "192.0.2.1");
        assert_eq!(
            client_behind(&[b"10.0.0.1", b"\xff, 192.0.2.1"]),
            "192.0.2.1"
        );
        assert_eq!(client_behind(&[b"10.0.0.1", b"\xff"]), "127.0.0.1");
    }
}
