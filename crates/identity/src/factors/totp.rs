//! Codes by the clock (RFC 6238 over RFC 4226): SHA-1, six digits, a new one
//! every half minute, as every authenticator app makes them.

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use url::form_urlencoded::byte_serialize;

use super::base32;

/// Bytes of a secret: what RFC 4226 §4 recommends.
pub(super) const SECRET_BYTES: usize = 20;

/// Seconds that a code is shown.
const PERIOD_S: i64 = 30;

/// Steps before and after that of now whose codes count: clocks differ (RFC
/// 6238 §5.2).
const SKEW: i64 = 1;

const DIGITS: usize = 6;

/// HOTP before its reduction to digits (RFC 4226 §5.3).
fn truncated(secret: &[u8], counter: u64) -> u32 {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &counter.to_be_bytes());
    let bytes = tag.as_ref();
    let offset = usize::from(bytes.last().copied().unwrap_or_default() & 0x0f);
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_be_bytes(word) & 0x7fff_ffff
}

fn code(secret: &[u8], step: i64) -> String {
    let counter = u64::try_from(step).unwrap_or_default();
    format!("{:06}", truncated(secret, counter) % 1_000_000)
}

/// The step whose code this is, if it is near `now_ms` and later than `last`:
/// no code counts twice, nor one from before the last (RFC 6238 §5.2).
pub(super) fn step_of(secret: &[u8], typed: &str, now_ms: i64, last: i64) -> Option<i64> {
    let digits: String = typed.chars().filter(|c| !c.is_whitespace()).collect();
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let now = now_ms.div_euclid(PERIOD_S * 1000);
    let mut found = None;
    // All of them are looked at, whichever it is.
    for step in now - SKEW..=now + SKEW {
        let right: bool = code(secret, step)
            .as_bytes()
            .ct_eq(digits.as_bytes())
            .into();
        if right && step > last {
            found = Some(step);
        }
    }
    found
}

/// What authenticator apps read from the picture: the key with its name.
pub(super) fn address(issuer: &str, account: &str, secret: &[u8]) -> String {
    let spelt = |text: &str| -> String {
        let spelt: String = byte_serialize(text.as_bytes()).collect();
        // Apps read a path, where a plus is a plus.
        spelt.replace('+', "%20")
    };
    let (issuer, account) = (spelt(issuer), spelt(account));
    let secret = base32::encode(secret);
    format!(
        "otpauth://totp/{issuer}:{account}?secret={secret}&issuer={issuer}\
         &algorithm=SHA1&digits={DIGITS}&period={PERIOD_S}"
    )
}

/// The code of a moment, for tests.
#[cfg(test)]
pub(crate) fn code_at(secret: &[u8], now_ms: i64) -> String {
    code(secret, now_ms.div_euclid(PERIOD_S * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn the_vectors_of_rfc_6238_come_out() {
        for (time, eight_digits) in [
            (59, 94_287_082),
            (1_111_111_109, 7_081_804),
            (1_111_111_111, 14_050_471),
            (1_234_567_890, 89_005_924),
            (2_000_000_000, 69_279_037),
            (20_000_000_000_u64, 65_353_130),
        ] {
            assert_eq!(truncated(SECRET, time / 30) % 100_000_000, eight_digits);
        }
    }

    #[test]
    fn the_vectors_of_rfc_4226_come_out() {
        let codes = [
            755_224, 287_082, 359_152, 969_429, 338_314, 254_676, 287_922, 162_583, 399_871,
            520_489,
        ];
        for (counter, expected) in (0..).zip(codes) {
            assert_eq!(truncated(SECRET, counter) % 1_000_000, expected);
        }
    }

    const NOW_MS: i64 = 1_111_111_111_000;

    #[test]
    fn one_step_of_skew_counts_and_two_do_not() {
        let step = NOW_MS / 30_000;
        for (off, counts) in [(-2, false), (-1, true), (0, true), (1, true), (2, false)] {
            let typed = code(SECRET, step + off);
            let found = step_of(SECRET, &typed, NOW_MS, 0);
            assert_eq!(found, counts.then_some(step + off), "{off}");
        }
    }

    #[test]
    fn a_code_that_was_used_or_overtaken_does_not_count() {
        let step = NOW_MS / 30_000;
        let typed = code(SECRET, step);
        assert_eq!(step_of(SECRET, &typed, NOW_MS, step), None);
        assert_eq!(step_of(SECRET, &typed, NOW_MS, step + 1), None);
        assert_eq!(step_of(SECRET, &typed, NOW_MS, step - 1), Some(step));
    }

    #[test]
    fn what_is_no_code_is_refused_and_blanks_are_let_pass() {
        let step = NOW_MS / 30_000;
        let right = code(SECRET, step);
        let spaced = format!(" {} {}", &right[..3], &right[3..]);
        assert_eq!(step_of(SECRET, &spaced, NOW_MS, 0), Some(step));
        let wide: String = right
            .chars()
            .filter_map(|digit| char::from_u32(digit as u32 + 0xfee0))
            .collect();
        for bad in ["", "12345", "1234567", "abcdef", "-12345", &wide] {
            assert_eq!(step_of(SECRET, bad, NOW_MS, 0), None, "{bad}");
        }
    }

    #[test]
    fn the_address_names_issuer_and_account_without_mixing_them_up() {
        let address = address("Front & Co", "dé mo:x", SECRET);
        assert_eq!(
            address,
            "otpauth://totp/Front%20%26%20Co:d%C3%A9%20mo%3Ax?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\
             &issuer=Front%20%26%20Co&algorithm=SHA1&digits=6&period=30"
        );
    }
}
