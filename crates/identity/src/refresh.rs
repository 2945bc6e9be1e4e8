//! Refresh tokens: `base64url(family ‖ secret)`.
//!
//! The store keeps digests only. A successor is derived from its predecessor
//! and a salt that the store keeps: who has but the one or the other can't make
//! it, and a client that lost the answer can be given the same successor again.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use doorward_core::clock::random_bytes;
use doorward_core::model::grant::TokenHash;

/// Bytes of the secret, at the end of a token.
const SECRET: usize = 32;

/// Bytes of a new family.
const FAMILY: usize = 16;

/// Longest token that is looked up, in characters.
const TOKEN_MAX: usize = 128;

/// A refresh token as a client brings it.
pub(super) struct RefreshToken<'a> {
    text: &'a str,
    family: Vec<u8>,
}

/// A new token of a new family.
pub(super) fn new() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<{ FAMILY + SECRET }>())
}

impl<'a> RefreshToken<'a> {
    /// Takes a token apart; `None` if it is none of ours.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if text.len() > TOKEN_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let family = match bytes.len().checked_sub(SECRET)? {
            // From before there were families: it is one itself.
            0 => text.as_bytes().to_vec(),
            length => bytes[..length].to_vec(),
        };
        Some(Self { text, family })
    }

    /// What the store knows its family by.
    pub(super) fn family(&self) -> TokenHash {
        TokenHash::of_bytes(&self.family)
    }

    /// What the store knows the token itself by.
    pub(super) fn hash(&self) -> TokenHash {
        TokenHash::of(self.text)
    }

    /// The successor that this salt makes of it.
    pub(super) fn successor(&self, salt: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, salt);
        let secret = hmac::sign(&key, self.text.as_bytes());
        let mut bytes = self.family.clone();
        bytes.extend_from_slice(secret.as_ref());
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_is_of_the_same_family_and_the_same_each_time() {
        let first = new();
        let presented = RefreshToken::parse(&first).expect("a token");
        let successor = presented.successor(b"salt");
        assert_eq!(successor.len(), first.len());
        assert_eq!(successor, presented.successor(b"salt"));
        assert_ne!(successor, presented.successor(b"other"));
        let next = RefreshToken::parse(&successor).expect("a token");
        assert!(next.family() == presented.family() && next.hash() != presented.hash());
    }

    #[test]
    fn a_token_without_family_begins_one() {
        let old = URL_SAFE_NO_PAD.encode([7; SECRET]);
        let presented = RefreshToken::parse(&old).expect("a token");
        assert_eq!(presented.family(), TokenHash::of(&old));
        let successor = presented.successor(b"salt");
        let next = RefreshToken::parse(&successor).expect("a token");
        assert_eq!(next.family(), presented.family());
        let third = next.successor(b"salt");
        let third = RefreshToken::parse(&third).expect("a token");
        assert_eq!(third.family(), presented.family());
    }

    #[test]
    fn what_is_no_token_is_not_looked_up() {
        for text in ["", "x", "a.b.c", "====", &"A".repeat(200), "AAAA"] {
            assert!(RefreshToken::parse(text).is_none(), "{text}");
        }
    }
}
