//! The buckets of a filter: one for each partition and rate, bounded.
//!
//! A partition is known by a keyed hash of its text of more than a hundred
//! bits, so no request can choose to meet another's bucket, and each of its
//! buckets is one word.
//!
//! A limit bounds the memory that strangers can claim by inventing partitions.
//! While a filter is full, new partitions share a fixed set of buckets: they
//! are throttled together, never let through unthrottled and never refused
//! outright, and those already known are not touched.

use std::hash::Hash;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;

use super::bucket::{self, Decision, FULL, Moved};
use super::rate::Rate;
use super::rates::Rates;
pub use super::table::Key;
use super::table::Table;
use doorward_core::clock;
use doorward_net::telemetry::metrics::{Counter, Gauge};

/// Buckets of each rate that partitions beyond the limit share.
const OVERFLOW: u64 = 1024;
/// Most rates that hold for one request.
pub const MAX_RATES: usize = 8;

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
        Key(self.0.hash_one(value), self.1.hash_one(value)).of_rate(0)
    }
}

/// What was decided on a request that one or more rates hold for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Nanoseconds until there is a token of every rate; zero: the request
    /// passes.
    pub delay: u64,
    /// The bucket of each rate, in nanoseconds until it is full.
    pub levels: [u64; MAX_RATES],
}

impl Outcome {
    /// Of one decision for each rate, in order.
    fn of(rates: &Rates, limit: &[u16], decide: impl Fn(usize) -> Decision) -> Self {
        let mut outcome = Self {
            delay: 0,
            levels: [0; MAX_RATES],
        };
        for (i, level) in outcome.levels.iter_mut().take(limit.len()).enumerate() {
            *level = match decide(i) {
                Decision::Pass(level) => level,
                Decision::Refuse(delay) => {
                    outcome.delay = outcome.delay.max(delay);
                    let rate = rates.get(limit[i]);
                    delay + rate.fill() - rate.step()
                }
            };
        }
        outcome
    }

    fn of_one(rate: &Rate, decision: Decision) -> Self {
        let mut levels = [0; MAX_RATES];
        let delay = match decision {
            Decision::Pass(level) => {
                levels[0] = level;
                0
            }
            Decision::Refuse(delay) => {
                levels[0] = delay + rate.fill() - rate.step();
                delay
            }
        };
        Self { delay, levels }
    }

    /// Whether the request passes.
    pub fn passes(&self) -> bool {
        self.delay == 0
    }
}

/// The buckets of a filter.
pub struct Partitions {
    rates: Rates,
    /// Buckets of the partition that needs no key, for the configured rates.
    shared: Box<[AtomicU64]>,
    /// Made when first needed: an idle filter holds none.
    table: OnceLock<Table>,
    /// How many words there are, those being inserted included.
    count: AtomicUsize,
    limit: usize,
    /// Whether it was said that the limit is reached.
    said_full: AtomicBool,
    /// All filters' buckets.
    gauge: Gauge,
    /// All filters' decisions on shared overflow buckets.
    overflowed: Counter,
}

impl Partitions {
    /// No partition yet, and never more than `limit` buckets, those for the
    /// overflow aside.
    pub fn new(rates: Rates, limit: usize, gauge: Gauge, overflowed: Counter) -> Self {
        Self {
            shared: rates.fixed().iter().map(|_| AtomicU64::new(0)).collect(),
            rates,
            table: OnceLock::new(),
            count: AtomicUsize::new(0),
            limit,
            said_full: AtomicBool::new(false),
            gauge,
            overflowed,
        }
    }

    /// The rates of the buckets.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// How many buckets are held.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether no bucket is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a token of each rate of `limit` at `now` (monotonic nanoseconds),
    /// or of none; `None`: the partition that all requests share.
    pub fn take_all(&self, key: Option<Key>, limit: &[u16], now: u64) -> Outcome {
        if let [rate] = limit {
            return Outcome::of_one(self.rates.get(*rate), self.take(key, *rate, now));
        }
        // Most refusals are seen before anything is taken.
        let seen = self.look_all(key, limit, now);
        if !seen.passes() {
            return seen;
        }
        let mut outcome = seen;
        for (i, rate) in limit.iter().enumerate().take(MAX_RATES) {
            match self.take(key, *rate, now) {
                Decision::Pass(level) => outcome.levels[i] = level,
                Decision::Refuse(delay) => {
                    // Another request was faster: it shall be as if this one
                    // had not been.
                    for taken in &limit[..i] {
                        self.give_back(key, *taken);
                    }
                    let rate = self.rates.get(*rate);
                    outcome.levels[i] = delay + rate.fill() - rate.step();
                    return Outcome { delay, ..outcome };
                }
            }
        }
        outcome
    }

