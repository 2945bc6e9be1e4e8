//! Durations as text: `10 s`, `1 hour and 5 minutes`, `unlimited`.

use std::time::Duration;

/// A length of time as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// This long; zero for `zero` and `disabled`.
    Finite(Duration),
    /// Without end.
    Unlimited,
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Nothing stands where a number and a unit should.
    #[error("a number with a unit is missing: write for instance `10 s` or `1 hour and 5 minutes`")]
    Empty,
    /// Text where a whole number should begin.
    #[error("{0:?} does not begin with a whole number: write for instance `10 s`")]
    NoNumber(String),
    /// A number alone.
    #[error("{0:?} has no unit: d, h, m, s, ms, us or ns")]
    NoUnit(String),
    /// Letters that are no unit, or text behind a unit.
    #[error(
        "{0:?} is not a unit of time (d, h, m, s, ms, us, ns); parts are joined by `,` or ` and `"
    )]
    UnknownUnit(String),
    /// More than fits.
    #[error("is too long")]
    TooLong,
}

const UNLIMITED: &[&str] = &["unlimited", "indefinite", "infinity", "undefined", "none"];
const ZERO: &[&str] = &["zero", "disabled"];

/// Names of the units, with their length in nanoseconds.
const UNITS: &[(u64, &[&str])] = &[
    (86_400_000_000_000, &["days", "day", "d"]),
    (3_600_000_000_000, &["hours", "hour", "h"]),
    (60_000_000_000, &["minutes", "minute", "min", "m"]),
    (1_000_000_000, &["seconds", "second", "sec", "s"]),
    (
        1_000_000,
        &[
            "milliseconds",
            "millisecond",
            "millisec",
            "millis",
            "milli",
            "ms",
        ],
    ),
    // Both signs for micro: U+00B5 and, from lower-casing it, U+03BC.
    (
        1_000,
        &[
            "microseconds",
            "microsecond",
            "microsec",
            "micros",
            "micro",
            "us",
            "\u{b5}s",
            "\u{3bc}s",
        ],
    ),
    (
        1,
        &[
            "nanoseconds",
            "nanosecond",
            "nanosec",
            "nanos",
            "nano",
            "ns",
        ],
    ),
];

/// Reads a duration: one of the words for zero and without end, or numbers
/// with units joined by `,` or ` and `. Upper and lower case are the same.
///
/// # Errors
/// [`DurationError`] for anything else, text left over after a unit included.
pub fn parse(text: &str) -> Result<Length, DurationError> {
    let text = text.trim().to_lowercase();
    if UNLIMITED.contains(&text.as_str()) {
        return Ok(Length::Unlimited);
    }
    if ZERO.contains(&text.as_str()) {
        return Ok(Length::Finite(Duration::ZERO));
    }
    text.split(',')
        .flat_map(|part| part.split(" and "))
        .try_fold(Duration::ZERO, |sum, part| {
            sum.checked_add(fragment(part.trim())?)
                .ok_or(DurationError::TooLong)
        })
        .map(Length::Finite)
}

fn fragment(part: &str) -> Result<Duration, DurationError> {
    if part.is_empty() {
        return Err(DurationError::Empty);
    }
    let digits = part.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(DurationError::NoNumber(part.to_owned()));
    }
    let (number, unit) = part.split_at(digits);
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(DurationError::NoUnit(part.to_owned()));
    }
    let (nanos, _) = UNITS
        .iter()
        .find(|(_, names)| names.contains(&unit))
        .ok_or_else(|| DurationError::UnknownUnit(unit.to_owned()))?;
    let number: u64 = number.parse().map_err(|_| DurationError::TooLong)?;
    let total = u128::from(number) * u128::from(*nanos);
    let seconds = u64::try_from(total / 1_000_000_000).map_err(|_| DurationError::TooLong)?;
    let rest = u32::try_from(total % 1_000_000_000).map_err(|_| DurationError::TooLong)?;
    Ok(Duration::new(seconds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finite(text: &str) -> Option<Duration> {
        match parse(text) {
            Ok(Length::Finite(duration)) => Some(duration),
            _ => None,
        }
    }

    #[test]
    fn numbers_with_units_add_up() {
        for (text, millis) in [
            ("10 s", 10_000),
            ("10seconds", 10_000),
            ("1 min, 30 s", 90_000),
            ("1 day and 4 hours", 100_800_000),
            ("5 m", 300_000),
            ("5 ms", 5),
            (" 1 HOUR AND 5 Minutes ", 3_900_000),
            ("0 s", 0),
            ("zero", 0),
            ("disabled", 0),
        ] {
            assert_eq!(finite(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn every_unit_name_is_known_in_any_case() {
        for (nanos, names) in UNITS {
            for name in *names {
                let expected = Some(Duration::from_nanos(3 * nanos));
                assert_eq!(finite(&format!("3{name}")), expected, "{name}");
                assert_eq!(finite(&format!("3 {}", name.to_uppercase())), expected);
            }
        }
    }

    #[test]
    fn words_for_no_end_are_unlimited() {
        for word in ["unlimited", "Indefinite", "infinity", "undefined", "none"] {
            assert_eq!(parse(word), Ok(Length::Unlimited));
        }
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in [
            "",
            " ",
            "10",
            "s",
            "-1 s",
            "1.5 s",
            "ten seconds",
            "1 s,",
            ",1 s",
            "1 s and",
            "5 minutes 10 seconds",
            "1 s unlimited",
            "1 parsec",
            "1 s and and 2 s",
            "+1 s",
            "99999999999999999999 s",
            "18446744073709551615 s and 1 s",
            "18446744073709551615 days",
            "unlimited and 1 s",
            "1 s;",
            "١ s",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
