//! Buckets by partition and rate: bounds, counts, several rates.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn of_rates(rates: &[(u64, u64)], limit: usize) -> (Partitions, Gauge) {
    let gauge = Gauge::default();
    let rates = rates
        .iter()
        .map(|(n, ms)| Rate::new(*n, Duration::from_millis(*ms)).unwrap());
    let rates = Rates::new(rates.collect(), false);
    let partitions = Partitions::new(rates, limit, gauge.clone(), Counter::default());
    (partitions, gauge)
}

/// Two in ten seconds.
fn partitions(limit: usize) -> (Partitions, Gauge) {
    of_rates(&[(2, 10_000)], limit)
}

fn passes(partitions: &Partitions, key: Key, now: u64) -> bool {
    partitions.take_all(Some(key), &[0], now).passes()
}

#[test]
fn partitions_do_not_touch_each_other() {
    let (partitions, _) = partitions(10);
    let keys = Keys::random();
    for _ in 0..2 {
        assert!(passes(&partitions, keys.key("a"), SECOND));
    }
    let refused = partitions.take_all(Some(keys.key("a")), &[0], SECOND);
    assert_eq!(refused.delay, 5 * SECOND);
    assert!(passes(&partitions, keys.key("b"), SECOND));
    assert!(partitions.take_all(None, &[0], SECOND).passes());
}

#[test]
fn a_flood_of_invented_partitions_stays_within_the_limit_and_is_throttled() {
    let (partitions, gauge) = partitions(100);
    let keys = Keys::random();
    assert!(passes(&partitions, keys.key("known"), SECOND));
    let passed = (0..100_000)
        .filter(|n| passes(&partitions, keys.key(n), SECOND))
        .count();
    let most = 100 + usize::try_from(OVERFLOW).unwrap();
    assert!(partitions.len() <= most, "{} held", partitions.len());
    assert_eq!(gauge.get(), signed(partitions.len()));
    assert!(passed <= 99 + 2 * 1024, "{passed} passed");
    assert!(partitions.overflowed.get() > 90_000);
    // Those that were there before are not touched.
    assert!(passes(&partitions, keys.key("known"), SECOND));
    // When the flood is over, there is room again.
    partitions.clean(100 * SECOND);
    assert!(partitions.is_empty());
    assert_eq!(gauge.get(), 0);
    let overflowed = partitions.overflowed.get();
    assert!(passes(&partitions, keys.key("new"), 100 * SECOND));
    assert_eq!(partitions.overflowed.get(), overflowed);
}

#[test]
fn cleaning_forgets_what_is_full_and_keeps_the_rest() {
    let (partitions, gauge) = partitions(10_000);
    let keys = Keys::random();
    for n in 0..5_000 {
        passes(&partitions, keys.key(&n), SECOND);
    }
    passes(&partitions, keys.key("late"), 8 * SECOND);
    // Full at 6 s, for a whole step at 11 s.
    partitions.clean(11 * SECOND - 1);
    assert_eq!(partitions.len(), 5_001);
    partitions.clean(11 * SECOND);
    assert_eq!(partitions.len(), 1);
    assert_eq!(gauge.get(), 1);
    assert!(partitions.table.get().unwrap().capacity() < 5_000);
    assert!(passes(&partitions, keys.key("late"), 11 * SECOND));
    drop(partitions);
    assert_eq!(gauge.get(), 0);
}

#[test]
fn cleaning_beside_requests_loses_no_count() {
    let (partitions, gauge) = partitions(10_000);
    let keys = Keys::random();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (partitions, keys) = (&partitions, &keys);
            scope.spawn(move || {
                for n in 0..20_000_u64 {
                    passes(partitions, keys.key(&(n % 500)), n * SECOND + thread);
                }
            });
        }
        for n in 0..200 {
            partitions.clean(n * 100 * SECOND);
        }
    });
    let held = partitions.table.get().unwrap().len();
    assert_eq!(partitions.len(), held);
    assert_eq!(gauge.get(), signed(held));
}

/// Exact totals: cleaning, growth and other partitions take and give nothing.
#[test]
fn threads_at_once_never_take_more_than_there_is_nor_less() {
    let (partitions, _) = of_rates(&[(10_000, 86_400_000), (7_000, 86_400_000)], 100_000);
    let keys = Keys::random();
    let hot = keys.key("hot");
    for _ in 0..100 {
        assert!(partitions.take_all(Some(hot), &[0, 1], SECOND).passes());
    }
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (partitions, keys) = (&partitions, &keys);
                scope.spawn(move || {
                    let takes = (0..5_000_u32).filter(|n| {
                        passes(partitions, keys.key(&(thread, n)), SECOND);
                        partitions.take_all(Some(hot), &[0, 1], SECOND).passes()
                    });
                    takes.count()
                })
            })
            .collect();
        for _ in 0..100 {
            // What others left is full for a step then, what is hot is not.
            partitions.clean(30 * SECOND);
        }
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(passed, 6_900);
    let left = partitions.look_all(Some(hot), &[0, 1], SECOND);
    assert_eq!(partitions.rates().get(0).tokens(left.levels[0]), 3_000);
    assert!(left.delay > 0);
}

