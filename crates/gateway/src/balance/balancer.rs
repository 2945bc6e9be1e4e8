//! Picking an endpoint, and learning from how the request went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::breaker::{Terms, Ticket};
use super::endpoint::{DOWN, Endpoint, RAMPING, SICK, TRIPPED};
use super::endpoint_set::EndpointSet;
use super::health::{self, Outcome, Rules};
use super::key::{Hashed, Keys, Request};
use super::member::Member;
use super::round_robin::Cursor;
use super::search::Search;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::{Algorithm, HashOn, Upstream};

/// Tries that are remembered.
const REMEMBERED: usize = 32;
const NS_PER_S: u64 = 1_000_000_000;

/// An upstream at run time: made anew when its record or targets change, with
/// the states of the endpoints that stay.
#[derive(Debug)]
pub struct Balancer {
    pub(super) group: Arc<Group>,
    pub(super) members: Box<[Member]>,
    pub(super) upstream: Upstream,
    keys: Keys,
    endpoint_set: ArcSwap<EndpointSet>,
    /// Held while a lineup is replaced.
    arranging: Mutex<()>,
}

/// What all endpoints of an upstream have in common.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Box<str>,
    pub(super) host_header: Option<Box<str>>,
    /// The flags of an endpoint's state that count in this configuration.
    pub(super) heeded: u32,
    pub(super) checked: bool,
    pub(super) passive: Rules,
    pub(super) active: Rules,
    pub(super) breaker: Terms,
    pub(super) max_requests: u32,
    pub(super) slow_start_ns: u64,
    /// Percentage of the weight that must be healthy.
    threshold: f64,
    pub(super) algorithm: Algorithm,
    pub(super) shared: Arc<Shared>,
}

/// What outlives every version of an upstream's configuration.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) cursor: Cursor,
    /// How often the health of any endpoint changed.
    pub(super) flips: AtomicU64,
}

/// No endpoint can take the request (`failure to get a peer from the
/// ring-balancer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no target of upstream is available")]
pub struct NoTarget;

/// The endpoints that a request has tried.
#[derive(Debug, Default, Clone)]
pub struct Tried(SmallVec<[u32; 4]>);

impl Tried {
    fn note(&mut self, endpoint: &Endpoint) {
        if self.0.len() < REMEMBERED {
            self.0.push(endpoint.state.number);
        }
    }

    pub(super) fn contains(&self, endpoint: &Endpoint) -> bool {
        self.0.contains(&endpoint.state.number)
    }
}

/// A request's try at an endpoint: counts as in flight until it is dropped.
#[derive(Debug)]
pub struct Pick {
    endpoint: Arc<Endpoint>,
    since_ns: u64,
    /// If it tries a half-open breaker, until the outcome is known.
    pub(super) ticket: Option<Ticket>,
    reported: bool,
}

impl Pick {
    /// A try at an endpoint that has counted it in.
    pub(super) fn new(endpoint: Arc<Endpoint>, since_ns: u64) -> Self {
        Self {
            endpoint,
            since_ns,
            ticket: None,
            reported: false,
        }
    }

    /// Where the request goes.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The Host header for the target, over TLS or not: the upstream's
    /// `host_header`, else the target's host, with the port unless the scheme
    /// implies it.
    pub fn authority(&self, tls: bool) -> &HeaderValue {
        &self.endpoint.authority[usize::from(tls)]
    }

    /// Tells how the try ended; only the first report counts.
    pub fn report(&mut self, outcome: Outcome, now_ns: u64) {
        if !std::mem::replace(&mut self.reported, true) {
            let elapsed = now_ns.saturating_sub(self.since_ns);
            self.endpoint
                .learn(outcome, self.ticket.take(), elapsed, now_ns);
        }
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        self.endpoint.state.leave();
        if let Some(ticket) = self.ticket.take() {
            self.endpoint.state.breaker.give_back(ticket);
        }
    }
}

