use serde_json::json;

use super::*;

#[test]
fn a_target_that_stays_keeps_its_state_and_a_new_one_has_its_own() {
    let fields = json!({"healthchecks": {"passive": {"unhealthy": {"tcp_failures": 1}}}});
    let before = balancer(fields.clone(), &[100, 100]);
    report(&before, 0, Outcome::TcpFailure, 0);
    let held = pick(&before, 0).expect("the other one");
    let mut changed = fields;
    changed["algorithm"] = json!("least-connections");
    let after = Balancer::new(
        &upstream(changed),
        &targets(&[50, 70, 100]),
        Some(&before),
        0,
    );
    let endpoint_set = after.endpoint_set();
    let healthy: Vec<bool> = endpoint_set
        .endpoints()
        .iter()
        .map(|e| e.is_healthy())
        .collect();
    assert_eq!(healthy, [false, true, true]);
    assert_eq!(endpoint_set.endpoints()[1].in_flight(), 1);
    drop(held);
    assert_eq!(endpoint_set.endpoints()[1].in_flight(), 0);
}

#[test]
fn turns_go_on_over_a_change() {
    let before = balancer(json!({}), &[100, 100, 100]);
    let first = picked(&before, None, 0);
    let after = Balancer::new(
        &upstream(json!({})),
        &targets(&[100, 100, 100]),
        Some(&before),
        0,
    );
    assert_ne!(picked(&after, None, 0), first);
}

#[test]
fn a_target_that_joins_grows_to_its_weight() {
    let fields = json!({"slow_start": 10});
    let before = Balancer::new(&upstream(fields.clone()), &targets(&[100]), None, 0);
    let after = Balancer::new(&upstream(fields), &targets(&[100, 100]), Some(&before), 0);
    let part = shares(&after, 400, S)[1];
    assert!((10..90).contains(&part), "{part}");
}

#[test]
fn the_addresses_of_a_name_share_its_weight() {
    let named = [target("a.test:8080", 300), target("10.0.0.9:80", 100)];
    let balancer = Balancer::new(&upstream(json!({})), &named, None, 0);
    assert_eq!(shares(&balancer, 4, 0), [3, 1]);
    learn(&balancer, 0, &[("10.1.0.1:8080", 1), ("10.1.0.2:8080", 1)]);
    balancer.rearrange(0);
    let mut counts = std::collections::HashMap::new();
    for _ in 0..80 {
        let pick = pick(&balancer, 0).expect("is available");
        let address = pick.endpoint().address().expect("is resolved");
        *counts.entry(address.ip().to_string()).or_insert(0) += 1;
    }
    assert_eq!(counts["10.1.0.1"], 30);
    assert_eq!(counts["10.1.0.2"], 30);
    assert_eq!(counts["10.0.0.9"], 20);
}

#[test]
fn records_with_ports_and_weights_count_by_them() {
    let balancer = Balancer::new(&upstream(json!({})), &[target("a.test:80", 100)], None, 0);
    learn(
        &balancer,
        0,
        &[("10.1.0.1:7001", 10), ("10.1.0.2:7002", 30)],
    );
    balancer.rearrange(0);
    let endpoint_set = balancer.endpoint_set();
    let mut counts = [0, 0];
    for _ in 0..40 {
        let pick = pick(&balancer, 0).expect("is available");
        counts[usize::from(pick.endpoint().port() == 7002)] += 1;
    }
    assert_eq!(counts, [10, 30]);
    assert_eq!(endpoint_set.endpoints()[0].host(), "a.test");
}

#[test]
fn addresses_that_stay_keep_their_state() {
    let fields = json!({"healthchecks": {"passive": {"unhealthy": {"tcp_failures": 1}}}});
    let balancer = Balancer::new(&upstream(fields), &[target("a.test:80", 100)], None, 0);
    learn(&balancer, 0, &[("10.1.0.1:80", 1), ("10.1.0.2:80", 1)]);
    balancer.rearrange(0);
    balancer.endpoint_set().endpoints()[1].force_health(false, 0);
    learn(&balancer, 0, &[("10.1.0.2:80", 1), ("10.1.0.3:80", 1)]);
    balancer.rearrange(0);
    let endpoint_set = balancer.endpoint_set();
    let healthy: Vec<bool> = endpoint_set
        .endpoints()
        .iter()
        .map(|e| e.is_healthy())
        .collect();
    assert_eq!(healthy, [false, true]);
}

#[test]
fn hosts_are_named_with_the_port_unless_the_scheme_implies_it() {
    let authority = |fields: Value, text: &str, tls| {
        let balancer = Balancer::new(&upstream(fields), &[target(text, 100)], None, 0);
        let pick = pick(&balancer, 0).expect("is available");
        pick.authority(tls).to_str().expect("is text").to_owned()
    };
    let plain = || json!({});
    assert_eq!(authority(plain(), "a.test:80", false), "a.test");
    assert_eq!(authority(plain(), "a.test:80", true), "a.test:80");
    assert_eq!(authority(plain(), "a.test:443", true), "a.test");
    assert_eq!(authority(plain(), "10.0.0.1:8080", false), "10.0.0.1:8080");
    assert_eq!(authority(plain(), "[::1]:8080", false), "[::1]:8080");
    assert_eq!(authority(plain(), "[::1]:80", false), "[::1]");
    let named = |host: &str| json!({"host_header": host});
    assert_eq!(authority(named("own.test"), "a.test:80", false), "own.test");
    assert_eq!(
        authority(named("own.test:99"), "a.test:80", false),
        "own.test:99"
    );
}
