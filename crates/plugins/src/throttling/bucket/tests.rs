//! The bucket alone, beside the textbook, and under threads.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::throttling::rate::{LONGEST, MOST, SHORTEST};

const SECOND: u64 = 1_000_000_000;

/// Any start: the clock's zero means nothing.
const T0: u64 = 77 * SECOND;

/// These words stay where they are.
fn take(word: &AtomicU64, rate: &Rate, now: u64) -> Decision {
    super::take(word, rate, now).expect("the bucket has not moved")
}

fn six_in_ten_seconds() -> Rate {
    Rate::new(6, Duration::from_secs(10)).unwrap()
}

fn passes(word: &AtomicU64, rate: &Rate, now: u64, requests: usize) -> usize {
    (0..requests)
        .filter(|_| take(word, rate, now).passes())
        .count()
}

fn retry_after(word: &AtomicU64, rate: &Rate, now: u64) -> u64 {
    match take(word, rate, now) {
        Decision::Pass(_) => 0,
        Decision::Refuse(delay) => delay.div_ceil(SECOND),
    }
}

#[test]
fn a_burst_of_ten_passes_six_and_says_two_seconds() {
    let (word, rate) = (AtomicU64::new(0), six_in_ten_seconds());
    assert_eq!(passes(&word, &rate, T0, 10), 6);
    assert_eq!(retry_after(&word, &rate, T0), 2);
}

#[test]
fn the_wait_is_rounded_up_to_whole_seconds() {
    let (word, rate) = (AtomicU64::new(0), six_in_ten_seconds());
    passes(&word, &rate, T0, 6);
    assert_eq!(retry_after(&word, &rate, T0 + SECOND / 2), 2);
    assert_eq!(retry_after(&word, &rate, T0 + SECOND * 7 / 10), 1);
    assert_eq!(retry_after(&word, &rate, T0 + SECOND * 16 / 10), 1);
}

#[test]
fn an_empty_bucket_passes_one_request_a_step() {
    let (word, rate) = (AtomicU64::new(0), six_in_ten_seconds());
    passes(&word, &rate, T0, 6);
    for tick in 1..20 {
        let due = T0 + tick * rate.step();
        assert_eq!(passes(&word, &rate, due - 1, 3), 0);
        assert_eq!(passes(&word, &rate, due, 3), 1);
    }
}

#[test]
fn a_flood_of_ten_seconds_passes_eleven() {
    let (word, rate) = (AtomicU64::new(0), six_in_ten_seconds());
    let passed: usize = (0..10_000)
        .map(|ms| passes(&word, &rate, T0 + ms * 1_000_000, 1))
        .sum();
    assert_eq!(passed, 11);
}

#[test]
fn idle_credit_is_dropped_so_no_burst_exceeds_the_rate() {
    let rate = six_in_ten_seconds();
    for idle in [9 * SECOND, 10 * SECOND, 10 * SECOND + 1, 1000 * SECOND] {
        let word = AtomicU64::new(0);
        assert_eq!(passes(&word, &rate, T0, 1), 1);
        assert_eq!(passes(&word, &rate, T0 + idle, 20), 6, "after {idle} ns");
    }
}

#[test]
fn refusals_cost_nothing() {
    let rate = six_in_ten_seconds();
    let (calm, hammered) = (AtomicU64::new(0), AtomicU64::new(0));
    passes(&calm, &rate, T0, 6);
    passes(&hammered, &rate, T0, 6);
    for ms in 0..1_666 {
        assert_eq!(passes(&hammered, &rate, T0 + ms * 1_000_000, 1), 0);
    }
    assert_eq!(calm.into_inner(), hammered.into_inner());
}

#[test]
fn extreme_rates_do_not_overflow() {
    for requests in [1, 2, MOST] {
        for duration in [SHORTEST, LONGEST] {
            let rate = Rate::new(requests, duration).unwrap();
            let word = AtomicU64::new(0);
            let late = 1 << 60;
            assert_eq!(take(&word, &rate, late), Decision::Pass(rate.step()));
            word.store(late + rate.fill(), Ordering::Relaxed);
            assert_eq!(take(&word, &rate, late), Decision::Refuse(rate.step()));
        }
    }
}

