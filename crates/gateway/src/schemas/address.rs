//! Host names, addresses and `host:port` as entities hold them.

use std::net::{IpAddr, Ipv6Addr};

/// The port of a target that names none.
const TARGET_PORT: u16 = 8000;

/// What a text with an optional port names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host<'a> {
    /// An address; version 6 without brackets.
    Ip(IpAddr),
    /// A name.
    Name(&'a str),
}

/// Splits a host name or address from its port. `None`: neither.
pub(super) fn parse(text: &str) -> Option<(Host<'_>, Option<u16>)> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some((Host::Ip(ip), None));
    }
    let (host, port) = split_port(text);
    let port = match port {
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port > 0)?),
        None => None,
    };
    if let Some(v6) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        let ip = v6.parse::<Ipv6Addr>().ok()?;
        return Some((Host::Ip(ip.into()), port));
    }
    match host.parse::<IpAddr>() {
        // Bare IPv6 addresses end before a port could begin.
        Ok(IpAddr::V6(_)) => None,
        Ok(ip) => Some((Host::Ip(ip), port)),
        Err(_) if is_hostname(host) => Some((Host::Name(host), port)),
        Err(_) => None,
    }
}

/// A target as `host:port`: IPv6 addresses in brackets and in full, as tools
/// compare them, the default port where none is given.
///
/// # Errors
/// The message to show.
pub fn target(text: &str) -> Result<String, String> {
    let (host, port) = parse(text)
        .ok_or_else(|| format!("Invalid target ('{text}'); not a valid hostname or ip address"))?;
    let port = port.unwrap_or(TARGET_PORT);
    Ok(match host {
        Host::Ip(IpAddr::V4(ip)) => format!("{ip}:{port}"),
        Host::Ip(IpAddr::V6(ip)) => format!("[{}]:{port}", expanded(ip)),
        Host::Name(name) => format!("{name}:{port}"),
    })
}

/// All eight groups of an IPv6 address, each of four digits.
fn expanded(ip: Ipv6Addr) -> String {
    ip.segments().map(|group| format!("{group:04x}")).join(":")
}

/// `host:port` apart; the colons of a bare IPv6 address are no port.
pub(super) fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    }
}

/// Whether `text` is an address; version 6 with or without brackets.
pub(super) fn is_ip(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    match bare {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => text.parse::<IpAddr>().is_ok(),
    }
}

/// Letters, digits, `-` and `_` in labels, 253 in all. The imitated gateway
/// has no bound on a single label, and one may begin with `-`.
pub(super) fn is_hostname(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // Four numbers that are no address are no name either.
    let numeric = text
        .split('.')
        .all(|l| l.bytes().all(|b| b.is_ascii_digit()));
    text.len() <= 253 && text.split('.').all(label) && !(numeric && text.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_in_one_way() {
        for (given, stored) in [
            ("example.com", "example.com:8000"),
            ("Example.COM:80", "Example.COM:80"),
            ("10.0.0.1", "10.0.0.1:8000"),
            ("10.0.0.1:1234", "10.0.0.1:1234"),
            ("::1", "[0000:0000:0000:0000:0000:0000:0000:0001]:8000"),
            (
                "[0:0:0:0:0:0:0:1]",
                "[0000:0000:0000:0000:0000:0000:0000:0001]:8000",
            ),
            (
                "[fe80::A]:81",
                "[fe80:0000:0000:0000:0000:0000:0000:000a]:81",
            ),
            ("_http._tcp.svc", "_http._tcp.svc:8000"),
        ] {
            assert_eq!(target(given).as_deref(), Ok(stored), "{given}");
            assert_eq!(target(stored).as_deref(), Ok(stored), "again {given}");
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for bad in [
            "",
            ":80",
            "a:0",
            "a:65536",
            "a:x",
            "a b",
            "[::1",
            "1.2.3",
            "1.2.3.400",
            "http://a",
            "a/b",
            "a:80:81",
            "[a]:80",
        ] {
            target(bad).expect_err(bad);
        }
    }
}
