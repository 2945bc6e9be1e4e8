//! Log lines that strangers can cause: one in a while, with the number of those
//! that were left out.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds between two lines of one place in the code.
const SPAN_NS: u64 = 10_000_000_000;

/// Limits the lines of one place.
#[derive(Debug)]
pub struct LogLimit {
    /// From when on the next line may be written.
    next_ns: AtomicU64,
    left_out: AtomicU64,
}

impl LogLimit {
    /// For a place that has written nothing.
    pub const fn new() -> Self {
        Self {
            next_ns: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written at `now_ns` of the monotonic clock; says
    /// how many were left out since the last one.
    pub fn turn(&self, now_ns: u64) -> Option<u64> {
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let later_ns = now_ns.saturating_add(SPAN_NS);
        let swap = |next_ns, later_ns| {
            let order = Ordering::Relaxed;
            (self.next_ns).compare_exchange(next_ns, later_ns, order, order)
        };
        if now_ns >= next_ns && swap(next_ns, later_ns).is_ok() {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::new()
    }
}

/// As `tracing::warn!`, for what strangers cause as often as they like: this
/// place writes a line in ten seconds, with `left_out` for the others.
#[macro_export]
macro_rules! warn_limited {
    ($($line:tt)*) => {{
        static LIMIT: $crate::telemetry::log_limit::LogLimit =
            $crate::telemetry::log_limit::LogLimit::new();
        if let Some(left_out) = LIMIT.turn($crate::telemetry::log_limit::monotonic_ns()) {
            $crate::telemetry::log_limit::tracing::warn!(left_out, $($line)*);
        }
    }};
}

#[doc(hidden)]
pub use doorward_core::clock::monotonic_ns;
#[doc(hidden)]
pub use tracing;
pub use warn_limited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_in_ten_seconds_and_a_number() {
        let limit = LogLimit::new();
        assert_eq!(limit.turn(5), Some(0));
        for now_ns in 6..1006 {
            assert_eq!(limit.turn(now_ns), None);
        }
        assert_eq!(limit.turn(SPAN_NS + 4), None);
        assert_eq!(limit.turn(SPAN_NS + 5), Some(1001));
        assert_eq!(limit.turn(u64::MAX), Some(0));
    }
}
