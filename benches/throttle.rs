//! Throttling: what a decision costs, and what a partition weighs.
//!
//! Bars: at most 60 ns on a hot partition, 100 ns when two threads hit it, 300
//! ns on a random one of a million; at most 64 bytes a partition, given back
//! when cleaned; no decision waits a millisecond for cleaning.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use doorward::clock::{Clock, monotonic_ns};
use doorward::filter::{Exchange, Filter};
use doorward::http::outbound::Outbound;
use doorward::plugins::Parts;
use doorward::plugins::throttling::KIND;
use doorward::plugins::throttling::partitions::{Key, Keys, Outcome, Partitions};
use doorward::plugins::throttling::rate::Rate;
use doorward::plugins::throttling::rates::Rates;
use doorward::telemetry::Metrics;
use doorward::telemetry::metrics::{Counter, Gauge};
use pingora::proxy::Session;
use serde_json::json;
use tokio::io::AsyncWriteExt;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MILLION: u64 = 1_000_000;

/// A rate that no benchmark exhausts.
fn generous() -> Rate {
    Rate::new(1_000_000_000_000, Duration::from_secs(1)).expect("a valid rate")
}

fn partitions(rate: Rate, limit: usize) -> Partitions {
    several(vec![rate], limit)
}

fn several(rates: Vec<Rate>, limit: usize) -> Partitions {
    let rates = Rates::new(rates, false);
    Partitions::new(rates, limit, Gauge::default(), Counter::default())
}

fn take(partitions: &Partitions, key: Key, now: u64) -> Outcome {
    partitions.take_all(Some(key), &[0], now)
}

/// Names in no order that a cache could guess.
fn shuffled(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("throttle");
    let keys = Keys::random();
    let subject = || keys.key(black_box("0b5c7c4e-subject"));

    let hot = partitions(generous(), 2_000_000);
    group.bench_function("shared bucket, with clock", |b| {
        b.iter(|| hot.take_all(None, &[0], monotonic_ns()));
    });
    group.bench_function("hot partition, with hash and clock", |b| {
        b.iter(|| take(&hot, subject(), monotonic_ns()));
    });
    group.bench_function("hot partition, map and bucket alone", |b| {
        let key = subject();
        b.iter(|| take(&hot, black_box(key), black_box(1)));
    });
    group.bench_function("hot partition, two threads at once", |b| {
        b.iter_custom(|n| two_threads(n, || take(&hot, subject(), monotonic_ns())));
    });
    let daily = Rate::new(1_000_000_000_000, Duration::from_secs(86_400)).expect("a valid rate");
    let both = several(vec![generous(), daily], 2_000_000);
    group.bench_function("hot partition, two rates", |b| {
        b.iter(|| both.take_all(Some(subject()), &[0, 1], monotonic_ns()));
    });
    let once = Rate::new(1, Duration::from_secs(86_400)).expect("a valid rate");
    let refused = partitions(once, 2_000_000);
    group.bench_function("hot partition, refused", |b| {
        b.iter(|| take(&refused, subject(), monotonic_ns()));
    });
    group.bench_function("hot partition, refused, two threads at once", |b| {
        b.iter_custom(|n| two_threads(n, || take(&refused, subject(), monotonic_ns())));
    });

    let million = partitions(generous(), 2_000_000);
    let before = resident();
    for n in 0..MILLION {
        take(&million, keys.key(&n), monotonic_ns());
    }
    let bytes = (resident().saturating_sub(before)) / MILLION;
    let mut n = 0;
    group.bench_function("random partition of a million, with hash and clock", |b| {
        b.iter(|| {
            n += 1;
            take(&million, keys.key(&(shuffled(n) % MILLION)), monotonic_ns())
        });
    });
    group.finish();
    println!("bytes a partition at a million, resident: {bytes} (bar: 64)");
}

/// Time for `n` decisions on each of two threads.
fn two_threads(n: u64, decide: impl Fn() -> Outcome + Sync) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..n {
                    black_box(decide());
                }
            });
        }
    });
    start.elapsed()
}

