use serde_json::json;

use super::*;

fn passive(unhealthy: Value, successes: u8) -> Value {
    json!({"healthchecks": {"passive": {"unhealthy": unhealthy, "healthy": {"successes": successes}}}})
}

fn is_healthy(balancer: &Balancer, index: usize) -> bool {
    balancer.endpoint_set().endpoints()[index].is_healthy()
}

#[test]
fn failures_up_to_the_threshold_take_a_target_out() {
    let balancer = balancer(passive(json!({"http_failures": 3}), 0), &[100, 100]);
    for n in 1..=3 {
        assert!(is_healthy(&balancer, 0), "after {n}");
        report(&balancer, 0, Outcome::Status(500), 0);
    }
    assert!(!is_healthy(&balancer, 0));
    assert_eq!(shares(&balancer, 10, 0), [0, 10]);
}

#[test]
fn a_success_clears_the_failures_if_successes_count() {
    for (successes, healthy) in [(1, true), (0, false)] {
        let balancer = balancer(passive(json!({"http_failures": 2}), successes), &[100, 100]);
        report(&balancer, 0, Outcome::Status(503), 0);
        report(&balancer, 0, Outcome::Status(200), 0);
        report(&balancer, 0, Outcome::Status(503), 0);
        assert_eq!(is_healthy(&balancer, 0), healthy, "successes: {successes}");
    }
}

#[test]
fn kinds_of_failures_are_counted_apart() {
    let balancer = balancer(
        passive(
            json!({"http_failures": 2, "tcp_failures": 2, "timeouts": 2}),
            0,
        ),
        &[100, 100],
    );
    report(&balancer, 0, Outcome::Status(429), 0);
    report(&balancer, 0, Outcome::TcpFailure, 0);
    report(&balancer, 0, Outcome::Timeout, 0);
    report(&balancer, 1, Outcome::Status(504), 0);
    report(&balancer, 1, Outcome::Timeout, 0);
    assert!(is_healthy(&balancer, 0));
    assert!(!is_healthy(&balancer, 1), "504 is a timeout");
    report(&balancer, 0, Outcome::TcpFailure, 0);
    assert!(!is_healthy(&balancer, 0));
}

#[test]
fn statuses_in_neither_list_count_as_nothing() {
    let balancer = balancer(passive(json!({"http_failures": 1}), 1), &[100, 100]);
    for status in [404, 502, 100, 999] {
        report(&balancer, 0, Outcome::Status(status), 0);
    }
    assert!(is_healthy(&balancer, 0));
}

#[test]
fn limits_of_zero_switch_checks_off() {
    let balancer = balancer(passive(json!({"http_failures": 0}), 0), &[100]);
    for _ in 0..300 {
        report(&balancer, 0, Outcome::Status(500), 0);
    }
    assert!(is_healthy(&balancer, 0));
}

#[test]
fn below_the_threshold_the_whole_upstream_is_unhealthy() {
    let mut fields = passive(json!({"tcp_failures": 1}), 0);
    fields["healthchecks"]["threshold"] = json!(55.0);
    let balancer = balancer(fields, &[100, 50, 50]);
    assert!(pick(&balancer, 0).is_some());
    balancer.endpoint_set().endpoints()[1].force_health(false, 0);
    assert!(pick(&balancer, 0).is_some(), "75 %");
    balancer.endpoint_set().endpoints()[2].force_health(false, 0);
    assert!(pick(&balancer, 0).is_none(), "50 %");
    balancer.endpoint_set().endpoints()[2].force_health(true, 0);
    assert!(pick(&balancer, 0).is_some());
}

#[test]
fn an_operator_can_take_a_target_out_without_checks() {
    let balancer = balancer(json!({}), &[100, 100]);
    balancer.endpoint_set().endpoints()[0].force_health(false, 0);
    assert_eq!(shares(&balancer, 4, 0), [0, 4]);
    balancer.endpoint_set().endpoints()[0].force_health(true, 0);
    assert_eq!(shares(&balancer, 4, 0), [2, 2]);
}

#[test]
fn switching_checks_off_forgets_what_they_found() {
    let checked = upstream(passive(json!({"tcp_failures": 1}), 0));
    let targets = targets(&[100, 100]);
    let before = Balancer::new(&checked, &targets, None, 0);
    report(&before, 0, Outcome::TcpFailure, 0);
    assert!(!is_healthy(&before, 0));
    let after = Balancer::new(&upstream(json!({})), &targets, Some(&before), 0);
    assert!(is_healthy(&after, 0));
}
