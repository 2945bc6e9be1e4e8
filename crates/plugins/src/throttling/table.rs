//! A sharded map from partitions to words, made for millions of them.
//!
//! Each shard is an array of 24-byte slots with linear probing, at most four
//! fifths full: a decision on a cold partition misses the cache once. (A
//! general map costs a second miss for its control bytes, and twice the memory
//! right after it has doubled.)
//!
//! A decision takes no lock: it reads the array that is in force and changes
//! one word in it. To grow a shard or to clean it, one thread puts a new array
//! in force and moves the words, while decisions go on ([`slots`]): a thread
//! that is held up on the way holds up nobody. Shards stay small however large
//! the map may become, so no decision that has to grow one takes long.
//!
//! [`slots`]: super::slots

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;

use super::bucket::Moved;
use super::slots::{Slots, Stop};

/// A bucket: two hashes of a partition's text under keys of their own, the
/// lower 16 bits of the second replaced by the number of its rate. One bit of
/// each is set: neither is ever zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub(super) u64, pub(super) u64);

impl Key {
    /// The bucket of another rate of the same partition: a neighbour.
    pub(super) fn of_rate(self, rate: u16) -> Self {
        Self(self.0 | 1, self.1 & !0xffff | 1 << 16 | u64::from(rate))
    }

    /// The bucket that partitions beyond the limit share, one of `buckets`.
    pub(super) fn overflow(self, buckets: u64) -> Self {
        let n = (self.1 >> 17) % buckets;
        // Not the key of the partition that all requests share.
        Self(n << 32 | 2, n << 54).of_rate(self.rate())
    }

    /// The number of the rate.
    pub(super) fn rate(self) -> u16 {
        // The lower bits: nothing is lost.
        (self.1 & 0xffff) as u16
    }
}

/// Slots of a shard when the map is as full as it may be, about.
const SHARD: usize = 4096;
const FEWEST_SHARDS: usize = 64;
const MOST_SHARDS: usize = 1 << 15;
/// Slots of a shard that was ever used, at least.
const SMALLEST: usize = 16;

/// The map.
pub(super) struct Table {
    shards: Box<[Shard]>,
}

/// On a cache line of its own: different shards don't contend.
#[repr(align(64))]
struct Shard {
    array: ArcSwap<Array>,
    /// Held by who replaces the array.
    replacing: Mutex<()>,
}

/// An array, and its neighbours in time.
struct Array {
    slots: Slots<AtomicU64>,
    /// The one whose words move here.
    before: ArcSwapOption<Array>,
    /// The one to which the words of this move. Known before this one is
    /// closed, so nobody has to wait until it is in force.
    after: ArcSwapOption<Array>,
}

impl AsRef<Slots<AtomicU64>> for Arc<Array> {
    fn as_ref(&self) -> &Slots<AtomicU64> {
        &self.slots
    }
}

impl Table {
    /// An empty map, made for up to `limit` words.
    pub(super) fn new(limit: usize) -> Self {
        let shards = (limit / SHARD)
            .next_power_of_two()
            .clamp(FEWEST_SHARDS, MOST_SHARDS);
        // Nothing is ever claimed in an array without slots: one is enough.
        let empty = Array::new(0, None);
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
            let array = shard.array.load();
            match array.with(key, &found) {
                // Its keys may be in the next one already.
                Ok(None) if array.slots.is_closed() => {
                    let after = array.after.load_full();
                    if let Some(Ok(made)) = after.map(|after| after.with(key, &found)) {
                        return made;
                    }
                }
                Ok(made) => return made,
                // Since then another array is in force.
                Err(Moved) => {}
            }
        }
    }

    /// What `found` makes of the partition's word, which is zero where it had
    /// none; and whether it had none.
    pub(super) fn insert<T>(
        &self,
        key: Key,
        found: impl Fn(&AtomicU64) -> Result<T, Moved>,
    ) -> (T, bool) {
        let shard = self.shard(key);
        let mut claimed = false;
        loop {
            let array = shard.array.load_full();
            let after = array.slots.is_closed().then(|| array.after.load_full());
            let array = after.flatten().unwrap_or(array);
            let before = || array.before.load_full();
            match array.slots.insert(before, key, &found, &mut claimed) {
                Ok(made) => {
                    if array.slots.is_crowded() {
                        shard.grow_if_nobody_does();
                    }
                    return (made, claimed);
                }
                Err(Stop::Replaced) => {}
                Err(Stop::Full) => shard.grow(),
            }
        }
    }

    /// Removes the words that `keep` does not want of a rate; returns how
    /// many. Each shard is changed for itself, and only if there is something
    /// to remove.
    pub(super) fn retain(&self, keep: impl Fn(u16, u64) -> bool) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.retain(&keep)).sum()
    }

    /// How many words there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let words = |shard: &Shard| shard.array.load().slots.claimed();
        let words: u64 = self.shards.iter().map(words).sum();
        usize::try_from(words).expect("they are in memory")
    }

    /// How many slots there are.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let slots = |shard: &Shard| shard.array.load().slots.len();
        self.shards.iter().map(slots).sum()
    }

    fn shard(&self, key: Key) -> &Shard {
        // The upper half, scaled to the shards, a power of two.
        &self.shards[(key.0 >> 32) as usize & (self.shards.len() - 1)]
    }
}

