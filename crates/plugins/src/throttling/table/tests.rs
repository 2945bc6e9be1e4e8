//! The map alone, and under threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::throttling::bucket::{self, AtomicWord, MOVED};

/// Whether the key was new; its word is `value` then.
fn insert(table: &Table, key: Key, value: u64) -> bool {
    let put = |word: &AtomicU64| match word.hold(value) {
        (MOVED.., _) => Err(Moved),
        _ => Ok(()),
    };
    table.insert(key, put).1
}

fn word(table: &Table, key: Key) -> Option<u64> {
    table.with(key, bucket::read)
}

#[test]
fn a_shard_takes_a_cache_line() {
    assert_eq!(size_of::<Shard>(), 64);
}

#[test]
fn keys_that_share_one_hash_are_told_apart() {
    let table = Table::new(1_000_000);
    for n in 1..200 {
        assert!(insert(&table, Key(n << 32, 7 << 16), n));
        assert!(insert(&table, Key(300 << 32, n << 16), n));
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
        assert!(insert(
            &table,
            Key(hash, hash.rotate_left(32)).of_rate(0),
            n
        ));
    }
    assert_eq!(table.len(), 10_000);
    assert!(table.capacity() < 10_000 * 64 / 24);
    assert_eq!(table.retain(|_, word| word > 9_990), 9_990);
    assert!(table.capacity() <= table.shards.len() * SMALLEST);
    assert_eq!(table.retain(|_, _| false), 10);
    assert_eq!(table.len(), 0);
}

proptest! {
    #[test]
    fn behaves_as_a_map(steps in prop::collection::vec((0..4_u8, 0..40_u64, 1..50_u64), 0..400)) {
        let (table, mut model) = (Table::new(1_000_000), HashMap::new());
        for (step, n, word_) in steps {
            // Few different hashes, so that probes run into each other
            // and around the end.
            let key = Key((n % 2) << 32 | n << 1 | 1, u64::MAX - ((n % 3) << 16));
            match step {
                0 => {
                    table.retain(|_, word| word > word_);
                    model.retain(|_, word| *word > word_);
                }
                _ => {
                    prop_assert_eq!(insert(&table, key, word_), !model.contains_key(&n));
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
        assert!(insert(&table, key.of_rate(rate), u64::from(rate) + 1));
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
    insert(&table, counter, 2);
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
                insert(&table, Key(5 << 32, (n % 700) << 40).of_rate(0), 1);
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
        let mut value = AtomicWord::get(word);
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

/// Whoever replaces an array may stop half-way for as long as it likes: no
/// decision waits for it.
#[test]
fn a_sweeper_that_stops_half_way_holds_up_nobody() {
    let table = Table::new(0);
    let shard = &table.shards[0];
    let key = |n: u64| Key(1, n << 50).of_rate(0);
    for n in 0..12 {
        insert(&table, key(n), 100 + n);
    }
    let old = shard.array.load_full();
    let len = u64::try_from(old.slots.len()).expect("a small number");
    // As in `Shard::replace`, step by step, and decisions after each.
    let _never_let_go = shard.replacing.lock();
    let new = Array::new(old.slots.len(), Some(old.clone()));
    old.after.store(Some(new.clone()));
    old.slots.close(&new.slots).expect("there is room");
    let mut sum: u64 = (0..12).map(|n| 100 + n).sum();
    let decide = |step: u64, sum: &mut u64| {
        for n in 0..12 {
            add_one(&table, key(n));
        }
        *sum += 12;
        if step < len - 13 {
            assert!(insert(&table, key(100 + step), 1));
            *sum += 1;
        }
        let all = (0..12).chain(100..100 + len);
        let seen: u64 = all.filter_map(|n| word(&table, key(n))).sum();
        assert_eq!(seen, *sum, "after step {step}");
    };
    decide(0, &mut sum);
    shard.array.store(new.clone());
    for slot in 0..old.slots.len() {
        decide(slot as u64 + 1, &mut sum);
        old.slots.move_one(slot, &new.slots, |_, _| true);
    }
    decide(len + 1, &mut sum);
    new.before.store(None);
    decide(len + 2, &mut sum);
}

/// A word that was to be removed and is used at the last moment stays, one
/// that is gone is new.
#[test]
fn what_is_used_while_it_is_removed_is_not_lost() {
    let table = Table::new(0);
    let (a, b) = (Key(1, 1 << 50).of_rate(0), Key(1, 2 << 50).of_rate(0));
    insert(&table, a, 5);
    insert(&table, b, 5);
    let old = table.shards[0].array.load_full();
    let new = Array::new(old.slots.len(), Some(old.clone()));
    old.slots.close(&new.slots).expect("there is room");
    table.shards[0].array.store(new.clone());
    add_one(&table, a);
    for slot in 0..old.slots.len() {
        old.slots.move_one(slot, &new.slots, |_, value| value > 5);
    }
    assert_eq!(word(&table, a), Some(6));
    assert_eq!(word(&table, b), None, "before the old array is let go");
    assert!(insert(&table, b, 7));
    new.before.store(None);
    assert_eq!(word(&table, b), Some(7));
}
