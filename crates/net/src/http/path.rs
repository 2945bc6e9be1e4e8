//! Request paths: normalised once, then matched, forwarded and logged.

use std::borrow::Cow;

use http::Uri;

/// Why a path is refused with 400 before any filter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not in origin form.
    #[error("path does not start with a slash")]
    NoSlash,
    /// A byte that no URI may hold.
    #[error("path holds a control byte or a byte outside ASCII")]
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
/// (RFC 3986 §6.2.2). A path that is normal already is not copied.
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
        if byte <= b' ' || byte >= 0x7f {
            return Err(PathError::Byte);
        }
        // `//`, `/.` and `%` need a closer look, and so does a backslash.
        plain &= !(byte == b'%'
            || byte == b'\\'
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
            out.push(char::from(byte));
            i += 1;
            continue;
        }
        let value = bytes
            .get(i + 1..i + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
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

/// A path as a person writes it, with blanks and letters beyond ASCII, as requests
/// have it (RFC 3987 §3.1). What is encoded already stays.
pub fn encoded(path: &str) -> Cow<'_, str> {
    let is_foreign = |byte: u8| byte == b' ' || !byte.is_ascii();
    if !path.bytes().any(is_foreign) {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(3 * path.len());
    for byte in path.bytes() {
        if is_foreign(byte) {
            push_encoded(&mut out, byte);
        } else {
            out.push(char::from(byte));
        }
    }
    Cow::Owned(out)
}

/// Whether some reader would see `..` where this one sees none.
fn hides_dot_segment(path: &str) -> bool {
    let suspicious = |mark| path.contains(mark);
    if !["\\", "%2F", "%5C", ";"].into_iter().any(suspicious) {
        return false;
    }
    let lenient = path
        .replace("%2F", "/")
        .replace("%5C", "/")
        .replace('\\', "/");
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
