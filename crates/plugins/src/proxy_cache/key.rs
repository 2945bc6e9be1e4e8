//! What tells requests apart whose answers may differ.

use aws_lc_rs::digest::{Context, SHA256};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;
use pingora::http::RequestHeader;
use url::form_urlencoded;

use super::config::Config;
use doorward_core::hex;
use doorward_plugin_api::filter::Exchange;

/// Identifies stored answers of requests that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key(pub(super) [u8; 32]);

impl Key {
    /// As 64 hexadecimal digits.
    pub(super) fn text(self) -> String {
        hex::encode(self.0)
    }

    /// Reads 64 hexadecimal digits.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut key = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(key))
    }
}

/// Headers by which programs behind the gateway let a request ask for something else
/// than its line and its host say.
const OVERRIDES: [&str; 12] = [
    "forwarded",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
];

/// What a trusted proxy says of the request, and upstreams read.
const OF_PROXIES: [&str; 5] = [
    "x-forwarded-host",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
];

/// Whether the answer hangs on something that is not in the key.
pub(super) fn has_unkeyed_input(request: &RequestHeader, exchange: &Exchange) -> bool {
    let headers = &request.headers;
    let has = |name: HeaderName| headers.contains_key(name);
    let overrides = || OVERRIDES.iter().any(|name| headers.contains_key(*name));
    let credential = has(header::AUTHORIZATION) || has(header::PROXY_AUTHORIZATION);
    let unverified = !is_proved(exchange);
    has(header::UPGRADE)
        || overrides()
        || unverified && (credential || exchange.client_certificate().is_some())
        || exchange.token_in_query
        || has_body(request) && exchange.body.is_none()
}

/// Whether a plugin has verified who sends the request. An anonymous consumer is
/// nobody: behind the gateway its requests may be those of many.
pub(super) fn is_proved(exchange: &Exchange) -> bool {
    exchange.credential.is_some() || exchange.token.is_some()
}

/// Whether the request announces a body.
pub(super) fn has_body(request: &RequestHeader) -> bool {
    let length = request.headers.get(header::CONTENT_LENGTH);
    length.is_some_and(|length| length != "0")
        || request.headers.contains_key(header::TRANSFER_ENCODING)
}

/// A digest of parts, each with its length, so that no two lists of parts are one.
struct Parts(Context);

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    fn add_all<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        let parts: Vec<_> = parts.collect();
        self.0.update(&(parts.len() as u64).to_be_bytes());
        for part in parts {
            self.add(part);
        }
    }

    fn values(&mut self, headers: &HeaderMap, name: &str) {
        let values = headers.get_all(name).iter();
        self.add_all(values.map(HeaderValue::as_bytes));
    }
}

/// The key of a request. `scope` tells the plugin and its configuration from others.
pub(super) fn of(
    config: &Config,
    scope: &str,
    request: &RequestHeader,
    exchange: &Exchange,
) -> Key {
    let mut parts = Parts(Context::new(&SHA256));
    parts.add(scope.as_bytes());
    let id = |id: Option<uuid::Uuid>| id.map_or([0; 16], uuid::Uuid::into_bytes);
    parts.add(&id(exchange.route));
    parts.add(&id(exchange.service));
    // Whom the upstream is told that the request comes from.
    parts.add(&id(exchange.consumer.as_ref().map(|consumer| consumer.id)));
    parts.add(&id(exchange
        .credential
        .as_ref()
        .map(|credential| credential.id)));
    add_proof(&mut parts, request, exchange);
    // `HEAD` gets the head of what `GET` would get.
    let method = match request.method {
        Method::HEAD => &Method::GET,
        ref method => method,
    };
    parts.add(method.as_str().as_bytes());
    parts.add(&[u8::from(exchange.secure)]);
    let host = request.headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = request
        .uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let host = host.or(authority).unwrap_or_default();
    parts.add(&host.to_ascii_lowercase());
    let original = exchange.original.as_ref();
    let uri = original.map_or(&request.uri, |original| &original.uri);
    if config.ignore_case {
        parts.add(uri.path().to_ascii_lowercase().as_bytes());
    } else {
        parts.add(uri.path().as_bytes());
    }
    add_query(&mut parts, config, uri.query().unwrap_or_default());
    for name in &config.headers {
        parts.values(&request.headers, name.as_str());
    }
    if exchange.trusted {
        for name in OF_PROXIES {
            parts.values(&request.headers, name);
        }
    }
    parts.add(exchange.body.as_deref().unwrap_or_default());
    let mut key = Key([0; 32]);
    let digest = parts.0.finish();
    for (byte, from) in key.0.iter_mut().zip(digest.as_ref()) {
        *byte = *from;
    }
    key
}

/// Adds what tells the users of one consumer and one credential apart: tokens, what
/// the upstream gets as `Authorization` (RFC 9111 §3.5), and what filters tell it.
fn add_proof(parts: &mut Parts, request: &RequestHeader, exchange: &Exchange) {
    let token = exchange.token.as_ref();
    parts.add(token.map_or(&[], |token| token.token.as_bytes()));
    let subject = token.and_then(|token| token.subject());
    parts.add(subject.unwrap_or_default().as_bytes());
    parts.add(exchange.token_signature.as_deref().unwrap_or_default());
    for name in [header::AUTHORIZATION, header::PROXY_AUTHORIZATION] {
        let values = request.headers.get_all(name).iter();
        let values = values.map(HeaderValue::as_bytes);
        parts.add_all(values.filter(|value| !(exchange.is_signed && is_signature(value))));
    }
    let groups = exchange.authenticated_groups.iter().flatten();
    parts.add_all(groups.map(|group| group.as_bytes()));
    // Another identifier comes with every request, and says nothing of its user.
    let told = exchange.vouched.iter();
    let told = told.filter(|(_, value)| exchange.correlation_id.as_ref() != Some(value));
    parts.add_all(told.flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]));
}

/// Whether `Authorization` is the signature of this request (`hmac-auth`), which is
/// another one for the next.
fn is_signature(value: &[u8]) -> bool {
    let scheme = value.split(|byte| *byte == b' ').next();
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"hmac"))
}

/// Where a parameter stands in the key, in which the order of parameters does not
/// count. It does among those that some program behind the gateway may take for one:
/// by case, by percent-encoding, by brackets, or by what it writes for other characters.
fn order_of(piece: &str) -> String {
    let name = piece.split('=').next().unwrap_or_default();
    let name = percent_decode_str(name).decode_utf8_lossy();
    let name = name.split('[').next().unwrap_or_default();
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect()
}

fn add_query(parts: &mut Parts, config: &Config, query: &str) {
    if config.parameters.is_empty() {
        let mut pieces: Vec<_> = query.split('&').collect();
        pieces.sort_by_cached_key(|piece| order_of(piece));
        return parts.add_all(pieces.into_iter().map(str::as_bytes));
    }
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut pairs: Vec<_> = pairs
        .filter(|(name, _)| config.parameters.iter().any(|known| **known == **name))
        .collect();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    for (name, value) in pairs {
        parts.add(name.as_bytes());
        parts.add(value.as_bytes());
    }
}
