//! The endpoints of an upstream, in the order and with the tables that the
//! algorithms need. Immutable: a change makes a new one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use http::HeaderValue;

use super::balancer::Group;
use super::endpoint::{Endpoint, State};
use super::member::{AddressRecord, Answer, Member};
use super::random::hash;
use super::ring::{Contender, Ring};
use super::round_robin::RoundRobin;

/// Most addresses of one target.
const MAX_ADDRESSES: usize = 64;
/// Most endpoints of an upstream: what an index of the ring can tell apart.
const MAX_ENDPOINTS: usize = 1 << 16;
/// Most units that all weights together are divided into, so that shares of
/// addresses come out exact where they can.
const MAX_UNITS: u64 = u32::MAX as u64;

/// Endpoints and tables.
#[derive(Debug, Default)]
pub struct EndpointSet {
    pub(super) endpoints: Box<[Arc<Endpoint>]>,
    pub(super) turns: RoundRobin,
    pub(super) ring: Option<Ring>,
    /// Whether enough weight is healthy, and since which change of health.
    verdict: AtomicU64,
}

impl EndpointSet {
    /// The endpoints of `members`; `previous` gives their states and, if hash
    /// slots are wanted, the table that is changed.
    pub(super) fn new(
        group: &Arc<Group>,
        members: &[Member],
        slots: Option<u32>,
        previous: Option<&EndpointSet>,
        now_ns: u64,
    ) -> Self {
        let previous_states = PreviousStates::of(previous, now_ns);
        let drafts: Vec<Draft<'_>> = members
            .iter()
            .flat_map(Draft::of)
            .take(MAX_ENDPOINTS)
            .collect();
        let units = units(&drafts);
        let endpoints: Box<[Arc<Endpoint>]> = drafts
            .iter()
            .map(|draft| Arc::new(draft.endpoint(group, units, &previous_states)))
            .collect();
        let ring = slots.and_then(|slots| {
            let contenders = endpoints
                .iter()
                .map(|e| Contender {
                    key: e.key,
                    share: e.share,
                })
                .collect();
            Ring::new(contenders, slots, previous.and_then(|p| p.ring.as_ref()))
        });
        Self {
            turns: RoundRobin::new(endpoints.iter().map(|endpoint| endpoint.weight)),
            endpoints,
            ring,
            verdict: AtomicU64::new(0),
        }
    }

    /// The endpoints, in the order of the targets.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Whether at least `threshold` percent of the weight is healthy. Computed
    /// anew only after some endpoint's health has changed.
    pub(super) fn reaches(&self, threshold: f64, flips: u64) -> bool {
        let stamp = (flips + 1) << 1;
        let verdict = self.verdict.load(Ordering::Relaxed);
        if verdict & !1 == stamp {
            return verdict & 1 == 1;
        }
        let [total, healthy] = self.weights();
        let reached = total > 0 && healthy as f64 * 100.0 >= threshold * total as f64;
        self.verdict
            .store(stamp | u64::from(reached), Ordering::Relaxed);
        reached
    }

    /// All weight and the healthy part of it.
    pub(super) fn weights(&self) -> [u64; 2] {
        self.endpoints.iter().fold([0, 0], |[total, healthy], e| {
            let part = if e.is_healthy() { e.weight } else { 0 };
            [total + e.weight, healthy + part]
        })
    }
}

/// The states that endpoints had before a change.
struct PreviousStates<'a> {
    states: HashMap<(&'a str, Option<SocketAddr>), &'a Arc<State>, RandomState>,
    now_ns: u64,
}

impl<'a> PreviousStates<'a> {
    fn of(previous: Option<&'a EndpointSet>, now_ns: u64) -> Self {
        let endpoints = previous.map_or(&[][..], |endpoint_set| &endpoint_set.endpoints);
        let states = endpoints
            .iter()
            .map(|e| ((&*e.target, e.address), &e.state))
            .collect();
        Self { states, now_ns }
    }

