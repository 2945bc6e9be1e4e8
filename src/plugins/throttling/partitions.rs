//! The buckets of a rate, one per partition, bounded.
//!
//! A partition is known by a 128-bit keyed hash of its text, so no request can
//! choose to meet another's bucket, and its bucket is one word. A map of 256
//! shards holds them: every lock is on one shard. Cleaning visits one shard
//! after the other, never more than a 256th of the partitions under one lock.
//!
//! A limit bounds the memory that strangers can claim by inventing partitions.
//! While a filter is full, new partitions share a fixed set of buckets: they
//! are throttled together, never let through unthrottled and never refused
//! outright, and those already known are not touched.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;
use dashmap::DashMap;

use super::bucket::{self, Decision};
use super::rate::Rate;
use crate::clock;
use crate::telemetry::metrics::Gauge;

const SHARDS: usize = 256;
/// Buckets that partitions beyond the limit share.
const OVERFLOW: usize = 1024;

/// A partition: two hashes of its text under keys of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64, u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// The hash of what is a hash already.
#[derive(Debug, Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

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

type Words = DashMap<Key, AtomicU64, BuildHasherDefault<AsIs>>;

/// The buckets of one rate.
pub struct Partitions {
    rate: Rate,
    /// The bucket of the partition that needs no key.
    shared: AtomicU64,
    /// Made when first needed: an idle filter holds none.
    words: OnceLock<Words>,
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
            words: OnceLock::new(),
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
        let words = self.words.get_or_init(|| {
            Words::with_capacity_and_hasher_and_shard_amount(
                0,
                BuildHasherDefault::default(),
                SHARDS,
            )
        });
        if let Some(word) = words.get(&key) {
            return bucket::take(&word, &self.rate, now);
        }
        self.take_new(words, key, now)
    }

    #[cold]
    fn take_new(&self, words: &Words, key: Key, now: u64) -> Decision {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return self.take_overflow(key, now);
        }
        let mut inserted = false;
        let word = words.entry(key).or_insert_with(|| {
            inserted = true;
            AtomicU64::new(0)
        });
        let decision = bucket::take(&word, &self.rate, now);
        drop(word);
        if inserted {
            self.gauge.add(1);
        } else {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        decision
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
        let Some(words) = self.words.get() else {
            return;
        };
        let mut removed = 0_usize;
        words.retain(|_, full_at| {
            let keep = !bucket::is_idle(*full_at.get_mut(), &self.rate, now);
            removed += usize::from(!keep);
            keep
        });
        if removed == 0 {
            return;
        }
        let left = self.count.fetch_sub(removed, Ordering::Relaxed) - removed;
        self.gauge.add(-signed(removed));
        // A map that a flood has blown up gives its memory back; one that
        // breathes keeps it.
        if words.capacity() > 4 * left.max(SHARDS * 4) {
            words.shrink_to_fit();
        }
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
        assert!(partitions.words.get().unwrap().capacity() < 5_000);
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
        let held = partitions.words.get().unwrap().len();
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
