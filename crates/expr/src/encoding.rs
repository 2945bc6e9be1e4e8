//! Encodings of texts and bytes.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{
    GeneralPurpose, GeneralPurposeConfig, STANDARD, URL_SAFE_NO_PAD,
};

use super::run::Run;
use super::value::Value;
use super::{message, target};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const OF_BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const OF_BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Characters that stand for themselves in a part of a URL (RFC 3986).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Charset {
    Fragment,
    PathElement,
    QueryParameter,
    UserInfo,
}

impl Charset {
    fn keeps(self, byte: u8) -> bool {
        if byte.is_ascii_alphanumeric() || b"-._~!$'()*,;:".contains(&byte) {
            return true;
        }
        match self {
            Self::Fragment => b"@/?&=+".contains(&byte),
            Self::PathElement => b"@&=+".contains(&byte),
            // `+` may be read as a blank, the others end a name or a value.
            Self::QueryParameter => b"@/?".contains(&byte),
            Self::UserInfo => b"&=+".contains(&byte),
        }
    }

    /// The text with everything else as `%XX`.
    pub(super) fn encode(self, text: Cow<'_, str>) -> Cow<'_, str> {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        if text.bytes().all(|byte| self.keeps(byte)) {
            return text;
        }
        let mut out = String::with_capacity(text.len() + 16);
        for byte in text.bytes() {
            if self.keeps(byte) {
                out.push(char::from(byte));
            } else {
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
        Cow::Owned(out)
    }
}

/// `%XX` decoded, and `+` as a blank where `plus`; `None` where that is
/// malformed.
pub(super) fn percent_decode(text: Cow<'_, str>, plus: bool) -> Option<Cow<'_, str>> {
    match text {
        Cow::Borrowed(text) => target::percent_decoded(text, plus),
        Cow::Owned(text) => {
            let decoded = target::percent_decoded(&text, plus)?;
            Some(Cow::Owned(decoded.into_owned()))
        }
    }
}

/// As forms encode names and values: a blank is `+`.
pub(super) fn form(text: &str) -> Value<'static> {
    Value::owned_text(url::form_urlencoded::byte_serialize(text.as_bytes()).collect())
}

pub(super) fn base64(bytes: &[u8]) -> Value<'static> {
    Value::owned_text(STANDARD.encode(bytes))
}

/// Without padding.
pub(super) fn base64_url(bytes: &[u8]) -> Value<'static> {
    Value::owned_text(URL_SAFE_NO_PAD.encode(bytes))
}

/// The text that was encoded, with padding or without.
pub(super) fn of_base64(text: &str) -> Option<Value<'static>> {
    decoded(OF_BASE64.decode(text).ok()?)
}

/// The text that was encoded, with padding or without.
pub(super) fn of_base64_url(text: &str) -> Option<Value<'static>> {
    decoded(OF_BASE64_URL.decode(text).ok()?)
}

fn decoded(bytes: Vec<u8>) -> Option<Value<'static>> {
    String::from_utf8(bytes).ok().map(Value::owned_text)
}

pub(super) fn sha256(bytes: &[u8]) -> Value<'static> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    Value::Bytes(Cow::Owned(digest.as_ref().to_vec()))
}

/// What a JSON text says.
pub(super) fn json(text: &str, scope: &Run<'_>) -> Option<Value<'static>> {
    message::json(text.as_bytes(), scope)
}

/// The text as it stands between the quotes of JSON.
pub(super) fn escaped_json(text: &str) -> Option<Value<'static>> {
    let quoted = serde_json::to_string(text).ok()?;
    let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
    Some(Value::owned_text(inside.to_owned()))
}
