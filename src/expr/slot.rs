//! The context of a request: roots, their members, and how each is read.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{COOKIE, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Version};

use super::value::Value;
use super::{MAX_TEXT, Scope};
use crate::x509::ClientCertificate;

/// A plain value of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Method,
    Version,
    Scheme,
    Host,
    Port,
    Path,
    RawPath,
    Query,
    RawQuery,
    Authority,
    ClientAddress,
    ClientPort,
    ClientSecure,
    CertificateSubject,
    CertificateNames,
    CertificateSerial,
    CertificateFingerprint,
    CertificateThumbprint,
    UserAgent,
    Token,
    Scopes,
    ExpiresAt,
    Claims,
    /// What a request never has here: a fragment, user information.
    Nothing,
}

/// A part of the context that has members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// `request`
    Request,
    /// `request.uri`
    Uri,
    /// `request.headers`
    Headers,
    /// `request.cookies`
    Cookies,
    /// One cookie.
    Cookie,
    /// `request.queryParams`, `request.form`
    Params,
    /// `contexts`
    Contexts,
    /// `contexts.client`
    Client,
    /// `contexts.client.certificate`
    Certificate,
    /// `contexts.oauth2`
    OAuth2,
    /// `contexts.oauth2.accessToken`
    AccessToken,
    /// `contexts.attributes`
    AttributesContext,
    /// `attributes`
    Attributes,
    /// `attributes.openid`
    OpenId,
    /// `env`
    Env,
    /// `system`
    System,
}

/// A member of an object: a plain value, or an object again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Member {
    Slot(Slot),
    Object(Object),
}

/// The names an expression may begin with.
pub(super) const ROOTS: &[(&str, Object)] = &[
    ("request", Object::Request),
    ("contexts", Object::Contexts),
    ("attributes", Object::Attributes),
    ("env", Object::Env),
    ("system", Object::System),
];

impl Object {
    /// The members with fixed names.
    pub(super) fn members(self) -> &'static [(&'static str, Member)] {
        use Member::{Object as O, Slot as S};
        match self {
            Self::Request => &[
                ("method", S(Slot::Method)),
                ("uri", O(Self::Uri)),
                ("version", S(Slot::Version)),
                ("headers", O(Self::Headers)),
                ("cookies", O(Self::Cookies)),
                ("queryParams", O(Self::Params)),
                ("form", O(Self::Params)),
            ],
            Self::Uri => &[
                ("scheme", S(Slot::Scheme)),
                ("host", S(Slot::Host)),
                ("port", S(Slot::Port)),
                ("path", S(Slot::Path)),
                ("rawPath", S(Slot::RawPath)),
                ("query", S(Slot::Query)),
                ("rawQuery", S(Slot::RawQuery)),
                ("authority", S(Slot::Authority)),
                ("rawAuthority", S(Slot::Authority)),
                ("fragment", S(Slot::Nothing)),
                ("rawFragment", S(Slot::Nothing)),
                ("userInfo", S(Slot::Nothing)),
                ("rawUserInfo", S(Slot::Nothing)),
            ],
            Self::Contexts => &[
                ("client", O(Self::Client)),
                ("oauth2", O(Self::OAuth2)),
                ("openid", O(Self::OpenId)),
                ("attributes", O(Self::AttributesContext)),
            ],
            Self::Client => &[
                ("remoteAddress", S(Slot::ClientAddress)),
                ("remotePort", S(Slot::ClientPort)),
                ("remoteUser", S(Slot::Nothing)),
                ("userAgent", S(Slot::UserAgent)),
                ("isSecure", S(Slot::ClientSecure)),
                ("secure", S(Slot::ClientSecure)),
                ("certificate", O(Self::Certificate)),
            ],
            Self::Certificate => &[
                ("subject", S(Slot::CertificateSubject)),
                ("names", S(Slot::CertificateNames)),
                ("serial", S(Slot::CertificateSerial)),
                ("fingerprint", S(Slot::CertificateFingerprint)),
                ("thumbprint", S(Slot::CertificateThumbprint)),
            ],
            Self::OAuth2 => &[("accessToken", O(Self::AccessToken))],
            Self::AccessToken => &[
                ("token", S(Slot::Token)),
                ("scopes", S(Slot::Scopes)),
                ("info", S(Slot::Claims)),
                ("expiresAt", S(Slot::ExpiresAt)),
            ],
            Self::AttributesContext => &[("attributes", O(Self::Attributes))],
            Self::Attributes => &[("openid", O(Self::OpenId))],
            Self::OpenId => &[
                ("user_info", S(Slot::Claims)),
                ("id_token_claims", S(Slot::Claims)),
                ("access_token", S(Slot::Token)),
                ("scope", S(Slot::Scopes)),
            ],
            // Their members are named by the request or the environment.
            Self::Headers
            | Self::Cookies
            | Self::Cookie
            | Self::Params
            | Self::Env
            | Self::System => &[],
        }
    }
}

