//! Refresh tokens of the broker, and what they are found by.
//!
//! One that is made here is a family and a secret, letters and digits all of it;
//! its successors keep the family. So one that names a known family and is not
//! the one in force was spent before: two have it (RFC 9700 §4.14.2). What a
//! provider made, and what was made before there were families, is found by
//! itself, and begins a family with its first successor.

use crate::clock::ALPHANUMERIC;
use crate::model::grant::TokenHash;

/// Letters and digits of the family: 59 bits.
pub const FAMILY: usize = 10;
/// Letters and digits of a whole token that is made here.
pub const LENGTH: usize = 32;
/// Letters and digits of its secret: 131 bits.
pub const SECRET: usize = LENGTH - FAMILY;

/// A refresh token that somebody shows, by what it may be found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentedRefreshToken {
    /// Hash of the token itself.
    pub token: TokenHash,
    /// The family that it names, if it looks like one that was made here.
    pub named: Option<TokenHash>,
    /// The family that it began, if it named none.
    pub begun: TokenHash,
}

impl PresentedRefreshToken {
    /// The token of this text.
    pub fn of(text: &str) -> Self {
        Self {
            token: TokenHash::of(text),
            named: family_of(text).map(family),
            begun: family(&begun(text)),
        }
    }
}

/// The family that a token names which was made here.
pub fn family_of(token: &str) -> Option<&str> {
    let made = token.len() == LENGTH && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    token.get(..FAMILY).filter(|_| made)
}

/// The family that a token begins which names none: the same each time.
pub fn begun(token: &str) -> String {
    let TokenHash(digest) = TokenHash::of_bytes(format!("begins {token}").as_bytes());
    let letters = digest.iter().take(FAMILY);
    let letters =
        letters.map(|byte| char::from(ALPHANUMERIC[usize::from(*byte) % ALPHANUMERIC.len()]));
    letters.collect()
}

/// What the store knows a family by. No token has a blank in it.
pub fn family(name: &str) -> TokenHash {
    TokenHash::of_bytes(format!("family {name}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_names_the_family_that_its_predecessor_named_or_began() {
        let first = "ABCDEFGHIJ0123456789abcdefghij01";
        let shown = PresentedRefreshToken::of(first);
        assert_eq!(family_of(first), Some("ABCDEFGHIJ"));
        let next = PresentedRefreshToken::of("ABCDEFGHIJ0123456789abcdefghij02");
        assert!(shown.named == next.named && shown.token != next.token);
        let foreign = "eyJ.of.another";
        let next = format!("{}{}", begun(foreign), "s".repeat(SECRET));
        let shown = PresentedRefreshToken::of(foreign);
        assert_eq!(shown.named, None);
        assert_eq!(PresentedRefreshToken::of(&next).named, Some(shown.begun));
    }

    #[test]
    fn what_was_not_made_here_names_no_family() {
        for token in [
            "",
            "ABCDEFGHIJ",
            "ABCDEFGHIJ-123456789abcdefghij01",
            "ABCDEFGHIJ0123456789abcdefghijäa",
        ] {
            assert_eq!(family_of(token), None, "{token}");
        }
        assert_ne!(family("ABCDEFGHIJ"), TokenHash::of("ABCDEFGHIJ"));
    }
}
