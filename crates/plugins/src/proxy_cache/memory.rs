//! Stored answers in memory: a bounded number of bytes, those that were asked for
//! least lately go first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahash::RandomState;
use parking_lot::Mutex;

use super::entry::Entry;
use super::key::Key;

/// Most bytes of all stored answers of the process.
pub(super) const MAX_BYTES: usize = 128 << 20;
/// How many locks there are; a power of two.
const SHARDS: usize = 16;
/// Most bytes of one stored answer.
pub(super) const MAX_ENTRY: usize = 4 << 20;
/// Most bytes of answers that are on their way into the store.
const MAX_PENDING: usize = 64 << 20;
/// Most answers under one key.
const MAX_VARIANTS: usize = 16;

#[derive(Default)]
struct Shard {
    slots: HashMap<Arc<[u8]>, Slot, RandomState>,
    /// Keys by when they were asked for last.
    order: BTreeMap<u64, Arc<[u8]>>,
    bytes: usize,
    tick: u64,
}

/// The answers under one key, the newest last.
struct Slot {
    /// The plugin that has stored them.
    owner: Arc<str>,
    key: Key,
    entries: Vec<Arc<Entry>>,
    bytes: usize,
    used: u64,
}

/// The stored answers of all plugins of the process.
pub(super) struct Memory {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    pending: Arc<AtomicUsize>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            pending: Arc::default(),
        }
    }
}

impl Memory {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        // The lowest byte: any will do.
        let byte = self.hasher.hash_one(key).to_le_bytes()[0];
        &self.shards[usize::from(byte) % SHARDS]
    }

    /// The stored answer that `suits`, the newest first.
    pub(super) fn find(&self, key: &[u8], suits: impl Fn(&Entry) -> bool) -> Option<Arc<Entry>> {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let slot = shard.slots.get_mut(key)?;
        let mut newest = slot.entries.iter().rev();
        let found = newest.find(|entry| suits(entry)).cloned()?;
        // Those of the newest quarter are far from their end, and stay where they are.
        let newer = shard.tick - slot.used;
        if newer > (shard.order.len() / 4) as u64
            && let Some(place) = shard.order.remove(&slot.used)
        {
            shard.tick += 1;
            slot.used = shard.tick;
            shard.order.insert(shard.tick, place);
        }
        Some(found)
    }

    /// Stores an answer in the place of the one for the same requests.
    pub(super) fn put(&self, owner: &Arc<str>, key: &Key, entry: Entry, now: i64) {
        let size = entry.size() + key.size();
        if size > MAX_ENTRY {
            return;
        }
        let mut shard = self.shard(&key.bytes).lock();
        let mut entries = shard
            .remove(&key.bytes)
            .map_or_else(Vec::new, |slot| slot.entries);
        entries.retain(|old| old.variant != entry.variant && old.expires_at > now);
        if entries.len() >= MAX_VARIANTS {
            entries.remove(0);
        }
        entries.push(Arc::new(entry));
        // Of one key, the newest alone may always stay.
        while entries.len() > 1 && total(&entries) + key.size() > MAX_ENTRY {
            entries.remove(0);
        }
        shard.insert(owner, key, entries);
    }

    /// The stored answer that `suits` under the key that clients know by `text`.
    pub(super) fn find_text(
        &self,
        owner: &Arc<str>,
        text: &str,
        suits: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        let place = self.place(owner, text)?;
        self.find(&place, suits)
    }

    /// Forgets what is stored under the key that clients know by `text`; whether there
    /// was anything.
    pub(super) fn remove_text(&self, owner: &Arc<str>, text: &str) -> bool {
        self.place(owner, text)
            .is_some_and(|place| self.shard(&place).lock().remove(&place).is_some())
    }

    /// An operator asks for one key among all: they are looked through, for requests
    /// never ask so.
    fn place(&self, owner: &Arc<str>, text: &str) -> Option<Arc<[u8]>> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock();
            let mut slots = shard.slots.values();
            let found = slots.find(|slot| slot.owner == *owner && slot.key.is_named(text));
            found.map(|slot| Arc::clone(&slot.key.bytes))
        })
    }

    /// Forgets everything of one plugin.
    pub(super) fn clear(&self, owner: &Arc<str>) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let slots = shard.slots.iter();
            let places = slots.filter(|(_, slot)| slot.owner == *owner);
            let places: Vec<_> = places.map(|(place, _)| Arc::clone(place)).collect();
            for place in places {
                shard.remove(&place);
            }
        }
    }

    /// Room for an answer on its way into the store.
    pub(super) fn reserve(&self) -> Reservation {
        Reservation {
            pending: self.pending.clone(),
            bytes: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }
}

fn total(entries: &[Arc<Entry>]) -> usize {
    entries.iter().map(|entry| entry.size()).sum()
}

impl Shard {
    fn remove(&mut self, place: &[u8]) -> Option<Slot> {
        let slot = self.slots.remove(place)?;
        self.order.remove(&slot.used);
        self.bytes = self.bytes.saturating_sub(slot.bytes);
        Some(slot)
    }

    fn insert(&mut self, owner: &Arc<str>, key: &Key, entries: Vec<Arc<Entry>>) {
        let bytes = total(&entries) + key.size();
        while self.bytes + bytes > MAX_BYTES / SHARDS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(&oldest);
        }
        self.tick += 1;
        let used = self.tick;
        self.order.insert(used, Arc::clone(&key.bytes));
        self.bytes += bytes;
        self.slots.insert(
            Arc::clone(&key.bytes),
            Slot {
                owner: Arc::clone(owner),
                key: key.clone(),
                entries,
                bytes,
                used,
            },
        );
    }
}

/// Bytes that are held for an answer which is not whole yet; given back at the end.
pub(super) struct Reservation {
    pending: Arc<AtomicUsize>,
    bytes: usize,
}

impl Reservation {
    /// Whether so many bytes more may be held.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let before = self.pending.fetch_add(bytes, Ordering::Relaxed);
        self.bytes <= MAX_ENTRY && before + bytes <= MAX_PENDING
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pending.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
