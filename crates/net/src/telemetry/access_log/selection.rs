//! Which requests have a line in the access log.

use std::cell::Cell;
use std::time::Duration;

use doorward_core::clock;

/// Conditions, and the share of the requests that meet them.
#[derive(Debug)]
pub(super) struct Selection {
    /// Of 2³², how many are logged.
    share: u64,
    /// Statuses of which one suffices; with neither these nor a duration all are.
    statuses: Box<[StatusRange]>,
    /// The duration that suffices.
    min_duration: Option<Duration>,
}

/// A status, or a class of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// `404`, or `4xx`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let class = match text.as_bytes() {
            [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => Some(u16::from(class - b'0') * 100),
            _ => None,
        };
        if let Some(first) = class {
            let last = first + 99;
            return Some(Self { first, last });
        }
        let is_plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let status: u16 = text.parse().ok().filter(|_| is_plain)?;
        (100..600).contains(&status).then_some(Self {
            first: status,
            last: status,
        })
    }
}

impl Selection {
    /// `sample` lies between 0 and 1.
    pub(super) fn new(
        sample: f64,
        statuses: Box<[StatusRange]>,
        min_duration: Option<Duration>,
    ) -> Self {
        // The product lies between 0 and 2³².
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let share = (sample * f64::from(u32::MAX)).ceil() as u64;
        Self {
            share: if sample >= 1.0 { 1 << 32 } else { share },
            statuses,
            min_duration,
        }
    }

    /// Whether a request with this status and duration has a line. Status 0: there was
    /// no answer.
    pub(super) fn takes(&self, status: u16, total: Duration) -> bool {
        self.meets(status, total) && (self.share > u64::from(u32::MAX) || self.is_drawn(status))
    }

    fn meets(&self, status: u16, total: Duration) -> bool {
        let is_free = self.statuses.is_empty() && self.min_duration.is_none();
        let ranges = &self.statuses;
        is_free
            || ranges.iter().any(|r| (r.first..=r.last).contains(&status))
            || self.min_duration.is_some_and(|least| total >= least)
    }

    /// Errors always are.
    fn is_drawn(&self, status: u16) -> bool {
        status == 0 || status >= 500 || u64::from(lot()) < self.share
    }
}

/// A number that nothing depends on being unpredictable.
fn lot() -> u32 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(u64::from_le_bytes(clock::random_bytes()) | 1);
    }
    STATE.with(|state| {
        // xorshift64*: its upper half is even.
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        let upper = x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        u32::try_from(upper).unwrap_or(u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn statuses(texts: &[&str]) -> Box<[StatusRange]> {
        let parsed = texts.iter().map(|text| StatusRange::parse(text));
        parsed.collect::<Option<_>>().expect("statuses")
    }

    #[test]
    fn a_status_or_a_duration_suffices() {
        let slow = Duration::from_millis(500);
        let selection = Selection::new(1.0, statuses(&["404", "5xx"]), Some(slow));
        for (status, total, expected) in [
            (404, NOW, true),
            (403, NOW, false),
            (500, NOW, true),
            (599, NOW, true),
            (200, slow, true),
            (200, NOW, false),
        ] {
            assert_eq!(
                selection.takes(status, total),
                expected,
                "{status} {total:?}"
            );
        }
    }

    #[test]
    fn samples_are_shares_and_errors_are_always_taken() {
        let selection = Selection::new(0.25, Box::default(), None);
        let taken = (0..40_000).filter(|_| selection.takes(200, NOW)).count();
        assert!((9_000..11_000).contains(&taken), "{taken}");
        let none = Selection::new(0.0, Box::default(), None);
        assert!((0..1000).all(|_| !none.takes(200, NOW)));
        assert!((0..1000).all(|_| none.takes(502, NOW) && none.takes(0, NOW)));
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for text in [
            "", "6xx", "0xx", "99", "600", "+20", "2x", "20x", "2xxx", " 200",
        ] {
            assert_eq!(StatusRange::parse(text), None, "{text}");
        }
    }
}
