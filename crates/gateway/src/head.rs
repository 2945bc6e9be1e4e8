//! Message heads without the spelling of their header names.
//!
//! The engine keeps a second map with the spelling of every name, and copies,
//! sorts out and writes both in step. Names are compared without case (RFC
//! 9110 §5.1), so nothing is lost without it, and a proxied request becomes
//! cheaper than the engine's own bare one.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use pingora::http::{RequestHeader, ResponseHeader};

pub(super) use doorward_net::http::head::{put_request, take_request, take_response};

/// The names of a request's headers that are not in lower case, as they were sent.
pub(super) fn spelling(head: &RequestHeader) -> Box<[Box<str>]> {
    let names = head.case_header_iter().map(|(name, _)| name.as_slice());
    let names = names.filter_map(|name| std::str::from_utf8(name).ok());
    let spelt = names.filter(|name| name.bytes().any(|byte| byte.is_ascii_uppercase()));
    spelt.map(Box::from).collect()
}

/// Forgets the spelling of a request's header names, and any form of the
/// target but path and query (RFC 9112 §3.2.2).
pub(super) fn plain_request(head: &mut RequestHeader) {
    if !head.has_case() {
        return; // It is of HTTP/2, or was read without: its target is a path.
    }
    let parts = take_request(head);
    put_request(head, parts, None);
}

/// The head of a response.
pub(super) fn response(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    ResponseHeader::from(parts)
}

/// Which fields a head has, of those that the gateway asks for: one pass over the head
/// in the place of a search for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeadFields(u16);

impl HeadFields {
    /// `Transfer-Encoding`.
    pub(super) const TRANSFER_ENCODING: Self = Self(1);
    /// `Set-Cookie`.
    pub(super) const SET_COOKIE: Self = Self(1 << 1);
    /// `Date`.
    pub(super) const DATE: Self = Self(1 << 2);
    /// `Trailer`.
    pub(super) const TRAILER: Self = Self(1 << 3);
    /// `Connection`, or a field that concerns one connection without being named there.
    pub(super) const CONNECTION: Self = Self(1 << 4);
    /// More than one `Content-Length`, or a list of them.
    pub(super) const LENGTHS: Self = Self(1 << 5);
    /// `X-Forwarded-For`.
    pub(super) const FORWARDED_FOR: Self = Self(1 << 6);
    /// More than one `Cookie`.
    pub(super) const COOKIES: Self = Self(1 << 7);

    /// `Proxy-Authenticate`.
    pub(super) const PROXY_AUTHENTICATE: Self = Self(1 << 8);

    /// A `Content-Length` that is a number.
    const LENGTH: Self = Self(1 << 9);
    /// A `Cookie`.
    const COOKIE: Self = Self(1 << 10);

    /// What `headers` have.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        for (name, value) in headers {
            let field = match name.as_str() {
                "transfer-encoding" => Self::TRANSFER_ENCODING,
                "set-cookie" => Self::SET_COOKIE,
                "date" => Self::DATE,
                "trailer" => Self::TRAILER,
                "connection" | "keep-alive" | "proxy-connection" => Self::CONNECTION,
                "content-length" if all.has(Self::LENGTH) => Self::LENGTHS,
                "content-length" if value.as_bytes().contains(&b',') => Self::LENGTHS,
                "content-length" => Self::LENGTH,
                "x-forwarded-for" => Self::FORWARDED_FOR,
                "proxy-authenticate" => Self::PROXY_AUTHENTICATE,
                "cookie" if all.has(Self::COOKIE) => Self::COOKIES,
                "cookie" => Self::COOKIE,
                _ => continue,
            };
            all.0 |= field.0;
        }
        all
    }

    /// Whether they have `field`.
    pub(super) fn has(self, field: Self) -> bool {
        self.0 & field.0 != 0
    }
}

/// Leaves one `Content-Length` where an upstream has sent it more than once: the
/// engine has taken it for one, and whoever comes next may not (RFC 9110 §8.6).
pub(super) fn unify_length(headers: &mut HeaderMap) {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else {
        return;
    };
    let mut items = first.as_bytes().split(|byte| *byte == b',');
    let item = items.next().unwrap_or_default().trim_ascii();
    if items.next().is_none() && lengths.next().is_none() {
        return;
    }
    if let Ok(one) = HeaderValue::from_bytes(item) {
        headers.insert(header::CONTENT_LENGTH, one);
    }
}

/// Headers that concern one connection only (RFC 9110 §7.6.1).
const HOP_BY_HOP: [header::HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
];

/// Removes what concerns the client's connection, and what it nominated.
pub(super) fn strip_hop_by_hop(request: &mut RequestHeader) {
    let nominated: Vec<String> = request
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        // A client may not hide these from an upstream.
        .filter(|name| name != "host" && name != "authorization")
        .collect();
    for name in &nominated {
        request.remove_header(name.as_str());
    }
    for name in &HOP_BY_HOP {
        request.remove_header(name);
    }
    request.remove_header("keep-alive");
    request.remove_header("proxy-connection");
}

