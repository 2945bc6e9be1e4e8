use serde_json::json;

use super::super::breaker::Stand;
use super::*;

fn breaking() -> Value {
    json!({"circuit_breaker": {"failures": 2, "open_seconds": 10, "half_open_requests": 1}})
}

fn stand(balancer: &Balancer, index: usize, now_ns: u64) -> Stand {
    balancer.endpoint_set().endpoints()[index].stand(now_ns)
}

#[test]
fn failures_in_a_row_open_the_breaker_and_a_success_between_does_not() {
    let balancer = balancer(breaking(), &[100, 100]);
    report(&balancer, 0, Outcome::Status(500), 0);
    report(&balancer, 0, Outcome::Status(404), 0);
    report(&balancer, 0, Outcome::TcpFailure, 0);
    assert_eq!(stand(&balancer, 0, 0), Stand::Closed);
    report(&balancer, 0, Outcome::Timeout, 0);
    assert_eq!(stand(&balancer, 0, 0), Stand::Open);
    assert_eq!(shares(&balancer, 10, 9 * S), [0, 10]);
}

#[test]
fn half_open_it_lets_one_try_and_closes_on_success() {
    let balancer = balancer(breaking(), &[100]);
    report(&balancer, 0, Outcome::Status(500), 0);
    report(&balancer, 0, Outcome::Status(500), 0);
    assert!(pick(&balancer, 9 * S).is_none());
    let now = 11 * S;
    assert_eq!(stand(&balancer, 0, now), Stand::HalfOpen);
    let mut trial = pick(&balancer, now).expect("one may try");
    assert!(pick(&balancer, now).is_none(), "only one");
    trial.report(Outcome::Status(200), now);
    assert_eq!(stand(&balancer, 0, now), Stand::Closed);
    assert!(pick(&balancer, now).is_some());
}

#[test]
fn a_failed_try_opens_it_again_and_an_abandoned_one_is_given_back() {
    let balancer = balancer(breaking(), &[100]);
    report(&balancer, 0, Outcome::Status(500), 0);
    report(&balancer, 0, Outcome::Status(500), 0);
    let now = 11 * S;
    drop(pick(&balancer, now).expect("one may try"));
    let mut trial = pick(&balancer, now).expect("the client left, the next may try");
    trial.report(Outcome::Timeout, now);
    assert!(pick(&balancer, now + 9 * S).is_none());
    assert!(pick(&balancer, now + 11 * S).is_some());
}

#[test]
fn a_straggler_from_before_the_opening_does_not_close_it() {
    let balancer = balancer(breaking(), &[100]);
    let mut straggler = pick(&balancer, 0).expect("is available");
    report(&balancer, 0, Outcome::Status(500), 0);
    report(&balancer, 0, Outcome::Status(500), 0);
    straggler.report(Outcome::Status(200), S);
    assert_eq!(stand(&balancer, 0, S), Stand::Open);
}

#[test]
fn requests_in_flight_at_one_target_are_limited() {
    let balancer = balancer(json!({"circuit_breaker": {"max_requests": 2}}), &[100, 100]);
    let held: Vec<_> = (0..4).filter_map(|_| pick(&balancer, 0)).collect();
    assert_eq!(held.len(), 4);
    assert!(pick(&balancer, 0).is_none());
    drop(held);
    assert!(pick(&balancer, 0).is_some());
}

#[test]
fn a_target_that_is_healthy_again_grows_to_its_weight() {
    let fields = json!({
        "slow_start": 10,
        "healthchecks": {"passive": {"unhealthy": {"tcp_failures": 1}}}
    });
    for algorithm in ["round-robin", "least-connections"] {
        let mut fields = fields.clone();
        fields["algorithm"] = json!(algorithm);
        let balancer = balancer(fields, &[100, 100]);
        assert_eq!(shares(&balancer, 100, 0)[0], 50, "none is new");
        let endpoint = balancer.endpoint_set().endpoints()[0].clone();
        endpoint.force_health(false, 0);
        endpoint.force_health(true, 0);
        let part = |now| {
            let held: Vec<_> = (0..400).filter_map(|_| pick(&balancer, now)).collect();
            let first = |pick: &&Pick| pick.endpoint().target() == "10.0.0.0:80";
            held.iter().filter(first).count()
        };
        let (begun, half, done) = (part(S / 10), part(5 * S), part(10 * S));
        assert!((1..80).contains(&begun), "{algorithm}: {begun}");
        assert!((90..180).contains(&half), "{algorithm}: {half}");
        assert!((195..=205).contains(&done), "{algorithm}: {done}");
    }
}

#[test]
fn a_target_alone_gets_all_requests_while_it_grows() {
    let fields = json!({"slow_start": 10});
    let first = Balancer::new(&upstream(fields.clone()), &targets(&[100]), None, 0);
    let second = Balancer::new(&upstream(fields), &targets(&[0, 100]), Some(&first), 0);
    assert_eq!(shares(&second, 50, S), [0, 50]);
}
