//! Names that clients ask for in handshakes (RFC 6066 §3), and that certificates are for.

use std::borrow::Cow;

/// A host name as it is compared: lower case, without a final dot.
pub fn normalised(name: &str) -> Cow<'_, str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}
