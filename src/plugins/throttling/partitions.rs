//! The buckets of a rate, one per partition, bounded.
//!
//! A partition is known by a 128-bit keyed hash of its text, so no request can
//! choose to meet another's bucket, and its bucket is one word. Every lock is
//! on one of 256 shards: cleaning visits one after the other, never more than a
//! 256th of the partitions under one lock.
//!
//! A limit bounds the memory that strangers can claim by inventing partitions.
//! While a filter is full, new partitions share a fixed set of buckets: they
//! are throttled together, never let through unthrottled and never refused
//! outright, and those already known are not touched.

use std::hash::Hash;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;

use super::bucket::{self, Decision};
use super::rate::Rate;
pub use super::table::Key;
use super::table::Table;
use crate::clock;
use crate::telemetry::metrics::Gauge;

/// Buckets that partitions beyond the limit share.
const OVERFLOW: usize = 1024;

/// Makes [`Key`]s; every filter has secrets of its own.
pub struct Keys(RandomState, RandomState);

impl Keys {
    /// Fresh secrets.
    pub fn random() -> Self {
        let state = || {
            let seeds = clock::random_bytes::<32>();
            let mut seeds = seeds
                .chunks_exact(8)
                .map(|seed| seed.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)));
            let mut next = || seeds.next().unwrap_or_default();
            RandomState::with_seeds(next(), next(), next(), next())
        };
        Self(state(), state())
    }

    /// The partition of a value.
    pub fn key(&self, value: &(impl Hash + ?Sized)) -> Key {
        Key(self.0.hash_one(value), self.1.hash_one(value))
    }
}

/// The buckets of one rate.
pub struct Partitions {
    rate: Rate,
    /// The bucket of the partition that needs no key.
    shared: AtomicU64,
    /// Made when first needed: an idle filter holds none.
    table: OnceLock<Table>,
    /// How many words there are, those being inserted included.
    count: AtomicUsize,
    limit: usize,
    overflow: OnceLock<Box<[AtomicU64]>>,
    /// All filters' partitions.
    gauge: Gauge,
}

impl Partitions {
    /// No partition yet, and never more than `limit`.
    pub fn new(rate: Rate, limit: usize, gauge: Gauge) -> Self {
        Self {
            rate,
            shared: AtomicU64::new(0),
            table: OnceLock::new(),
            count: AtomicUsize::new(0),
            limit,
            overflow: OnceLock::new(),
            gauge,
        }
    }

    /// The rate of every bucket here.
    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    /// How many partitions are held.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether no partition is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a token from the bucket that all requests share.
    pub fn take_shared(&self, now: u64) -> Decision {
        bucket::take(&self.shared, &self.rate, now)
    }

    /// Takes a token of a partition at `now` (monotonic nanoseconds).
    pub fn take(&self, key: Key, now: u64) -> Decision {
        let table = self.table.get_or_init(Table::new);
        match table.with(key, |word| bucket::take(word, &self.rate, now)) {
            Some(decision) => decision,
            None => self.take_new(table, key, now),
        }
    }

