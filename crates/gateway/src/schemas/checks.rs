//! Checks on single texts of entities. Messages are those of
//! gateway-admin-api §4 and §5.

use std::path::{Component, Path};

use uuid::Uuid;

use super::address::{self, Host, is_hostname, is_ip, split_port};
use crate::router::{path, pattern};

/// A UUID with dashes.
///
/// # Errors
/// The message to show.
pub fn uuid(text: &str) -> Result<(), String> {
    if text.len() == 36 && Uuid::try_parse(text).is_ok() {
        return Ok(());
    }
    Err("expected a valid UUID".to_owned())
}

/// A name: letters, digits, `.-_~` and what is not ASCII.
///
/// # Errors
/// The message to show.
pub fn name(text: &str) -> Result<(), String> {
    not_empty(text)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_~".contains(c) || !c.is_ascii();
    if text.chars().all(|c| allowed(c) && !c.is_control()) {
        return Ok(());
    }
    Err(format!(
        "invalid value '{text}': the only accepted ascii characters are alphanumerics or ., -, _, and ~"
    ))
}

/// The protocols of streams, which routes and services of the imitated gateway may
/// have.
pub const STREAMS: &[&str] = &["tcp", "tls", "udp", "tls_passthrough"];
/// What is said of them.
pub const NO_STREAMS: &str = "streams of TCP, TLS and UDP are not proxied here";

/// A tag: printable, without `,` and `/`.
///
/// # Errors
/// The message to show.
pub fn tag(text: &str) -> Result<(), String> {
    not_empty(text)?;
    if text
        .chars()
        .all(|c| !c.is_control() && c != ',' && c != '/')
    {
        return Ok(());
    }
    Err(invalid_tag(text))
}

/// What is wrong with a text that is no tag.
pub fn invalid_tag(text: &str) -> String {
    format!(
        "invalid tag '{text}': expected printable ascii (except `,` and `/`) or valid utf-8 sequences"
    )
}

/// An upper-case method.
///
/// # Errors
/// The message to show.
pub fn method(text: &str) -> Result<(), String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(format!("invalid value: {text}"))
}

/// The host of a service: a name or an address, without port.
///
/// # Errors
/// The message to show.
pub fn service_host(text: &str) -> Result<(), String> {
    not_empty(text)?;
    if is_ip(text) || is_hostname(text) {
        return Ok(());
    }
    match split_port(text) {
        (host, Some(_)) if is_ip(host) || is_hostname(host) => {
            Err("must not have a port".to_owned())
        }
        _ => Err(format!("invalid value: {text}")),
    }
}

/// A host of a route: a name or an address, optionally with a port, with at
/// most one `*` as the whole leftmost or rightmost label.
///
/// # Errors
/// The message to show.
pub fn route_host(text: &str) -> Result<(), String> {
    not_empty(text)?;
    let (host, port) = split_port(text);
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err(format!("invalid value: {text}"));
    }
    if !host.contains('*') {
        return if is_ip(host) || is_hostname(host) {
            Ok(())
        } else {
            Err(format!("invalid value: {text}"))
        };
    }
    if host.matches('*').count() > 1 {
        return Err("invalid wildcard: must have at most one wildcard".to_owned());
    }
    match host.strip_prefix("*.").or_else(|| host.strip_suffix(".*")) {
        Some(rest) if is_hostname(rest) => Ok(()),
        Some(_) => Err(format!("invalid value: {text}")),
        None => Err("invalid wildcard: must be placed at leftmost or rightmost label".to_owned()),
    }
}

/// The server name of a TLS handshake: a host name, with a wildcard as in
/// [`route_host`], or `*` alone.
///
/// # Errors
/// The message to show.
pub fn sni(text: &str) -> Result<(), String> {
    if split_port(text).1.is_some() {
        return Err("must not have a port".to_owned());
    }
    if is_ip(text) {
        return Err("must not be an IP".to_owned());
    }
    // Every name that has no other certificate.
    if text == "*" {
        return Ok(());
    }
    if let Some(at) = text.find('*') {
        if at != 0 && at + 1 != text.len() {
            return Err("wildcard must be leftmost or rightmost character".to_owned());
        }
        if text.matches('*').count() > 1 {
            return Err("only one wildcard must be specified".to_owned());
        }
    }
    route_host(text)
}

/// The path of a service.
///
/// # Errors
/// The message to show.
pub fn service_path(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err("should start with: /".to_owned());
    }
    if text.contains("//") {
        return Err(EMPTY_SEGMENTS.to_owned());
    }
    uri_characters(text)
}

/// The file of a Unix socket.
///
/// # Errors
/// The message to show.
pub fn socket_path(text: &str) -> Result<(), String> {
    let path = Path::new(text);
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    // The system's limit is 107 bytes.
    let is_good = path.is_absolute() && is_plain && text.len() <= 100 && !text.contains('\0');
    if is_good {
        Ok(())
    } else {
        Err("expected the absolute path of a socket, of at most 100 bytes".to_owned())
    }
}

