//! Text in header fields, which may be encoded words (RFC 2047).

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The text of a header value: raw UTF-8, with encoded words decoded. `None`
/// when it is neither.
///
/// Blanks between two encoded words are not part of the text (§6.2). What only
/// resembles an encoded word is text.
pub fn text(value: &[u8]) -> Option<String> {
    let mut rest = std::str::from_utf8(value).ok()?;
    let mut text = String::with_capacity(rest.len());
    let mut after_word = false;
    while let Some(start) = rest.find("=?") {
        let (before, from) = rest.split_at(start);
        if !(after_word && before.trim().is_empty()) {
            text.push_str(before);
        }
        match word(from) {
            Some((word, after)) => {
                text.push_str(&word);
                rest = after;
                after_word = true;
            }
            None => {
                text.push_str("=?");
                rest = &from[2..];
                after_word = false;
            }
        }
    }
    text.push_str(rest);
    Some(text)
}

/// The encoded word at the start of `from`, decoded, and what follows it.
///
/// No part of a word holds a `?`, so an attempt reads no further than the
/// fourth one: a value full of words that never end costs no more than one of
/// plain text.
fn word(from: &str) -> Option<(String, &str)> {
    let (charset, rest) = from.strip_prefix("=?")?.split_once('?')?;
    let (encoding, rest) = rest.split_once('?')?;
    let (encoded, after) = rest.split_once('?')?;
    let after = after.strip_prefix('=')?;
    // A language may follow the character set (RFC 2231 §5).
    let charset = charset.split('*').next().unwrap_or(charset);
    let bytes = match encoding {
        "b" | "B" => BASE64.decode(encoded).ok()?,
        "q" | "Q" => quoted(encoded)?,
        _ => return None,
    };
    Some((decode(charset, bytes)?, after))
}

/// Senders differ in whether they pad.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The text of `bytes`. Of a character set that is not known, ASCII is: nearly
/// all contain it.
fn decode(charset: &str, bytes: Vec<u8>) -> Option<String> {
    match charset.to_ascii_lowercase().as_str() {
        "" => None,
        "utf-8" | "utf8" => String::from_utf8(bytes).ok(),
        "iso-8859-1" | "latin1" => Some(bytes.into_iter().map(char::from).collect()),
        _ if bytes.is_ascii() => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// The `Q` encoding (§4.2).
fn quoted(encoded: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    let hex = |byte: Option<u8>| char::from(byte?).to_digit(16);
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'_' => b' ',
            b'=' => u8::try_from(hex(rest.next())? << 4 | hex(rest.next())?).ok()?,
            other => other,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn encoded_words_are_decoded() {
        for (value, expected) in [
            ("demo", "demo"),
            ("=?UTF-8?B?ZMOpbW8=?=", "d\u{e9}mo"),
            ("=?utf-8?q?d=C3=A9mo_x?=", "d\u{e9}mo x"),
            ("=?ISO-8859-1?Q?d=E9mo?=", "d\u{e9}mo"),
            ("a =?utf-8?q?b?= =?utf-8?q?c?= d", "a bc d"),
            ("=?utf-8*en?q?x?=", "x"),
            ("d\u{e9}mo", "d\u{e9}mo"),
            ("=?utf-8?q?am?==?UTF8?B?YWRtaW4?=", "amadmin"),
            ("am=?koi8-r?q?=61dm?=in", "amadmin"),
        ] {
            assert_eq!(text(value.as_bytes()).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn what_only_resembles_one_stays_as_it_is() {
        for value in [
            "=?",
            "=?utf-8?x?a?=",
            "=?utf-8?b?***?=",
            "=?koi8-r?q?=C1?=",
            "=??q?a?=",
            "=?utf-8?q?a",
            "=?utf-8?q?a?b?=",
            "a=?b",
            "=?utf-8?q?=zz?=",
        ] {
            assert_eq!(text(value.as_bytes()).as_deref(), Some(value));
        }
        assert_eq!(text(b"\xff"), None);
    }
    #[test]
    fn a_value_full_of_unfinished_words_stays_as_it_is() {
        for piece in ["=?utf-8?b?", "=?utf-8?q?a? ", "=?", "=??="] {
            let value = piece.repeat((32 << 10) / piece.len());
            assert_eq!(text(value.as_bytes()).as_deref(), Some(value.as_str()));
        }
    }
}
