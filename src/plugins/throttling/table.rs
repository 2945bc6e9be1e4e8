//! A sharded map from partitions to words, made for millions of them.
//!
//! Each shard is an array of 24-byte slots with linear probing, at most four
//! fifths full: a decision on a cold partition misses the cache once. (A
//! general map costs a second miss for its control bytes, and twice the memory
//! right after it has doubled.)
//!
//! A decision takes no lock: it reads the array that is in force and changes
//! one word in it. Inserting, growing and cleaning are for one thread at a time
//! in each shard. Who replaces an array first takes every word out of it,
//! leaving [`MOVED`], so no decision is made on a word that has left; who finds
//! that mark waits for the new array. Shards stay small however large the map
//! may become, so that wait is a fraction of a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::bucket::{MOVED, Moved, Word};

/// A bucket: two hashes of a partition's text under keys of their own, the
/// lower 16 bits of the second replaced by the number of its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(pub(super) u64, pub(super) u64);

impl Key {
    /// The bucket of another rate of the same partition: a neighbour.
    pub(super) fn of_rate(self, rate: u16) -> Self {
        Self(self.0, self.1 & !0xffff | u64::from(rate))
    }

    /// The bucket that partitions beyond the limit share, one of `buckets`.
    pub(super) fn overflow(self, buckets: u64) -> Self {
        let n = (self.1 >> 16) % buckets;
        Self(n << 32, n << 54).of_rate(self.rate())
    }

    /// The number of the rate.
    fn rate(self) -> u16 {
        // The lower bits: nothing is lost.
        (self.1 & 0xffff) as u16
    }
}

/// Slots of a shard when the map is as full as it may be, about.
const SHARD: usize = 4096;
const FEWEST_SHARDS: usize = 64;
const MOST_SHARDS: usize = 1 << 15;
const SMALLEST: usize = 8;

/// The map. A word is never zero: zero is an empty slot.
pub(super) struct Table {
    shards: Box<[Shard]>,
}

/// On a cache line of its own: different shards don't contend.
#[repr(align(64))]
struct Shard {
    slots: ArcSwap<Slots>,
    /// How many slots are used. Held by who inserts, grows or cleans.
    used: Mutex<usize>,
}

#[derive(Default)]
struct Slots(Box<[Slot]>);

/// The key is written before the word, and never again.
#[derive(Default)]
struct Slot {
    key: (AtomicU64, AtomicU64),
    word: AtomicU64,
}

impl Table {
    /// An empty map, made for up to `limit` words.
    pub(super) fn new(limit: usize) -> Self {
        let shards = (limit / SHARD)
            .next_power_of_two()
            .clamp(FEWEST_SHARDS, MOST_SHARDS);
        let empty = Arc::new(Slots::default());
        Self {
            shards: (0..shards).map(|_| Shard::new(empty.clone())).collect(),
        }
    }

    /// What `found` makes of the partition's word; `None` where it has none.
    pub(super) fn with<T>(
        &self,
        key: Key,
        found: impl Fn(&AtomicU64) -> Result<T, Moved>,
    ) -> Option<T> {
        let shard = self.shard(key);
        loop {
            match shard.slots.load().find(key).map(&found)? {
                Ok(made) => return Some(made),
                // The new array is in force when its maker lets go.
                Err(Moved) => drop(shard.used.lock()),
            }
        }
    }

    /// Inserts `word` (not zero). If another thread was faster, what `found`
    /// makes of its word.
    pub(super) fn insert<T>(
        &self,
        key: Key,
        word: u64,
        found: impl Fn(&AtomicU64) -> Result<T, Moved>,
    ) -> Option<T> {
        let shard = self.shard(key);
        let mut used = shard.used.lock();
        let slots = shard.slots.load();
        // Words move only under the lock that is held here.
        if let Some(Ok(made)) = slots.find(key).map(found) {
            return Some(made);
        }
        let len = slots.0.len();
        if (*used + 1) * 5 > len * 4 {
            drop(slots);
            shard.grow((len + len / 2).max(SMALLEST));
        }
        shard.slots.load().place(key, word);
        *used += 1;
        None
    }

    /// Removes the words that `keep` does not want of a rate; returns how
    /// many. Each shard is changed for itself, and only if there is something
    /// to remove.
    pub(super) fn retain(&self, keep: impl Fn(u16, u64) -> bool) -> usize {
        let mut removed = 0;
        for shard in &self.shards {
            let wanted = |(key, word): &(Key, u64)| keep(key.rate(), *word);
            let doomed = shard.slots.load().words().any(|entry| !wanted(&entry));
            if doomed {
                removed += shard.retain(&keep);
            }
        }
        removed
    }

