//! Bounds how often one place of the program may log a warning or an error: a
//! stranger who can provoke a line must not fill the disk with it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use super::metrics::Counter;

/// Lines that a place may log at once.
const BURST: u64 = 100;
/// Nanoseconds after which it may log one more.
const REFILL_NS: u64 = 1_000_000_000;
/// Most places that are looked at apart; those beyond share one bound.
const PLACES: usize = 4_096;

/// Bounds on lines by their place in the program.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    hasher: RandomState,
    /// For each place, the time at which all of its burst is there again.
    places: Mutex<HashMap<u64, u64>>,
    suppressed: Counter,
}

impl Repeats {
    /// Whether the place `line` of `target` may log another line at `now_ns`.
    pub(super) fn admit(&self, target: &str, line: Option<u32>, now_ns: u64) -> bool {
        let place = self.hasher.hash_one((target, line));
        let mut places = self.places.lock();
        let known = places.len() < PLACES || places.contains_key(&place);
        let whole = places.entry(if known { place } else { 0 }).or_insert(0);
        let next = (*whole).max(now_ns) + REFILL_NS;
        if next - now_ns > BURST * REFILL_NS {
            drop(places);
            self.suppressed.inc();
            return false;
        }
        *whole = next;
        true
    }

    /// Lines that were not admitted so far.
    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_may_log_a_burst_and_then_a_line_a_second() {
        let repeats = Repeats::default();
        let now = 5 * REFILL_NS;
        let admitted = (0..1_000).filter(|_| repeats.admit("a", Some(1), now));
        assert_eq!(admitted.count() as u64, BURST);
        assert!(repeats.admit("a", Some(2), now), "another place");
        assert!(repeats.admit("a", Some(1), now + REFILL_NS));
        assert!(!repeats.admit("a", Some(1), now + REFILL_NS));
        assert_eq!(repeats.suppressed(), 1_000 - BURST + 1);
    }

    #[test]
    fn places_are_bounded() {
        let repeats = Repeats::default();
        for line in 0..2 * PLACES as u32 {
            repeats.admit("a", Some(line), 0);
        }
        assert!(repeats.places.lock().len() <= PLACES + 1);
    }
}
