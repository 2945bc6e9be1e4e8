//! What of a request consistent hashing hashes.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use uuid::Uuid;

use super::random::hash;
use crate::router::groups::Groups;
use doorward_core::clock;
use doorward_core::model::upstream::{HashOn, Upstream};

/// What is hashed, and what else if a request lacks that.
#[derive(Debug, Default)]
pub(super) struct Keys {
    first: Key,
    fallback: Key,
}

#[derive(Debug, Default)]
enum Key {
    #[default]
    None,
    Consumer,
    Ip,
    Header(HeaderName),
    Cookie {
        name: Box<str>,
        path: Box<str>,
    },
    Path,
    QueryArg(Box<str>),
    UriCapture(Box<str>),
}

/// A request, as far as it can be hashed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The consumer, if it was authenticated.
    pub consumer: Option<Uuid>,
    /// The client's address.
    pub client: IpAddr,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The normalised path.
    pub path: &'a str,
    /// The query, as sent.
    pub query: Option<&'a str>,
    /// The groups of the route's paths.
    pub groups: Option<&'a Groups>,
}

/// What a request is balanced by.
#[derive(Debug, Default)]
pub struct Hashed {
    /// Its hash; `None`: it goes anywhere.
    pub hash: Option<u64>,
    /// A `Set-Cookie` header for the client, which brings it back here.
    pub cookie: Option<HeaderValue>,
}

impl Keys {
    pub(super) fn of(upstream: &Upstream) -> Self {
        let key =
            |on, header: &Option<String>, argument: &Option<String>, group: &Option<String>| {
                let named = |name: &Option<String>| name.as_deref().unwrap_or_default().into();
                match on {
                    HashOn::None => Key::None,
                    HashOn::Consumer => Key::Consumer,
                    HashOn::Ip => Key::Ip,
                    HashOn::Header => header
                        .as_ref()
                        .and_then(|name| name.parse().ok())
                        .map_or(Key::None, Key::Header),
                    HashOn::Cookie => Key::Cookie {
                        name: named(&upstream.hash_on_cookie),
                        path: upstream
                            .hash_on_cookie_path
                            .as_deref()
                            .unwrap_or("/")
                            .into(),
                    },
                    HashOn::Path => Key::Path,
                    HashOn::QueryArg => Key::QueryArg(named(argument)),
                    HashOn::UriCapture => Key::UriCapture(named(group)),
                }
            };
        Self {
            first: key(
                upstream.hash_on,
                &upstream.hash_on_header,
                &upstream.hash_on_query_arg,
                &upstream.hash_on_uri_capture,
            ),
            fallback: key(
                upstream.hash_fallback,
                &upstream.hash_fallback_header,
                &upstream.hash_fallback_query_arg,
                &upstream.hash_fallback_uri_capture,
            ),
        }
    }

    /// Whether the groups of the route's path are wanted.
    pub(super) fn wants_captures(&self) -> bool {
        [&self.first, &self.fallback]
            .into_iter()
            .any(|key| matches!(key, Key::UriCapture(_)))
    }

    pub(super) fn hash(&self, request: &Request<'_>) -> Hashed {
        for key in [&self.first, &self.fallback] {
            if let Key::Cookie { name, path } = key {
                return cookie_hash(name, path, request.headers);
            }
            if let Some(hash) = key.hash(request) {
                return Hashed {
                    hash: Some(hash),
                    cookie: None,
                };
            }
        }
        Hashed::default()
    }
}

impl Key {
    /// The hash of what `request` has of it.
    fn hash(&self, request: &Request<'_>) -> Option<u64> {
        match self {
            Self::None | Self::Cookie { .. } => None,
            Self::Consumer => Some(hash(request.consumer?.as_bytes())),
            Self::Ip => Some(match request.client.to_canonical() {
                IpAddr::V4(ip) => hash(&ip.octets()),
                IpAddr::V6(ip) => hash(&ip.octets()),
            }),
            Self::Header(name) => joined(request.headers, name).map(|value| hash(&value)),
            Self::Path => Some(hash(request.path.as_bytes())),
            Self::QueryArg(name) => argument(request.query?, name).map(|value| hash(&value)),
            Self::UriCapture(group) => request.groups?.find(request.path, group).map(hash),
        }
    }
}

/// All values of a header, as one.
fn joined<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut values = headers.get_all(name).iter();
    let first = Cow::Borrowed(values.next()?.as_bytes());
    Some(values.fold(first, |mut all, next| {
        let text = all.to_mut();
        text.extend_from_slice(b", ");
        text.extend_from_slice(next.as_bytes());
        all
    }))
}

/// All values of a query argument, sorted, as one.
fn argument<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut values: smallvec::SmallVec<[Cow<'a, str>; 2]> =
        url::form_urlencoded::parse(query.as_bytes())
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value)
            .collect();
    values.sort_unstable();
    match values.len() {
        0 => None,
        1 => values.pop().map(|value| match value {
            Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
            Cow::Owned(value) => Cow::Owned(value.into_bytes()),
        }),
        _ => Some(Cow::Owned(values.join(",").into_bytes())),
    }
}

fn cookie_hash(name: &str, path: &str, headers: &HeaderMap) -> Hashed {
    if let Some(value) = cookie(headers, name) {
        return Hashed {
            hash: Some(hash(value)),
            cookie: None,
        };
    }
    let value = clock::random_uuid().to_string();
    let line = format!("{name}={value}; Path={path}; SameSite=Lax; HttpOnly");
    Hashed {
        hash: Some(hash(value.as_bytes())),
        cookie: HeaderValue::try_from(line).ok(),
    }
}

/// The value of a cookie, unless it is empty.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&b| b == b';'))
        .map(<[u8]>::trim_ascii)
        .filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .find(|value| !value.is_empty())
}
