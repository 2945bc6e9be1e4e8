//! Recovery codes: each lets its user in once where no other factor is at hand.

use uuid::Uuid;

use super::base32;
use doorward_core::clock::random_bytes;
use doorward_core::model::grant::TokenHash;

/// How many a user is given.
const CODES: usize = 10;

/// Letters of a code: 20 of five bits, a hundred bits in all.
const LETTERS: usize = 20;

/// A list of new codes.
pub(super) fn new() -> Vec<String> {
    (0..CODES).map(|_| one()).collect()
}

fn one() -> String {
    let letters = base32::encode(&random_bytes::<13>());
    let letters = letters.get(..LETTERS).unwrap_or(&letters);
    let groups: Vec<_> = (0..LETTERS / 5)
        .filter_map(|n| letters.get(n * 5..n * 5 + 5))
        .collect();
    groups.join("-")
}

/// What the store keeps of the code of a user, as it was typed: dashes, blanks
/// and case are not counted, nor are digits that look like letters. `None`: it
/// is none. Random as codes are, a fast hash is enough.
pub(super) fn hash(user_id: Uuid, typed: &str) -> Option<TokenHash> {
    let letters: String = typed
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '-')
        .map(|c| match c.to_ascii_uppercase() {
            '0' => 'O',
            '1' => 'I',
            '8' => 'B',
            other => other,
        })
        .take(LETTERS + 1)
        .collect();
    let plain = letters
        .bytes()
        .all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'));
    let whole = letters.len() == LETTERS && plain;
    whole.then(|| TokenHash::of(&format!("recovery\n{user_id}\n{letters}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_differ_and_are_read_however_they_are_typed() {
        let codes: BTreeSet<_> = new().into_iter().collect();
        assert_eq!(codes.len(), CODES);
        let user = Uuid::from_u128(1);
        for code in codes {
            assert_eq!(code.len(), LETTERS + 3, "{code}");
            let known = hash(user, &code).expect("a code");
            let typed = format!(" {} ", code.to_lowercase().replace('-', " "));
            assert_eq!(hash(user, &typed), Some(known));
            assert_eq!(
                hash(user, &code.replace('O', "0").replace('B', "8")),
                Some(known)
            );
            assert_ne!(hash(Uuid::from_u128(2), &code), Some(known), "another's");
        }
    }

    #[test]
    fn what_is_no_recovery_code_is_refused() {
        let user = Uuid::from_u128(1);
        for bad in [
            "",
            "123456",
            "AAAAA-AAAAA-AAAAA-AAAA",
            "AAAAA-AAAAA-AAAAA-AAAAAA",
        ] {
            assert_eq!(hash(user, bad), None, "{bad}");
        }
        assert_eq!(hash(user, &"\u{e4}".repeat(20)), None);
    }
}
