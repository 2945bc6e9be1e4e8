//! How many requests in how long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use doorward_expr::duration::{self, DurationError, Length};

/// Most requests of a rate. With [`LONGEST`] it keeps all sums of nanoseconds
/// far from overflow.
pub const MOST: u64 = 1_000_000_000_000_000_000;
/// Shortest duration of a rate.
pub const SHORTEST: Duration = Duration::from_millis(1);
/// Longest duration of a rate: a hundred years.
pub const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

/// A rate: this many requests in this time. Two rates are the same if their
/// numbers are, however they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    requests: u64,
    duration: Duration,
    /// Nanoseconds in which one token comes back, rounded up.
    step: u64,
    /// Nanoseconds in which an empty bucket fills: `requests` steps.
    fill: u64,
}

/// Why something is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not between 1 and [`MOST`].
    #[error("must be a whole number between 1 and {MOST}")]
    Requests,
    /// Not between [`SHORTEST`] and [`LONGEST`].
    #[error("must be between 1 ms and 36525 days")]
    Duration,
    /// The duration is without end.
    #[error("must not be unlimited")]
    Unlimited,
    /// The text is no duration.
    #[error(transparent)]
    Grammar(#[from] DurationError),
    /// No number of requests, slash and duration.
    #[error("must be written as `6/10 s`: requests, slash, duration")]
    Text,
}

impl Rate {
    /// `requests` in `duration`.
    ///
    /// # Errors
    /// [`RateError`] for a number out of range.
    pub fn new(requests: u64, duration: Duration) -> Result<Self, RateError> {
        if !(1..=MOST).contains(&requests) {
            return Err(RateError::Requests);
        }
        if !(SHORTEST..=LONGEST).contains(&duration) {
            return Err(RateError::Duration);
        }
        let nanos = u64::try_from(duration.as_nanos()).map_err(|_| RateError::Duration)?;
        let step = nanos.div_ceil(requests);
        Ok(Self {
            requests,
            duration,
            step,
            fill: step * requests,
        })
    }

    /// The slowest rate there can be.
    pub(super) fn slowest() -> Self {
        let step = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX / 4);
        Self {
            requests: 1,
            duration: LONGEST,
            step,
            fill: step,
        }
    }

    /// The duration that `text` writes, if it can be that of a rate.
    ///
    /// # Errors
    /// [`RateError`].
    pub fn read_duration(text: &str) -> Result<Duration, RateError> {
        match duration::parse(text)? {
            Length::Finite(duration) => Self::new(1, duration).map(|_| duration),
            Length::Unlimited => Err(RateError::Unlimited),
        }
    }

    /// Nanoseconds in which one token comes back.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Nanoseconds in which an empty bucket becomes full.
    pub fn fill(&self) -> u64 {
        self.fill
    }

    /// Tokens of a full bucket.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The time in which so many requests pass.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Tokens in a bucket that is full in `level` nanoseconds.
    pub fn tokens(&self, level: u64) -> u64 {
        self.fill.saturating_sub(level) / self.step
    }

    /// Nanoseconds until such a bucket gets its next token; of a full one,
    /// until it would get back the first that is taken.
    pub fn next_token(&self, level: u64) -> u64 {
        match level % self.step {
            0 => self.step,
            part => part,
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (requests, duration) = text.split_once('/').ok_or(RateError::Text)?;
        let requests = requests.trim().parse().map_err(|_| RateError::Requests)?;
        Self::new(requests, Self::read_duration(duration)?)
    }
}

impl fmt::Display for Rate {
    /// The shortest way to write it: `6/10s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u128, &str); 6] = [
            (86_400_000_000_000, "d"),
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
        ];
        let nanos = self.duration.as_nanos();
        let whole = UNITS.iter().find(|(unit, _)| nanos.is_multiple_of(*unit));
        let (unit, name) = whole.unwrap_or(&(1, "ns"));
        write!(f, "{}/{}{name}", self.requests, nanos / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_equal_rates() {
        let ten_seconds = Rate::new(6, Duration::from_secs(10));
        assert_eq!(ten_seconds, Rate::new(6, Duration::from_millis(10_000)));
        assert_eq!(ten_seconds.map(|rate| rate.step()), Ok(1_666_666_667));
    }

    #[test]
    fn rates_out_of_range_are_refused() {
        assert_eq!(Rate::new(0, LONGEST), Err(RateError::Requests));
        assert_eq!(Rate::new(MOST + 1, LONGEST), Err(RateError::Requests));
        assert_eq!(Rate::new(1, Duration::ZERO), Err(RateError::Duration));
        assert_eq!(
            Rate::new(1, LONGEST + Duration::from_nanos(1)),
            Err(RateError::Duration)
        );
        for requests in [1, 7, MOST] {
            for duration in [SHORTEST, LONGEST] {
                assert!(Rate::new(requests, duration).is_ok());
            }
        }
    }

    #[test]
    fn a_level_says_how_many_tokens_there_are_and_when_the_next_one_comes() {
        let rate = Rate::new(6, Duration::from_secs(12)).expect("a rate");
        let second = 1_000_000_000;
        for (level, tokens, next) in [
            (0, 6, 2 * second),
            (1, 5, 1),
            (2 * second, 5, 2 * second),
            (5 * second, 3, second),
            (12 * second, 0, 2 * second),
            (10 * second + 1, 0, 1),
        ] {
            assert_eq!(rate.tokens(level), tokens, "{level}");
            assert_eq!(rate.next_token(level), next, "{level}");
        }
    }

    #[test]
    fn a_rate_is_shown_in_the_largest_unit() {
        for (requests, millis, shown) in [
            (6, 10_000, "6/10s"),
            (1000, 86_400_000, "1000/1d"),
            (1, 90_000, "1/90s"),
            (5, 1_500, "5/1500ms"),
        ] {
            let rate = Rate::new(requests, Duration::from_millis(millis));
            assert_eq!(rate.map(|rate| rate.to_string()), Ok(shown.to_owned()));
        }
    }
}