impl Array {
    fn new(len: usize, before: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::empty(len),
            before: ArcSwapOption::new(before),
            after: ArcSwapOption::empty(),
        })
    }

    fn with<T>(
        &self,
        key: Key,
        found: impl Fn(&AtomicU64) -> Result<T, Moved>,
    ) -> Result<Option<T>, Moved> {
        self.slots.with(|| self.before.load_full(), key, found)
    }
}

impl Shard {
    fn new(array: Arc<Array>) -> Self {
        Self {
            array: ArcSwap::new(array),
            replacing: Mutex::new(()),
        }
    }

    /// Makes room, now that there is none left.
    fn grow(&self) {
        let _replacing = self.replacing.lock();
        self.grow_if_crowded();
    }

    /// Makes room in time, unless the array is being replaced.
    fn grow_if_nobody_does(&self) {
        if let Some(_replacing) = self.replacing.try_lock() {
            self.grow_if_crowded();
        }
    }

    /// Only under the lock.
    fn grow_if_crowded(&self) {
        let slots = &self.array.load_full().slots;
        if slots.is_crowded() {
            let len = match slots.len() {
                0 => SMALLEST,
                // So that a burst does not find it full while it grows.
                few if few < 8 * SMALLEST => 2 * few,
                len => len + len / 2,
            };
            self.replace(len, |_, _| true);
        }
    }

    fn retain(&self, keep: impl Fn(u16, u64) -> bool) -> usize {
        let array = self.array.load_full();
        if array.slots.words().all(|(rate, value)| keep(rate, value)) {
            return 0;
        }
        drop(array);
        let _replacing = self.replacing.lock();
        let slots = &self.array.load_full().slots;
        // Any of them may be used again while it is to be removed.
        let removed = self.replace(slots.len().max(room_for(slots.claimed())), keep);
        let slots = &self.array.load_full().slots;
        let wanted = room_for(slots.claimed());
        // A shard that a flood has blown up gives its memory back; one that
        // breathes keeps it.
        if wanted < slots.len() / 2 {
            self.replace(wanted, |_, _| true);
        }
        removed
    }

    /// Puts an array of `len` slots in force and moves what `keep` wants into
    /// it; returns how many words were not wanted. Only under the lock.
    fn replace(&self, len: usize, keep: impl Fn(u16, u64) -> bool) -> usize {
        let old = self.array.load_full();
        if old.slots.len() == 0 {
            self.array.store(Array::new(len, None));
            return 0;
        }
        let new = Array::new(len, Some(old.clone()));
        old.after.store(Some(new.clone()));
        let Some(promised) = old.slots.close(&new.slots) else {
            // More have come than there would be room for.
            old.after.store(None);
            return 0;
        };
        self.array.store(new.clone());
        let sorted = old.slots.move_to(&new.slots, promised, keep);
        new.before.store(None);
        usize::try_from(sorted.removed).unwrap_or(0)
    }
}

/// Slots for so many words and some more.
fn room_for(words: u64) -> usize {
    usize::try_from(words * 2).map_or(SMALLEST, |len| len.max(SMALLEST))
}

#[cfg(test)]
mod tests;
