//! What operators see of a filter, and what they may reset.

use super::filter::Throttling;
use super::hot::Noted;
use super::partitions::Key;
use super::remote::Remote;
use doorward_plugin_api::filter::{BucketReport, HotPartition, PartitionReport};

/// The id of the partition that all requests share.
const ALL: &str = "all";

impl Throttling {
    pub(super) fn report_at(&self, now: u64) -> PartitionReport {
        let hottest = self.hot.hottest();
        PartitionReport {
            held: self.partitions.len(),
            maximum: self.maximum,
            shadow: self.shadow,
            shared: self.remote.as_ref().is_some_and(Remote::is_up),
            hottest: hottest
                .iter()
                .map(|noted| self.partition(noted, now))
                .collect(),
        }
    }

    fn partition(&self, noted: &Noted, now: u64) -> HotPartition {
        let rates = self.partitions.rates();
        let outcome = self.partitions.look_all(noted.key, &noted.limit, now);
        let buckets = noted.limit.iter().zip(outcome.levels);
        HotPartition {
            id: id(noted.key),
            text: noted.text.clone(),
            passed: noted.passed,
            refused: noted.refused,
            buckets: buckets
                .map(|(number, level)| {
                    let rate = rates.get(*number);
                    BucketReport {
                        rate: rate.to_string(),
                        capacity: rate.requests(),
                        remaining: rate.tokens(level),
                        full_in_ms: level.div_ceil(1_000_000),
                    }
                })
                .collect(),
        }
    }

    /// The text of the partition that is named by its id or its text.
    pub(super) fn text_of(&self, partition: &str) -> Option<String> {
        if self.grouping.is_shared() {
            return Some(String::new());
        }
        match key_of_id(partition) {
            None => Some(partition.to_owned()),
            key => {
                let hottest = self.hot.hottest();
                let noted = hottest.into_iter().find(|noted| noted.key == key);
                noted.map(|noted| noted.text.into())
            }
        }
    }

    /// Fills the buckets of the partition with this id or text; whether one
    /// was not full.
    pub(super) fn reset_at(&self, partition: &str, now: u64) -> bool {
        if self.grouping.is_shared() {
            self.hot.forget(None);
            return self.partitions.reset(None, now);
        }
        let candidates = [key_of_id(partition), self.grouping.key_of(partition)];
        let mut found = false;
        for key in candidates.into_iter().flatten() {
            if self.partitions.reset(Some(key), now) {
                self.hot.forget(Some(key));
                found = true;
            }
        }
        found
    }
}

fn id(key: Option<Key>) -> String {
    match key {
        Some(Key(first, second)) => format!("{first:016x}{second:016x}"),
        None => ALL.to_owned(),
    }
}

fn key_of_id(id: &str) -> Option<Key> {
    let (first, second) = id.split_at_checked(16)?;
    let read = |digits: &str| match digits.len() {
        16 => u64::from_str_radix(digits, 16).ok(),
        _ => None,
    };
    Some(Key(read(first)?, read(second)?).of_rate(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_partition() {
        let key = Key(0x0123_4567_89ab_cdef, 0xffff_0000_1235_0000);
        assert_eq!(key_of_id(&id(Some(key))), Some(key));
        for text in [
            "",
            "all",
            "0123",
            "é123456789abcdefffff000012340000",
            "+123456789abcdefffff000012340000x",
        ] {
            assert_eq!(key_of_id(text), None, "{text}");
        }
    }
}
