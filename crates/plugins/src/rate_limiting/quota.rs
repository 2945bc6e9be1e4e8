//! What clients are told of their limits.

use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue};
use pingora::http::ResponseHeader;

use super::counters::{Limit, Used};
use super::period::Period;
use doorward_plugin_api::filter::Exchange;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Headers of each limit: what does not depend on a request.
pub(super) struct Quota(Box<[Names]>);

struct Names {
    limit: HeaderName,
    remaining: HeaderName,
    /// The limit as a value.
    value: HeaderValue,
}

impl Quota {
    pub(super) fn new(limits: &[Limit]) -> Self {
        let names = |limit: &Limit| {
            let (of_limit, of_remaining) = names(limit.period);
            Names {
                limit: HeaderName::from_static(of_limit),
                remaining: HeaderName::from_static(of_remaining),
                value: value(limit.limit),
            }
        };
        Self(limits.iter().map(names).collect())
    }

    /// Whether an answer that passes has more headers of such names than were written:
    /// one look at all names costs less than a search for each. In most answers each
    /// name has one value, which shows at once.
    pub(super) fn may_be_doubled(&self, response: &ResponseHeader) -> bool {
        if response.headers.len() == response.headers.keys_len() {
            return false;
        }
        let names = response.headers.iter().map(|(name, _)| name.as_str());
        let alike =
            names.filter(|name| name.starts_with("x-ratelimit-") || name.starts_with("ratelimit-"));
        alike.count() > 2 * self.0.len() + 3
    }

    /// Whether a header is one of these.
    pub(super) fn names(&self, name: &HeaderName) -> bool {
        let own = |names: &Names| names.limit == *name || names.remaining == *name;
        [LIMIT, REMAINING, RESET, RETRY_AFTER].contains(name) || self.0.iter().any(own)
    }

    /// Adds the headers for a request that each period had `used` before. Of a
    /// refused one, only the period that refused is counted down.
    pub(super) fn write(
        &self,
        limits: &[Limit],
        used: &Used,
        passes: bool,
        now: i64,
        exchange: &mut Exchange,
    ) {
        let left = |limit: &Limit, used: u64| limit.remaining(used);
        let stops = |(limit, used): (&Limit, &u64)| left(limit, *used) <= 0.0;
        let stop = limits.iter().zip(used).rposition(stops);
        let mut least: Option<(f64, &Limit, &Names, HeaderValue)> = None;
        let headers = &mut exchange.response_headers;
        headers.reserve(2 * limits.len() + 4);
        for (i, (limit, names)) in limits.iter().zip(&self.0).enumerate() {
            let mut remaining = left(limit, used.get(i).copied().unwrap_or(0));
            if passes || stop == Some(i) {
                remaining -= 1.0;
            }
            let remaining = remaining.max(0.0);
            let told = value(remaining);
            headers.push((names.limit.clone(), names.value.clone()));
            headers.push((names.remaining.clone(), told.clone()));
            // Of equals the longest, which comes last.
            if least
                .as_ref()
                .is_none_or(|(before, ..)| remaining <= *before)
            {
                least = Some((remaining, limit, names, told));
            }
        }
        let Some((_, limit, names, told)) = least else {
            return;
        };
        let reset = reset(limit.period, now);
        headers.push((LIMIT, names.value.clone()));
        headers.push((REMAINING, told));
        let reset = HeaderValue::from(reset);
        if !passes {
            headers.push((RETRY_AFTER, reset.clone()));
        }
        headers.push((RESET, reset));
    }
}

/// Seconds until the window is over; at least one.
fn reset(period: Period, now: i64) -> i64 {
    (period.seconds() - (now - period.window(now))).max(1)
}

/// A number as a value: whole ones without a fraction.
pub(crate) fn value(number: f64) -> HeaderValue {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and short")]
        return HeaderValue::from(number as i64);
    }
    let text = format!("{number}");
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

fn names(period: Period) -> (&'static str, &'static str) {
    match period {
        Period::Second => ("x-ratelimit-limit-second", "x-ratelimit-remaining-second"),
        Period::Minute => ("x-ratelimit-limit-minute", "x-ratelimit-remaining-minute"),
        Period::Hour => ("x-ratelimit-limit-hour", "x-ratelimit-remaining-hour"),
        Period::Day => ("x-ratelimit-limit-day", "x-ratelimit-remaining-day"),
        Period::Month => ("x-ratelimit-limit-month", "x-ratelimit-remaining-month"),
        Period::Year => ("x-ratelimit-limit-year", "x-ratelimit-remaining-year"),
    }
}
