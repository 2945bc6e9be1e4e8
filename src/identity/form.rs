//! Form bodies and query strings, read strictly.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;

use super::Call;
use super::error::OAuthError;

/// Most parameters of a form.
const MAX_PARAMETERS: usize = 100;

/// What may stand in the body of a request and nowhere else: addresses end up
/// in logs and histories.
const NEVER_IN_A_QUERY: [&str; 12] = [
    "client_secret",
    "client_assertion",
    "password",
    "otp",
    "token",
    "refresh_token",
    "code",
    "device_code",
    "id_token",
    "assertion",
    "subject_token",
    "actor_token",
];

/// Why a form is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("Malformed percent-encoding")]
    Encoding,
    #[error("Too many parameters")]
    TooMany,
    #[error("Invalid Request: parameter '{0}' is given more than once")]
    Repeated(String),
}

/// What may be sent several times (RFC 8707 §2, RFC 8693 §2.1).
const REPEATABLE: [&str; 2] = ["resource", "audience"];

/// The parameters of a request: each at most once but for a few, none empty
/// (RFC 6749 §3.2: one without a value counts as absent, one sent twice is an
/// error).
#[derive(Debug, Default)]
pub(super) struct Form<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Form<'a> {
    /// Reads `application/x-www-form-urlencoded`.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, FormError> {
        let mut pairs: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for part in text
            .split(|byte| *byte == b'&')
            .filter(|part| !part.is_empty())
        {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (name, value) = match equals {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &part[part.len()..]),
            };
            let name = decode(name).ok_or(FormError::Encoding)?;
            let value = decode(value).ok_or(FormError::Encoding)?;
            let again = pairs.iter().any(|(known, _)| *known == name);
            if again && !REPEATABLE.contains(&&*name) {
                return Err(FormError::Repeated(name.into_owned()));
            }
            if pairs.len() == MAX_PARAMETERS {
                return Err(FormError::TooMany);
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    /// Every parameter, also the empty ones.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.pairs.iter();
        pairs.map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// The parameter of this name, unless it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_ref())
            .filter(|value| !value.is_empty())
    }
}

impl Form<'_> {
    /// Every value of a parameter that may be sent several times.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let pairs = self.pairs.iter().filter(move |(known, _)| known == name);
        let values = pairs.map(|(_, value)| value.as_ref());
        values.filter(|value| !value.is_empty())
    }
}

/// The form that a request to an endpoint of OAuth posts.
///
/// # Errors
/// `invalid_request` for another media type, a form that is none, and for
/// secrets in the address.
pub(super) fn posted(call: &Call) -> Result<Form<'_>, OAuthError> {
    let wrong = |text: String| OAuthError::bad("invalid_request", text);
    let kind = call.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(wrong("Invalid Content Type".to_owned()));
    }
    if let Some(query) = call.parts.uri.query() {
        let query = Form::parse(query.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        if let Some(name) = NEVER_IN_A_QUERY
            .iter()
            .find(|name| query.get(name).is_some())
        {
            return Err(wrong(format!("Parameter {name} belongs into the body")));
        }
    }
    Form::parse(&call.body).map_err(|error| wrong(error.to_string()))
}

/// `text` with `+` and `%XX` decoded; `None` when an escape is broken or the
/// result is no UTF-8.
pub(super) fn decode(text: &[u8]) -> Option<Cow<'_, str>> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex(*rest.next()?)? << 4 | hex(*rest.next()?)?,
            other => *other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_broken_ones_refused() {
        let form = Form::parse(b"a=x+y%2B%c3%a4&b=&c").expect("a form");
        assert_eq!(form.get("a"), Some("x y+\u{e4}"));
        assert_eq!(form.get("b"), None);
        assert_eq!(form.get("c"), None);
        for broken in ["a=%", "a=%4", "a=%zz", "a=%ff", "%=a"] {
            assert_eq!(
                Form::parse(broken.as_bytes()).err(),
                Some(FormError::Encoding),
                "{broken}"
            );
        }
    }

    #[test]
    fn a_repeated_parameter_is_refused_even_in_disguise() {
        let twice = Form::parse(b"scope=a&sc%6fpe=b");
        assert_eq!(twice.err(), Some(FormError::Repeated("scope".to_owned())));
        assert!(Form::parse(b"scope=&scope=").is_err());
    }

    #[test]
    fn a_flood_of_parameters_is_refused() {
        let flood: Vec<_> = (0..200).map(|n| format!("p{n}=1")).collect();
        assert_eq!(
            Form::parse(flood.join("&").as_bytes()).err(),
            Some(FormError::TooMany)
        );
    }
}