/// Ten million partitions: what they weigh, that cleaning gives all of it
/// back, and how long the longest decision takes meanwhile.
fn ten_millions(_: &mut Criterion) {
    let keys = Keys::random();
    let rate = Rate::new(6, Duration::from_secs(10)).expect("a valid rate");
    let full = partitions(rate, 12_000_000);
    let before = resident();
    // Half of them is idle when they are cleaned first.
    let (early, late) = (1, 20_000_000_000);
    for n in 0..10 * MILLION {
        take(&full, keys.key(&n), if n % 2 == 0 { early } else { late });
    }
    let held = resident().saturating_sub(before);
    println!(
        "ten million partitions, resident: {} MiB, {} bytes each (bar: 64)",
        held >> 20,
        held / (10 * MILLION)
    );
    let pause = |now: u64| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let deciding = scope.spawn(|| longest_decisions(&full, &keys, now, &done));
            let start = Instant::now();
            full.clean(now);
            let cleaned = start.elapsed();
            done.store(true, Ordering::Relaxed);
            (cleaned, deciding.join().expect("no panic"))
        })
    };
    // First nothing is idle, so nothing is moved: what this machine does to
    // the longest decision by itself.
    for (what, now) in [("none", early + 1), ("half", late), ("all", 3 * late)] {
        let (cleaned, (decisions, longest, late)) = pause(now);
        println!(
            "cleaning, {what} of them idle: {cleaned:?}; {decisions} decisions meanwhile, the \
             longest {longest:?} (bar: 1 ms), {late} above 200 us"
        );
    }
    full.clean(u64::MAX / 4);
    assert!(full.is_empty(), "idle partitions are forgotten");
    println!(
        "after cleaning, resident above the start: {} MiB",
        resident().saturating_sub(before) >> 20
    );
}

fn longest_decisions(
    partitions: &Partitions,
    keys: &Keys,
    now: u64,
    done: &AtomicBool,
) -> (u64, Duration, u64) {
    let (mut decisions, mut longest, mut late) = (0, Duration::ZERO, 0);
    while !done.load(Ordering::Relaxed) {
        decisions += 1;
        let key = keys.key(&(shuffled(decisions) % (10 * MILLION)));
        let start = Instant::now();
        black_box(take(partitions, key, now));
        let took = start.elapsed();
        longest = longest.max(took);
        late += u64::from(took > Duration::from_micros(200));
    }
    (decisions, longest, late)
}

fn filter(policy: &str) -> Arc<dyn Filter> {
    let config = json!({
        "requestGroupingPolicy": policy,
        "rate": {"numberOfRequests": 1_000_000_000_000_u64, "duration": "1 s"},
    });
    let parts = Parts::new(
        Clock::system(),
        Arc::new(Outbound::new()),
        Arc::new(Metrics::default()),
    );
    let config = config.as_object().expect("an object");
    (KIND.build)(config, &parts).expect("a valid configuration")
}

async fn session() -> Session {
    let (mut client, server) = tokio::io::duplex(4096);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nX-User: ada\r\n\r\n")
        .await
        .expect("a duplex stream takes a request");
    let mut session = Session::new_h1(Box::new(server));
    session.read_request().await.expect("a valid request");
    session
}

/// The whole filter on a request, as the gateway calls it.
fn filters(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let mut session = runtime.block_on(session());
    let mut group = c.benchmark_group("throttling filter");
    for (name, policy) in [
        ("one partition", ""),
        ("by client", "${contexts.client.remoteAddress}"),
        ("by header", "${request.headers['X-User'][0]}"),
        ("by mixed text", "user-${request.headers['X-User'][0]}"),
    ] {
        let filter = filter(policy);
        let mut exchange = Exchange::default();
        group.bench_function(name, |b| {
            b.iter(|| filter.on_request(&mut session, &mut exchange));
        });
    }
    group.finish();
}

/// Resident memory of this process in bytes, once the allocator has given back
/// what it keeps for a second in case it is wanted again.
fn resident() -> u64 {
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1200));
        black_box(vec![1_u8; 75_000]);
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots();
    targets = decisions, filters, ten_millions
}
criterion_main!(benches);
