//! Sorted entries that are cheap to clone, however many of them are alike.

use std::ops::RangeInclusive;
use std::sync::Arc;

use uuid::Uuid;

/// The hash of what a record can be found by, and the record's id.
pub(super) type Entry = (u64, Uuid);

/// The most entries of a run; one more splits it.
const RUN: usize = 128;

/// A set of entries in ascending order, cut into runs. No run is empty.
///
/// A clone shares the runs. A change copies one run and the list of runs, so a
/// name that ten thousand records share costs no copy of ten thousand entries.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    runs: Vec<Arc<Vec<Entry>>>,
}

impl Index {
    /// Adds an entry, if it is new.
    pub(super) fn insert(&mut self, entry: Entry) {
        let Some(at) = self.run_of(&entry) else {
            self.runs.push(Arc::new(vec![entry]));
            return;
        };
        let run = Arc::make_mut(&mut self.runs[at]);
        let Err(place) = run.binary_search(&entry) else {
            return;
        };
        run.insert(place, entry);
        if run.len() > RUN {
            let rest = run.split_off(RUN / 2);
            self.runs.insert(at + 1, Arc::new(rest));
        }
    }

    /// Takes an entry out, if it is there.
    pub(super) fn remove(&mut self, entry: &Entry) {
        let Some(at) = self.run_of(entry) else {
            return;
        };
        let Ok(place) = self.runs[at].binary_search(entry) else {
            return;
        };
        if self.runs[at].len() == 1 {
            self.runs.remove(at);
        } else {
            Arc::make_mut(&mut self.runs[at]).remove(place);
        }
    }

    /// The entries of `range`, ascending.
    pub(super) fn range(&self, range: RangeInclusive<Entry>) -> impl Iterator<Item = Entry> {
        let (first, last) = range.into_inner();
        let from = self.run_of(&first).unwrap_or_default();
        self.runs[from..]
            .iter()
            .flat_map(move |run| {
                let place = run.partition_point(|entry| *entry < first);
                run[place..].iter().copied()
            })
            .take_while(move |entry| *entry <= last)
    }

    /// The run that holds `entry` or would take it: the last that begins at or
    /// before it. `None`: there is no run.
    fn run_of(&self, entry: &Entry) -> Option<usize> {
        let behind = self.runs.partition_point(|run| run[0] <= *entry);
        (!self.runs.is_empty()).then(|| behind.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn entry(n: u16) -> Entry {
        (u64::from(n % 7), Uuid::from_u128(n.into()))
    }

    proptest! {
        #[test]
        fn an_index_is_a_sorted_set_and_its_clones_do_not_change(
            before in proptest::collection::vec(0..2_000_u16, 0..1_500),
            after in proptest::collection::vec((any::<bool>(), 0..2_000_u16), 0..1_500),
            bounds in (0..2_000_u16, 0..2_000_u16),
        ) {
            let (mut index, mut set) = (Index::default(), BTreeSet::new());
            for n in before {
                index.insert(entry(n));
                set.insert(entry(n));
            }
            let (old, old_set) = (index.clone(), set.clone());
            for (put, n) in after {
                if put {
                    index.insert(entry(n));
                    set.insert(entry(n));
                } else {
                    index.remove(&entry(n));
                    set.remove(&entry(n));
                }
            }
            prop_assert!(index.runs.iter().all(|run| (1..=RUN).contains(&run.len())));
            let all = (0, Uuid::nil())..=(u64::MAX, Uuid::max());
            prop_assert!(index.range(all.clone()).eq(set.iter().copied()));
            prop_assert!(old.range(all).eq(old_set.iter().copied()));
            let (first, last) = (entry(bounds.0).min(entry(bounds.1)), entry(bounds.0).max(entry(bounds.1)));
            prop_assert!(index.range(first..=last).eq(set.range(first..=last).copied()));
        }
    }
}