/// Whether the client of this request takes trailers (RFC 9110 §10.1.4).
pub(super) fn takes_trailers(request: &RequestHeader) -> bool {
    let values = request.headers.get_all(header::TE).iter();
    let mut codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Says to the upstream, in the words of the imitated gateway, what of the client's
/// connection is for it as well: trailers, and a change of protocol. All else that
/// concerns one connection is gone from `request`.
pub(super) fn announce_connection(client: &RequestHeader, request: &mut RequestHeader) {
    let trailers = takes_trailers(client).then_some((header::TE, "trailers"));
    let upgrade = request.headers.contains_key(header::UPGRADE);
    let upgrade = upgrade.then_some((header::CONNECTION, "keep-alive, Upgrade"));
    for (name, value) in trailers.into_iter().chain(upgrade) {
        // A name and a value that are already those of a message.
        let _ = request.insert_header(name, HeaderValue::from_static(value));
    }
}

/// Removes the fields that the client's `Connection` names, and leaves there
/// what is said about the connection itself: a field that is set from here on
/// under such a name is not the client's to remove.
pub(super) fn settle_nominated(request: &mut RequestHeader) {
    let Some(first) = request.headers.get(header::CONNECTION) else {
        return;
    };
    let own = |name: &str| {
        ["close", "keep-alive", "upgrade", "te", "http2-settings"]
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own))
    };
    if first.to_str().is_ok_and(own)
        && request.headers.get_all(header::CONNECTION).iter().count() == 1
    {
        return;
    }
    let (mut kept, mut nominated) = (Vec::new(), Vec::new());
    for value in request.headers.get_all(header::CONNECTION) {
        for name in value.as_bytes().split(|byte| *byte == b',') {
            match std::str::from_utf8(name.trim_ascii()) {
                Ok(name) if own(name) => kept.push(name.to_owned()),
                // What no forwarding would accept stays, to be refused there.
                Ok(name) if is_protected(name) => kept.push(name.to_owned()),
                Ok(name) => nominated.extend(HeaderName::from_bytes(name.as_bytes())),
                Err(_) => {}
            }
        }
    }
    for name in nominated {
        request.remove_header(&name);
    }
    request.remove_header(&header::CONNECTION);
    if let Ok(value) = HeaderValue::from_str(&kept.join(", "))
        && !value.is_empty()
    {
        // A valid value.
        let _ = request.insert_header(header::CONNECTION, value);
    }
}

/// What a client may not take from an upstream, nor from filters.
fn is_protected(name: &str) -> bool {
    let framing = [
        "host",
        "authorization",
        "content-length",
        "transfer-encoding",
    ];
    let name = name.to_ascii_lowercase();
    framing.contains(&&*name) || name.starts_with("x-forwarded-")
}

/// Removes from a response what concerned the upstream's connection only: the
/// fields that its `Connection` names, `Keep-Alive` and `TE` (RFC 9110 §7.6.1). `Upgrade`
/// stays where it is about this request: the upstream switches, or wants the client to.
pub(super) fn strip_nominated(headers: &mut HeaderMap, status: StatusCode) {
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
    headers.remove(header::TE);
    let of_upgrade = [
        StatusCode::SWITCHING_PROTOCOLS,
        StatusCode::UPGRADE_REQUIRED,
    ];
    if !of_upgrade.contains(&status) {
        headers.remove(header::UPGRADE);
    }
    let Some(first) = headers.get(header::CONNECTION) else {
        return;
    };
    if first.as_bytes().eq_ignore_ascii_case(b"keep-alive")
        || first.as_bytes().eq_ignore_ascii_case(b"close")
        || first.as_bytes().eq_ignore_ascii_case(b"upgrade")
    {
        return;
    }
    let nominated: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .filter(|name| *name != header::UPGRADE && *name != header::CONTENT_LENGTH)
        .collect();
    for name in nominated {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeadFields {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        HeadFields::of(&headers)
    }

    #[test]
    fn a_response_head_tells_in_one_pass_which_fields_it_has() {
        use HeadFields as F;
        let none = fields(&[("content-type", "text/plain"), ("content-length", "12")]);
        for field in [F::TRANSFER_ENCODING, F::SET_COOKIE, F::DATE, F::TRAILER] {
            assert!(!none.has(field));
        }
        assert!(!none.has(F::CONNECTION) && !none.has(F::LENGTHS));
        for (name, field) in [
            ("transfer-encoding", F::TRANSFER_ENCODING),
            ("set-cookie", F::SET_COOKIE),
            ("date", F::DATE),
            ("trailer", F::TRAILER),
            ("connection", F::CONNECTION),
            ("keep-alive", F::CONNECTION),
            ("proxy-connection", F::CONNECTION),
            ("proxy-authenticate", F::PROXY_AUTHENTICATE),
        ] {
            assert!(fields(&[("x", "y"), (name, "z")]).has(field), "{name}");
        }
    }

    #[test]
    fn a_request_head_tells_in_one_pass_which_fields_it_has() {
        use HeadFields as F;
        let mut headers = HeaderMap::new();
        headers.append("accept", HeaderValue::from_static("*/*"));
        assert_eq!(F::of(&headers), F::default());
        for (name, field) in [
            ("trailer", F::TRAILER),
            ("x-forwarded-for", F::FORWARDED_FOR),
            ("cookie", F::COOKIE),
        ] {
            headers.append(name, HeaderValue::from_static("x"));
            assert!(F::of(&headers).has(field), "{name}");
        }
        assert!(!F::of(&headers).has(F::COOKIES));
        headers.append("cookie", HeaderValue::from_static("y"));
        assert!(F::of(&headers).has(F::COOKIES));
    }

    #[test]
    fn a_content_length_that_is_said_twice_is_seen() {
        let twice = fields(&[("content-length", "1"), ("content-length", "1")]);
        assert!(twice.has(HeadFields::LENGTHS));
        assert!(fields(&[("content-length", "1, 1")]).has(HeadFields::LENGTHS));
    }
}
