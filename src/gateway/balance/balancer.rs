//! Picking an endpoint, and learning from how the request went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::breaker::{Passage, Swing, Terms, Ticket};
use super::endpoint::{DOWN, Endpoint, RAMPING, SICK, State, TRIPPED};
use super::health::{self, Outcome, Rules};
use super::key::{Hashed, Keys, Request};
use super::lineup::Lineup;
use super::member::Member;
use super::random::{mix, scale};
use super::turn::Cursor;
use crate::model::target::Target;
use crate::model::upstream::{Algorithm, HashOn, Upstream};

/// Turns that are tried before all endpoints are looked at.
const TURNS: usize = 8;
/// Up to this many endpoints are all compared; of more, two that are drawn.
const COMPARED: usize = 32;
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
    lineup: ArcSwap<Lineup>,
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
    passive: Rules,
    pub(super) active: Rules,
    pub(super) breaker: Terms,
    max_requests: u32,
    pub(super) slow_start_ns: u64,
    /// Percentage of the weight that must be healthy.
    threshold: f64,
    algorithm: Algorithm,
    shared: Arc<Shared>,
}

/// What outlives every version of an upstream's configuration.
#[derive(Debug, Default)]
struct Shared {
    cursor: Cursor,
    /// How often the health of any endpoint changed.
    flips: AtomicU64,
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

    fn contains(&self, endpoint: &Endpoint) -> bool {
        self.0.contains(&endpoint.state.number)
    }
}

/// A request's try at an endpoint: counts as in flight until it is dropped.
#[derive(Debug)]
pub struct Pick {
    endpoint: Arc<Endpoint>,
    since_ns: u64,
    /// If it tries a half-open breaker, until the outcome is known.
    ticket: Option<Ticket>,
    reported: bool,
}

