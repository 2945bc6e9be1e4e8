//! What tells requests apart whose answers may differ.

use std::cell::RefCell;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderValue;
use http::header;
use percent_encoding::percent_decode_str;
use pingora::http::RequestHeader;
use url::form_urlencoded;

use super::config::Config;
use doorward_core::hex;
use doorward_plugin_api::filter::Exchange;

/// Longer keys are kept as their digest.
const MAX_BYTES: usize = 2048;
/// Bytes of a digest.
pub(super) const DIGEST: usize = 32;

/// Identifies stored answers of requests that are alike: all that tells them apart,
/// compared byte by byte. Requests that are answered from the store cost no digest.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) bytes: Arc<[u8]>,
    /// What clients and operators know it by: a digest as 64 hexadecimal digits.
    pub(super) text: HeaderValue,
}

impl Key {
    /// The key of these bytes.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let text = hex::encode(digest_of(bytes));
        Self {
            bytes: bytes.into(),
            // Digits are always a value.
            text: HeaderValue::try_from(text)
                .unwrap_or_else(|_| HeaderValue::from_static("unknown")),
        }
    }

    /// Whether `text` names it.
    pub(super) fn is_named(&self, text: &str) -> bool {
        (self.text.as_bytes()).eq_ignore_ascii_case(text.as_bytes())
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.text.len()
    }
}

/// The SHA-256 of `bytes`.
pub(super) fn digest_of(bytes: &[u8]) -> [u8; DIGEST] {
    let mut own = [0; DIGEST];
    own.copy_from_slice(digest(&SHA256, bytes).as_ref());
    own
}

/// Headers by which programs behind the gateway let a request ask for something else
/// than its line and its host say, besides `Forwarded`.
const OVERRIDES: [&str; 11] = [
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

/// What the headers of a request say of whether it may meet the store. One look at
/// their names tells all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Headers {
    /// It asks for a part.
    pub(super) has_range: bool,
    has_authorization: bool,
    has_body: bool,
    /// Its answer hangs on more than the key has.
    is_other: bool,
}

impl Headers {
    /// Reads those of `request`.
    pub(super) fn of(request: &RequestHeader) -> Self {
        let mut all = Self::default();
        for (name, value) in &request.headers {
            match *name {
                header::RANGE => all.has_range = true,
                header::AUTHORIZATION | header::PROXY_AUTHORIZATION => {
                    all.has_authorization = true;
                }
                header::UPGRADE | header::FORWARDED => all.is_other = true,
                header::CONTENT_LENGTH => all.has_body |= value != "0",
                header::TRANSFER_ENCODING => all.has_body = true,
                ref name => all.is_other |= overrides(name.as_str().as_bytes()),
            }
        }
        all
    }

    /// Whether the answer hangs on something that is not in the key.
    pub(super) fn are_unkeyed(self, exchange: &Exchange) -> bool {
        let shows = || self.has_authorization || exchange.client_certificate().is_some();
        self.is_other
            || exchange.token_in_query
            || self.has_body && exchange.body.is_none()
            || !is_proved(exchange) && shows()
    }
}

/// Whether a header is one of [`OVERRIDES`]. Some programs behind the gateway take
/// `_` for `-`.
fn overrides(name: &[u8]) -> bool {
    let [b'x', b'-' | b'_', ..] = name else {
        return false;
    };
    let mut known = OVERRIDES.iter();
    known.any(|known| {
        let dashed = name.iter().map(|b| if *b == b'_' { b'-' } else { *b });
        known.len() == name.len() && known.bytes().eq(dashed)
    })
}

/// Whether a plugin has verified who sends the request. An anonymous consumer is
/// nobody: behind the gateway its requests may be those of many.
pub(super) fn is_proved(exchange: &Exchange) -> bool {
    exchange.credential.is_some() || exchange.token.is_some()
}

/// A list of parts, each with its length, so that no two lists are one.
struct Parts<'a>(&'a mut Vec<u8>);

