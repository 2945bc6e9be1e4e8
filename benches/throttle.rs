//! Throttling: what a decision costs, and what a partition weighs.
//!
//! Bars: under 60 ns on a hot partition, under 400 ns on a random one of a
//! million, at most 64 bytes a partition.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use doorward::clock::{Clock, monotonic_ns};
use doorward::filter::{Exchange, Filter};
use doorward::http::outbound::Outbound;
use doorward::plugins::Parts;
use doorward::plugins::throttling::KIND;
use doorward::plugins::throttling::partitions::{Keys, Partitions};
use doorward::plugins::throttling::rate::Rate;
use doorward::telemetry::Metrics;
use doorward::telemetry::metrics::Gauge;
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

fn partitions(rate: Rate) -> Partitions {
    Partitions::new(rate, 2_000_000, Gauge::default())
}

/// Names in no order that a cache could guess.
fn shuffled(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("throttle");
    let keys = Keys::random();

    let hot = partitions(generous());
    group.bench_function("shared bucket, with clock", |b| {
        b.iter(|| hot.take_shared(monotonic_ns()));
    });
    group.bench_function("hot partition, with hash and clock", |b| {
        b.iter(|| hot.take(keys.key(black_box("0b5c7c4e-subject")), monotonic_ns()));
    });
    group.bench_function("hot partition, map and bucket alone", |b| {
        let key = keys.key("0b5c7c4e-subject");
        b.iter(|| hot.take(black_box(key), black_box(1)));
    });
    group.bench_function("hot partition, two threads at once", |b| {
        b.iter_custom(|n| two_threads(&hot, &keys, n));
    });
    let refused = partitions(Rate::new(1, Duration::from_secs(86_400)).expect("a valid rate"));
    group.bench_function("hot partition, refused", |b| {
        b.iter(|| refused.take(keys.key(black_box("0b5c7c4e-subject")), monotonic_ns()));
    });

    let million = partitions(generous());
    let before = resident();
    for n in 0..MILLION {
        million.take(keys.key(&n), monotonic_ns());
    }
    let bytes = (resident().saturating_sub(before)) / MILLION;
    let mut n = 0;
    group.bench_function("random partition of a million, with hash and clock", |b| {
        b.iter(|| {
            n += 1;
            million.take(keys.key(&(shuffled(n) % MILLION)), monotonic_ns())
        });
    });
    group.finish();
    println!("bytes a partition at a million, resident: {bytes} (bar: 64)");

    let idle = partitions(Rate::new(1_000_000_000, Duration::from_secs(1)).expect("a valid rate"));
    for n in 0..MILLION {
        idle.take(keys.key(&n), 1);
    }
    let start = Instant::now();
    idle.clean(1_000);
    println!(
        "cleaning a million idle partitions: {:?} in all",
        start.elapsed()
    );
    assert!(idle.is_empty(), "idle partitions are forgotten");
}

/// Time for `n` decisions on each of two threads.
fn two_threads(hot: &Partitions, keys: &Keys, n: u64) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..n {
                    black_box(hot.take(keys.key(black_box("0b5c7c4e-subject")), monotonic_ns()));
                }
            });
        }
    });
    start.elapsed()
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

/// Resident memory of this process in bytes.
fn resident() -> u64 {
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
    targets = decisions, filters
}
criterion_main!(benches);
