//! Cookies whose name is of their value: of several that a browser is given at the
//! same moment, before it has one, it keeps each.

/// Most such cookies that a browser is left.
pub const MOST: usize = 32;
/// How much of the digest of a value is in the name of its cookie.
const LENGTH: usize = 8;

/// The name of the cookie for the value with this digest (unpadded Base64url),
/// beside the one called `name`.
pub fn own_name(name: &str, digest: &str) -> String {
    let own = digest.get(..LENGTH).unwrap_or(digest);
    format!("{name}.{own}")
}

/// Whether a cookie is so named beside the one called `name`.
pub fn is_own_name(shown: &[u8], name: &str) -> bool {
    let own = shown.strip_prefix(name.as_bytes());
    let own = own.and_then(|own| own.strip_prefix(b"."));
    let is_digest = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    own.is_some_and(|own| own.len() == LENGTH && own.iter().all(is_digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_by_its_form_beside_the_plain_one() {
        let named = own_name("mark", "abcd-_12345");
        assert_eq!(named, "mark.abcd-_12");
        for (shown, own) in [
            (named.as_str(), true),
            ("mark", false),
            ("mark.", false),
            ("mark.abcd", false),
            ("mark.abcd-_123", false),
            ("mark.abcd*_12", false),
            ("markabcd-_12", false),
            ("other.abcd-_12", false),
        ] {
            assert_eq!(is_own_name(shown.as_bytes(), "mark"), own, "{shown}");
        }
    }
}