impl Parts<'_> {
    fn length(&mut self, length: usize) {
        self.0.extend_from_slice(&(length as u64).to_be_bytes());
    }

    fn add(&mut self, part: &[u8]) {
        self.length(part.len());
        self.0.extend_from_slice(part);
    }

    fn add_lower(&mut self, part: &[u8]) {
        self.length(part.len());
        let lower = part.iter().map(u8::to_ascii_lowercase);
        self.0.extend(lower);
    }

    fn add_all<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        let at = self.0.len();
        self.length(0);
        let mut count = 0_u64;
        for part in parts {
            count += 1;
            self.add(part);
        }
        if let Some(place) = self.0.get_mut(at..at + size_of::<u64>()) {
            place.copy_from_slice(&count.to_be_bytes());
        }
    }
}

/// Calls `with` with the key of a request. `scope` tells the plugin and its
/// configuration from others.
pub(super) fn with_key<T>(
    config: &Config,
    scope: &[u8; DIGEST],
    request: &RequestHeader,
    exchange: &Exchange,
    with: impl FnOnce(&[u8]) -> T,
) -> T {
    thread_local! {
        static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BYTES.with_borrow_mut(|bytes| {
        bytes.clear();
        bytes.extend_from_slice(scope);
        write(&mut Parts(bytes), config, request, exchange);
        if bytes.len() <= MAX_BYTES {
            return with(bytes);
        }
        // No other key is as short as a digest.
        let short = digest_of(bytes);
        bytes.clear();
        bytes.shrink_to(MAX_BYTES);
        with(&short)
    })
}

fn write(parts: &mut Parts<'_>, config: &Config, request: &RequestHeader, exchange: &Exchange) {
    let id = |id: Option<uuid::Uuid>| id.map_or([0; 16], uuid::Uuid::into_bytes);
    let consumer = exchange.consumer.as_ref().map(|consumer| consumer.id);
    let credential = exchange.credential.as_ref().map(|credential| credential.id);
    // Whom the upstream is told that the request comes from.
    for part in [exchange.route, exchange.service, consumer, credential] {
        parts.0.extend_from_slice(&id(part));
    }
    add_proof(parts, request, exchange);
    parts.add(request.method.as_str().as_bytes());
    parts.add(&[u8::from(exchange.secure)]);
    let host = request.headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = || request.uri.authority().map(|it| it.as_str().as_bytes());
    parts.add_lower(host.or_else(authority).unwrap_or_default());
    let original = exchange.original.as_ref();
    let uri = original.map_or(&request.uri, |original| &original.uri);
    let path = uri.path().as_bytes();
    if config.ignore_case {
        parts.add_lower(path);
    } else {
        parts.add(path);
    }
    add_query(parts, config, uri.query().unwrap_or_default());
    let values = |name: &str| {
        let values = request.headers.get_all(name).iter();
        values.map(HeaderValue::as_bytes)
    };
    for name in &config.headers {
        parts.add_all(values(name.as_str()));
    }
    if exchange.trusted {
        for name in OF_PROXIES {
            parts.add_all(values(name));
        }
    }
    parts.add(exchange.body.as_deref().unwrap_or_default());
}

/// Adds what tells the users of one consumer and one credential apart: tokens, what
/// the upstream gets as `Authorization` (RFC 9111 §3.5), and what filters tell it.
fn add_proof(parts: &mut Parts<'_>, request: &RequestHeader, exchange: &Exchange) {
    let is_nobodys = exchange.consumer.is_none()
        && !is_proved(exchange)
        && exchange.vouched.is_empty()
        && exchange.authenticated_groups.is_none();
    // Most requests that are stored are those of nobody.
    parts.add(&[u8::from(is_nobodys)]);
    if is_nobodys {
        return;
    }
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

fn add_query(parts: &mut Parts<'_>, config: &Config, query: &str) {
    if config.parameters.is_empty() {
        if !query.contains('&') {
            return parts.add_all([query.as_bytes()].into_iter());
        }
        let mut pieces: Vec<_> = query.split('&').collect();
        pieces.sort_by_cached_key(|piece| order_of(piece));
        return parts.add_all(pieces.into_iter().map(str::as_bytes));
    }
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut pairs: Vec<_> = pairs
        .filter(|(name, _)| config.parameters.iter().any(|known| **known == **name))
        .collect();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    let pairs = pairs.iter();
    parts.add_all(pairs.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
}
