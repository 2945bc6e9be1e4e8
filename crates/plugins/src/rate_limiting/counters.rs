//! Counters in this process: how many requests an identifier has sent in the
//! window of each period.
//!
//! A decision takes one of many locks for a moment. Their number of entries has a
//! bound: strangers choose addresses, headers and paths. Beyond it, identifiers
//! share counters, so that flooding the table opens no way around a limit.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use ahash::RandomState;
use parking_lot::Mutex;

use super::period::Period;
use doorward_core::clock;

/// How many locks there are; a power of two.
const SHARDS: usize = 64;
/// Most entries of a shard: one for an identifier and a period.
const MAX_ENTRIES: usize = 1024;
/// Shared counters of a shard that is full.
const SHARED: u64 = 16;

/// How many requests a period allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) period: Period,
    /// As configured; may have a fraction.
    pub(crate) limit: f64,
}

impl Limit {
    /// How many requests are left after `used`; nothing or less: none.
    pub(crate) fn remaining(self, used: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let used = used as f64;
        self.limit - used
    }
}

/// How many requests each period had in its window before this one, in the order
/// of the limits.
pub(crate) type Used = [u64; Period::ALL.len()];

/// A keyed hash of an identifier. Nobody outside can make two that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64, u64);

/// Requests of one window.
struct Slot {
    window: i64,
    used: u64,
}

/// The key is a hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(32) ^ number;
    }

    fn write_u8(&mut self, number: u8) {
        self.0 ^= u64::from(number) << 57;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
struct Shard {
    slots: HashMap<(u64, u64, u8), Slot, BuildHasherDefault<Hashed>>,
    /// The second in which past windows were last removed.
    swept: i64,
}

/// The counters of one filter.
pub(crate) struct Counters {
    shards: Box<[Mutex<Shard>]>,
    hashers: (RandomState, RandomState),
}

impl Counters {
    pub(crate) fn new() -> Self {
        let hasher = || {
            let [a, b, c, d] = [(); 4].map(|()| u64::from_le_bytes(clock::random_bytes()));
            RandomState::with_seeds(a, b, c, d)
        };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashers: (hasher(), hasher()),
        }
    }

    /// The key of an identifier.
    pub(crate) fn key(&self, identifier: &impl Hash) -> Key {
        Key(
            self.hashers.0.hash_one(identifier),
            self.hashers.1.hash_one(identifier),
        )
    }

    /// Counts a request in all periods, unless one of them has none left. What
    /// each had before, and whether it was counted.
    pub(crate) fn take(&self, key: Key, limits: &[Limit], now: i64) -> (Used, bool) {
        self.spend(key, limits, 1, now)
    }

    /// The same with a cost. What costs nothing is not counted, and always passes.
    pub(crate) fn spend(&self, key: Key, limits: &[Limit], cost: u64, now: i64) -> (Used, bool) {
        #[expect(clippy::cast_possible_truncation, reason = "only low bits count")]
        let at = (key.1 as usize) % SHARDS;
        let mut used = [0; Period::ALL.len()];
        let Some(shard) = self.shards.get(at) else {
            return (used, true);
        };
        let mut shard = shard.lock();
        let key = shard.place(key, limits.len(), now);
        let mut passes = true;
        let mut counted = 0;
        for (limit, used) in limits.iter().zip(&mut used) {
            let counts = passes && cost > 0;
            let slot = shard.slot(key, limit.period, now, counts);
            *used = slot.as_ref().map_or(0, |slot| slot.used);
            passes &= cost == 0 || limit.remaining(*used) > 0.0;
            if let Some(slot) = slot.filter(|_| counts && passes) {
                slot.used = slot.used.saturating_add(cost);
                counted += 1;
            }
        }
        if !passes {
            // Those before the one that refuses.
            shard.give_back(key, limits.iter().take(counted), cost, now);
        }
        (used, passes)
    }

    /// Takes back what was counted just now.
    pub(crate) fn give_back(&self, key: Key, limits: &[Limit], cost: u64, now: i64) {
        #[expect(clippy::cast_possible_truncation, reason = "only low bits count")]
        let at = (key.1 as usize) % SHARDS;
        let Some(shard) = self.shards.get(at) else {
            return;
        };
        let mut shard = shard.lock();
        let key = shard.place(key, limits.len(), now);
        shard.give_back(key, limits.iter(), cost, now);
    }
}