#[test]
fn a_refusal_by_one_rate_takes_nothing_from_the_others() {
    let (partitions, _) = of_rates(&[(6, 12_000), (8, 8_000_000)], 10);
    let key = Some(Keys::random().key("a"));
    let both = |now| partitions.take_all(key, &[0, 1], now);
    for _ in 0..6 {
        assert!(both(SECOND).passes());
    }
    for _ in 0..10 {
        let refused = both(SECOND);
        assert_eq!(refused.delay, 2 * SECOND);
        assert_eq!(partitions.rates().get(1).tokens(refused.levels[1]), 2);
    }
    assert!(both(13 * SECOND).passes());
    assert!(both(13 * SECOND).passes());
    // Now the other one is empty: the wait is that of the slower.
    let refused = both(13 * SECOND);
    assert_eq!(refused.delay, 988 * SECOND);
    assert_eq!(partitions.rates().get(0).tokens(refused.levels[0]), 4);
}

#[test]
fn a_reset_partition_is_full_and_others_are_not_touched() {
    let (partitions, gauge) = of_rates(&[(1, 60_000), (1, 90_000)], 10);
    let keys = Keys::random();
    let (a, b) = (Some(keys.key("a")), Some(keys.key("b")));
    for key in [a, b, None] {
        assert!(partitions.take_all(key, &[0, 1], SECOND).passes());
    }
    assert!(partitions.reset(a, SECOND));
    assert!(
        !partitions.reset(a, SECOND),
        "there is nothing left to reset"
    );
    assert!(!partitions.reset(Some(keys.key("c")), SECOND));
    assert!(partitions.take_all(a, &[0, 1], SECOND).passes());
    assert!(!partitions.take_all(b, &[0, 1], SECOND).passes());
    assert!(!partitions.take_all(None, &[0, 1], SECOND).passes());
    assert!(partitions.reset(None, SECOND));
    assert!(partitions.take_all(None, &[0, 1], SECOND).passes());
    partitions.reset(b, SECOND);
    partitions.clean(2 * SECOND);
    assert_eq!(gauge.get(), 2);
}

#[test]
fn what_is_known_from_elsewhere_takes_the_place_of_what_was_counted() {
    let (partitions, _) = of_rates(&[(4, 8_000)], 10);
    let key = Some(Keys::random().key("a"));
    let mut levels = [0; MAX_RATES];
    levels[0] = 6 * SECOND;
    for (known, tokens) in [(6 * SECOND, 1), (0, 4), (2 * SECOND, 3), (8 * SECOND, 0)] {
        levels[0] = known;
        partitions.set_all(key, &[0], &levels, SECOND);
        let level = partitions.look_all(key, &[0], SECOND).levels[0];
        assert_eq!(partitions.rates().get(0).tokens(level), tokens, "{known}");
    }
    assert!(!partitions.take_all(key, &[0], SECOND).passes());
}

#[test]
fn two_filters_hash_the_same_text_differently() {
    assert_ne!(Keys::random().key("a"), Keys::random().key("a"));
    let keys = Keys::random();
    assert_eq!(keys.key("a"), keys.key("a"));
    let Key(first, second) = keys.key("a");
    assert_ne!(first, second);
}

/// Counts tokens of one rate, as a textbook does.
#[derive(Clone)]
struct Textbook {
    rate: Rate,
    tokens: u64,
    last: u64,
}

impl Textbook {
    fn refill(&mut self, now: u64) {
        let gained = (now - self.last) / self.rate.step();
        if self.tokens + gained > self.rate.requests() {
            (self.tokens, self.last) = (self.rate.requests(), now);
        } else {
            self.tokens += gained;
            self.last += gained * self.rate.step();
        }
    }

    fn wait(&self, now: u64) -> u64 {
        match self.tokens {
            0 => self.last + self.rate.step() - now,
            _ => 0,
        }
    }
}

proptest! {
    #[test]
    fn several_rates_decide_as_several_textbooks(
        rates in prop::collection::vec((1_u64..8, 1_u64..40), 1..=4),
        steps in prop::collection::vec((0_u64..15_000_000, 0_u8..3), 1..200),
    ) {
        let mut distinct = rates.clone();
        distinct.dedup();
        let (partitions, _) = of_rates(&distinct, 1000);
        let limit: Vec<u16> = (0..).take(distinct.len()).collect();
        let keys = Keys::random();
        let mut models: Vec<Vec<Textbook>> = (0..3)
            .map(|_| {
                let fixed = partitions.rates().fixed().iter();
                fixed.map(|rate| Textbook { rate: *rate, tokens: rate.requests(), last: 0 }).collect()
            })
            .collect();
        let mut now = SECOND;
        for (gap, who) in steps {
            now += gap;
            let outcome = partitions.take_all(Some(keys.key(&who)), &limit, now);
            let model = &mut models[usize::from(who)];
            // Looking changes nothing: what is refused leaves all as it was.
            let mut tried = model.clone();
            tried.iter_mut().for_each(|bucket| bucket.refill(now));
            let wait = tried.iter().map(|bucket| bucket.wait(now)).max().unwrap();
            prop_assert_eq!(outcome.delay, wait);
            if wait == 0 {
                tried.iter_mut().for_each(|bucket| bucket.tokens -= 1);
                *model = tried.clone();
            }
            for (bucket, level) in tried.iter().zip(outcome.levels) {
                prop_assert_eq!(bucket.rate.tokens(level), bucket.tokens);
            }
            if who == 0 {
                partitions.clean(now);
            }
        }
    }
}
