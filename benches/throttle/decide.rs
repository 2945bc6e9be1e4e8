//! What a decision costs, on one partition and on many, from one thread and
//! from several.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use doorward_core::clock::monotonic_ns;
use doorward_net::telemetry::metrics::{Counter, Gauge};
use doorward_plugins::throttling::partitions::{Key, Keys, Outcome, Partitions};
use doorward_plugins::throttling::rate::Rate;
use doorward_plugins::throttling::rates::Rates;

use crate::rounds::{Case, load, measure};

pub(crate) const MILLION: u64 = 1_000_000;

/// So many requests in so long.
pub(crate) fn rate(requests: u64, duration: Duration) -> Rate {
    Rate::new(requests, duration).expect("a valid rate")
}

/// A rate that no benchmark exhausts.
fn generous() -> Rate {
    rate(1_000_000_000_000, Duration::from_secs(1))
}

pub(crate) fn partitions(rates: Vec<Rate>, limit: usize) -> Partitions {
    let rates = Rates::new(rates, false);
    Partitions::new(rates, limit, Gauge::default(), Counter::default())
}

pub(crate) fn take(partitions: &Partitions, key: Key, now: u64) -> Outcome {
    partitions.take_all(Some(key), &[0], now)
}

/// Names in no order that a cache could guess.
pub(crate) fn shuffled(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn subject(keys: &Keys) -> Key {
    keys.key(black_box("0b5c7c4e-subject"))
}

/// One thread.
pub(crate) fn alone(rounds: usize) {
    let keys = &Keys::random();
    let day = Duration::from_secs(86_400);
    let hot = partitions(vec![generous()], 2_000_000);
    let both = partitions(vec![generous(), rate(1_000_000_000_000, day)], 2_000_000);
    let refused = partitions(vec![rate(1, day)], 2_000_000);
    let million = partitions(vec![generous()], 2_000_000);
    for n in 0..MILLION {
        take(&million, keys.key(&n), monotonic_ns());
    }
    let words: Vec<[AtomicU64; 3]> = (0..2 * MILLION).map(|_| Default::default()).collect();
    let (mut n, mut m) = (0, 0);
    let key = subject(keys);
    measure(
        "a decision with hash and clock, one thread",
        rounds,
        vec![
            Case::one("(floor) the clock alone", monotonic_ns),
            Case::one("(floor) the hash alone", || subject(keys)),
            Case::one("(floor) a word at random of an array of that size", || {
                m += 1;
                let slot = shuffled(m) % MILLION * 2;
                words[usize::try_from(slot).unwrap_or(0)][0].fetch_add(1, Ordering::Relaxed)
            }),
            Case::one("shared bucket", || hot.take_all(None, &[0], monotonic_ns())),
            Case::one("hot partition", || {
                take(&hot, subject(keys), monotonic_ns())
            })
            .bar(60.0),
            Case::one("hot partition, map and bucket alone", || {
                take(&hot, black_box(key), black_box(1))
            }),
            Case::one("hot partition, two rates", || {
                both.take_all(Some(subject(keys)), &[0, 1], monotonic_ns())
            }),
            Case::one("hot partition, refused", || {
                take(&refused, subject(keys), monotonic_ns())
            })
            .bar(60.0),
            Case::one("random partition of a million", || {
                n += 1;
                take(&million, keys.key(&(shuffled(n) % MILLION)), monotonic_ns())
            })
            .bar(300.0),
        ],
    );
}

/// Several threads on one partition.
pub(crate) fn together(rounds: usize) {
    let keys = &Keys::random();
    let hot = &partitions(vec![generous()], 2_000_000);
    let refused = &partitions(vec![rate(1, Duration::from_secs(86_400))], 2_000_000);
    let drained = &partitions(vec![rate(1000, Duration::from_millis(1))], 2_000_000);
    let million = &partitions(vec![generous()], 2_000_000);
    for n in 0..MILLION {
        take(million, keys.key(&n), monotonic_ns());
    }
    let (word, other) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let decide = move || take(hot, subject(keys), monotonic_ns());
    let refuse = move || take(refused, subject(keys), monotonic_ns());
    let drain = move || take(drained, subject(keys), monotonic_ns());
    let spread = move || {
        let key = keys.key(&(shuffled(monotonic_ns()) % MILLION));
        take(million, key, monotonic_ns())
    };
    let add = move || word.fetch_add(1, Ordering::Relaxed);
    let exchange = move || {
        let add = |n: u64| Some(n.wrapping_add(1));
        other.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
    };
    measure(
        "two threads at once on one partition, of each thread",
        rounds,
        vec![
            Case::threads("(floor) one word, fetch_add, pinned", 2, true, add),
            Case::threads(
                "(floor) one word, compare-exchange, pinned",
                2,
                true,
                exchange,
            ),
            Case::threads("hot partition, pinned", 2, true, decide).bar(100.0),
            Case::threads("hot partition, as the system places them", 2, false, decide).bar(100.0),
            Case::threads("hot partition, refused, pinned", 2, true, refuse).bar(100.0),
            Case::threads("hot partition at its limit, pinned", 2, true, drain).bar(100.0),
            Case::threads("random partitions of a million, pinned", 2, true, spread),
        ],
    );
}

/// Decisions in a second on one partition, from more and more threads.
pub(crate) fn crowd(rounds: usize) {
    let keys = &Keys::random();
    let hot = &partitions(vec![generous()], 2_000_000);
    let drained = &partitions(vec![rate(1000, Duration::from_millis(1))], 2_000_000);
    println!("\none hot partition from all cores: million decisions a second, best of {rounds}");
    println!(
        "load {}; {} cores",
        load(),
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    for (name, partitions) in [("with tokens left", hot), ("at its limit", drained)] {
        let mut first = 0.0;
        for threads in [1, 2, 4, 8] {
            let runs = (0..rounds).map(|_| throughput(threads, keys, partitions));
            let best = runs.fold(0.0, f64::max);
            if threads == 1 {
                first = best;
            }
            println!(
                "  {name:<18} {threads} thread(s) {best:>7.1}   ({:.2} of one thread's)",
                best / first
            );
        }
    }
}

/// Millions of decisions a second.
fn throughput(threads: usize, keys: &Keys, partitions: &Partitions) -> f64 {
    const TIME: Duration = Duration::from_millis(100);
    let start = Instant::now();
    let decided: u64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut decided = 0;
                    while start.elapsed() < TIME {
                        for _ in 0..256 {
                            black_box(take(partitions, subject(keys), monotonic_ns()));
                        }
                        decided += 256;
                    }
                    decided
                })
            })
            .collect();
        let decided = running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        decided.sum()
    });
    decided as f64 / start.elapsed().as_secs_f64() / 1e6
}