impl Shard {
    /// The key itself, or where there is no room that of a shared counter.
    fn place(&mut self, key: Key, periods: usize, now: i64) -> Key {
        if self.slots.len() + periods <= MAX_ENTRIES {
            return key;
        }
        let has = |period: &Period| self.slots.contains_key(&(key.0, key.1, *period as u8));
        if Period::ALL.iter().any(has) {
            return key;
        }
        if self.swept != now {
            self.swept = now;
            self.slots.retain(|(_, _, period), slot| {
                let period = Period::ALL.get(usize::from(*period));
                period.is_some_and(|period| period.window(now) <= slot.window)
            });
        }
        if self.slots.len() + periods <= MAX_ENTRIES {
            key
        } else {
            Key(key.0 % SHARED, 0)
        }
    }

    /// The counter of a period's current window. Where there is none, one begins if it
    /// is to count.
    fn slot(&mut self, key: Key, period: Period, now: i64, counts: bool) -> Option<&mut Slot> {
        let window = period.window(now);
        let id = (key.0, key.1, period as u8);
        if !counts {
            let slot = self.slots.get_mut(&id);
            return slot.filter(|slot| slot.window == window);
        }
        let slot = self.slots.entry(id).or_insert(Slot { window, used: 0 });
        if slot.window != window {
            *slot = Slot { window, used: 0 };
        }
        Some(slot)
    }

    fn give_back<'a>(
        &mut self,
        key: Key,
        limits: impl Iterator<Item = &'a Limit>,
        cost: u64,
        now: i64,
    ) {
        for limit in limits {
            if let Some(slot) = self.slot(key, limit.period, now, false) {
                slot.used = slot.used.saturating_sub(cost);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Limit] = &[Limit {
        period: Period::Minute,
        limit: 2.0,
    }];

    #[test]
    fn a_window_has_its_limit_and_the_next_one_has_it_anew() {
        let counters = Counters::new();
        let key = counters.key(&"a");
        assert_eq!(counters.take(key, TWO, 60).0[0], 0);
        assert_eq!(counters.take(key, TWO, 61).0[0], 1);
        assert!(!counters.take(key, TWO, 119).1);
        assert!(counters.take(counters.key(&"b"), TWO, 119).1);
        assert!(counters.take(key, TWO, 120).1);
    }

    #[test]
    fn what_is_refused_is_counted_in_no_period() {
        let counters = Counters::new();
        let key = counters.key(&1);
        let limits = [
            Limit {
                period: Period::Second,
                limit: 1.0,
            },
            Limit {
                period: Period::Hour,
                limit: 3.0,
            },
        ];
        assert!(counters.take(key, &limits, 0).1);
        for _ in 0..5 {
            let (used, passed) = counters.take(key, &limits, 0);
            assert_eq!((used[0], used[1], passed), (1, 1, false));
        }
        assert!(counters.take(key, &limits, 1).1);
        assert!(counters.take(key, &limits, 2).1);
        assert!(!counters.take(key, &limits, 3).1);
    }

    #[test]
    fn a_flood_of_identifiers_meets_a_bound_and_opens_no_way() {
        let counters = Counters::new();
        let mut passed = 0;
        for number in 0..200_000_u32 {
            passed += u32::from(counters.take(counters.key(&number), TWO, 0).1);
        }
        let entries: usize = counters.shards.iter().map(|s| s.lock().slots.len()).sum();
        let bound = SHARDS * (MAX_ENTRIES + usize::try_from(SHARED).unwrap_or(0));
        assert!(entries <= bound, "{entries}");
        assert!(passed < 80_000, "{passed}");
        // Room comes back with the next window.
        assert!(counters.take(counters.key(&200_001), TWO, 60).1);
        // Who was there before has a counter of its own still.
        let counters = Counters::new();
        let first = counters.key(&"first");
        assert!(counters.take(first, TWO, 0).1);
        for number in 0..200_000_u32 {
            counters.take(counters.key(&number), TWO, 0);
        }
        assert_eq!(counters.take(first, TWO, 0).0[0], 1);
    }

    #[test]
    fn requests_at_once_are_counted_exactly() {
        let counters = Counters::new();
        let key = counters.key(&"a");
        let limit = [Limit {
            period: Period::Day,
            limit: 100.0,
        }];
        let passed: usize = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| {
                scope.spawn(|| (0..100).filter(|_| counters.take(key, &limit, 0).1).count())
            });
            threads
                .map(|thread| thread.join().unwrap_or(0))
                .iter()
                .sum()
        });
        assert_eq!(passed, 100);
    }
}
