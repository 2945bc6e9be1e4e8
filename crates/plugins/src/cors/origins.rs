//! Which origins are allowed, and what they are told.

use http::HeaderValue;
use regex::{Regex, RegexBuilder};

/// Largest compiled form of an expression, in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// What an answer says of the origin that asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Every origin may read it: `*`.
    Any,
    /// This one may.
    Origin(HeaderValue),
    /// Nothing: it may not.
    None,
}

/// The origins of a configuration.
pub(super) enum Origins {
    /// All.
    Any,
    /// One text, said to everybody: browsers compare.
    Fixed(HeaderValue),
    /// Those that match the first of these.
    Several(Box<[Entry]>),
}

/// One of several.
pub(super) enum Entry {
    /// `*`.
    Any,
    /// An origin, in its short form.
    Plain(Box<str>),
    /// An expression for whole origins.
    Whole(Regex),
    /// An expression for hosts.
    Host(Regex),
}

/// The check of an entry.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("length must be at least 1".to_owned());
    }
    Entry::read(text).map(drop)
}

impl Entry {
    fn read(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if is_plain(text) {
            return Ok(Self::Plain(short(text).into()));
        }
        // The whole text has to match: `evil-example.com` is not `example.com`.
        let anchored = format!("^(?:{text})$");
        let expression = RegexBuilder::new(&anchored)
            .size_limit(MAX_PATTERN)
            .build()
            .map_err(|_| format!("'{text}' is not a valid regex"))?;
        Ok(if text.contains(':') {
            Self::Whole(expression)
        } else {
            Self::Host(expression)
        })
    }

    fn matches(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Plain(text) => **text == *origin,
            Self::Whole(expression) => expression.is_match(origin),
            Self::Host(expression) => expression.is_match(host(origin)),
        }
    }
}

impl Origins {
    /// Reads the entries of a configuration.
    pub(super) fn read(entries: &[&str]) -> Result<Self, String> {
        match entries {
            [] | ["*"] => Ok(Self::Any),
            [one] if is_plain(one) => {
                let value = HeaderValue::from_str(one);
                value.map(Self::Fixed).map_err(|error| error.to_string())
            }
            several => {
                let entries: Result<_, _> = several.iter().map(|text| Entry::read(text)).collect();
                Ok(Self::Several(entries?))
            }
        }
    }

    /// Whether every origin is allowed.
    pub(super) fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }

    /// Whether answers depend on the origin.
    pub(super) fn varies(&self) -> bool {
        !self.is_any()
    }

    /// What `origin` is told.
    pub(super) fn judge(&self, origin: Option<&HeaderValue>) -> Allowed {
        let entries = match self {
            Self::Any => return Allowed::Any,
            Self::Fixed(value) => return Allowed::Origin(value.clone()),
            Self::Several(entries) => entries,
        };
        let Some((sent, text)) = origin.and_then(|sent| Some((sent, sent.to_str().ok()?))) else {
            return Allowed::None;
        };
        let origin = short(text);
        match entries.iter().find(|entry| entry.matches(origin)) {
            None => Allowed::None,
            Some(Entry::Any) => Allowed::Any,
            Some(_) if origin.len() == text.len() => Allowed::Origin(sent.clone()),
            Some(_) => HeaderValue::from_str(origin).map_or(Allowed::None, Allowed::Origin),
        }
    }
}

/// Whether a text is no expression.
fn is_plain(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".:/-".contains(&b);
    !text.is_empty() && text.bytes().all(plain)
}

/// An origin without the port that its scheme has anyway.
fn short(origin: &str) -> &str {
    let port = match origin.split_once("://") {
        Some(("http", _)) => ":80",
        Some(("https", _)) => ":443",
        _ => return origin,
    };
    origin.strip_suffix(port).unwrap_or(origin)
}

/// The host of an origin; that of a text that is no origin is itself.
fn host(origin: &str) -> &str {
    let Some((_, rest)) = origin.split_once("://") else {
        return origin;
    };
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let authority = rest.get(..end).unwrap_or(rest);
    if authority.starts_with('[') {
        let end = authority.find(']').map_or(authority.len(), |end| end + 1);
        return authority.get(..end).unwrap_or(authority);
    }
    let digits = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    match authority.rsplit_once(':') {
        Some((host, port)) if digits(port) => host,
        _ => authority,
    }
}
