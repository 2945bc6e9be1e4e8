//! The map alone, and under threads.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;

fn word(table: &Table, key: Key) -> Option<u64> {
    table.with(key, |word| Ok(word.load(Ordering::Relaxed)))
}

#[test]
fn a_slot_takes_24_bytes_and_a_shard_a_cache_line() {
    assert_eq!(size_of::<Slot>(), 24);
    assert_eq!(size_of::<Shard>(), 64);
}

#[test]
fn keys_that_share_one_hash_are_told_apart() {
    let table = Table::new(1_000_000);
    for n in 1..200 {
        assert_eq!(table.insert(Key(n << 32, 7 << 16), n, |_| Ok(())), None);
        assert_eq!(table.insert(Key(300 << 32, n << 16), n, |_| Ok(())), None);
    }
    for n in 1..200 {
        assert_eq!(word(&table, Key(n << 32, 7 << 16)), Some(n));
        assert_eq!(word(&table, Key(300 << 32, n << 16)), Some(n));
        assert_eq!(word(&table, Key(n << 32, 8 << 16)), None);
    }
}

#[test]
fn an_emptied_table_gives_its_memory_back() {
    let table = Table::new(1_000_000);
    for n in 1..=10_000_u64 {
        let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        table.insert(Key(hash, hash.rotate_left(32)), n, |_| Ok(()));
    }
    assert_eq!(table.len(), 10_000);
    assert!(table.capacity() < 10_000 * 64 / 24);
    assert_eq!(table.retain(|_, word| word > 9_990), 9_990);
    assert!(table.capacity() <= 10 * SMALLEST);
    assert_eq!(table.retain(|_, _| false), 10);
    assert_eq!(table.capacity(), 0);
}

proptest! {
    #[test]
    fn behaves_as_a_map(steps in prop::collection::vec((0..4_u8, 0..40_u64, 1..50_u64), 0..400)) {
        let (table, mut model) = (Table::new(1_000_000), HashMap::new());
        for (step, n, word_) in steps {
            // Few different hashes, so that probes run into each other
            // and around the end.
            let key = Key((n % 2) << 32 | n, u64::MAX - ((n % 3) << 16));
            match step {
                0 => {
                    table.retain(|_, word| word > word_);
                    model.retain(|_, word| *word > word_);
                }
                _ => {
                    let known = table.insert(key, word_, |word| Ok(word.load(Ordering::Relaxed)));
                    prop_assert_eq!(known, model.get(&n).copied());
                    model.entry(n).or_insert(word_);
                }
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(word(&table, key), model.get(&n).copied());
        }
    }
}

#[test]
fn neighbours_are_the_rates_of_one_partition() {
    let table = Table::new(1_000_000);
    let key = Key(9 << 32, 0xabcd_ef01_2345_6789);
    for rate in 0..40 {
        assert_eq!(
            table.insert(key.of_rate(rate), u64::from(rate) + 1, |_| Ok(())),
            None
        );
    }
    for rate in 0..40 {
        assert_eq!(word(&table, key.of_rate(rate)), Some(u64::from(rate) + 1));
    }
    assert_eq!(table.retain(|rate, _| rate < 3), 37);
    assert_eq!(word(&table, key.of_rate(2)), Some(3));
    assert_eq!(word(&table, key.of_rate(3)), None);
}

/// Every increment is on the word that is in force, whatever is rebuilt,
/// inserted and removed around it.
#[test]
fn no_change_is_lost_while_the_map_grows_and_is_cleaned() {
    let table = Table::new(1000);
    let counter = Key(5 << 32, 77 << 16);
    table.insert(counter, 2, |_| Ok(()));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counting: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..50_000).for_each(|_| add_one(&table, counter))))
            .collect();
        scope.spawn(|| {
            for n in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                table.insert(Key(5 << 32, (n % 700) << 40), 1, |_| Ok(()));
                if n % 50 == 0 {
                    table.retain(|_, word| word > 1);
                }
            }
        });
        for thread in counting {
            thread.join().expect("no panic");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(word(&table, counter), Some(100_002));
}

fn add_one(table: &Table, key: Key) {
    let added = table.with(key, |word| {
        let mut value = Word::get(word);
        loop {
            if value >= MOVED {
                return Err(Moved);
            }
            match word.exchange(value, value + 1) {
                Ok(()) => return Ok(()),
                Err(changed) => value = changed,
            }
        }
    });
    assert!(added.is_some(), "the word is there all the time");
}