    /// What a request at `now` would meet.
    pub fn look_all(&self, key: Option<Key>, limit: &[u16], now: u64) -> Outcome {
        Outcome::of(&self.rates, limit, |i| {
            let rate = limit[i];
            let full_at = self.word(key, rate, bucket::read);
            bucket::look(full_at.unwrap_or(0), self.rates.get(rate), now)
        })
    }

    /// Takes a token of one rate.
    pub fn take(&self, key: Option<Key>, rate: u16, now: u64) -> Decision {
        let found = self.rates.get(rate);
        if let Some(decision) = self.word(key, rate, |word| bucket::take(word, found, now)) {
            return decision;
        }
        self.take_new(bucket_key(key, rate), found, now)
    }

    #[cold]
    fn take_new(&self, key: Key, rate: &Rate, now: u64) -> Decision {
        let take = |word: &AtomicU64| bucket::take(word, rate, now);
        if self.may_insert() {
            return self.insert(key, take);
        }
        self.overflowed.inc();
        if !self.said_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                partitions = self.limit,
                "throttling holds as many partitions as it may: new ones are throttled together"
            );
        }
        let key = key.overflow(OVERFLOW);
        if let Some(decision) = self.table().with(key, take) {
            return decision;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.insert(key, take)
    }

    /// Counts one bucket more if the limit allows it.
    fn may_insert(&self) -> bool {
        let room = self.count.fetch_add(1, Ordering::Relaxed) < self.limit;
        if !room {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        room
    }

    /// What `found` makes of a new word that is counted already.
    fn insert<T>(&self, key: Key, found: impl Fn(&AtomicU64) -> Result<T, Moved>) -> T {
        let (made, new) = self.table().insert(key, found);
        if new {
            self.gauge.add(1);
        } else {
            // Another thread was faster.
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        made
    }

    fn give_back(&self, key: Option<Key>, rate: u16) {
        let found = self.rates.get(rate);
        self.word(key, rate, |word| bucket::give_back(word, found));
    }

    /// Lets the buckets have `levels` at `now`: what is known of them from
    /// elsewhere.
    pub(super) fn set_all(
        &self,
        key: Option<Key>,
        limit: &[u16],
        levels: &[u64; MAX_RATES],
        now: u64,
    ) {
        for (rate, level) in limit.iter().zip(levels) {
            let full_at = now.saturating_add(*level);
            let set = |word: &AtomicU64| bucket::set(word, full_at);
            // One that is full need not be held.
            if self.word(key, *rate, set).is_none() && *level > 0 && self.may_insert() {
                self.insert(bucket_key(key, *rate), set);
            }
        }
    }

    /// Fills the buckets of a partition; whether one was not full.
    pub(super) fn reset(&self, key: Option<Key>, now: u64) -> bool {
        let mut found = false;
        for rate in 0..self.rates.len() {
            let level = self.word(key, rate, |word| {
                let full_at = bucket::AtomicWord::get(word);
                bucket::set(word, FULL).map(|()| full_at.saturating_sub(now))
            });
            found |= level.is_some_and(|level| level > 0);
        }
        found
    }

    /// What `found` makes of a bucket's word; `None`: there is none.
    fn word<T>(
        &self,
        key: Option<Key>,
        rate: u16,
        found: impl Fn(&AtomicU64) -> Result<T, Moved>,
    ) -> Option<T> {
        if key.is_none()
            && let Some(word) = self.shared.get(usize::from(rate))
        {
            return found(word).ok();
        }
        self.table().with(bucket_key(key, rate), found)
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| Table::new(self.limit))
    }

    /// Forgets the buckets that were full for a whole step: they decide as new
    /// ones would, so nobody notices.
    pub fn clean(&self, now: u64) {
        let Some(table) = self.table.get() else {
            return;
        };
        let removed = table.retain(|rate, full_at| {
            full_at != FULL && !bucket::is_idle(full_at, self.rates.get(rate), now)
        });
        self.count.fetch_sub(removed, Ordering::Relaxed);
        self.gauge.add(-signed(removed));
        if removed > 0 && self.len() < self.limit {
            self.said_full.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        self.gauge.add(-signed(*self.count.get_mut()));
    }
}

/// The key of a bucket.
fn bucket_key(key: Option<Key>, rate: u16) -> Key {
    key.unwrap_or(Key(0, 0)).of_rate(rate)
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