impl Slot {
    /// What the value is called when something is asked of it that it can't
    /// have; `None` for what has members.
    pub(super) fn plain(self) -> Option<&'static str> {
        match self {
            Self::Claims | Self::Scopes | Self::CertificateNames => None,
            Self::Port | Self::ClientPort | Self::ExpiresAt => Some("a number"),
            Self::ClientSecure => Some("true or false"),
            _ => Some("a text"),
        }
    }

    pub(super) fn read<'a>(self, scope: &Scope<'a>) -> Value<'a> {
        let uri = &scope.request.uri;
        let found = match self {
            Self::Method => Some(Value::borrowed_text(scope.request.method.as_str())),
            Self::Version => Some(Value::borrowed_text(version(scope.request.version))),
            Self::Scheme => Some(Value::borrowed_text(scheme(scope))),
            Self::Host => authority(scope).map(|a| split_port(a).0),
            Self::Port => Some(port(scope)),
            Self::Path => decoded(uri.path()),
            Self::RawPath => Some(Value::borrowed_text(uri.path())),
            Self::Query => uri.query().and_then(decoded),
            Self::RawQuery => uri.query().map(Value::borrowed_text),
            Self::Authority => authority(scope).map(Value::borrowed_text),
            Self::ClientAddress => Some(Value::owned_text(
                scope.client.ip().to_canonical().to_string(),
            )),
            Self::ClientPort => Some(Value::Integer(scope.client.port().into())),
            Self::ClientSecure => Some(Value::Bool(scope.secure)),
            Self::CertificateSubject => certificate(scope, |c| &c.subject),
            Self::CertificateNames => scope.certificate.map(|c| {
                let names = c.names.iter();
                Value::List(names.map(|name| Value::borrowed_text(name)).collect())
            }),
            Self::CertificateSerial => certificate(scope, |c| &c.serial),
            Self::CertificateFingerprint => certificate(scope, |c| &c.fingerprint),
            Self::CertificateThumbprint => certificate(scope, |c| &c.thumbprint),
            Self::UserAgent => header(scope, &USER_AGENT, 0),
            Self::Token => scope.token.map(|t| Value::borrowed_text(&t.token)),
            Self::Scopes => scope
                .token
                .map(|t| Value::List(t.scopes.iter().map(|s| Value::borrowed_text(s)).collect())),
            // Milliseconds, as the imitated token object keeps it.
            Self::ExpiresAt => scope
                .token
                .and_then(|t| t.expires_at?.checked_mul(1000))
                .map(Value::Integer),
            Self::Claims => scope.token.map(|t| Value::Map(Cow::Borrowed(&t.claims))),
            Self::Nothing => None,
        };
        found.unwrap_or(Value::Null)
    }
}

/// A text of the client's certificate.
fn certificate<'a>(
    scope: &Scope<'a>,
    text: impl Fn(&'a ClientCertificate) -> &'a String,
) -> Option<Value<'a>> {
    let certificate = scope.certificate?;
    Some(Value::borrowed_text(text(certificate)))
}

/// The claim `name` of the verified token.
pub(super) fn claim<'a>(scope: &Scope<'a>, name: &str) -> Value<'a> {
    scope
        .token
        .and_then(|token| token.claims.get(name))
        .map_or(Value::Null, Value::of_json)
}

/// Value number `index` of a header; `None` where there is none.
pub(super) fn header<'a>(scope: &Scope<'a>, name: &HeaderName, index: usize) -> Option<Value<'a>> {
    let mut values = scope.request.headers.get_all(name).iter();
    values.nth(index).map(header_text)
}

/// All values of a header; `None` where there is none.
pub(super) fn headers<'a>(scope: &Scope<'a>, name: &HeaderName) -> Option<Value<'a>> {
    let all = scope.request.headers.get_all(name);
    let values: Vec<_> = all.iter().map(header_text).collect();
    (!values.is_empty()).then_some(Value::List(values))
}

/// The values of the cookies called `name`, in the order sent.
pub(super) fn cookies<'a>(scope: &Scope<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    scope
        .request
        .headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(move |(found, _)| *found == name)
        .map(|(_, value)| value.trim_matches('"'))
}

/// The values of the query parameters called `name`, in the order sent.
pub(super) fn params<'a>(scope: &Scope<'a>, name: &str) -> impl Iterator<Item = Cow<'a, str>> {
    url::form_urlencoded::parse(scope.request.uri.query().unwrap_or("").as_bytes())
        .filter(move |(found, _)| *found == name)
        .map(|(_, value)| value)
}

/// The whole request target with scheme and authority, as a text.
pub(super) fn whole_uri(scope: &Scope<'_>) -> Value<'static> {
    let uri = &scope.request.uri;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    match authority(scope) {
        Some(authority) => Value::owned_text(format!("{}://{authority}{target}", scheme(scope))),
        None => Value::owned_text(target.to_owned()),
    }
}

/// A header value is bytes: UTF-8 if it is that, else one character a byte, so
/// that it is never missing because of its bytes.
fn header_text(value: &HeaderValue) -> Value<'_> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Value::borrowed_text(text),
        Err(_) => Value::owned_text(value.as_bytes().iter().map(|b| char::from(*b)).collect()),
    }
}

fn decoded(raw: &str) -> Option<Value<'_>> {
    if raw.len() > MAX_TEXT {
        return None;
    }
    let text = percent_decoded(raw, false)?;
    Some(Value::Text(text))
}

/// `raw` with `%XX` decoded (and `+` as a blank where `plus`); `None` where an
/// escape is malformed or the result is not UTF-8.
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
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_3 => "HTTP/3",
        _ => "HTTP/1.1",
    }
}

fn scheme(scope: &Scope<'_>) -> &'static str {
    if scope.secure { "https" } else { "http" }
}

fn authority<'a>(scope: &Scope<'a>) -> Option<&'a str> {
    match scope.request.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => scope.request.headers.get(HOST)?.to_str().ok(),
    }
}

/// The port of the authority; -1 where it names none.
fn port(scope: &Scope<'_>) -> Value<'static> {
    let port = authority(scope).and_then(|a| split_port(a).1);
    Value::Integer(port.map_or(-1, i64::from))
}

fn split_port(authority: &str) -> (Value<'_>, Option<u16>) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
        _ => (authority, None),
    };
    (Value::borrowed_text(host), port)
}

/// An address as a number-only form that is the same for both spellings of an
/// IPv4 client.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}
