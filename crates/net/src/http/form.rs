//! Forms and queries, read strictly: what two readers could take for different
//! things is no form.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use url::form_urlencoded;

/// Most parameters of a form.
const MAX_PARAMETERS: usize = 100;

/// What OAuth lets clients send several times (RFC 8707 §2, RFC 8693 §2.1).
const REPEATABLE: [&str; 2] = ["resource", "audience"];

/// Why a text is no form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// A broken escape, or no UTF-8.
    #[error("Malformed percent-encoding")]
    Encoding,
    /// More than 100 parameters.
    #[error("Too many parameters")]
    TooMany,
    /// This parameter is there twice.
    #[error("Invalid Request: parameter '{0}' is given more than once")]
    Repeated(String),
}

/// The parameters of a form or a query. One without a value counts as absent,
/// one sent twice is an error (RFC 6749 §3.2).
#[derive(Debug, Default)]
pub struct Form<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Form<'a> {
    /// Reads `application/x-www-form-urlencoded`. `resource` and `audience` may
    /// be there several times, as OAuth has it.
    ///
    /// # Errors
    /// Why it is no form.
    pub fn parse(text: &'a [u8]) -> Result<Self, FormError> {
        Self::read(text, &REPEATABLE)
    }

    /// The same, with every parameter at most once.
    ///
    /// # Errors
    /// Why it is no form.
    pub fn parse_each_once(text: &'a [u8]) -> Result<Self, FormError> {
        Self::read(text, &[])
    }

    fn read(text: &'a [u8], repeatable: &[&str]) -> Result<Self, FormError> {
        let mut pairs: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for (name, value) in split(text) {
            let name = decode(name).ok_or(FormError::Encoding)?;
            let value = decode(value).ok_or(FormError::Encoding)?;
            let again = pairs.iter().any(|(known, _)| *known == name);
            if again && !repeatable.contains(&&*name) {
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
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.pairs.iter();
        pairs.map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// The parameter of this name, unless it is absent or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_ref())
            .filter(|value| !value.is_empty())
    }

    /// Every value of a parameter that may be sent several times.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let pairs = self.pairs.iter().filter(move |(known, _)| known == name);
        let values = pairs.map(|(_, value)| value.as_ref());
        values.filter(|value| !value.is_empty())
    }
}

/// Whether a body is sent as a form.
pub fn is_form(headers: &HeaderMap) -> bool {
    is_form_type(media_type(headers))
}

/// Whether a body is sent as a form in parts (RFC 7578).
pub fn is_multipart(headers: &HeaderMap) -> bool {
    is_type(media_type(headers), "multipart/form-data")
}

/// Whether a body is sent as JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    is_json_type(media_type(headers))
}

/// Whether a body is sent as messages of gRPC, which are framed in its own way.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = media_type(headers).strip_prefix("application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// The media type of a body with its parameters; empty where there is none, and where
/// there are several, as nobody knows which one others go by.
pub fn media_type(headers: &HeaderMap) -> &str {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    match (kinds.next(), kinds.next()) {
        (Some(kind), None) => kind.to_str().unwrap_or_default(),
        _ => "",
    }
}

/// Whether this media type, with or without parameters, is that of forms.
pub fn is_form_type(kind: &str) -> bool {
    is_type(kind, "application/x-www-form-urlencoded")
}

/// Whether this media type, with or without parameters, is that of JSON.
pub fn is_json_type(kind: &str) -> bool {
    is_type(kind, "application/json")
}

fn is_type(kind: &str, wanted: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(wanted)
}

/// The first parameter of this name in a query.
pub fn first<'a>(query: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
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

/// `text` with `+` and `%XX` decoded; `None` when an escape is broken or the
/// result is no UTF-8.
pub fn decode(text: &[u8]) -> Option<Cow<'_, str>> {
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

/// A form or a query without parameters of these names, and otherwise as it was
/// written; `None`: it has none of them.
pub fn without(form: &str, names: &[&str]) -> Option<String> {
    let is_named = |pair: &&str| {
        let mut parsed = form_urlencoded::parse(pair.as_bytes());
        parsed
            .next()
            .is_some_and(|(name, _)| names.contains(&&*name))
    };
    let kept: Vec<&str> = form.split('&').filter(|pair| !is_named(pair)).collect();
    let kept = kept.join("&");
    (kept.len() != form.len()).then_some(kept)
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

    #[test]
    fn where_each_is_to_be_there_once_none_may_be_repeated() {
        assert!(Form::parse(b"resource=a&resource=b").is_ok());
        let twice = Form::parse_each_once(b"a=1&%61=2");
        assert_eq!(twice.err(), Some(FormError::Repeated("a".to_owned())));
        assert!(Form::parse_each_once(b"resource=a&resource=b").is_err());
        let form = Form::parse_each_once(b"a=x+y%2B&b=").expect("a form");
        assert_eq!((form.get("a"), form.get("b")), (Some("x y+"), None));
        let broken = Form::parse_each_once(b"a=%ff").err();
        assert_eq!(broken, Some(FormError::Encoding));
        let flood: String = (0..101).map(|n| format!("p{n}=&")).collect();
        let flood = Form::parse_each_once(flood.as_bytes()).err();
        assert_eq!(flood, Some(FormError::TooMany));
    }

    #[test]
    fn of_a_query_the_first_parameter_of_a_name_counts() {
        assert_eq!(first(b"x=1&a=2&a=3", "a").as_deref(), Some("2"));
    }

    #[test]
    fn a_query_loses_the_named_parameters_and_nothing_else() {
        let names = ["user%name", "password"];
        for (query, left) in [
            ("a=1&user%25name=x&b=%20", Some("a=1&b=%20")),
            ("password=1", Some("")),
            ("passwords=1&&x", None),
        ] {
            assert_eq!(without(query, &names).as_deref(), left, "{query}");
        }
    }
}