/// A path of a route: a prefix (`/…`) in normal form, or an expression (`~/…`).
///
/// # Errors
/// The message to show.
pub fn route_path(text: &str) -> Result<(), String> {
    if let Some(pattern) = text.strip_prefix('~') {
        if !pattern.starts_with('/') {
            return Err(PATH_START.to_owned());
        }
        return regex(pattern);
    }
    if !text.starts_with('/') {
        return Err(PATH_START.to_owned());
    }
    if text.contains("//") {
        return Err(EMPTY_SEGMENTS.to_owned());
    }
    let encoded = path::encoded(text);
    // Browsers leave brackets as they are, and so does the normal form.
    let characters = encoded.replace(['[', ']'], "");
    uri_characters(&characters).map_err(|message| message.replace(&characters, text))?;
    match path::normalize(&encoded) {
        Ok(normal) if normal == encoded => Ok(()),
        Ok(normal) => Err(format!(
            "non-normalized path, consider use '{}' instead",
            String::from_utf8_lossy(&path::readable(&normal))
        )),
        Err(error) => Err(format!("invalid path: '{text}' ({error})")),
    }
}

const EMPTY_SEGMENTS: &str = "must not have empty segments";
const PATH_START: &str = "should start with: / (fixed path) or ~/ (regex path)";

/// The path of a health check or of a cookie.
///
/// # Errors
/// The message to show.
pub fn path(text: &str) -> Result<(), String> {
    service_path(text)
}

/// The name of an upstream: a host name that services can name, no address.
///
/// # Errors
/// The message to show.
pub fn upstream_name(text: &str) -> Result<(), String> {
    not_empty(text)?;
    match address::parse(text) {
        Some((Host::Ip(_), _)) => Err("Invalid name; no ip addresses allowed".to_owned()),
        Some((Host::Name(_), Some(_))) => Err("Invalid name; no port allowed".to_owned()),
        Some((Host::Name(_), None)) => Ok(()),
        None => Err("Invalid name; must be a valid hostname".to_owned()),
    }
}

/// A target that can be written as `host:port`.
///
/// # Errors
/// The message to show.
pub fn target(text: &str) -> Result<(), String> {
    address::target(text).map(|_| ())
}

/// A host with an optional port, for the Host header.
///
/// # Errors
/// The message to show.
pub fn host_header(text: &str) -> Result<(), String> {
    not_empty(text)?;
    match address::parse(text) {
        Some(_) => Ok(()),
        None => Err(format!("invalid value: {text}")),
    }
}

/// A server name without wildcard.
///
/// # Errors
/// The message to show.
pub fn server_name(text: &str) -> Result<(), String> {
    if text.contains('*') {
        return Err("wildcards not supported".to_owned());
    }
    sni(text)
}

/// Any text but none.
///
/// # Errors
/// The message to show.
pub fn some_text(text: &str) -> Result<(), String> {
    not_empty(text)
}

/// The name of a cookie.
///
/// # Errors
/// The message to show.
pub fn cookie_name(text: &str) -> Result<(), String> {
    not_empty(text)?;
    word(text, "cookie")
}

/// The name of a header that is read or sent.
///
/// # Errors
/// The message to show.
pub fn any_header_name(text: &str) -> Result<(), String> {
    not_empty(text)?;
    word(text, "header")
}

fn word(text: &str, what: &str) -> Result<(), String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if text.bytes().all(allowed) {
        return Ok(());
    }
    Err(format!(
        "bad {what} name '{text}', allowed characters are A-Z, a-z, 0-9, '_', and '-'"
    ))
}

/// The name of a header that routes match.
///
/// # Errors
/// The message to show.
pub fn header_name(text: &str) -> Result<(), String> {
    if text.eq_ignore_ascii_case("host") {
        let message =
            "cannot contain 'host' header, which must be specified in the 'hosts' attribute";
        return Err(message.to_owned());
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !text.is_empty() && text.bytes().all(allowed) {
        return Ok(());
    }
    Err(format!(
        "bad header name '{text}', allowed characters are A-Z, a-z, 0-9, '_', and '-'"
    ))
}

/// A regular expression that compiles within the router's bounds.
///
/// # Errors
/// The message to show; constructs of other dialects are named.
pub fn regex(pattern: &str) -> Result<(), String> {
    pattern::check(pattern)
}

/// Only characters of RFC 3986 paths, `%` only before two digits.
fn uri_characters(text: &str) -> Result<(), String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@%".contains(&b);
    if !text.bytes().all(allowed) {
        return Err(format!(
            "invalid path: '{text}' (characters outside of the reserved list of RFC 3986 found)"
        ));
    }
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)) {
            let shown = text.get(at..text.len().min(at + 3)).unwrap_or("%");
            return Err(format!("invalid url-encoded value: '{shown}'"));
        }
    }
    Ok(())
}

fn not_empty(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("length must be at least 1".to_owned());
    }
    Ok(())
}
