//! Which partitions ask most: a small, bounded list, kept beside the buckets.
//!
//! Every decision is noted while there are few; of very many, a sample. The
//! weight of an entry halves every minute, and a newcomer takes the place of
//! the lightest with its weight and one more, so whoever is heavy stays.
//!
//! Each thread has a part of its own, and takes the next free one where another
//! thread holds that: decisions of the same moment do not get in each other's way.
//! The parts are added up when read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;

use super::bucket;
use super::partitions::Key;
use super::rate::Rate;
use doorward_net::telemetry::metrics::{STRIPES, stripe};

/// Partitions in the list.
const LENGTH: usize = 128;
/// Decisions that a worker notes in a second; a burst of as many is noted whole.
const NOTED: u64 = 10_000;
/// Longest text that is kept, in bytes.
const MAX_TEXT: usize = 256;
const HALF_LIFE: u64 = 60_000_000_000;

/// The list.
pub(super) struct Hot {
    sample: Rate,
    /// Made when they are first wanted.
    parts: [OnceLock<Box<Part>>; STRIPES],
}

/// What has been noted by one thread, or by few.
#[derive(Default)]
struct Part {
    budget: AtomicU64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// The keys apart: they are searched for every decision that is noted.
    keys: Vec<Option<Key>>,
    entries: Vec<Noted>,
    /// When a decision was noted last.
    noted_at: u64,
    halved_at: u64,
}

/// A partition in the list.
#[derive(Debug, Clone)]
pub(super) struct Noted {
    /// `None`: the one that all requests share.
    pub(super) key: Option<Key>,
    pub(super) text: Box<str>,
    /// The rates it was held to last.
    pub(super) limit: Box<[u16]>,
    /// Since it is in the list.
    pub(super) passed: u64,
    pub(super) refused: u64,
    weight: u64,
}

impl Hot {
    pub(super) fn new() -> Self {
        let sample = Rate::new(NOTED, Duration::from_secs(1));
        Self {
            sample: sample.unwrap_or(Rate::slowest()),
            parts: [const { OnceLock::new() }; STRIPES],
        }
    }

    /// Notes a decision, or not: never waits.
    pub(super) fn note<'a>(
        &self,
        now: u64,
        key: Option<Key>,
        limit: &[u16],
        passed: bool,
        text: impl FnOnce() -> Cow<'a, str>,
    ) {
        let part = |at: usize| self.parts[at % STRIPES].get_or_init(Box::default);
        let mine = stripe();
        let noted = bucket::take(&part(mine).budget, &self.sample, now);
        if !noted.is_ok_and(bucket::Decision::passes) {
            return;
        }
        let free = (mine..mine + STRIPES).find_map(|at| part(at).list.try_lock());
        if let Some(mut list) = free {
            list.note(now, key, limit, passed, text);
        }
    }

    /// The partitions in the list, the hottest first.
    pub(super) fn hottest(&self) -> Vec<Noted> {
        let parts = || self.parts.iter().filter_map(OnceLock::get);
        let latest = parts().map(|part| part.list.lock().noted_at).max();
        let mut all: HashMap<Option<Key>, Noted> = HashMap::new();
        for part in parts() {
            let mut list = part.list.lock();
            // A worker that has nothing to do any more forgets as the others do.
            list.age(latest.unwrap_or_default());
            for entry in &list.entries {
                all.entry(entry.key)
                    .and_modify(|sum| sum.add(entry))
                    .or_insert_with(|| entry.clone());
            }
        }
        let mut entries: Vec<Noted> = all.into_values().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse((entry.weight, entry.refused)));
        entries.truncate(LENGTH);
        entries
    }

    /// Forgets a partition.
    pub(super) fn forget(&self, key: Option<Key>) {
        for part in self.parts.iter().filter_map(OnceLock::get) {
            let mut list = part.list.lock();
            if let Some(at) = list.keys.iter().position(|known| *known == key) {
                list.keys.swap_remove(at);
                list.entries.swap_remove(at);
            }
        }
    }
}

