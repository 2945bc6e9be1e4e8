//! When endpoints are probed and names looked up.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, watch};

use super::*;
use crate::balance::health_checker::{CheckedUpstream, HealthChecker, Resources};
use crate::balance::member::{NameError, Names, Question, Resolution};
use crate::balance::probe::{Plan, Prober};

/// Answers in turn, then never.
#[derive(Default)]
pub(in super::super) struct Script {
    answers: Mutex<VecDeque<Step>>,
    asked: Mutex<Vec<Question>>,
}

enum Step {
    Found(&'static str, Vec<&'static str>),
    Panic,
}

#[async_trait]
impl Names for Script {
    async fn find(&self, question: &Question) -> Result<Resolution, NameError> {
        self.asked.lock().push(question.clone());
        let step = self.answers.lock().pop_front();
        match step {
            None => std::future::pending().await,
            Some(Step::Panic) => panic!("as the script says"),
            Some(Step::Found(kind, addresses)) => Ok(Resolution {
                records: addresses.into_iter().map(found).collect(),
                kind,
                ttl: std::time::Duration::from_secs(5),
            }),
        }
    }
}

fn found(address: &str) -> AddressRecord {
    AddressRecord {
        address: address.parse().expect("is an address"),
        weight: 1,
        name: None,
    }
}

struct Scene {
    script: Arc<Script>,
    checked_changes: watch::Sender<CheckedUpstream>,
    checker: HealthChecker,
}

fn checked(fields: Value, targets: &[Target], previous: Option<&Balancer>) -> CheckedUpstream {
    CheckedUpstream {
        balancer: Arc::new(Balancer::new(&upstream(fields), targets, previous, 0)),
        certificate: None,
    }
}

fn scene(fields: Value, targets: &[Target], steps: impl IntoIterator<Item = Step>) -> Scene {
    let script = Arc::new(Script::default());
    script.answers.lock().extend(steps);
    let (checked_changes, receiver) = watch::channel(checked(fields, targets, None));
    let resources = Resources {
        names: script.clone(),
        prober: Prober::new(None),
        lookups: Arc::new(Semaphore::new(64)),
    };
    Scene {
        script,
        checked_changes,
        checker: HealthChecker::new(receiver, resources),
    }
}

impl Scene {
    /// Waits for a task to end.
    async fn one_done(&mut self, now_ns: u64) {
        let done = self.checker.running.join_next().await;
        let done = done.expect("a task").expect("that ends well");
        self.checker.finish(done, now_ns);
    }

    fn change(&self, fields: Value, targets: &[Target]) {
        let before = self.checked_changes.borrow().balancer.clone();
        self.checked_changes
            .send_replace(checked(fields, targets, Some(&before)));
    }

    fn addresses(&self) -> usize {
        let checked = self.checked_changes.borrow();
        let endpoint_set = checked.balancer.endpoint_set();
        endpoint_set
            .endpoints()
            .iter()
            .filter_map(|e| e.address())
            .count()
    }
}

fn probed(interval: u32) -> Value {
    json!({"healthchecks": {"active": {"type": "tcp", "concurrency": 1,
        "healthy": {"interval": interval}, "unhealthy": {"interval": interval}}}})
}

#[tokio::test]
async fn a_change_is_taken_over_even_if_something_else_happens_first() {
    let mut scene = scene(json!({}), &[target("a.test:80", 100)], []);
    scene.checker.start_due(0);
    scene.change(json!({"slots": 20}), &[target("a.test:80", 100)]);
    scene.checker.start_due(0);
    assert!(scene.checker.checked.has_changed().expect("is open"));
    scene.checker.renew(0);
    assert!(!scene.checker.checked.has_changed().expect("is open"));
}

#[tokio::test]
async fn what_was_found_while_a_change_was_compiled_is_in_its_lineup() {
    let name = [target("a.test:80", 100)];
    let steps = [Step::Found("A", vec!["10.1.0.1:80"])];
    let mut scene = scene(json!({}), &name, steps);
    scene.checker.start_due(0);
    let before = scene.checked_changes.borrow().balancer.clone();
    let next = checked(json!({"slots": 20}), &name, Some(&before));
    scene.one_done(0).await;
    scene.checked_changes.send_replace(next);
    assert_eq!(scene.addresses(), 0);
    scene.checker.start_due(1);
    scene.checker.renew(1);
    assert_eq!(scene.addresses(), 1);
}

