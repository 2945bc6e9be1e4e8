//! The authority that a request names: host and port, by one strict reading.

use http::header;
use pingora::http::RequestHeader;

/// Whether a byte may stand in a host name.
const IN_HOST: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut at: u8 = 0;
    while at < 128 {
        bytes[at as usize] =
            at.is_ascii_alphanumeric() || matches!(at, b'-' | b'.' | b'_' | b'~' | b'*');
        at += 1;
    }
    bytes
};

/// The authority as it was sent, from `:authority` or the Host header; empty without
/// either; `None`: it is no text.
pub fn text(request: &RequestHeader) -> Option<&str> {
    match request.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => match request.headers.get(header::HOST) {
            Some(value) => value.to_str().ok(),
            None => Some(""),
        },
    }
}

/// Host and port that a request names; `None` if it names them wrongly.
pub fn of(request: &RequestHeader) -> Option<(&str, Option<u16>)> {
    split(text(request)?)
}

/// Splits `host[:port]`; `None` if it is not one (RFC 3986 §3.2.2; user
/// information is refused).
pub fn split(text: &str) -> Option<(&str, Option<u16>)> {
    // As bytes: a colon is no part of another character.
    let (host, port) = match text.bytes().rposition(|byte| byte == b':') {
        Some(colon) if !text.ends_with(']') => (&text[..colon], Some(&text[colon + 1..])),
        _ => (text, None),
    };
    let port = match port {
        None => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
    };
    let good = match host.strip_prefix('[') {
        Some(v6) => v6
            .strip_suffix(']')
            .is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()),
        None => host.bytes().all(|byte| IN_HOST[usize::from(byte)]),
    };
    (good && host.len() <= 255).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_split_from_ports() {
        assert_eq!(split("a.example"), Some(("a.example", None)));
        assert_eq!(split("a:80"), Some(("a", Some(80))));
        assert_eq!(split("[::1]:80"), Some(("[::1]", Some(80))));
        assert_eq!(split("[::1]"), Some(("[::1]", None)));
        assert_eq!(split(""), Some(("", None)));
    }

    #[test]
    fn bad_hosts_are_refused() {
        for bad in [
            "a b",
            "a/b",
            "a@b",
            "user:pw@host",
            "a:99999",
            "a:8x",
            "[::1",
            "[x]",
            "a:-1",
            "a,b",
            "a\tb",
            "a%41",
            "[::1]x",
            "a:80:81",
        ] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }
}
