//! Stored answers in memory: a bounded number of bytes, those that were asked for
//! least lately go first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Which plugin an answer belongs to, and its key.
type Place = (Arc<str>, Key);

#[derive(Default)]
struct Shard {
    slots: HashMap<Place, Slot>,
    /// Places by when they were asked for last.
    order: BTreeMap<u64, Place>,
    bytes: usize,
    tick: u64,
}

/// The answers under one key, the newest last.
struct Slot {
    entries: Vec<Arc<Entry>>,
    bytes: usize,
    used: u64,
}

/// The stored answers of all plugins of the process.
pub(super) struct Memory {
    shards: Box<[Mutex<Shard>]>,
    pending: Arc<AtomicUsize>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            pending: Arc::default(),
        }
    }
}

impl Memory {
    fn shard(&self, key: Key) -> &Mutex<Shard> {
        &self.shards[usize::from(key.0[0]) % SHARDS]
    }

    /// The stored answer that `suits`, the newest first.
    pub(super) fn find(
        &self,
        scope: &Arc<str>,
        key: Key,
        suits: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        let mut shard = self.shard(key).lock();
        let place = (scope.clone(), key);
        let slot = shard.slots.get(&place)?;
        let mut newest = slot.entries.iter().rev();
        let found = newest.find(|entry| suits(entry)).cloned()?;
        shard.touch(&place);
        Some(found)
    }

    /// Stores an answer in the place of the one for the same requests.
    pub(super) fn put(&self, scope: &Arc<str>, key: Key, entry: Entry, now: i64) {
        let size = entry.size();
        if size > MAX_ENTRY {
            return;
        }
        let mut shard = self.shard(key).lock();
        let place = (scope.clone(), key);
        let mut entries = shard
            .remove(&place)
            .map_or_else(Vec::new, |slot| slot.entries);
        entries.retain(|old| old.variant != entry.variant && old.expires_at > now);
        if entries.len() >= MAX_VARIANTS {
            entries.remove(0);
        }
        entries.push(Arc::new(entry));
        // Of one key, the newest alone may always stay.
        while entries.len() > 1 && total(&entries) > MAX_ENTRY {
            entries.remove(0);
        }
        shard.insert(place, entries);
    }

    /// Forgets what is stored under a key; whether there was anything.
    pub(super) fn remove(&self, scope: &Arc<str>, key: Key) -> bool {
        let place = (scope.clone(), key);
        self.shard(key).lock().remove(&place).is_some()
    }

    /// Forgets everything of one plugin.
    pub(super) fn clear(&self, scope: &Arc<str>) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let places = shard.slots.keys().filter(|(owner, _)| owner == scope);
            let places: Vec<Place> = places.cloned().collect();
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
    fn touch(&mut self, place: &Place) {
        self.tick += 1;
        if let Some(slot) = self.slots.get_mut(place) {
            self.order.remove(&slot.used);
            slot.used = self.tick;
            self.order.insert(self.tick, place.clone());
        }
    }

    fn remove(&mut self, place: &Place) -> Option<Slot> {
        let slot = self.slots.remove(place)?;
        self.order.remove(&slot.used);
        self.bytes = self.bytes.saturating_sub(slot.bytes);
        Some(slot)
    }

    fn insert(&mut self, place: Place, entries: Vec<Arc<Entry>>) {
        let bytes = total(&entries);
        while self.bytes + bytes > MAX_BYTES / SHARDS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(&oldest);
        }
        self.tick += 1;
        let used = self.tick;
        self.order.insert(used, place.clone());
        self.bytes += bytes;
        self.slots.insert(
            place,
            Slot {
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
