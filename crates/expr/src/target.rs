//! The target of a request, and its parts.

use std::borrow::Cow;

use http::Uri;
use http::header::HOST;

use super::run::Run;
use super::slot::{Part, Which};
use super::value::Value;

/// A target with what its message says of it.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    uri: &'a Uri,
    authority: Option<&'a str>,
    scheme: &'a str,
}

impl<'a> Target<'a> {
    pub(super) fn of(scope: &Run<'a>, which: Which) -> Self {
        let uri = match (which, scope.original) {
            (Which::Original, Some(uri)) => uri,
            _ => &scope.request.uri,
        };
        // A client may write whatever it likes here, a filter means it.
        let changed = which == Which::Current && scope.original.is_some();
        let own = uri.scheme_str().filter(|_| changed);
        Self {
            uri,
            authority: match uri.authority() {
                Some(authority) => Some(authority.as_str()),
                None => {
                    let host = scope.request.headers.get(HOST);
                    host.and_then(|host| host.to_str().ok())
                }
            },
            scheme: match own {
                Some(scheme) => scheme,
                None if scope.secure => "https",
                None => "http",
            },
        }
    }

    pub(super) fn read(self, part: Part, scope: &Run<'a>) -> Option<Value<'a>> {
        match part {
            Part::Scheme => Some(Value::borrowed_text(self.scheme)),
            Part::Host => self.host().map(Value::borrowed_text),
            Part::Port => Some(Value::Integer(self.port().map_or_else(
                || match self.scheme {
                    "https" => 443,
                    _ => 80,
                },
                i64::from,
            ))),
            Part::Path => Some(decoded(self.uri.path())),
            Part::RawPath => Some(Value::borrowed_text(self.uri.path())),
            Part::Elements => Some(self.elements(scope)),
            Part::Query => self.uri.query().map(decoded),
            Part::RawQuery => self.uri.query().map(Value::borrowed_text),
            Part::Authority => self.authority.map(Value::borrowed_text),
            Part::UserInfo => self.user_info().map(decoded),
            Part::RawUserInfo => self.user_info().map(Value::borrowed_text),
            Part::Base => {
                let authority = self.authority?;
                Some(Value::owned_text(format!("{}://{authority}", self.scheme)))
            }
            Part::Nothing => None,
        }
    }

    /// The whole target, with scheme and authority if it has one.
    pub(super) fn whole(self) -> Value<'static> {
        let target = self.uri.path_and_query().map_or("/", |t| t.as_str());
        match self.authority {
            Some(authority) => Value::owned_text(format!("{}://{authority}{target}", self.scheme)),
            None => Value::owned_text(target.to_owned()),
        }
    }

    fn host_and_port(self) -> Option<&'a str> {
        let authority = self.authority?;
        Some(match authority.rsplit_once('@') {
            Some((_, host_and_port)) => host_and_port,
            None => authority,
        })
    }

    pub(super) fn host(self) -> Option<&'a str> {
        let all = self.host_and_port()?;
        Some(match all.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => host,
            _ => all,
        })
    }

    fn port(self) -> Option<u16> {
        let (_, port) = self.host_and_port()?.rsplit_once(':')?;
        port.parse().ok()
    }

    fn user_info(self) -> Option<&'a str> {
        let (user_info, _) = self.authority?.rsplit_once('@')?;
        Some(user_info)
    }

    /// The segments of the path, decoded.
    fn elements(self, scope: &Run<'a>) -> Value<'a> {
        let segments = self.uri.path().split('/').filter(|s| !s.is_empty());
        let segments = segments.take(super::MAX_LIST + 1);
        scope.bounded(Value::List(segments.map(decoded).collect()))
    }
}

/// A part of a target with `%XX` decoded. It always has a value, whatever a
/// client sends: what is no escape stands for itself, and bytes that are not
/// UTF-8 become U+FFFD.
fn decoded(raw: &str) -> Value<'_> {
    if !raw.contains('%') {
        return Value::borrowed_text(raw);
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [byte, behind @ ..] = rest {
        let escaped = match (byte, behind) {
            (b'%', [high, low, ..]) => escape(*high, *low),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*byte));
        rest = &rest[if escaped.is_some() { 3 } else { 1 }..];
    }
    Value::owned_text(String::from_utf8_lossy(&bytes).into_owned())
}

/// `raw` with `%XX` decoded (and `+` as a blank where `plus`); `None` where an
/// escape is malformed. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn percent_decoded(raw: &str, plus: bool) -> Option<Cow<'_, str>> {
    let escaped = raw.contains('%') || (plus && raw.contains('+'));
    if !escaped {
        return Some(Cow::Borrowed(raw));
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (rest.next()?, rest.next()?);
                escape(high, low)?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The byte that two hexadecimal digits stand for.
fn escape(high: u8, low: u8) -> Option<u8> {
    let (high, low) = (
        char::from(high).to_digit(16)?,
        char::from(low).to_digit(16)?,
    );
    u8::try_from(high * 16 + low).ok()
}

/// Bytes as a text: UTF-8 if they are that, else one character a byte, so that
/// a text is never missing because of its bytes.
pub(super) fn lenient(bytes: &[u8]) -> Value<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::borrowed_text(text),
        Err(_) => Value::owned_text(bytes.iter().map(|b| char::from(*b)).collect()),
    }
}