    /// How many words there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| *shard.used.lock()).sum()
    }

    /// How many slots there are.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let slots = |shard: &Shard| shard.slots.load().0.len();
        self.shards.iter().map(slots).sum()
    }

    fn shard(&self, key: Key) -> &Shard {
        // The upper half, scaled to the shards, a power of two.
        &self.shards[(key.0 >> 32) as usize & (self.shards.len() - 1)]
    }
}

impl Shard {
    fn new(slots: Arc<Slots>) -> Self {
        Self {
            slots: ArcSwap::new(slots),
            used: Mutex::new(0),
        }
    }

    fn retain(&self, keep: impl Fn(u16, u64) -> bool) -> usize {
        let mut used = self.used.lock();
        let slots = self.slots.load();
        let (before, len) = (*used, slots.0.len());
        let stay = slots.words().filter(|(key, word)| keep(key.rate(), *word));
        let stay = stay.count();
        drop(slots);
        // A shard that a flood has blown up gives its memory back; one that
        // breathes keeps it.
        let wanted = if stay == 0 {
            0
        } else if stay < len / 4 {
            (stay * 2).max(SMALLEST)
        } else {
            len
        };
        *used = self.rebuild(wanted, keep);
        before - *used
    }

    /// Moves everything into an array of `len` slots: more than it has. Only
    /// under the lock.
    fn grow(&self, len: usize) {
        let new = Slots::empty(len);
        for (key, word) in self.slots.load().take_out() {
            new.place(key, word);
        }
        self.slots.store(Arc::new(new));
    }

    /// Moves what `keep` wants into an array of at least `len` slots; returns
    /// how many. Only under the lock.
    fn rebuild(&self, len: usize, keep: impl Fn(u16, u64) -> bool) -> usize {
        // What was used meanwhile stays, although it was not to be.
        let old = self.slots.load();
        let moved: Vec<(Key, u64)> = old
            .take_out()
            .filter(|(key, word)| keep(key.rate(), *word))
            .collect();
        let room = moved.len() + moved.len() / 4;
        let new = Slots::empty(if room > len { room + 1 } else { len });
        for (key, word) in &moved {
            new.place(*key, *word);
        }
        self.slots.store(Arc::new(new));
        moved.len()
    }
}

impl Slots {
    fn empty(len: usize) -> Self {
        Self((0..len).map(|_| Slot::default()).collect())
    }

    /// Takes every word out, for good: whoever wants one has to look for it in
    /// the array that comes after.
    fn take_out(&self) -> impl Iterator<Item = (Key, u64)> {
        let used = |slot: &&Slot| slot.word.load(Ordering::Acquire) != 0;
        let slots = self.0.iter().filter(used);
        slots.map(|slot| (slot.key(), Word::swap(&slot.word, MOVED)))
    }

    fn find(&self, key: Key) -> Option<&AtomicU64> {
        for index in self.probe(key) {
            let slot = self.0.get(index)?;
            // Before the key: it is written after it.
            if slot.word.load(Ordering::Acquire) == 0 {
                return None;
            }
            if slot.key() == key {
                return Some(&slot.word);
            }
        }
        None
    }

    /// Puts a word into the first empty slot; there is one. Only for one
    /// thread at a time.
    fn place(&self, key: Key, word: u64) {
        let empty = |slot: &&Slot| slot.word.load(Ordering::Relaxed) == 0;
        let mut slots = self.probe(key).filter_map(|index| self.0.get(index));
        if let Some(slot) = slots.find(empty) {
            slot.key.0.store(key.0, Ordering::Relaxed);
            slot.key.1.store(key.1, Ordering::Relaxed);
            slot.word.store(word, Ordering::Release);
        }
    }

    /// Every slot once, beginning with the key's own.
    fn probe(&self, key: Key) -> impl Iterator<Item = usize> + use<> {
        let slots = self.0.len();
        // Scales the hash to the number of slots without a division; what
        // tells rates apart is too low to count.
        let first = (u128::from(key.1) * slots as u128) >> 64;
        let first = usize::try_from(first).unwrap_or(0);
        (first..slots).chain(0..first)
    }

    /// Keys and words; those that have moved are left out.
    fn words(&self) -> impl Iterator<Item = (Key, u64)> {
        let words = self.0.iter().map(|slot| {
            let word = slot.word.load(Ordering::Acquire);
            (slot.key(), word)
        });
        words.filter(|(_, word)| *word != 0 && *word < MOVED)
    }
}

impl Slot {
    fn key(&self) -> Key {
        Key(
            self.key.0.load(Ordering::Relaxed),
            self.key.1.load(Ordering::Relaxed),
        )
    }
}

#[cfg(test)]
mod tests;
