//! Forms, read strictly: what two readers could take for different things is
//! no form.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Most parameters of a form.
const MAX_PARAMETERS: usize = 100;

/// Why a body is no form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("The request is malformed : form encoding")]
    Encoding,
    #[error("The request is malformed : too many parameters")]
    TooMany,
    #[error("The request is malformed : repeated parameter")]
    Repeated,
}

/// The parameters of a form, each at most once; one without a value counts as
/// absent (RFC 6749 §3.2).
#[derive(Debug, Default)]
pub(super) struct Form<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Form<'a> {
    /// Reads `application/x-www-form-urlencoded`.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, FormError> {
        let mut pairs: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for (name, value) in split(text) {
            let name = decode(name).ok_or(FormError::Encoding)?;
            let value = decode(value).ok_or(FormError::Encoding)?;
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(FormError::Repeated);
            }
            if pairs.len() == MAX_PARAMETERS {
                return Err(FormError::TooMany);
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// The parameter of this name, unless it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_ref())
            .filter(|value| !value.is_empty())
    }
}

/// Whether a body is sent as a form.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The first parameter of this name in a query.
pub(super) fn first<'a>(query: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let mut pairs = split(query);
    let found = pairs.find(|(known, _)| decode(known).is_some_and(|known| known == name));
    found.and_then(|(_, value)| decode(value))
}

fn split(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let parts = text.split(|byte| *byte == b'&');
    parts.filter(|part| !part.is_empty()).map(|part| {
        match part.iter().position(|byte| *byte == b'=') {
            Some(at) => (&part[..at], &part[at + 1..]),
            None => (part, &part[part.len()..]),
        }
    })
}

/// `text` with `+` and `%XX` decoded; `None`: a broken escape, or no UTF-8.
pub(super) fn decode(text: &[u8]) -> Option<Cow<'_, str>> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    let hex = |digit: u8| -> Option<u8> { char::from(digit).to_digit(16)?.try_into().ok() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_or_broken_parameter_is_refused_even_in_disguise() {
        let form = Form::parse(b"a=x+y%2B&b=").expect("a form");
        assert_eq!((form.get("a"), form.get("b")), (Some("x y+"), None));
        assert_eq!(Form::parse(b"a=1&%61=2").err(), Some(FormError::Repeated));
        assert_eq!(Form::parse(b"a=%ff").err(), Some(FormError::Encoding));
        let flood: String = (0..101).map(|n| format!("p{n}=&")).collect();
        assert_eq!(
            Form::parse(flood.as_bytes()).err(),
            Some(FormError::TooMany)
        );
        assert_eq!(first(b"x=1&a=2&a=3", "a").as_deref(), Some("2"));
    }
}
