//! How the values of the context are read from an exchange.

use std::borrow::Cow;
use std::net::SocketAddr;

use http::Version;
use http::header::USER_AGENT;
use serde_json::Map;

use super::context::{Object, Side};
use super::message;
use super::run::Run;
use super::slot::Slot;
use super::target::{self, Target};
use super::value::Value;
use super::{FAILURE_ATTRIBUTE, LOGIN_ATTRIBUTE};
use doorward_core::x509::ClientCertificate;

impl Slot {
    /// The value of an exchange; null where it has none.
    pub(super) fn read<'a>(self, scope: &Run<'a>) -> Value<'a> {
        let found = match self {
            Self::Method => Some(Value::borrowed_text(scope.request.method.as_str())),
            Self::Version => Some(Value::borrowed_text(version(scope.request.version))),
            Self::Uri(which, part) => Target::of(scope, which).read(part, scope),
            Self::EntityText => scope.body().map(target::lenient),
            Self::EntityJson => scope.body().and_then(|body| message::json(body, scope)),
            Self::EntityBytes => scope.body().map(|body| Value::Bytes(Cow::Borrowed(body))),
            Self::EntityEmpty => scope.body().map(|body| Value::Bool(body.is_empty())),
            Self::StatusCode | Self::Reason | Self::StatusFamily(_) => self.of_status(scope),
            Self::ClientAddress => Some(address_text(scope.client)),
            Self::ClientPort => Some(Value::Integer(scope.client.port().into())),
            Self::LocalAddress => scope.local.map(address_text),
            Self::LocalPort => scope.local.map(|l| Value::Integer(l.port().into())),
            Self::ClientSecure => Some(Value::Bool(scope.secure)),
            Self::ClientExternal => Some(Value::Bool(true)),
            Self::CertificateSubject => certificate(scope, |c| &c.subject),
            Self::CertificateNames => scope.certificate.map(|c| Value::Texts(&c.names)),
            Self::CertificateSerial => certificate(scope, |c| &c.serial),
            Self::CertificateFingerprint => certificate(scope, |c| &c.fingerprint),
            Self::CertificateThumbprint => certificate(scope, |c| &c.thumbprint),
            Self::UserAgent => message::header(scope, Side::Request, &USER_AGENT, 0),
            Self::Transaction => scope.transaction.map(Value::borrowed_text),
            Self::Token => scope.token.map(|t| Value::borrowed_text(&t.token)),
            Self::Scopes => scope.token.map(|t| Value::Texts(&t.scopes)),
            // Milliseconds, as the imitated token object keeps it.
            Self::ExpiresAt => scope
                .token
                .and_then(|t| t.expires_at?.checked_mul(1000))
                .map(Value::Integer),
            Self::Login(name) => noted(scope, LOGIN_ATTRIBUTE, name),
            Self::LoginSeconds => match noted(scope, LOGIN_ATTRIBUTE, "expires_in") {
                Some(Value::Integer(millis)) => Some(Value::Integer(millis / 1000)),
                _ => None,
            },
            Self::LoginFailure(name) => noted(scope, FAILURE_ATTRIBUTE, name),
            Self::Claims => scope.token.map(|t| Value::Map(Cow::Borrowed(&t.claims))),
            Self::NoMembers => Some(Value::Map(Cow::Owned(Map::new()))),
            Self::Empty => Some(Value::borrowed_text("")),
            Self::Absent | Self::Nothing => None,
        };
        found.unwrap_or(Value::Null)
    }

    fn of_status<'a>(self, scope: &Run<'a>) -> Option<Value<'a>> {
        let response = scope.response?;
        let status = response.status;
        Some(match self {
            Self::StatusFamily(digit) => Value::Bool(status.as_u16() / 100 == digit),
            Self::Reason => {
                let reason = response.reason.or_else(|| status.canonical_reason());
                Value::borrowed_text(reason.unwrap_or_default())
            }
            _ => Value::Integer(status.as_u16().into()),
        })
    }
}

/// A part of the context as a value: null where the exchange has none.
pub(super) fn object<'a>(object: Object, scope: &Run<'a>) -> Value<'a> {
    let there = match object {
        Object::OAuth2 | Object::AccessToken | Object::OpenId => scope.token.is_some(),
        Object::OAuth2Info => noted(scope, LOGIN_ATTRIBUTE, "client_registration").is_some(),
        Object::OAuth2Failure => noted(scope, FAILURE_ATTRIBUTE, "error").is_some(),
        Object::Certificate => scope.certificate.is_some(),
        Object::Response | Object::Status => scope.response.is_some(),
        Object::Headers(Side::Response) | Object::Cookies(Side::Response) => {
            scope.response.is_some()
        }
        Object::Certificates => {
            let one = scope
                .certificate
                .map(|_| Value::Object(Object::Certificate));
            return Value::List(one.into_iter().collect());
        }
        _ => true,
    };
    if there {
        Value::Object(object)
    } else {
        Value::Null
    }
}

/// What a filter has noted by this name in an attribute of its own.
fn noted<'a>(scope: &Run<'a>, attribute: &str, name: &str) -> Option<Value<'a>> {
    let mut all = scope.attributes.iter();
    match all.find(|(known, _)| **known == *attribute)? {
        (_, Value::Map(members)) => members.get(name).map(Value::of_json),
        _ => None,
    }
}

/// A text of the client's certificate.
fn certificate<'a>(
    scope: &Run<'a>,
    text: impl Fn(&'a ClientCertificate) -> &'a String,
) -> Option<Value<'a>> {
    let certificate = scope.certificate?;
    Some(Value::borrowed_text(text(certificate)))
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_3 => "HTTP/3",
        _ => "HTTP/1.1",
    }
}

fn address_text(address: SocketAddr) -> Value<'static> {
    Value::owned_text(address.ip().to_canonical().to_string())
}
