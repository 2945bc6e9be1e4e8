//! A stored answer: what may be stored of one, and how it is told again.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};

use super::config::{Config, ContentType};
use super::directives::Directives;
use super::key;
use doorward_core::clock::http_date;
use doorward_plugin_api::filter::Exchange;

/// Statuses that answer conditions, ranges and expectations of one request: to others
/// they would say nothing, whatever `response_code` lists (RFC 9111 §3).
const OF_ONE_REQUEST: [u16; 5] = [206, 304, 412, 416, 417];

/// Most headers of requests on which an answer may hang.
const MAX_VARY: usize = 16;

/// What an answer hangs on besides its key: headers of the request, and what they
/// were.
pub(super) type Variant = Box<[(HeaderName, Box<[HeaderValue]>)]>;

/// A stored answer.
#[derive(Debug)]
pub(super) struct Entry {
    /// What clients know its key by.
    pub(super) key: HeaderValue,
    pub(super) status: u16,
    pub(super) headers: Box<[(HeaderName, HeaderValue)]>,
    pub(super) body: Bytes,
    /// When it came, in seconds since the epoch.
    pub(super) stored_at: i64,
    /// How old it was then.
    pub(super) first_age: i64,
    /// For how long it is fresh, in seconds.
    pub(super) ttl: i64,
    /// When it is forgotten.
    pub(super) expires_at: i64,
    /// Whether nobody gets it once it is stale.
    pub(super) must_revalidate: bool,
    pub(super) variant: Variant,
}

impl Entry {
    /// Its age in seconds.
    pub(super) fn age(&self, now: i64) -> i64 {
        (now - self.stored_at).max(0).saturating_add(self.first_age)
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn size(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + 64);
        self.body.len() + headers.sum::<usize>() + 512
    }

    /// Whether it answers a request with these headers.
    pub(super) fn suits(&self, request: &HeaderMap) -> bool {
        let mut all = self.variant.iter();
        all.all(|(name, values)| request.get_all(name).iter().eq(values.iter()))
    }

    /// Whether it is fresh enough for this request.
    pub(super) fn is_fresh(&self, config: &Config, request: &Directives, now: i64) -> bool {
        let age = self.age(now);
        if !config.cache_control {
            return age <= config.ttl;
        }
        let stale = age.saturating_sub(self.ttl);
        let allowed = match request.max_stale {
            Some(allowed) if !self.must_revalidate => allowed,
            _ => 0,
        };
        stale <= allowed
            && request.max_age.is_none_or(|most| age <= most)
            && request
                .min_fresh
                .is_none_or(|least| self.ttl - age >= least)
    }
}

/// An answer that may be stored as soon as its body is there.
#[derive(Debug)]
pub(super) struct Storable {
    pub(super) ttl: i64,
    pub(super) first_age: i64,
    pub(super) must_revalidate: bool,
    pub(super) variant: Variant,
    pub(super) headers: Box<[(HeaderName, HeaderValue)]>,
    /// How long the body will be, if it was announced.
    pub(super) length: Option<usize>,
}

impl Storable {
    /// What may be stored of an answer; `None`: nothing.
    pub(super) fn of(
        config: &Config,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &ResponseHeader,
        now: i64,
    ) -> Option<Self> {
        let headers = &response.headers;
        let directives = Directives::of(headers);
        // What is set for one visitor is for nobody else.
        let personal = headers.contains_key(header::SET_COOKIE)
            || headers.contains_key("clear-site-data")
            || directives.private && !key::is_proved(exchange)
            || request.headers.contains_key(header::COOKIE)
                && !directives.is_for_all()
                && !config.headers.contains(&header::COOKIE);
        let partial = headers.contains_key(header::CONTENT_RANGE)
            || OF_ONE_REQUEST.contains(&response.status.as_u16())
            || exchange.unframed;
        if personal || partial || !matches_config(config, response) {
            return None;
        }
        let ttl = match config.cache_control {
            false => config.ttl,
            true if directives.no_store || directives.no_cache || directives.private => {
                return None;
            }
            true => lifetime(&directives, headers, now).filter(|ttl| *ttl > 0)?,
        };
        let age = headers.get(header::AGE).and_then(number).unwrap_or(0);
        Some(Self {
            ttl,
            first_age: if config.cache_control { age } else { 0 },
            must_revalidate: directives.must_revalidate,
            variant: variant(request, headers)?,
            headers: stored_headers(headers),
            length: headers
                .get(header::CONTENT_LENGTH)
                .and_then(|value| value.to_str().ok()?.parse().ok()),
        })
    }

