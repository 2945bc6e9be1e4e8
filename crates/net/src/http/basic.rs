//! HTTP Basic (RFC 7617) as OAuth uses it (RFC 6749 §2.3.1).

use std::borrow::Cow;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine, alphabet};
use http::HeaderValue;
use url::Url;

use super::form;

/// Why a header gives no credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenBasic {
    /// Another scheme.
    Scheme,
    /// No base64, no colon.
    Header,
    /// A half is not form-encoded.
    Escape,
}

/// Identifier and secret of a Basic header; each half is form-encoded, so the
/// first colon divides them.
///
/// # Errors
/// Why the header has none.
pub fn parse(header: &HeaderValue) -> Result<(String, String), BrokenBasic> {
    let header = std::str::from_utf8(header.as_bytes()).map_err(|_| BrokenBasic::Header)?;
    let (scheme, credentials) = header.split_once(' ').ok_or(BrokenBasic::Scheme)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(BrokenBasic::Scheme);
    }
    let decoded = STANDARD
        .decode(credentials.trim())
        .map_err(|_| BrokenBasic::Header)?;
    let colon = decoded.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or(BrokenBasic::Header)?;
    let half = |bytes| {
        let text = form::decode(bytes).map(Cow::into_owned);
        text.ok_or(BrokenBasic::Escape)
    };
    Ok((half(&decoded[..colon])?, half(&decoded[colon + 1..])?))
}

/// The user information of a URL, as a value of `Authorization`; `None`: there is none.
pub fn of_url(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| {
        // A plus is a plus here.
        let text = text.replace('+', "%2B");
        form::decode(text.as_bytes()).map_or_else(|| text.clone(), Cow::into_owned)
    };
    let password = decoded(url.password().unwrap_or_default());
    let pair = format!("{}:{password}", decoded(url.username()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Some clients leave the padding out.
const UNPADDED: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The credentials of a value of `Authorization`, still encoded; `None`: it is of
/// another scheme.
pub fn credentials(value: &HeaderValue) -> Option<&[u8]> {
    let value = value.as_bytes().trim_ascii_start();
    let (scheme, rest) = value.split_at_checked("basic ".len())?;
    scheme
        .eq_ignore_ascii_case(b"basic ")
        .then(|| rest.trim_ascii())
}

/// Name and secret as programs of people send them: in Base64 or, as old ones do,
/// as they are. `None`: they can't be read.
pub fn pair(credentials: &[u8]) -> Option<(String, String)> {
    let text = UNPADDED.decode(credentials).ok();
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.filter(|text| text.contains(':'));
    let text = text.or_else(|| String::from_utf8(credentials.to_vec()).ok())?;
    let (name, secret) = text.split_once(':')?;
    Some((name.to_owned(), secret.to_owned()))
}

/// Every name that a reader could take a value of `Authorization` to say.
pub fn names(value: &HeaderValue) -> Vec<String> {
    let Some(credentials) = credentials(value) else {
        return Vec::new();
    };
    let Some((name, _)) = pair(credentials).or_else(|| latin_1(credentials)) else {
        return Vec::new();
    };
    let decoded = form::decode(name.as_bytes()).map(Cow::into_owned);
    let decoded = decoded.filter(|decoded| *decoded != name);
    [name].into_iter().chain(decoded).collect()
}

/// The pair as a reader of Latin-1 has it.
fn latin_1(credentials: &[u8]) -> Option<(String, String)> {
    let bytes = UNPADDED.decode(credentials).ok();
    let bytes = bytes.filter(|bytes| bytes.contains(&b':'));
    let bytes = bytes.as_deref().unwrap_or(credentials);
    let text: String = bytes.iter().copied().map(char::from).collect();
    let (name, secret) = text.split_once(':')?;
    Some((name.to_owned(), secret.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_of_a_name_is_told() {
        let names = |value: &[u8]| names(&HeaderValue::from_bytes(value).expect("a header"));
        for value in [
            "Basic YW1hZG1pbjpzZWNyZXQ=",
            "basic   YW1hZG1pbjpzZWNyZXQ",
            "BASIC amadmin:secret",
        ] {
            assert_eq!(names(value.as_bytes()), ["amadmin"], "{value}");
        }
        let escaped = format!("Basic {}", STANDARD.encode("am%61dmin:secret"));
        assert_eq!(names(escaped.as_bytes()), ["am%61dmin", "amadmin"]);
        let latin = format!("Basic {}", STANDARD.encode(b"\xaamadmin:secret"));
        assert_eq!(names(latin.as_bytes()), ["\u{aa}madmin"]);
        assert_eq!(names(b"Bearer YW1hZG1pbjpzZWNyZXQ="), [""; 0]);
    }

    fn header(credentials: &str) -> HeaderValue {
        let value = format!("bAsIc {}", STANDARD.encode(credentials));
        HeaderValue::from_str(&value).expect("a header")
    }

    #[test]
    fn the_first_colon_divides_and_both_halves_are_form_decoded() {
        let parsed = parse(&header("my+id%3a:a:b%2Bc+d"));
        assert_eq!(parsed, Ok(("my id:".to_owned(), "a:b+c d".to_owned())));
        assert_eq!(parse(&header("id:")), Ok(("id".to_owned(), String::new())));
    }

    #[test]
    fn what_is_no_basic_header_is_refused() {
        for (broken, why) in [
            ("Bearer abc", BrokenBasic::Scheme),
            ("Basic", BrokenBasic::Scheme),
            ("Basic !!!", BrokenBasic::Header),
            ("Basic bm9jb2xvbg==", BrokenBasic::Header),
        ] {
            assert_eq!(
                parse(&HeaderValue::from_static(broken)),
                Err(why),
                "{broken}"
            );
        }
        assert_eq!(parse(&header("a%zz:b")), Err(BrokenBasic::Escape));
        assert_eq!(parse(&header("a:%ff")), Err(BrokenBasic::Escape));
    }
}
