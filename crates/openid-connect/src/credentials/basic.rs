//! `Authorization: Basic` (RFC 7617).

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use url::form_urlencoded;

use crate::decide::refusal::Refusal;
use doorward_core::model::secret::Secret;
use doorward_net::http::basic;

/// The pair of an `Authorization: Basic` header, in Base64 or, as old clients
/// send it, as it is.
pub(crate) fn basic_credentials(headers: &HeaderMap) -> Result<Option<(String, Secret)>, Refusal> {
    let mut found = None;
    for value in headers.get_all(AUTHORIZATION) {
        let Some(credentials) = basic::credentials(value) else {
            continue;
        };
        if found.is_some() {
            return Err(Refusal::RepeatedCredentials);
        }
        let pair = basic::pair(credentials).ok_or(Refusal::MalformedCredentials)?;
        let (name, secret) = (pair.0, Secret::new(pair.1));
        let plain = |text: &str| !text.chars().any(char::is_control);
        if name.is_empty() || !plain(&name) || !plain(secret.expose()) {
            return Err(Refusal::MalformedCredentials);
        }
        found = Some((name, secret));
    }
    Ok(found)
}

/// Whether a value of `Authorization` is of this scheme.
pub(crate) fn is_basic(value: &HeaderValue) -> bool {
    basic::credentials(value).is_some()
}

/// A client's name and secret, where these are encoded as RFC 6749 §2.3.1 has
/// it; `None`: they are not, or it makes no difference.
pub(crate) fn decoded(name: &str, secret: &Secret) -> Option<(String, Secret)> {
    let encoded = |text: &str| {
        let mut marks = text.split('%').skip(1);
        marks.all(|rest| {
            let digits = rest.as_bytes().first_chunk::<2>();
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        })
    };
    let decode = |text: &str| {
        let form = format!("v={text}");
        let mut pairs = form_urlencoded::parse(form.as_bytes());
        let (Some((_, text)), None) = (pairs.next(), pairs.next()) else {
            return None;
        };
        let odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
        (!text.chars().any(odd)).then(|| text.into_owned())
    };
    let both = [name, secret.expose()];
    if !both.iter().any(|text| text.contains('%')) || !both.iter().all(|text| encoded(text)) {
        return None;
    }
    let name = decode(name).filter(|name| !name.is_empty())?;
    Some((name, Secret::new(decode(secret.expose())?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_a_client_has_encoded_is_told_from_one_as_it_is() {
        for (name, secret, wanted) in [
            ("https%3A%2F%2Fapp", "a+b", Some(("https://app", "a b"))),
            ("batch", "s%2Bs%3D", Some(("batch", "s+s="))),
            ("batch", "a+b", None),
            ("batch", "100%", None),
            ("batch", "%zz%41", None),
            ("batch", "%0a", None),
            ("batch", "%ff", None),
        ] {
            let found = decoded(name, &Secret::new(secret));
            let found = found.as_ref();
            let found = found.map(|(name, secret)| (name.as_str(), secret.expose()));
            assert_eq!(found, wanted, "{name}:{secret}");
        }
    }
}