impl Pick {
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

/// One search for an endpoint.
struct Search<'a> {
    group: &'a Group,
    lineup: &'a Lineup,
    tried: &'a Tried,
    now_ns: u64,
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
        let before = previous.map(|previous| previous.lineup());
        let slots = slots(upstream);
        let lineup = Lineup::new(&group, &members, slots, before.as_deref(), now_ns);
        Self {
            group,
            members,
            upstream: upstream.clone(),
            keys: Keys::of(upstream),
            lineup: ArcSwap::from_pointee(lineup),
            arranging: Mutex::new(()),
        }
    }

    /// The upstream's record.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The endpoints now.
    pub fn lineup(&self) -> Arc<Lineup> {
        self.lineup.load_full()
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
        let before = self.lineup();
        let slots = slots(&self.upstream);
        let lineup = Lineup::new(&self.group, &self.members, slots, Some(&before), now_ns);
        self.lineup.store(Arc::new(lineup));
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
        let lineup = self.lineup.load();
        let flips = || group.shared.flips.load(Ordering::Relaxed);
        if group.threshold > 0.0 && !lineup.reaches(group.threshold, flips()) {
            return Err(NoTarget);
        }
        let fresh = Tried::default();
        let search = |tried| Search {
            group,
            lineup: &lineup,
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

impl Search<'_> {
    fn run(&self, hash: Option<u64>) -> Option<Pick> {
        match (self.group.algorithm, &self.lineup.ring, hash) {
            (Algorithm::ConsistentHashing, Some(ring), Some(hash)) => {
                let mut at = hash;
                for _ in 0..TURNS {
                    let endpoint = &self.lineup.endpoints[ring.owner(at)];
                    if self.may_try(endpoint) && self.fits(endpoint) {
                        return self.enter(endpoint);
                    }
                    at = mix(at);
                }
                self.scan(at)
            }
            (Algorithm::LeastConnections, ..) => {
                self.least(|endpoint, weight| (endpoint.state.in_flight() as f64 + 1.0) / weight)
            }
            (Algorithm::Latency, ..) => {
                self.least(|endpoint, weight| f64::from(endpoint.state.cost(self.now_ns)) / weight)
            }
            _ => self.in_turn(),
        }
    }

    fn in_turn(&self) -> Option<Pick> {
        let mut turn = 0;
        for _ in 0..TURNS {
            turn = self.group.shared.cursor.next();
            let endpoint = &self.lineup.endpoints[self.lineup.turns.at(turn)?];
            let pick = (self.may_try(endpoint) && self.is_its_turn(endpoint, turn))
                .then(|| self.enter(endpoint))
                .flatten();
            if pick.is_some() {
                return pick;
            }
        }
        self.scan(mix(turn))
    }

    /// Whether an endpoint that grows takes this turn.
    fn is_its_turn(&self, endpoint: &Endpoint, turn: u64) -> bool {
        let state = &endpoint.state;
        let flags = state.flags.load(Ordering::Relaxed) & self.group.heeded;
        if flags & RAMPING == 0 {
            return true;
        }
        let part = state.ramped(self.group.slow_start_ns, self.now_ns);
        (mix(turn) >> 11) as f64 / (1_u64 << 53) as f64 <= part
    }

    fn may_try(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_open(self.now_ns) && !self.tried.contains(endpoint)
    }

    fn fits(&self, endpoint: &Endpoint) -> bool {
        let limit = u64::from(self.group.max_requests);
        limit == 0 || endpoint.state.in_flight() < limit
    }

    /// Takes the endpoint, unless its limit or its breaker forbids it.
    fn enter(&self, endpoint: &Arc<Endpoint>) -> Option<Pick> {
        let state = &endpoint.state;
        if !state.enter(self.group.max_requests) {
            return None;
        }
        let tripped = state.flags.load(Ordering::Relaxed) & self.group.heeded & TRIPPED != 0;
        let mut pick = Pick {
            endpoint: endpoint.clone(),
            since_ns: self.now_ns,
            ticket: None,
            reported: false,
        };
        if tripped {
            match state.breaker.pass(self.group.breaker, self.now_ns)? {
                Passage::Free => {}
                Passage::Trial(ticket) => pick.ticket = Some(ticket),
            }
        }
        Some(pick)
    }

    /// The best of a few endpoints, or the better of two drawn by weight.
    fn least(&self, score: impl Fn(&Endpoint, f64) -> f64) -> Option<Pick> {
        let endpoints = &self.lineup.endpoints;
        let turn = self.group.shared.cursor.next();
        let first = self.lineup.turns.at(turn)?;
        let score = |index: usize| {
            let endpoint = &endpoints[index];
            if self.tried.contains(endpoint) || !self.fits(endpoint) {
                return None;
            }
            let weight = endpoint.current_weight(self.now_ns);
            (weight > 0.0).then(|| (score(endpoint, weight), index))
        };
        let better = |a: (f64, usize), b: (f64, usize)| if b.0 < a.0 { b } else { a };
        let best = if endpoints.len() <= COMPARED {
            // Whose turn it is comes first, and so wins among equals.
            let order = (first..endpoints.len()).chain(0..first);
            order.filter_map(score).reduce(better)
        } else {
            let second = self.lineup.turns.drawn(mix(turn))?;
            [first, second].into_iter().filter_map(score).reduce(better)
        };
        best.and_then(|(_, index)| self.enter(&endpoints[index]))
            .or_else(|| self.scan(mix(turn)))
    }

    /// Looks at all endpoints: a random one of those that can be had, by
    /// weight; the next ones if somebody else was faster.
    fn scan(&self, draw: u64) -> Option<Pick> {
        let endpoints = &self.lineup.endpoints;
        let weight = |endpoint: &Endpoint| {
            if self.tried.contains(endpoint) || !self.fits(endpoint) {
                0
            } else {
                endpoint.current_weight(self.now_ns).ceil() as u64
            }
        };
        let total: u64 = endpoints.iter().map(|e| weight(e)).sum();
        let mut position = scale(draw, total);
        let start = endpoints.iter().position(|endpoint| {
            let weight = weight(endpoint);
            let here = position < weight;
            position = position.saturating_sub(weight);
            here
        })?;
        let order = endpoints[start..].iter().chain(&endpoints[..start]);
        order
            .filter(|endpoint| weight(endpoint) > 0)
            .find_map(|endpoint| self.enter(endpoint))
    }
}

impl Endpoint {
    /// Learns from a try that took `elapsed_ns`.
    fn learn(&self, outcome: Outcome, ticket: Option<Ticket>, elapsed_ns: u64, now_ns: u64) {
        /// What a failed try counts on top of its time, so that failing fast
        /// does not look attractive.
        const FAILURE_NS: u64 = 100_000_000;
        let failed = !matches!(outcome, Outcome::Status(status) if status < 500);
        if failed {
            self.state.note_failure(outcome);
        }
        if self.group.algorithm == Algorithm::Latency {
            let penalty = if failed { FAILURE_NS } else { 0 };
            self.state.observe(elapsed_ns + penalty, now_ns);
        }
        if self.group.heeded & TRIPPED != 0 {
            self.swing(failed, ticket, now_ns);
        }
        self.count(&self.group.passive, outcome, now_ns);
    }

    /// Counts an outcome towards the endpoint's health.
    pub(super) fn count(&self, rules: &Rules, outcome: Outcome, now_ns: u64) {
        if rules.is_idle() {
            return;
        }
        let healthy = self.is_healthy();
        let changed = rules
            .event(outcome)
            .and_then(|(event, limit)| self.state.tally.count(event, limit, healthy));
        if let Some(healthy) = changed {
            self.turn_health(healthy, now_ns);
        }
    }

    /// Sets the health, as an operator does.
    pub(super) fn force_health(&self, healthy: bool, now_ns: u64) {
        self.state.tally.clear();
        if healthy && self.state.breaker_is_reset() {
            tracing::info!(upstream = %self.group.name, target = %self.label(), "breaker closed by hand");
        }
        self.turn_health(healthy, now_ns);
    }

    fn turn_health(&self, healthy: bool, now_ns: u64) {
        let flag = if self.group.checked { SICK } else { DOWN };
        let changed = if healthy {
            self.state.unset(SICK | DOWN)
        } else {
            self.state.set(flag)
        };
        if !changed {
            return;
        }
        self.group.shared.flips.fetch_add(1, Ordering::AcqRel);
        let (upstream, target) = (&self.group.name, self.label());
        if healthy {
            if self.group.slow_start_ns > 0 {
                self.state.ramp(now_ns);
            }
            tracing::info!(%upstream, %target, "target is healthy");
        } else {
            tracing::warn!(%upstream, %target, "target is unhealthy");
        }
    }

    fn swing(&self, failed: bool, ticket: Option<Ticket>, now_ns: u64) {
        let breaker = &self.state.breaker;
        let swing = if failed {
            breaker.failed(ticket, self.group.breaker, now_ns)
        } else {
            breaker.succeeded(ticket)
        };
        let (upstream, target) = (&self.group.name, self.label());
        match swing {
            None => {}
            Some(Swing::Opened) => {
                self.state.show_breaker();
                tracing::warn!(%upstream, %target, "breaker opened");
            }
            Some(Swing::Closed) => {
                self.state.show_breaker();
                if self.group.slow_start_ns > 0 {
                    self.state.ramp(now_ns);
                }
                tracing::info!(%upstream, %target, "breaker closed");
            }
        }
    }

    /// The target and, if it is a name, the address.
    pub(super) fn label(&self) -> String {
        match self.address {
            Some(address) if address.to_string() != *self.target => {
                format!("{} ({address})", self.target)
            }
            _ => self.target.to_string(),
        }
    }
}

impl State {
    /// Sets the flag that makes picks look at the breaker, or takes it away;
    /// again if the breaker moved meanwhile, so that the two never part.
    fn show_breaker(&self) {
        loop {
            let closed = self.breaker.is_closed();
            if closed {
                self.unset(TRIPPED);
            } else {
                self.set(TRIPPED);
            }
            if self.breaker.is_closed() == closed {
                return;
            }
        }
    }

    /// Closes the breaker; whether it was not closed.
    fn breaker_is_reset(&self) -> bool {
        let moved = self.breaker.reset();
        self.show_breaker();
        moved
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
