use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn round_robin() -> Value {
    json!({})
}

#[test]
fn equal_targets_take_turns_in_order() {
    let balancer = balancer(round_robin(), &[100, 100, 100]);
    let order: Vec<_> = (0..6).filter_map(|_| picked(&balancer, None, 0)).collect();
    assert_eq!(order[..3], ["10.0.0.0:80", "10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(order[..3], order[3..]);
}

#[test]
fn shares_are_exact_over_a_cycle() {
    let balancer = balancer(round_robin(), &[50, 100, 0, 250]);
    for _ in 0..5 {
        assert_eq!(shares(&balancer, 8, 0), [1, 2, 0, 5]);
    }
}

#[test]
fn a_heavy_target_is_interleaved_with_light_ones() {
    let balancer = balancer(round_robin(), &[500, 100, 100]);
    let order: Vec<_> = (0..14).filter_map(|_| picked(&balancer, None, 0)).collect();
    let longest = order
        .chunk_by(|a, b| a == b)
        .map(<[String]>::len)
        .max()
        .expect("some");
    assert!(longest <= 4, "{order:?}");
}

proptest! {
    #[test]
    fn any_weights_get_exact_shares_evenly_spread(
        weights in proptest::collection::vec(0_u16..200, 1..12)
    ) {
        prop_assume!(weights.iter().any(|&weight| weight > 0));
        let balancer = balancer(round_robin(), &weights);
        let total: usize = weights.iter().map(|&weight| usize::from(weight)).sum();
        let mut counts = vec![0_usize; weights.len()];
        let endpoint_set = balancer.endpoint_set();
        for n in 0..total {
            let pick = pick(&balancer, 0).expect("is available");
            let at = endpoint_set.endpoints().iter().position(|e| e.target() == pick.endpoint().target());
            counts[at.expect("known")] += 1;
            // At no time is anybody far from the share so far.
            for (count, &weight) in counts.iter().zip(&weights) {
                let due = (n + 1) as f64 * f64::from(weight) / total as f64;
                prop_assert!((*count as f64 - due).abs() < 6.0, "{counts:?} after {n} of {weights:?}");
            }
        }
        let exact: Vec<usize> = weights.iter().map(|&weight| usize::from(weight)).collect();
        prop_assert_eq!(counts, exact);
    }
}

#[test]
fn workers_together_get_exact_shares() {
    let balancer = balancer(round_robin(), &[100, 300]);
    let counts: Vec<Vec<usize>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| shares(&balancer, 1_000, 0)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("worker ends"))
            .collect()
    });
    let sum: Vec<usize> = (0..2).map(|i| counts.iter().map(|c| c[i]).sum()).collect();
    assert_eq!(sum, [1_000, 3_000]);
}

#[test]
fn requests_in_flight_are_counted_exactly_by_many_threads() {
    let fields = json!({"algorithm": "least-connections", "circuit_breaker": {"max_requests": 3}});
    let balancer = balancer(fields, &[100, 100]);
    let endpoint_set = balancer.endpoint_set();
    let endpoints = endpoint_set.endpoints();
    // Counted from outside: what an endpoint says of itself may be a moment old.
    let held: Vec<AtomicUsize> = endpoints.iter().map(|_| AtomicUsize::new(0)).collect();
    let exceeded = AtomicBool::new(false);
    let hold = |pick: &Pick| {
        let at = endpoints
            .iter()
            .position(|e| std::ptr::eq(&**e, pick.endpoint()));
        let held = &held[at.expect("is of the lineup")];
        if held.fetch_add(1, Ordering::SeqCst) >= 3 {
            exceeded.store(true, Ordering::Relaxed);
        }
        held
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let picks = [pick(&balancer, 0), pick(&balancer, 0)];
                    let counts = picks.iter().flatten().map(hold).collect::<Vec<_>>();
                    for count in counts {
                        count.fetch_sub(1, Ordering::SeqCst);
                    }
                    drop(picks);
                }
            });
        }
    });
    assert!(!exceeded.load(Ordering::Relaxed));
    for endpoint in endpoints {
        assert_eq!(endpoint.in_flight(), 0);
    }
}

#[test]
fn the_target_with_the_fewest_requests_for_its_weight_is_next() {
    let balancer = balancer(json!({"algorithm": "least-connections"}), &[100, 200]);
    let held: Vec<_> = (0..30).filter_map(|_| pick(&balancer, 0)).collect();
    let endpoint_set = balancer.endpoint_set();
    let loads: Vec<u64> = endpoint_set
        .endpoints()
        .iter()
        .map(|e| e.in_flight())
        .collect();
    assert_eq!(loads, [10, 20]);
    drop(held);
    assert_eq!(endpoint_set.endpoints()[1].in_flight(), 0);
}

