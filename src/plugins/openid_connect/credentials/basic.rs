//! `Authorization: Basic` (RFC 7617).

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use url::form_urlencoded;

use crate::model::secret::Secret;
use crate::plugins::openid_connect::refusal::Refusal;

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The pair of an `Authorization: Basic` header, in Base64 or, as old clients
/// send it, as it is.
pub(super) fn shown(headers: &HeaderMap) -> Result<Option<(String, Secret)>, Refusal> {
    let mut found = None;
    for value in headers.get_all(AUTHORIZATION) {
        let Some(pair) = of_value(value) else {
            continue;
        };
        if found.is_some() {
            return Err(Refusal::RepeatedCredentials);
        }
        let text = BASE64.decode(pair).ok();
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.filter(|text| text.contains(':'));
        let text = text.or_else(|| String::from_utf8(pair.to_vec()).ok());
        let text = text.ok_or(Refusal::MalformedCredentials)?;
        let (name, secret) = text.split_once(':').ok_or(Refusal::MalformedCredentials)?;
        let plain = |text: &str| !text.chars().any(char::is_control);
        if name.is_empty() || !plain(name) || !plain(secret) {
            return Err(Refusal::MalformedCredentials);
        }
        found = Some((name.to_owned(), Secret::new(secret)));
    }
    Ok(found)
}

/// Whether a value of `Authorization` is of this scheme.
pub(super) fn is_basic(value: &HeaderValue) -> bool {
    of_value(value).is_some()
}

fn of_value(value: &HeaderValue) -> Option<&[u8]> {
    let value = value.as_bytes().trim_ascii_start();
    let (scheme, rest) = value.split_at_checked("basic ".len())?;
    scheme
        .eq_ignore_ascii_case(b"basic ")
        .then(|| rest.trim_ascii())
}

/// A client's name and secret, where these are encoded as RFC 6749 §2.3.1 has
/// it; `None`: they are not, or it makes no difference.
pub(super) fn decoded(name: &str, secret: &Secret) -> Option<(String, Secret)> {
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