impl Noted {
    /// Adds what another part has noted of the same partition.
    fn add(&mut self, other: &Self) {
        if other.weight > self.weight {
            self.limit.clone_from(&other.limit);
        }
        self.passed += other.passed;
        self.refused += other.refused;
        self.weight += other.weight;
    }
}

impl List {
    fn note<'a>(
        &mut self,
        now: u64,
        key: Option<Key>,
        limit: &[u16],
        passed: bool,
        text: impl FnOnce() -> Cow<'a, str>,
    ) {
        self.age(now);
        self.noted_at = now;
        let known = self.keys.iter().position(|known| *known == key);
        let at = known.unwrap_or_else(|| self.admit(key, &text()));
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        entry.weight += 1;
        entry.passed += u64::from(passed);
        entry.refused += u64::from(!passed);
        if *entry.limit != *limit {
            entry.limit = limit.into();
        }
    }

    /// A place for a newcomer.
    fn admit(&mut self, key: Option<Key>, text: &str) -> usize {
        let mut entry = Noted {
            key,
            text: shortened(text).into(),
            limit: [].into(),
            passed: 0,
            refused: 0,
            weight: 0,
        };
        if self.entries.len() < LENGTH {
            self.keys.push(key);
            self.entries.push(entry);
            return self.entries.len() - 1;
        }
        let lightest = (0..LENGTH).min_by_key(|at| self.entries[*at].weight);
        let at = lightest.unwrap_or(0);
        entry.weight = self.entries[at].weight;
        self.keys[at] = key;
        self.entries[at] = entry;
        at
    }

    /// Halves the weights where that is due.
    fn age(&mut self, now: u64) {
        if now.saturating_sub(self.halved_at) <= HALF_LIFE {
            return;
        }
        self.halved_at = now;
        self.entries.retain_mut(|entry| {
            entry.weight /= 2;
            entry.weight > 0
        });
        self.keys = self.entries.iter().map(|entry| entry.key).collect();
    }
}

fn shortened(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev();
    let end = end.into_iter().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> Option<Key> {
        Some(Key(n, n << 16))
    }

    fn note(hot: &Hot, now: u64, n: u64, passed: bool) {
        hot.note(now, key(n), &[0], passed, || format!("user {n}").into());
    }

    #[test]
    fn who_asks_most_comes_first_even_in_a_flood_of_others() {
        let hot = Hot::new();
        for n in 0..5_000 {
            note(&hot, n, 1_000_000 + n, true);
            if n % 50 == 0 {
                note(&hot, n, 7, n < 1_000);
            }
        }
        let hottest = hot.hottest();
        assert_eq!(hottest.len(), LENGTH);
        let first = &hottest[0];
        assert_eq!(
            (&*first.text, first.passed, first.refused),
            ("user 7", 20, 80)
        );
    }

    #[test]
    fn who_asks_no_more_is_forgotten() {
        let hot = Hot::new();
        note(&hot, 1, 7, true);
        note(&hot, 2, 7, true);
        note(&hot, 2 * HALF_LIFE, 8, true);
        assert_eq!(hot.hottest().len(), 2);
        note(&hot, 4 * HALF_LIFE, 8, true);
        let texts: Vec<_> = hot.hottest().iter().map(|e| e.text.clone()).collect();
        assert_eq!(texts, [Box::<str>::from("user 8")]);
        hot.forget(key(8));
        assert!(hot.hottest().is_empty());
    }

    #[test]
    fn decisions_of_the_same_moment_are_all_noted_and_added_up() {
        let hot = Hot::new();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (hot, start) = (&hot, &start);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..500 {
                        note(hot, 1, 7, thread > 0);
                    }
                });
            }
        });
        let hottest = hot.hottest();
        assert_eq!(hottest.len(), 1);
        assert_eq!((hottest[0].passed, hottest[0].refused), (1_500, 500));
        hot.forget(key(7));
        assert!(hot.hottest().is_empty());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(MAX_TEXT);
        assert_eq!(shortened(&long).len(), MAX_TEXT);
        assert_eq!(shortened(&format!("a{long}")).len(), MAX_TEXT - 1);
        assert_eq!(shortened("ab"), "ab");
    }
}