#[test]
fn threads_at_once_never_take_more_than_there_is() {
    let rate = Rate::new(10_000, Duration::from_secs(86_400)).unwrap();
    let word = AtomicU64::new(0);
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| passes(&word, &rate, T0, 5_000)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(passed, 10_000);
}

/// The textbook bucket: counts tokens, refills in whole steps, drops the
/// rest of a step when a token was too many.
struct Textbook {
    tokens: u64,
    last: u64,
}

impl Textbook {
    fn take(&mut self, rate: &Rate, now: u64) -> Decision {
        let gained = (now - self.last) / rate.step();
        if self.tokens + gained > rate.requests() {
            self.tokens = rate.requests();
            self.last = now;
        } else {
            self.tokens += gained;
            self.last += gained * rate.step();
        }
        if self.tokens == 0 {
            return Decision::Refuse(self.last + rate.step() - now);
        }
        self.tokens -= 1;
        let full_at = self.last + (rate.requests() - self.tokens) * rate.step();
        Decision::Pass(full_at - now)
    }
}

fn any_case() -> impl Strategy<Value = (Rate, Vec<u64>)> {
    (1_u64..12, 1_u64..50).prop_flat_map(|(requests, millis)| {
        let rate = Rate::new(requests, Duration::from_millis(millis)).unwrap();
        let step = rate.step();
        let gap = prop_oneof![
            4 => Just(0_u64),
            4 => 0..=step,
            1 => Just(step),
            2 => 0..=3 * step,
            1 => 0..=2 * rate.fill(),
        ];
        (Just(rate), prop::collection::vec(gap, 1..120))
    })
}

proptest! {
    #[test]
    fn decides_as_the_textbook_bucket((rate, gaps) in any_case()) {
        let word = AtomicU64::new(0);
        let mut now = T0;
        let mut textbook = Textbook { tokens: rate.requests(), last: 0 };
        for gap in gaps {
            now += gap;
            prop_assert_eq!(take(&word, &rate, now), textbook.take(&rate, now));
        }
    }

    #[test]
    fn no_window_passes_more_than_the_rate_allows((rate, gaps) in any_case()) {
        let word = AtomicU64::new(0);
        let mut now = T0;
        let mut passed = Vec::new();
        for gap in gaps {
            now += gap;
            if take(&word, &rate, now).passes() {
                passed.push(now);
            }
        }
        for (i, from) in passed.iter().enumerate() {
            for (count, to) in passed[i..].iter().enumerate() {
                let allowed = rate.requests() + (to - from).div_ceil(rate.step());
                prop_assert!((count as u64) < allowed);
            }
        }
    }

    #[test]
    fn a_refused_request_passes_exactly_when_told((rate, gaps) in any_case()) {
        let word = AtomicU64::new(0);
        let mut now = T0;
        for gap in gaps {
            now += gap;
            if let Decision::Refuse(delay) = take(&word, &rate, now) {
                prop_assert!(delay >= 1 && delay <= rate.step());
                prop_assert!(after(word.load(Ordering::Relaxed), &rate, now + delay - 1).is_err());
                prop_assert!(after(word.load(Ordering::Relaxed), &rate, now + delay).is_ok());
            }
        }
    }
}

/// A small generator, for far more schedules than a test could afford to
/// shrink.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[test]
fn two_million_random_schedules_decide_as_the_textbook_bucket() {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for schedule in 0..2_000_000 {
        // Some with so many tokens that they are taken without a second look.
        let requests = match dice.roll(16) {
            0 => 1_000 + dice.roll(3_000),
            _ => 1 + dice.roll(9),
        };
        let rate = Rate::new(requests, Duration::from_millis(1 + dice.roll(40))).unwrap();
        let word = AtomicU64::new(0);
        let mut now = T0;
        let mut textbook = Textbook {
            tokens: requests,
            last: 0,
        };
        for _ in 0..1 + dice.roll(8) {
            now += match dice.roll(8) {
                0..3 => 0,
                3..6 => dice.roll(rate.step() + 1),
                6 => rate.step() * (1 + dice.roll(3)),
                _ => dice.roll(2 * rate.fill()),
            };
            let expected = textbook.take(&rate, now);
            assert_eq!(take(&word, &rate, now), expected, "schedule {schedule}");
        }
    }
}
