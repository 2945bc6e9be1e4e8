//! Text in header fields, which may be encoded words (RFC 2047).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

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
fn word(from: &str) -> Option<(String, &str)> {
    let mut parts = from.strip_prefix("=?")?.splitn(3, '?');
    let (charset, encoding, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (encoded, after) = rest.split_once("?=")?;
    // A language may follow the character set (RFC 2231 §5).
    let charset = charset.split('*').next().unwrap_or(charset);
    let bytes = match encoding {
        "b" | "B" => STANDARD.decode(encoded).ok()?,
        "q" | "Q" => quoted(encoded)?,
        _ => return None,
    };
    let text = match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => String::from_utf8(bytes).ok()?,
        "iso-8859-1" => bytes.iter().copied().map(char::from).collect(),
        _ => return None,
    };
    Some((text, after))
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
            "=?koi8-r?q?a?=",
            "a=?b",
            "=?utf-8?q?=zz?=",
        ] {
            assert_eq!(text(value.as_bytes()).as_deref(), Some(value));
        }
        assert_eq!(text(b"\xff"), None);
    }
}