    /// The state of an endpoint, a new one if it was not known. What joins
    /// others grows to its weight; what merely got its address does not.
    fn state(&self, draft: &Draft<'_>, group: &Group) -> Arc<State> {
        let target = &*draft.member.text;
        if let Some(state) = self.states.get(&(target, draft.address)) {
            return Arc::clone(state);
        }
        let state = State::new();
        let joins = !self.states.is_empty() && !self.states.contains_key(&(target, None));
        if joins && group.slow_start_ns > 0 {
            state.ramp(self.now_ns);
        }
        Arc::new(state)
    }
}

/// An endpoint to be.
struct Draft<'a> {
    member: &'a Member,
    address: Option<SocketAddr>,
    host: Box<str>,
    /// Its share of the member's weight, as a fraction.
    part: u64,
    whole: u64,
}

impl<'a> Draft<'a> {
    fn of(member: &'a Member) -> Vec<Self> {
        let draft = |address, host: &str, part, whole| Draft {
            member,
            address,
            host: host.into(),
            part,
            whole,
        };
        match &*member.answer() {
            Answer::Failed(_) => Vec::new(),
            Answer::Waiting => vec![draft(None, &member.host, 1, 1)],
            Answer::Fixed(address) => vec![draft(Some(*address), &member.host, 1, 1)],
            Answer::Found { records, .. } => {
                let records = &records[..records.len().min(MAX_ADDRESSES)];
                // A record without weight still gets some requests.
                let part = |found: &AddressRecord| u64::from(found.weight.max(1));
                let whole = records.iter().map(part).sum();
                records
                    .iter()
                    .map(|found| {
                        let host = found.name.as_deref().unwrap_or(&member.host);
                        draft(Some(found.address), host, part(found), whole)
                    })
                    .collect()
            }
        }
    }

    fn endpoint(
        &self,
        group: &Arc<Group>,
        units: u64,
        previous_states: &PreviousStates<'_>,
    ) -> Endpoint {
        let weight = u64::from(self.member.weight);
        let scaled = (weight * units * self.part + self.whole / 2) / self.whole;
        let port = self.address.map_or(self.member.port, |a| a.port());
        Endpoint {
            target: self.member.text.clone(),
            authority: authorities(group.host_header.as_deref().unwrap_or(&self.host), port),
            host: self.host.clone(),
            port,
            address: self.address,
            weight: if weight == 0 { 0 } else { scaled.max(1) },
            share: weight as f64 * self.part as f64 / self.whole as f64,
            key: self.key(),
            state: previous_states.state(self, group),
            group: group.clone(),
        }
    }

    /// The place on the ring: a target's, so that it stays when its only
    /// address changes; of several addresses each has its own.
    fn key(&self) -> u64 {
        let target = hash(self.member.text.as_bytes());
        match self.address {
            Some(address) if self.part != self.whole => {
                target ^ hash(address.to_string().as_bytes()).rotate_left(1)
            }
            _ => target,
        }
    }
}

/// How many units one point of a target's weight is divided into.
fn units(drafts: &[Draft<'_>]) -> u64 {
    let sum: u64 = drafts.iter().map(|d| u64::from(d.member.weight)).sum();
    let most = (MAX_UNITS / sum.max(1)).max(1);
    let mut units = 1;
    for draft in drafts {
        let next = lcm(units, draft.whole);
        if next > most {
            return most;
        }
        units = next;
    }
    units
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

fn authorities(host: &str, port: u16) -> [HeaderValue; 2] {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(name, port)| !name.contains(':') && port.parse::<u16>().is_ok());
    let bracketed = host.contains(':') && !has_port && !host.starts_with('[');
    [80, 443].map(|default| {
        let text = match (has_port || port == default, bracketed) {
            (true, false) => host.to_owned(),
            (true, true) => format!("[{host}]"),
            (false, false) => format!("{host}:{port}"),
            (false, true) => format!("[{host}]:{port}"),
        };
        // Schemas admit nothing else than host names.
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("upstream"))
    })
}