    #[cold]
    fn take_new(&self, table: &Table, key: Key, now: u64) -> Decision {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return self.take_overflow(key, now);
        }
        let first = bucket::first(&self.rate, now);
        let taken = table.insert(key, first, |word| bucket::take(word, &self.rate, now));
        if taken.is_some() {
            // Another thread was faster.
            self.count.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.gauge.add(1);
        }
        taken.unwrap_or(Decision::Pass)
    }

    fn take_overflow(&self, key: Key, now: u64) -> Decision {
        let words = self
            .overflow
            .get_or_init(|| (0..OVERFLOW).map(|_| AtomicU64::new(0)).collect());
        let index = key.1 % OVERFLOW as u64;
        match usize::try_from(index).ok().and_then(|i| words.get(i)) {
            Some(word) => bucket::take(word, &self.rate, now),
            None => self.take_shared(now),
        }
    }

    /// Forgets the partitions whose buckets were full for a whole step: they
    /// decide as new ones would, so nobody notices.
    pub fn clean(&self, now: u64) {
        let Some(table) = self.table.get() else {
            return;
        };
        let removed = table.retain(|full_at| !bucket::is_idle(full_at, &self.rate, now));
        self.count.fetch_sub(removed, Ordering::Relaxed);
        self.gauge.add(-signed(removed));
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        self.gauge.add(-signed(*self.count.get_mut()));
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn partitions(limit: usize) -> (Partitions, Gauge) {
        let gauge = Gauge::default();
        let rate = Rate::new(2, Duration::from_secs(10)).unwrap();
        (Partitions::new(rate, limit, gauge.clone()), gauge)
    }

    #[test]
    fn partitions_do_not_touch_each_other() {
        let (partitions, _) = partitions(10);
        let keys = Keys::random();
        for _ in 0..2 {
            assert_eq!(partitions.take(keys.key("a"), SECOND), Decision::Pass);
        }
        assert_eq!(
            partitions.take(keys.key("a"), SECOND),
            Decision::Refuse(5 * SECOND)
        );
        assert_eq!(partitions.take(keys.key("b"), SECOND), Decision::Pass);
        assert_eq!(partitions.take_shared(SECOND), Decision::Pass);
    }

    #[test]
    fn a_flood_of_invented_partitions_stays_within_the_limit_and_is_throttled() {
        let (partitions, gauge) = partitions(100);
        let keys = Keys::random();
        assert_eq!(partitions.take(keys.key("known"), SECOND), Decision::Pass);
        let passed = (0..100_000)
            .filter(|n| partitions.take(keys.key(n), SECOND) == Decision::Pass)
            .count();
        assert_eq!(partitions.len(), 100);
        assert_eq!(gauge.get(), 100);
        assert!(passed <= 99 + 2 * OVERFLOW, "{passed} passed");
        assert_eq!(partitions.take(keys.key("known"), SECOND), Decision::Pass);
    }

    #[test]
    fn cleaning_forgets_what_is_full_and_keeps_the_rest() {
        let (partitions, gauge) = partitions(10_000);
        let keys = Keys::random();
        for n in 0..5_000 {
            partitions.take(keys.key(&n), SECOND);
        }
        partitions.take(keys.key("late"), 8 * SECOND);
        // Full at 6 s, for a whole step at 11 s.
        partitions.clean(11 * SECOND - 1);
        assert_eq!(partitions.len(), 5_001);
        partitions.clean(11 * SECOND);
        assert_eq!(partitions.len(), 1);
        assert_eq!(gauge.get(), 1);
        assert!(partitions.table.get().unwrap().capacity() < 5_000);
        assert_eq!(
            partitions.take(keys.key("late"), 11 * SECOND),
            Decision::Pass
        );
        drop(partitions);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn cleaning_beside_requests_loses_no_count() {
        let (partitions, gauge) = partitions(10_000);
        let keys = Keys::random();
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (partitions, keys) = (&partitions, &keys);
                scope.spawn(move || {
                    for n in 0..20_000_u64 {
                        partitions.take(keys.key(&(n % 500)), n * SECOND + thread);
                    }
                });
            }
            for n in 0..200 {
                partitions.clean(n * 100 * SECOND);
            }
        });
        let held = partitions.table.get().unwrap().len();
        assert_eq!(partitions.len(), held);
        assert_eq!(gauge.get(), i64::try_from(held).unwrap());
    }

    #[test]
    fn two_filters_hash_the_same_text_differently() {
        assert_ne!(Keys::random().key("a"), Keys::random().key("a"));
        let keys = Keys::random();
        assert_eq!(keys.key("a"), keys.key("a"));
        let Key(first, second) = keys.key("a");
        assert_ne!(first, second);
    }
}
