//! The codes that people enter: eight consonants, so that they make no words.

use doorward_core::clock::random_bytes;
use doorward_core::model::grant::TokenHash;

/// Those of RFC 8628 §6.1: none looks like another, or like a digit.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// Letters of a code: about 34 bits, which the limit on guesses makes enough.
const LENGTH: usize = 8;

/// A new code, with a dash in its middle.
pub(super) fn new() -> String {
    let mut code = String::with_capacity(LENGTH + 1);
    loop {
        for byte in random_bytes::<16>() {
            // Beyond the last multiple of 20 some letters would come more often.
            if byte >= 240 {
                continue;
            }
            code.push(char::from(LETTERS[usize::from(byte % 20)]));
            match code.len() {
                4 => code.push('-'),
                9 => return code,
                _ => {}
            }
        }
    }
}

/// The letters of a code, as somebody typed it: whatever its case, dashes and
/// blanks. `None`: it can't be one.
pub(super) fn letters(typed: &str) -> Option<String> {
    let kept = typed
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_' | '.' | '\u{2010}'..='\u{2015}'))
        .take(LENGTH + 1);
    let letters: String = kept.map(|c| c.to_ascii_uppercase()).collect();
    let known = letters.bytes().all(|byte| LETTERS.contains(&byte));
    (letters.len() == LENGTH && known).then_some(letters)
}

/// What the store keeps instead of a code; it is a code of this realm only.
pub(super) fn hash(realm: &str, typed: &str) -> Option<TokenHash> {
    let letters = letters(typed)?;
    Some(TokenHash::of(&format!("{realm} {letters}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_eight_consonants_and_a_dash() {
        let codes: std::collections::HashSet<_> = (0..200).map(|_| new()).collect();
        assert_eq!(codes.len(), 200);
        for code in codes {
            assert_eq!((code.len(), code.find('-')), (9, Some(4)), "{code}");
            assert_eq!(letters(&code), Some(code.replace('-', "")));
        }
    }

    #[test]
    fn case_dashes_and_blanks_do_not_matter() {
        let code = hash("/", "BCDF-GHJK");
        for typed in [
            "bcdfghjk",
            " BCDF GHJK ",
            "b-c-d-f-g-h-j-k",
            "bcdf\u{2013}ghjk",
        ] {
            assert_eq!(hash("/", typed), code, "{typed}");
        }
        assert_ne!(hash("/alpha", "BCDF-GHJK"), code);
        for wrong in [
            "",
            "BCDFGHJ",
            "BCDFGHJKL",
            "BCDFGHJA",
            "BCDFGHJ1",
            "BCDFGHJ\u{212a}",
        ] {
            assert_eq!(letters(wrong), None, "{wrong}");
        }
    }
}
