//! Request paths: normalised once, then matched, forwarded and logged.

use std::borrow::Cow;

use http::Uri;

/// Why a path is refused with 400 before any filter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not in origin form.
    #[error("path does not start with a slash")]
    NoSlash,
    /// A blank or a control byte, which no URI may hold.
    #[error("path holds a blank or a control byte")]
    Byte,
    /// `%` without two hexadecimal digits.
    #[error("path holds a broken percent-encoding")]
    Percent,
    /// `%00` to `%1F`, `%7F`; the engine's parser also writes control bytes so.
    #[error("path holds an encoded control byte")]
    Control,
    /// A `..` that appears only when an encoded slash or a backslash is read
    /// as a separator: gateway and upstream would disagree on the resource.
    #[error("path hides a dot segment behind an encoded separator")]
    HiddenDots,
}

/// `path` (without query) in the one form that is matched and forwarded.
///
/// Percent-encodings of unreserved characters are decoded, the others get
/// upper-case digits; dot segments are removed and slashes merged
/// (RFC 3986 §6.2.2). What no URI may hold raw, as `|` and letters beyond ASCII,
/// is encoded: both spellings are one path. A path that is normal already is
/// not copied.
///
/// # Errors
/// [`PathError`] for what gateway and upstream could read differently.
pub fn normalize(path: &str) -> Result<Cow<'_, str>, PathError> {
    let bytes = path.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err(PathError::NoSlash);
    }
    let mut previous = 0_u8;
    let mut plain = true;
    for &byte in bytes {
        if byte <= b' ' || byte == 0x7f {
            return Err(PathError::Byte);
        }
        // `//`, `/.` and `%` need a closer look, and so does what is encoded.
        plain &= !(byte == b'%'
            || is_foreign(byte)
            || (previous == b'/' && (byte == b'/' || byte == b'.')));
        previous = byte;
    }
    if plain {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode_unreserved(bytes)?;
    if hides_dot_segment(&decoded) {
        return Err(PathError::HiddenDots);
    }
    Ok(Cow::Owned(remove_dot_segments(&decoded)))
}

fn decode_unreserved(bytes: &[u8]) -> Result<String, PathError> {
    let mut out = String::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        if byte != b'%' {
            push(&mut out, byte);
            i += 1;
            continue;
        }
        let value = bytes
            .get(i + 1..i + 3)
            .and_then(hexadecimal)
            .ok_or(PathError::Percent)?;
        if value < b' ' || value == 0x7f {
            return Err(PathError::Control);
        }
        if value.is_ascii_alphanumeric() || matches!(value, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(value));
        } else {
            push_encoded(&mut out, value);
        }
        i += 3;
    }
    Ok(out)
}

fn push_encoded(out: &mut String, byte: u8) {
    out.push('%');
    out.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
    out.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
}

fn push(out: &mut String, byte: u8) {
    if is_foreign(byte) {
        push_encoded(out, byte);
    } else {
        out.push(char::from(byte));
    }
}

/// Whether `byte` stands in a URI only when it is encoded: neither reserved nor
/// unreserved (RFC 3986 §2). A percent sign is taken for an encoding's.
const fn is_foreign(byte: u8) -> bool {
    FOREIGN[byte as usize]
}

const FOREIGN: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut at = 0;
    while at < 256 {
        bytes[at] = at <= 0x20
            || at >= 0x7f
            || matches!(
                at as u8,
                b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
            );
        at += 1;
    }
    bytes
};

/// A path as a person writes it, with blanks and letters beyond ASCII, as normal
/// ones have it (RFC 3987 §3.1). What is encoded already stays.
pub fn encoded(path: &str) -> Cow<'_, str> {
    if !path.bytes().any(is_foreign) {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(3 * path.len());
    for byte in path.bytes() {
        push(&mut out, byte);
    }
    Cow::Owned(out)
}

/// The reverse of [`encoded`]: a normal path as a person writes it. Encodings of
/// reserved characters stay, since they mean something else than these.
pub fn readable(normal: &str) -> Cow<'_, [u8]> {
    let bytes = normal.as_bytes();
    let mut out = Vec::new();
    let mut copied = 0;
    let mut rest = 0;
    while let Some(found) = bytes[rest..].iter().position(|byte| *byte == b'%') {
        let at = rest + found;
        rest = at + 1;
        if let Some(byte) = bytes.get(rest..at + 3).and_then(hexadecimal)
            && is_foreign(byte)
        {
            out.extend_from_slice(&bytes[copied..at]);
            out.push(byte);
            rest = at + 3;
            copied = rest;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(bytes);
    }
    out.extend_from_slice(&bytes[copied..]);
    Cow::Owned(out)
}

/// How much of a normal path the first bytes of its [`readable`] form are.
pub fn encoded_len(readable: &[u8]) -> usize {
    let len = |byte: &u8| if is_foreign(*byte) { 3 } else { 1 };
    readable.iter().map(len).sum()
}

/// The byte that two digits stand for.
fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    let all = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| all)
}

/// Whether some reader would see `..` where this one sees none.
fn hides_dot_segment(path: &str) -> bool {
    let suspicious = |mark| path.contains(mark);
    if !["%2F", "%5C", ";"].into_iter().any(suspicious) {
        return false;
    }
    let lenient = path.replace("%2F", "/").replace("%5C", "/");
    lenient.split('/').any(is_dots)
}

/// Whether a segment is `..` for a reader that drops parameters after `;`.
pub fn is_dots(segment: &str) -> bool {
    segment.split(';').next() == Some("..")
}

fn remove_dot_segments(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut directory = false;
    for segment in path.split('/').skip(1) {
        directory = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    let mut out = String::with_capacity(path.len());
    for segment in segments {
        out.push('/');
        out.push_str(segment);
    }
    if directory || out.is_empty() {
        out.push('/');
    }
    out
}
/// `uri` with another path and query. The rest stays: over HTTP/2 nothing else names
/// the host. `None`: the text is none.
pub fn with_path_and_query(uri: &Uri, target: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(parts).ok()
}
