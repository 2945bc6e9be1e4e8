//! A sharded map from partitions to words, made for millions of them.
//!
//! Each of 256 shards is an array of 24-byte slots with linear probing, at
//! most four fifths full, behind a lock that look-ups share: a decision on a
//! cold partition misses the cache once. (A general map costs a second miss
//! for its control bytes, and twice the memory right after it has doubled.)

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// A partition: two hashes of its text under keys of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(pub(super) u64, pub(super) u64);

const SHARDS: usize = 256;
const SMALLEST: usize = 8;

/// The map. A word is never zero: zero is an empty slot.
pub(super) struct Table {
    shards: Box<[Shard]>,
}

/// On a cache line of its own: locks of different shards don't contend.
#[repr(align(64))]
#[derive(Default)]
struct Shard(RwLock<Slots>);

#[derive(Default)]
struct Slots {
    slots: Box<[Slot]>,
    used: usize,
}

#[derive(Default)]
struct Slot {
    key: (u64, u64),
    word: AtomicU64,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    /// What `found` makes of the partition's word; `None` where it has none.
    pub(super) fn with<T>(&self, key: Key, found: impl FnOnce(&AtomicU64) -> T) -> Option<T> {
        let slots = self.shard(key).0.read();
        slots.find(key).map(found)
    }

    /// Inserts `word` (not zero). If another thread was faster, what `found`
    /// makes of its word.
    pub(super) fn insert<T>(
        &self,
        key: Key,
        word: u64,
        found: impl FnOnce(&AtomicU64) -> T,
    ) -> Option<T> {
        let mut slots = self.shard(key).0.write();
        if let Some(word) = slots.find(key) {
            return Some(found(word));
        }
        slots.insert(key, word);
        None
    }

    /// Removes the words that `keep` does not want; returns how many. Each
    /// shard is locked for itself, and only if it has something to remove.
    pub(super) fn retain(&self, keep: impl Fn(u64) -> bool) -> usize {
        let mut removed = 0;
        for shard in &self.shards {
            let is_clean = shard.0.read().words().all(&keep);
            if !is_clean {
                removed += shard.0.write().retain(&keep);
            }
        }
        removed
    }

    /// How many words there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.read().used).sum()
    }

    /// How many slots there are.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let slots = |shard: &Shard| shard.0.read().slots.len();
        self.shards.iter().map(slots).sum()
    }

    fn shard(&self, key: Key) -> &Shard {
        // The top byte: always below the 256 shards.
        &self.shards[(key.0 >> 56) as usize % SHARDS]
    }
}

impl Slots {
    fn find(&self, key: Key) -> Option<&AtomicU64> {
        for index in self.probe(key) {
            let slot = self.slots.get(index)?;
            if slot.key == (key.0, key.1) && slot.word.load(Ordering::Relaxed) != 0 {
                return Some(&slot.word);
            }
            if slot.word.load(Ordering::Relaxed) == 0 {
                return None;
            }
        }
        None
    }

    fn insert(&mut self, key: Key, word: u64) {
        if (self.used + 1) * 5 > self.slots.len() * 4 {
            let larger = self.slots.len() + self.slots.len() / 2;
            self.resize(larger.max(SMALLEST));
        }
        self.place(key, word);
        self.used += 1;
    }

    /// Puts a word into the first empty slot; there is one.
    fn place(&mut self, key: Key, word: u64) {
        for index in self.probe(key) {
            if let Some(slot) = self.slots.get_mut(index)
                && *slot.word.get_mut() == 0
            {
                slot.key = (key.0, key.1);
                *slot.word.get_mut() = word;
                return;
            }
        }
    }

    /// Every slot once, beginning with the key's own.
    fn probe(&self, key: Key) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots.len();
        // Scales the hash to the number of slots without a division.
        let first = (u128::from(key.1) * slots as u128) >> 64;
        let first = usize::try_from(first).unwrap_or(0);
        (first..slots).chain(0..first)
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        let words = self.slots.iter().map(|s| s.word.load(Ordering::Relaxed));
        words.filter(|word| *word != 0)
    }

    fn retain(&mut self, keep: impl Fn(u64) -> bool) -> usize {
        let before = self.used;
        for slot in &mut self.slots {
            let word = slot.word.get_mut();
            if *word != 0 && !keep(*word) {
                *word = 0;
                self.used -= 1;
            }
        }
        // What remains is placed anew, for no probe may end at a gap. A shard
        // that a flood has blown up gives its memory back; one that breathes
        // keeps it.
        let wanted = if self.used == 0 {
            0
        } else if self.used < self.slots.len() / 4 {
            (self.used * 2).max(SMALLEST)
        } else {
            self.slots.len()
        };
        self.resize(wanted);
        before - self.used
    }

    fn resize(&mut self, slots: usize) {
        let fresh = (0..slots).map(|_| Slot::default()).collect();
        for mut slot in std::mem::replace(&mut self.slots, fresh) {
            let word = *slot.word.get_mut();
            if word != 0 {
                self.place(Key(slot.key.0, slot.key.1), word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn word(table: &Table, key: Key) -> Option<u64> {
        table.with(key, |word| word.load(Ordering::Relaxed))
    }

    #[test]
    fn a_slot_takes_24_bytes_and_a_shard_a_cache_line() {
        assert_eq!(size_of::<Slot>(), 24);
        assert_eq!(size_of::<Shard>(), 64);
    }

    #[test]
    fn keys_that_share_one_hash_are_told_apart() {
        let table = Table::new();
        for n in 1..200 {
            assert_eq!(table.insert(Key(n, 7), n, |_| ()), None);
            assert_eq!(table.insert(Key(7 << 56, n), n, |_| ()), None);
        }
        for n in 1..200 {
            assert_eq!(word(&table, Key(n, 7)), Some(n));
            assert_eq!(word(&table, Key(7 << 56, n)), Some(n));
            assert_eq!(word(&table, Key(n, 8)), None);
        }
    }

    #[test]
    fn an_emptied_table_gives_its_memory_back() {
        let table = Table::new();
        for n in 1..=10_000_u64 {
            let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            table.insert(Key(hash, hash.rotate_left(32)), n, |_| ());
        }
        assert_eq!(table.len(), 10_000);
        assert!(table.capacity() < 10_000 * 64 / 24);
        assert_eq!(table.retain(|word| word > 9_990), 9_990);
        assert!(table.capacity() <= 10 * SMALLEST);
        assert_eq!(table.retain(|_| false), 10);
        assert_eq!(table.capacity(), 0);
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0..4_u8, 0..40_u64, 1..50_u64), 0..400)) {
            let (table, mut model) = (Table::new(), HashMap::new());
            for (step, n, word_) in steps {
                // Few different hashes, so that probes run into each other
                // and around the end.
                let key = Key((n % 2) << 56 | n, u64::MAX - n % 3);
                match step {
                    0 => {
                        table.retain(|word| word > word_);
                        model.retain(|_, word| *word > word_);
                    }
                    _ => {
                        let known = table.insert(key, word_, |word| word.load(Ordering::Relaxed));
                        prop_assert_eq!(known, model.get(&n).copied());
                        model.entry(n).or_insert(word_);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(word(&table, key), model.get(&n).copied());
            }
        }
    }
}
