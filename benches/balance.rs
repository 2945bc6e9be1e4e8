//! Picking a target, by algorithm and number of targets.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use doorward_core::model::route::Reference;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_gateway::balance::{Balancer, Outcome, Tried};
use serde_json::{Value, json};
use uuid::Uuid;

fn upstream(fields: &Value) -> Upstream {
    let mut record = json!({"id": Uuid::nil(), "name": "group", "created_at": 1, "updated_at": 1});
    let map = record.as_object_mut().expect("is an object");
    map.extend(fields.as_object().expect("is an object").clone());
    serde_json::from_value(record).expect("is an upstream")
}

fn targets(n: usize) -> Vec<Target> {
    (0..n)
        .map(|i| Target {
            id: Uuid::from_u128(i as u128),
            target: format!("10.0.{}.{}:80", i / 250, i % 250),
            // Not all alike, so that no short cut for equal weights is taken.
            weight: 100 + (i % 3) as u16,
            upstream: Reference { id: Uuid::nil() },
            tags: None,
            created_at: 1.0,
            updated_at: 1.0,
        })
        .collect()
}

fn algorithms() -> [(&'static str, Value); 5] {
    [
        ("round_robin", json!({})),
        (
            "round_robin_checked",
            json!({
                "healthchecks": {"passive": {"unhealthy": {"tcp_failures": 3}, "healthy": {"successes": 1}}},
                "circuit_breaker": {"failures": 5, "max_requests": 100}
            }),
        ),
        ("hashing", json!({"hash_on": "ip"})),
        (
            "least_connections",
            json!({"algorithm": "least-connections"}),
        ),
        ("latency", json!({"algorithm": "latency"})),
    ]
}

fn picking(c: &mut Criterion) {
    let mut group = c.benchmark_group("balance_pick");
    for (name, fields) in algorithms() {
        for n in [2, 10, 100, 1000] {
            let balancer = Balancer::new(&upstream(&fields), &targets(n), None, 0);
            let mut now = 0_u64;
            group.bench_function(BenchmarkId::new(name, n), |b| {
                b.iter(|| {
                    now += 1000;
                    let hash = Some(now.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    let pick = balancer.pick(black_box(hash), &mut Tried::default(), now);
                    let mut pick = pick.expect("is available");
                    pick.report(Outcome::Status(200), now);
                    pick
                });
            });
        }
    }
    group.finish();
}

fn arranging(c: &mut Criterion) {
    let mut group = c.benchmark_group("balance_change");
    group.sample_size(20);
    for (name, fields) in algorithms()
        .into_iter()
        .filter(|(name, _)| *name != "latency")
    {
        let record = upstream(&fields);
        let all = targets(100);
        let before = Balancer::new(&record, &all, None, 0);
        group.bench_function(BenchmarkId::new(name, "first"), |b| {
            b.iter(|| Balancer::new(&record, &all, None, 0));
        });
        group.bench_function(BenchmarkId::new(name, "one_removed"), |b| {
            b.iter(|| Balancer::new(&record, &all[1..], Some(&before), 0));
        });
    }
    group.finish();
}

criterion_group!(benches, picking, arranging);
criterion_main!(benches);
