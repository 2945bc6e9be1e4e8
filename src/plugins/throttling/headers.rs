//! What clients are told of their quota: `RateLimit-Policy` and `RateLimit`
//! of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! `r` is the tokens there are; `t` the seconds until the next one, within
//! which the client can use no more than those. A bucket drips, so that is
//! what is true of it. On a refusal no `t` is later than `Retry-After`
//! (draft, section 6), and that of an empty bucket is the same.

use std::fmt::Write;

use http::{HeaderName, HeaderValue};

use super::partitions::Outcome;
use super::rate::Rate;
use super::rates::Rates;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const NANOS: u64 = 1_000_000_000;
/// Largest integer of a structured field (RFC 9651 §3.3.1).
const LARGEST: u64 = 999_999_999_999_999;

/// Which headers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Headers {
    /// None but `Retry-After`.
    Off,
    /// `RateLimit-Policy` and `RateLimit`.
    Draft,
}

impl Headers {
    /// The words of the configuration; the first is the default.
    pub(super) const WORDS: &[&str] = &["off", "draft"];

    pub(super) fn of_word(word: &str) -> Self {
        match word {
            "draft" => Self::Draft,
            _ => Self::Off,
        }
    }
}

/// Seconds to wait, rounded up and never none (interface 7).
pub(super) fn seconds(nanos: u64) -> u64 {
    nanos.div_ceil(NANOS).max(1)
}

/// Writes the headers of a filter.
#[derive(Debug)]
pub(super) struct Quota {
    /// What the configured rates are called, in their order.
    names: Vec<String>,
}

impl Quota {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// The headers for a request that `limit` held for.
    pub(super) fn headers(
        &self,
        rates: &Rates,
        limit: &[u16],
        outcome: &Outcome,
    ) -> [(HeaderName, HeaderValue); 2] {
        let mut policy = String::with_capacity(32 * limit.len());
        let mut state = String::with_capacity(32 * limit.len());
        for (number, level) in limit.iter().zip(outcome.levels) {
            let rate = rates.get(*number);
            if !policy.is_empty() {
                policy.push_str(", ");
                state.push_str(", ");
            }
            // Writing to a string can't fail.
            let _ = self.write_policy(&mut policy, *number, rate);
            let _ = self.write_state(&mut state, *number, rate, level, outcome.delay);
        }
        let value = |text: String| {
            HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
        };
        [(RATELIMIT_POLICY, value(policy)), (RATELIMIT, value(state))]
    }

    fn write_policy(&self, out: &mut String, number: u16, rate: &Rate) -> std::fmt::Result {
        self.write_name(out, number, rate)?;
        write!(out, ";q={}", rate.requests().min(LARGEST))?;
        let window = rate.duration();
        if window.as_secs() > 0 {
            // A window has whole seconds; a shorter one can't be told.
            let rounded = window.as_secs() + u64::from(window.subsec_nanos() > 0);
            write!(out, ";w={rounded}")?;
        }
        Ok(())
    }

    fn write_state(
        &self,
        out: &mut String,
        number: u16,
        rate: &Rate,
        level: u64,
        delay: u64,
    ) -> std::fmt::Result {
        self.write_name(out, number, rate)?;
        let mut wait = seconds(rate.next_token(level));
        if delay > 0 {
            wait = wait.min(seconds(delay));
        }
        write!(out, ";r={};t={wait}", rate.tokens(level).min(LARGEST))
    }

    fn write_name(&self, out: &mut String, number: u16, rate: &Rate) -> std::fmt::Result {
        match self.names.get(usize::from(number)) {
            Some(name) => write!(out, "\"{name}\""),
            None => write!(out, "\"{rate}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plugins::throttling::partitions::MAX_RATES;

    const SECOND: u64 = 1_000_000_000;

    fn shown(outcome: &Outcome) -> [String; 2] {
        let rate = |n, seconds| Rate::new(n, Duration::from_secs(seconds)).expect("a rate");
        let rates = Rates::new(vec![rate(6, 12), rate(1000, 100_000)], false);
        let quota = Quota::new(vec!["burst".into(), "1000/1d".into()]);
        let headers = quota.headers(&rates, &[0, 1], outcome);
        headers.map(|(_, value)| value.to_str().expect("ASCII").to_owned())
    }

    fn levels(first: u64, second: u64) -> [u64; MAX_RATES] {
        let mut levels = [0; MAX_RATES];
        (levels[0], levels[1]) = (first, second);
        levels
    }

    #[test]
    fn a_passed_request_is_told_what_is_left_and_until_when() {
        let outcome = Outcome {
            delay: 0,
            levels: levels(3 * SECOND, 150 * SECOND),
        };
        let [policy, state] = shown(&outcome);
        assert_eq!(policy, "\"burst\";q=6;w=12, \"1000/1d\";q=1000;w=100000");
        assert_eq!(state, "\"burst\";r=4;t=1, \"1000/1d\";r=998;t=50");
    }

    #[test]
    fn no_effective_window_of_a_refusal_ends_after_retry_after() {
        let delay = SECOND + 1;
        let outcome = Outcome {
            delay,
            levels: levels(10 * SECOND + delay, 150 * SECOND),
        };
        assert_eq!(seconds(delay), 2);
        assert_eq!(
            shown(&outcome)[1],
            "\"burst\";r=0;t=2, \"1000/1d\";r=998;t=2"
        );
    }
}