impl Balancer {
    /// The balancer of `upstream` over `targets`; of `previous`, the same
    /// upstream before, the endpoints that stay keep their states. Nothing of
    /// `previous` is changed.
    pub fn new<'t>(
        upstream: &Upstream,
        targets: impl IntoIterator<Item = &'t Target>,
        previous: Option<&Balancer>,
        now_ns: u64,
    ) -> Self {
        let old = previous.map_or(&[][..], |previous| &previous.members);
        let by_id: std::collections::HashMap<_, _> = old.iter().map(|m| (m.id, m)).collect();
        let members: Box<[Member]> = targets
            .into_iter()
            .map(|target| Member::new(target, by_id.get(&target.id).copied()))
            .collect();
        let group = Arc::new(Group::new(upstream, previous));
        let before = previous.map(|previous| previous.endpoint_set());
        let slots = slots(upstream);
        let endpoint_set = EndpointSet::new(&group, &members, slots, before.as_deref(), now_ns);
        Self {
            group,
            members,
            upstream: upstream.clone(),
            keys: Keys::of(upstream),
            endpoint_set: ArcSwap::from_pointee(endpoint_set),
            arranging: Mutex::new(()),
        }
    }

    /// The upstream's record.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The endpoints now.
    pub fn endpoint_set(&self) -> Arc<EndpointSet> {
        self.endpoint_set.load_full()
    }

    /// Whether picks depend on a hash of the request.
    pub fn hashes(&self) -> bool {
        self.group.algorithm == Algorithm::ConsistentHashing
            && self.upstream.hash_on != HashOn::None
    }

    /// Whether hashing needs the expressions of the route's paths.
    pub fn wants_captures(&self) -> bool {
        self.hashes() && self.keys.wants_captures()
    }

    /// What `request` is balanced by.
    pub fn hash(&self, request: &Request<'_>) -> Hashed {
        self.keys.hash(request)
    }

    /// Makes the lineup anew after names got other addresses.
    pub(super) fn rearrange(&self, now_ns: u64) {
        let _alone = self.arranging.lock();
        let before = self.endpoint_set();
        let slots = slots(&self.upstream);
        let endpoint_set =
            EndpointSet::new(&self.group, &self.members, slots, Some(&before), now_ns);
        self.endpoint_set.store(Arc::new(endpoint_set));
    }

    /// The endpoint for the next try: not one of `tried` unless all that are
    /// available were tried. Requests with the same `hash` get the same one.
    /// Takes no lock and does not allocate.
    ///
    /// # Errors
    /// [`NoTarget`] if no endpoint is available, or less weight is healthy
    /// than the upstream's threshold.
    pub fn pick(
        &self,
        hash: Option<u64>,
        tried: &mut Tried,
        now_ns: u64,
    ) -> Result<Pick, NoTarget> {
        let group = &*self.group;
        let endpoint_set = self.endpoint_set.load();
        let flips = || group.shared.flips.load(Ordering::Relaxed);
        if group.threshold > 0.0 && !endpoint_set.reaches(group.threshold, flips()) {
            return Err(NoTarget);
        }
        let fresh = Tried::default();
        let search = |tried| Search {
            group,
            endpoint_set: &endpoint_set,
            tried,
            now_ns,
        };
        let pick = search(tried).run(hash).or_else(|| {
            // Better a second time than not at all.
            let again = !tried.0.is_empty();
            again.then(|| search(&fresh).run(hash)).flatten()
        });
        let pick = pick.ok_or(NoTarget)?;
        tried.note(&pick.endpoint);
        Ok(pick)
    }
}

impl Group {
    fn new(upstream: &Upstream, previous: Option<&Balancer>) -> Self {
        let checks = &upstream.healthchecks;
        let breaker = &upstream.circuit_breaker;
        let checked = health::is_checked(checks);
        let slow_start_ns = u64::from(upstream.slow_start) * NS_PER_S;
        let heeded = [
            (SICK, checked),
            (DOWN, true),
            (TRIPPED, breaker.failures > 0),
            (RAMPING, slow_start_ns > 0),
        ];
        Self {
            name: upstream.name.as_str().into(),
            host_header: upstream.host_header.as_deref().map(Box::from),
            heeded: heeded
                .into_iter()
                .map(|(flag, on)| if on { flag } else { 0 })
                .sum(),
            checked,
            passive: Rules::passive(&checks.passive),
            active: Rules::active(&checks.active),
            breaker: Terms {
                failures: breaker.failures,
                open_ns: u64::from(breaker.open_seconds) * NS_PER_S,
                trials: u16::try_from(breaker.half_open_requests.max(1)).unwrap_or(u16::MAX),
            },
            max_requests: breaker.max_requests,
            slow_start_ns,
            threshold: checks.threshold,
            algorithm: algorithm(upstream),
            shared: previous.map_or_else(Arc::default, |p| p.group.shared.clone()),
        }
    }
}

/// What is hashed on demands consistent hashing.
fn algorithm(upstream: &Upstream) -> Algorithm {
    match upstream.hash_on {
        HashOn::None => upstream.algorithm,
        _ => Algorithm::ConsistentHashing,
    }
}

fn slots(upstream: &Upstream) -> Option<u32> {
    (algorithm(upstream) == Algorithm::ConsistentHashing).then_some(upstream.slots)
}
