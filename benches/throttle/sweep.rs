//! What cleaning does to decisions, and what partitions weigh.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use doorward_plugins::throttling::partitions::{Keys, Partitions};

use crate::decide::{MILLION, partitions, rate, shuffled, take};
use crate::rounds::load;

const SECOND: u64 = 1_000_000_000;

/// Decisions during a full sweep over `count` partitions, beside as many
/// without one; and their memory before, with and after them.
pub(crate) fn measure(count: u64) {
    let keys = Keys::random();
    let six = rate(6, Duration::from_secs(10));
    let room = usize::try_from(count / 10 * 14).expect("fits");
    let full = partitions(vec![six], room);
    let before = resident();
    // Half of them is idle when the other half is not.
    let (early, late) = (1, 20 * SECOND);
    let start = Instant::now();
    for n in 0..count {
        take(&full, keys.key(&n), if n % 2 == 0 { early } else { late });
    }
    let filled = start.elapsed();
    let held = resident().saturating_sub(before);
    println!(
        "\n{} million partitions, made in {filled:.1?}: {} MiB resident, {} bytes each; load {}",
        count / MILLION,
        held >> 20,
        held / count,
        load()
    );
    println!(
        "  {:<24} {:>9} {:>9} {:>8} {:>9} {:>9} {:>10} {:>9} {:>6}",
        "a sweep that removes",
        "took",
        "decided",
        "p50 us",
        "p99.99 us",
        "max us",
        "max awake",
        ">1ms",
        "slept"
    );
    let mut control = Duration::from_secs(1);
    for (what, now, sweeps) in [
        ("(no sweep)", early + 1, false),
        ("none", early + 2, true),
        ("half", late + 1, true),
        ("(no sweep)", late + 2, false),
        ("all", 3 * late, true),
    ] {
        let (took, latencies) = beside(&full, &keys, count, now, sweeps.then_some(()), control);
        control = took.max(Duration::from_millis(500));
        latencies.print(what, took);
    }
    full.clean(u64::MAX / 4);
    assert!(full.is_empty(), "idle partitions are forgotten");
    println!(
        "  cleaned: {} MiB above the start",
        resident().saturating_sub(before) >> 20
    );
}

/// Decides while a sweep goes on, or for a time without one.
fn beside(
    full: &Partitions,
    keys: &Keys,
    count: u64,
    now: u64,
    sweep: Option<()>,
    control: Duration,
) -> (Duration, LatencyHistogram) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let deciding = scope.spawn(|| decide(full, keys, count, now, &done));
        let start = Instant::now();
        match sweep {
            Some(()) => full.clean(now),
            None => std::thread::sleep(control),
        }
        let took = start.elapsed();
        done.store(true, Ordering::Relaxed);
        (took, deciding.join().expect("no panic"))
    })
}

/// What decisions took.
#[derive(Default)]
struct LatencyHistogram {
    /// By the logarithm of the nanoseconds, 16 steps to a doubling.
    counts: Vec<u64>,
    longest: Duration,
    /// The longest during which the system let this thread run.
    longest_awake: Duration,
    above_a_millisecond: u64,
    /// How often the thread gave up its core by itself: waited for another.
    slept: u64,
}

fn decide(
    full: &Partitions,
    keys: &Keys,
    count: u64,
    now: u64,
    done: &AtomicBool,
) -> LatencyHistogram {
    let mut latencies = LatencyHistogram {
        counts: vec![0; 64 * 16],
        ..LatencyHistogram::default()
    };
    let (slept, mut preempted) = switches();
    let mut n = shuffled(now);
    while !done.load(Ordering::Relaxed) {
        n += 1;
        // One in sixteen is new.
        let id = match n % 16 {
            0 => count + n % (count / 4),
            _ => shuffled(n) % count,
        };
        let key = keys.key(&id);
        let start = Instant::now();
        black_box(take(full, key, now));
        let took = start.elapsed();
        latencies.counts[step(took)] += 1;
        latencies.longest = latencies.longest.max(took);
        if took > latencies.longest_awake.max(Duration::from_micros(20)) {
            let before = preempted;
            preempted = switches().1;
            if preempted == before {
                latencies.longest_awake = took;
            }
        }
        latencies.above_a_millisecond += u64::from(took > Duration::from_millis(1));
    }
    latencies.slept = switches().0 - slept;
    latencies
}

impl LatencyHistogram {
    fn print(&self, what: &str, took: Duration) {
        let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
        println!(
            "  {what:<24} {took:>9.2?} {:>9} {:>8.2} {:>9.1} {:>9.1} {:>10.1} {:>9} {:>6}",
            self.counts.iter().sum::<u64>(),
            self.quantile(0.5),
            self.quantile(0.9999),
            micros(self.longest),
            micros(self.longest_awake),
            self.above_a_millisecond,
            self.slept
        );
    }

    /// In microseconds.
    fn quantile(&self, part: f64) -> f64 {
        let all = self.counts.iter().sum::<u64>() as f64;
        let mut below = 0;
        for (step, count) in self.counts.iter().enumerate() {
            below += count;
            if below as f64 >= all * part {
                return 2_f64.powf((step + 1) as f64 / 16.0) / 1000.0;
            }
        }
        f64::NAN
    }
}

fn step(took: Duration) -> usize {
    let nanos = took.as_nanos().max(1) as f64;
    ((nanos.log2() * 16.0) as usize).min(64 * 16 - 1)
}

/// How often this thread has waited for something, and was made to wait.
fn switches() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    (
        of("voluntary_ctxt_switches:"),
        of("nonvoluntary_ctxt_switches:"),
    )
}

/// Resident memory of this process in bytes, once the allocator has given back
/// what it keeps for a second in case it is wanted again: it does so a part at
/// a time, when it is called.
fn resident() -> u64 {
    let mut least = u64::MAX;
    let mut unchanged = 0;
    while unchanged < 5 {
        std::thread::sleep(Duration::from_millis(1100));
        for _ in 0..16 {
            black_box(vec![1_u8; 75_000]);
        }
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
        let now = pages.unwrap_or(0) * 4096;
        unchanged = if now < least { 0 } else { unchanged + 1 };
        least = least.min(now);
    }
    least
}
