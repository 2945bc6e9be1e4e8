//! The algorithms against what they promise.

mod algorithms;
mod breaking;
mod changes;
mod hashing;
mod health;
pub(super) mod health_checks;

use serde_json::{Value, json};
use uuid::Uuid;

use super::member::{AddressRecord, Answer};
use super::{Balancer, Outcome, Pick, Tried};
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000 * MS;

/// An upstream with these fields besides its name.
pub(super) fn upstream(fields: Value) -> Upstream {
    let mut record = json!({
        "id": Uuid::nil(), "name": "group", "created_at": 1, "updated_at": 1
    });
    let map = record.as_object_mut().expect("is an object");
    map.extend(fields.as_object().expect("is an object").clone());
    serde_json::from_value(record).expect("is an upstream")
}

pub(super) fn target(text: &str, weight: u16) -> Target {
    Target {
        id: Uuid::new_v5(&Uuid::NAMESPACE_URL, text.as_bytes()),
        target: text.to_owned(),
        weight,
        upstream: doorward_core::model::route::Reference { id: Uuid::nil() },
        tags: None,
        created_at: 1.0,
        updated_at: 1.0,
    }
}

/// Targets `10.0.0.N:80` with these weights.
pub(super) fn targets(weights: &[u16]) -> Vec<Target> {
    weights
        .iter()
        .enumerate()
        .map(|(i, &weight)| target(&format!("10.0.{}.{}:80", i / 250, i % 250), weight))
        .collect()
}

pub(super) fn balancer(fields: Value, weights: &[u16]) -> Balancer {
    Balancer::new(&upstream(fields), &targets(weights), None, 0)
}

pub(super) fn pick(balancer: &Balancer, now_ns: u64) -> Option<Pick> {
    balancer.pick(None, &mut Tried::default(), now_ns).ok()
}

/// The target that is picked, at once given back.
pub(super) fn picked(balancer: &Balancer, hash: Option<u64>, now_ns: u64) -> Option<String> {
    let pick = balancer.pick(hash, &mut Tried::default(), now_ns).ok()?;
    Some(pick.endpoint().target().to_owned())
}

/// How many of `n` picks each target gets, in the order of the endpoint set.
pub(super) fn shares(balancer: &Balancer, n: usize, now_ns: u64) -> Vec<usize> {
    let endpoint_set = balancer.endpoint_set();
    let mut shares = vec![0; endpoint_set.endpoints().len()];
    for _ in 0..n {
        let pick = pick(balancer, now_ns).expect("is available");
        let at = endpoint_set
            .endpoints()
            .iter()
            .position(|e| e.target() == pick.endpoint().target());
        shares[at.expect("is of the lineup")] += 1;
    }
    shares
}

/// Sends a request to the target at `index` of the endpoint set and reports.
pub(super) fn report(balancer: &Balancer, index: usize, outcome: Outcome, now_ns: u64) {
    let wanted = balancer.endpoint_set().endpoints()[index]
        .target()
        .to_owned();
    let mut held = Vec::new();
    for _ in 0..10_000 {
        let mut pick = pick(balancer, now_ns).expect("is available");
        if pick.endpoint().target() == wanted {
            pick.report(outcome, now_ns);
            return;
        }
        held.push(pick);
    }
    panic!("{wanted} is never picked");
}

pub(super) fn learn(balancer: &Balancer, index: usize, addresses: &[(&str, u16)]) {
    let records = addresses
        .iter()
        .map(|(address, weight)| AddressRecord {
            address: address.parse().expect("is an address"),
            weight: *weight,
            name: None,
        })
        .collect();
    let kind = "A";
    assert!(balancer.members[index].learn(Answer::Found { records, kind }));
}