    /// Stores the length that was announced, for an answer to `HEAD`: it has not the
    /// body that it tells of.
    pub(super) fn store_length(&mut self) {
        if let Some(length) = self.length {
            let mut headers = std::mem::take(&mut self.headers).into_vec();
            headers.push((header::CONTENT_LENGTH, HeaderValue::from(length)));
            self.headers = headers.into();
        }
    }
}

fn matches_config(config: &Config, response: &ResponseHeader) -> bool {
    let content_type = response.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| ContentType::read(value.to_str().ok()?));
    config.statuses.contains(&response.status.as_u16())
        && content_type.is_some_and(|other| config.types.iter().any(|own| own.takes(&other)))
}

fn number(value: &HeaderValue) -> Option<i64> {
    let number: u32 = value.to_str().ok()?.trim().parse().ok()?;
    Some(number.into())
}

/// How long the answer says that it is fresh, in seconds.
fn lifetime(directives: &Directives, headers: &HeaderMap, now: i64) -> Option<i64> {
    directives.s_maxage.or(directives.max_age).or_else(|| {
        let expires = headers.get(header::EXPIRES)?.to_str().ok()?;
        Some(http_date(expires)? - now)
    })
}

/// The headers of the request on which the answer hangs. `None`: it hangs on what
/// nobody knows.
fn variant(request: &RequestHeader, response: &HeaderMap) -> Option<Variant> {
    let mut names = BTreeSet::new();
    for value in response.get_all(header::VARY) {
        for name in value.to_str().ok()?.split(',').map(str::trim) {
            match name {
                "" => {}
                "*" => return None,
                name => drop(names.insert(name.to_ascii_lowercase())),
            }
        }
    }
    // Origins that forget to say so are many.
    let encoding = response.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        names.insert(header::ACCEPT_ENCODING.as_str().to_owned());
    }
    let origin = response.get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
    if origin.is_some_and(|origin| origin != "*") {
        names.insert(header::ORIGIN.as_str().to_owned());
    }
    if names.len() > MAX_VARY {
        return None;
    }
    let variant = names.into_iter().map(|name| {
        let name = HeaderName::try_from(name).ok()?;
        let values = request.headers.get_all(&name).iter().cloned().collect();
        Some((name, values))
    });
    variant.collect()
}

/// The headers that are told again: not those of a connection, of a moment or of one
/// caller. `Date` says when the origin answered, whoever tells it (RFC 9110 §6.6.1).
fn stored_headers(headers: &HeaderMap) -> Box<[(HeaderName, HeaderValue)]> {
    const NEVER: [&str; 13] = [
        "age",
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
        "set-cookie",
    ];
    let nominated = headers.get_all(header::CONNECTION).iter();
    let nominated = nominated.filter_map(|value| value.to_str().ok());
    let nominated: Vec<String> = nominated
        .flat_map(|text| text.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let stays = |name: &HeaderName| {
        let name = name.as_str();
        !NEVER.contains(&name)
            && !name.contains("ratelimit-remaining")
            && !name.starts_with("x-cache-")
            && !nominated.iter().any(|other| other == name)
    };
    let kept = headers.iter().filter(|(name, _)| stays(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
