//! What clients are told of their quota: `RateLimit-Policy` and `RateLimit`
//! of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! `r` is the tokens there are; `t` the seconds until the next one, within
//! which the client can use no more than those. A bucket drips, so that is
//! what is true of it. On a refusal no `t` is later than `Retry-After`
//! (draft, section 6), and that of every empty bucket is the same.

use std::fmt::Write;

use http::{HeaderName, HeaderValue};

use super::partitions::Outcome;
use super::rate::Rate;
use super::rates::Rates;
use doorward_plugin_api::words;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const NANOS: u64 = 1_000_000_000;
/// Largest integer of a structured field (RFC 9651 §3.3.1).
const LARGEST: u64 = 999_999_999_999_999;

words! {
    /// Which headers are sent.
    pub(super) enum Headers {
        /// None but `Retry-After`.
        Off = "off",
        /// `RateLimit-Policy` and `RateLimit`.
        Draft = "draft",
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
        let tokens = rate.tokens(level);
        let wait = match (delay, seconds(rate.next_token(level))) {
            (0, wait) => wait,
            (_, _) if tokens == 0 => seconds(delay),
            (_, wait) => wait.min(seconds(delay)),
        };
        write!(out, ";r={};t={wait}", tokens.min(LARGEST))
    }

    fn write_name(&self, out: &mut String, number: u16, rate: &Rate) -> std::fmt::Result {
        match self.names.get(usize::from(number)) {
            Some(name) => write!(out, "\"{name}\""),
            None => write!(out, "\"{rate}\""),
        }
    }
}

#[cfg(test)]
mod tests;
