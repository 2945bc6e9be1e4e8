//! HTTP Basic (RFC 7617) as OAuth uses it (RFC 6749 §2.3.1).

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

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

#[cfg(test)]
mod tests {
    use super::*;

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