#[tokio::test]
async fn who_has_waited_longest_is_probed_first() {
    let mut scene = scene(probed(1), &targets(&[1, 1, 1]), []);
    scene.checker.start_due(0);
    let endpoint_set = scene.checked_changes.borrow().balancer.endpoint_set();
    let numbers: Vec<u32> = endpoint_set
        .endpoints()
        .iter()
        .map(|e| e.state.number)
        .collect();
    for (number, due_ns) in numbers.iter().zip([3 * S, 2 * S, S]) {
        let probe = scene.checker.probes.get_mut(number).expect("is known");
        probe.due_ns = due_ns;
    }
    let mut order = Vec::new();
    // Each takes longer than the interval.
    for now_ns in [10 * S, 20 * S, 30 * S, 40 * S] {
        scene.checker.start_due(now_ns);
        let probed = |number: &&u32| scene.checker.probes[number].due_ns == now_ns + S;
        order.extend(numbers.iter().position(|number| probed(&number)));
        let number = numbers[*order.last().expect("one is probed")];
        scene.checker.running.abort_all();
        let done = crate::balance::health_checker::Done::Probed(number);
        scene.checker.finish(done, now_ns);
    }
    assert_eq!(order, [2, 1, 0, 2]);
}

#[tokio::test]
async fn a_name_of_srv_records_is_asked_for_ports_again() {
    let steps = [Step::Found("SRV", vec!["10.1.0.1:7001"])];
    let mut scene = scene(json!({}), &[target("a.test:80", 100)], steps);
    scene.checker.start_due(0);
    scene.one_done(0).await;
    scene.checker.start_due(9 * S);
    tokio::task::yield_now().await;
    let had_ports: Vec<bool> = scene
        .script
        .asked
        .lock()
        .iter()
        .map(|q| q.had_ports)
        .collect();
    assert_eq!(had_ports, [false, true]);
}

#[tokio::test]
async fn names_are_looked_up_at_once_when_srv_names_become_wanted() {
    let name = [target("a.test:80", 100)];
    let steps = [
        Step::Found("SRV", vec!["10.1.0.1:7001"]),
        Step::Found("SRV", vec!["10.1.0.1:7001"]),
    ];
    let mut scene = scene(json!({}), &name, steps);
    scene.checker.start_due(0);
    scene.one_done(0).await;
    scene.change(json!({"use_srv_name": true}), &name);
    scene.checker.renew(1);
    scene.checker.start_due(1);
    scene.one_done(1).await;
    let wanted: Vec<bool> = scene
        .script
        .asked
        .lock()
        .iter()
        .map(|q| q.srv_name)
        .collect();
    assert_eq!(wanted, [false, true]);
}

#[tokio::test]
async fn many_names_are_looked_up_a_number_at_a_time() {
    let names: Vec<Target> = (0..100)
        .map(|i| target(&format!("n{i}.test:80"), 1))
        .collect();
    let mut scene = scene(json!({}), &names, []);
    scene.checker.start_due(0);
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.script.asked.lock().len(), 64);
}

#[tokio::test]
async fn names_that_move_leave_no_schedules_behind() {
    let steps = ["10.1.0.1:9", "10.1.0.2:9", "10.1.0.3:9", "10.1.0.4:9"];
    let steps = steps.map(|address| Step::Found("A", vec![address]));
    let mut scene = scene(probed(60_000), &[target("a.test:80", 100)], steps);
    for round in 0..4 {
        scene.checker.start_due(round * 10 * S);
        scene.one_done(round * 10 * S).await;
    }
    scene.checker.start_due(31 * S);
    assert_eq!(scene.checker.probes.len(), 1);
    assert_eq!(scene.checker.probing, 0);
}

#[tokio::test]
async fn a_look_up_that_panics_is_one_that_failed() {
    let steps = [Step::Panic, Step::Found("A", vec!["10.1.0.1:80"])];
    let mut scene = scene(json!({}), &[target("a.test:80", 100)], steps);
    scene.checker.start_due(0);
    scene.one_done(0).await;
    scene.checker.start_due(S);
    scene.one_done(S).await;
    assert_eq!(scene.addresses(), 1);
}

#[tokio::test]
async fn an_upstream_without_probes_is_looked_at_when_a_name_is_due() {
    let steps = [Step::Found("A", vec!["10.1.0.1:80"])];
    let mut scene = scene(json!({}), &[target("a.test:80", 100)], steps);
    scene.checker.start_due(0);
    scene.one_done(0).await;
    let wait = scene.checker.start_due(0);
    assert!(wait.as_secs() >= 5, "{wait:?}");
}

#[tokio::test]
async fn authorities_that_cannot_be_read_stop_no_start_and_no_tcp_probe() {
    let prober = Prober::new(Some(std::path::Path::new("nowhere/ca.pem")));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("is bound");
    let probe = async |kind: &str| {
        let active = json!({"healthchecks": {"active": {"type": kind}}});
        let balancer = Balancer::new(&upstream(active), &targets(&[1]), None, 0);
        let plan = Plan::of(&balancer.upstream, None);
        let endpoint = balancer.endpoint_set().endpoints()[0].clone();
        prober.probe(&plan, &endpoint, address).await
    };
    assert_eq!(probe("tcp").await, Some(Outcome::Status(200)));
    assert_eq!(probe("https").await, None);
}
