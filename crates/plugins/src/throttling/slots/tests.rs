//! Every interleaving of decisions with the move of their words, in the memory
//! of a model checker.

use std::time::Duration;

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

use super::*;
use crate::throttling::bucket::{self, word};
use crate::throttling::rate::Rate;

word!(AtomicU64);

const T0: u64 = 77_000_000_000;

#[test]
fn a_slot_takes_24_bytes() {
    assert_eq!(size_of::<Slot<std::sync::atomic::AtomicU64>>(), 24);
}

/// A shard with two arrays, as in `table`.
struct Moving {
    old: Slots<AtomicU64>,
    new: Slots<AtomicU64>,
    in_force: AtomicBool,
    done: AtomicBool,
}

struct Before<'a>(&'a Slots<AtomicU64>);

impl AsRef<Slots<AtomicU64>> for Before<'_> {
    fn as_ref(&self) -> &Slots<AtomicU64> {
        self.0
    }
}

impl Moving {
    fn new() -> Self {
        Self {
            old: Slots::empty(1),
            new: Slots::empty(2),
            in_force: AtomicBool::new(false),
            done: AtomicBool::new(false),
        }
    }

    fn before(&self) -> Option<Before<'_>> {
        (!self.done.load(Ordering::Acquire)).then_some(Before(&self.old))
    }

    /// A decision, as `Partitions::take` makes it; and whether the key was new.
    fn take(&self, key: Key, rate: &Rate) -> (bool, bool) {
        let take = |word: &AtomicU64| bucket::take(word, rate, T0);
        let mut claimed = false;
        loop {
            let found = if self.in_force.load(Ordering::Acquire) {
                self.new.with(|| self.before(), key, take)
            } else {
                self.old.with(|| None::<Before<'_>>, key, take)
            };
            match found {
                Ok(Some(decision)) => return (decision.passes(), claimed),
                Ok(None) => {}
                Err(Moved) => continue,
            }
            let made = if self.old.is_closed() {
                self.new.insert(|| self.before(), key, take, &mut claimed)
            } else {
                let before = || None::<Before<'_>>;
                self.old.insert(before, key, take, &mut claimed)
            };
            match made {
                Ok(decision) => return (decision.passes(), claimed),
                Err(stop) => assert_eq!(stop, Stop::Replaced),
            }
            thread::yield_now();
        }
    }

    /// As `Shard::replace` does it.
    fn replace(&self, keep: impl Fn(u16, u64) -> bool) -> Sorted {
        let promised = self.old.close(&self.new).expect("there is room");
        self.in_force.store(true, Ordering::Release);
        let sorted = self.old.move_to(&self.new, promised, keep);
        self.done.store(true, Ordering::Release);
        sorted
    }
}

fn key() -> Key {
    Key(9 << 32, 5 << 40).of_rate(0)
}

fn rate(requests: u64) -> Rate {
    Rate::new(requests, Duration::from_secs(requests)).expect("a rate")
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    // All of them would take minutes.
    builder.max_permutations = Some(1_500);
    builder.check(run);
}

/// Two requests while a bucket with `left` tokens moves.
fn two_requests_and_a_move(requests: u64, left: u64) {
    model(move || {
        let rate = rate(requests);
        let shard = Arc::new(Moving::new());
        let full_at = T0 + rate.fill() - left * rate.step();
        let mut claimed = false;
        let put = |word: &AtomicU64| {
            word.put(full_at);
            Ok(())
        };
        let before = || None::<Before<'_>>;
        shard
            .old
            .insert(before, key(), put, &mut claimed)
            .expect("room");
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shard = shard.clone();
                thread::spawn(move || shard.take(key(), &rate).0)
            })
            .collect();
        assert_eq!(shard.replace(|_, _| true).kept, 1);
        let passed = threads.into_iter().map(|t| t.join().expect("no panic"));
        let passed = passed.filter(|passed| *passed).count() as u64;
        assert_eq!(passed, left.min(2));
        let word = shard.new.find(key()).expect("it has moved").get();
        assert_eq!(rate.tokens(word - T0), left - passed, "nothing is lost");
    });
}

#[test]
fn no_interleaving_takes_more_than_there_is_nor_loses_a_token() {
    for left in 1..3 {
        two_requests_and_a_move(6, left);
    }
}

#[test]
fn no_interleaving_loses_a_token_taken_without_a_second_look() {
    two_requests_and_a_move(4_000, 2_000);
}

#[test]
fn no_interleaving_makes_two_buckets_of_a_new_partition() {
    model(|| {
        let rate = rate(1);
        let shard = Arc::new(Moving::new());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shard = shard.clone();
                thread::spawn(move || shard.take(key(), &rate))
            })
            .collect();
        shard.replace(|_, _| true);
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect();
        assert_eq!(outcomes.iter().filter(|(passed, _)| *passed).count(), 1);
        assert_eq!(outcomes.iter().filter(|(_, new)| *new).count(), 1);
        assert_eq!(shard.new.claimed(), 1);
    });
}

#[test]
fn no_interleaving_loses_a_token_of_a_bucket_that_is_removed_and_used() {
    model(|| {
        let rate = rate(2);
        let shard = Arc::new(Moving::new());
        let mut claimed = false;
        // As good as new.
        let put = |word: &AtomicU64| {
            word.put(1);
            Ok(())
        };
        let before = || None::<Before<'_>>;
        shard
            .old
            .insert(before, key(), put, &mut claimed)
            .expect("room");
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shard = shard.clone();
                thread::spawn(move || shard.take(key(), &rate))
            })
            .collect();
        let sorted = shard.replace(|_, full_at| !bucket::is_idle(full_at, &rate, T0));
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect();
        assert!(outcomes.iter().all(|(passed, _)| *passed));
        let new = outcomes.iter().filter(|(_, new)| *new).count() as u64;
        assert_eq!(new, sorted.removed, "each is counted once");
        let word = shard.new.find(key()).expect("it is used").get();
        assert_eq!(word - T0, rate.fill(), "two were taken");
    });
}
