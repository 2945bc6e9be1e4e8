//! How many requests in how long.

use std::time::Duration;

/// Most requests of a rate. With [`LONGEST`] it keeps all sums of nanoseconds
/// far from overflow.
pub const MOST: u64 = 1_000_000_000_000_000_000;
/// Shortest duration of a rate.
pub const SHORTEST: Duration = Duration::from_millis(1);
/// Longest duration of a rate: a hundred years.
pub const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

/// A rate: this many requests in this time. Two rates are the same if their
/// numbers are, however they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    requests: u64,
    duration: Duration,
    /// Nanoseconds in which one token comes back, rounded up.
    step: u64,
    /// Nanoseconds in which an empty bucket fills: `requests` steps.
    fill: u64,
}

/// Why numbers are no rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not between 1 and [`MOST`].
    #[error("must be a whole number between 1 and {MOST}")]
    Requests,
    /// Not between [`SHORTEST`] and [`LONGEST`].
    #[error("must be between 1 ms and 36525 days")]
    Duration,
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
}