#[test]
fn least_connections_spreads_idle_picks() {
    let balancer = balancer(json!({"algorithm": "least-connections"}), &[100; 4]);
    assert_eq!(shares(&balancer, 40, 0), [10, 10, 10, 10]);
}

#[test]
fn two_choices_keep_many_targets_level() {
    let balancer = balancer(json!({"algorithm": "least-connections"}), &[100; 100]);
    let _held: Vec<_> = (0..1_000).filter_map(|_| pick(&balancer, 0)).collect();
    let endpoint_set = balancer.endpoint_set();
    let most = endpoint_set.endpoints().iter().map(|e| e.in_flight()).max();
    assert!(most <= Some(14), "{most:?} at one of 100 that share 1000");
}

#[test]
fn the_fastest_target_gets_most_requests() {
    let balancer = balancer(json!({"algorithm": "latency"}), &[100, 100, 100]);
    let mut now = S;
    let mut counts = [0; 3];
    for _ in 0..300 {
        let mut pick = pick(&balancer, now).expect("is available");
        let endpoint_set = balancer.endpoint_set();
        let at = endpoint_set
            .endpoints()
            .iter()
            .position(|e| e.target() == pick.endpoint().target())
            .expect("known");
        counts[at] += 1;
        now += [5, 50, 500][at] * MS;
        pick.report(Outcome::Status(200), now);
    }
    assert!(counts[0] > 200, "{counts:?}");
    assert!(
        counts[1] > 0 && counts[2] > 0,
        "{counts:?}: slow ones are asked again"
    );
}

#[test]
fn failing_fast_does_not_attract_requests() {
    let balancer = balancer(json!({"algorithm": "latency"}), &[100, 100]);
    let mut now = S;
    let mut failed = 0;
    for _ in 0..200 {
        let mut pick = pick(&balancer, now).expect("is available");
        if pick.endpoint().target() == "10.0.0.0:80" {
            failed += 1;
            pick.report(Outcome::TcpFailure, now);
        } else {
            now += 20 * MS;
            pick.report(Outcome::Status(200), now);
        }
    }
    assert!(failed < 20, "{failed} of 200");
}

#[test]
fn a_retry_goes_to_another_target_while_there_is_one() {
    for algorithm in [
        "round-robin",
        "least-connections",
        "latency",
        "consistent-hashing",
    ] {
        let balancer = balancer(json!({"algorithm": algorithm, "slots": 100}), &[100; 3]);
        let mut tried = Tried::default();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let pick = balancer.pick(Some(7), &mut tried, 0).expect("is available");
            seen.push(pick.endpoint().target().to_owned());
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 3, "{algorithm}");
        assert!(
            balancer.pick(Some(7), &mut tried, 0).is_ok(),
            "{algorithm}: again"
        );
    }
}

#[test]
fn nobody_has_weight_and_nobody_is_picked() {
    for algorithm in [
        "round-robin",
        "least-connections",
        "latency",
        "consistent-hashing",
    ] {
        for weights in [&[][..], &[0, 0]] {
            let balancer = balancer(json!({"algorithm": algorithm, "slots": 10}), weights);
            assert!(pick(&balancer, 0).is_none(), "{algorithm} {weights:?}");
            let hashed = balancer.pick(Some(1), &mut Tried::default(), 0);
            assert!(hashed.is_err(), "{algorithm} {weights:?}");
        }
    }
}

#[test]
fn one_live_target_among_many_dead_ones_is_found() {
    for algorithm in [
        "round-robin",
        "least-connections",
        "latency",
        "consistent-hashing",
    ] {
        let mut weights = vec![1_000; 60];
        weights[17] = 1;
        let checks = json!({"passive": {"unhealthy": {"tcp_failures": 1}}});
        let fields = json!({"algorithm": algorithm, "slots": 100, "healthchecks": checks});
        let balancer = balancer(fields, &weights);
        for (at, endpoint) in balancer.endpoint_set().endpoints().iter().enumerate() {
            if at != 17 {
                endpoint.force_health(false, 0);
            }
        }
        for hash in 0..50 {
            let picked = picked(&balancer, Some(hash), 0);
            assert_eq!(picked.as_deref(), Some("10.0.0.17:80"), "{algorithm}");
        }
    }
}
