//! The algorithms: one search for an endpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::balancer::{Group, Pick, Tried};
use super::breaker::Passage;
use super::endpoint::{Endpoint, RAMPING, TRIPPED};
use super::endpoint_set::EndpointSet;
use super::random::{mix, scale};
use doorward_core::model::upstream::Algorithm;

/// Turns that are tried before all endpoints are looked at.
const TURNS: usize = 8;
/// Up to this many endpoints are all compared; of more, two that are drawn.
const COMPARED: usize = 32;

/// One search for an endpoint.
pub(super) struct Search<'a> {
    pub(super) group: &'a Group,
    pub(super) endpoint_set: &'a EndpointSet,
    pub(super) tried: &'a Tried,
    pub(super) now_ns: u64,
}

impl Search<'_> {
    /// The endpoint for a try, entered.
    pub(super) fn run(&self, hash: Option<u64>) -> Option<Pick> {
        match (self.group.algorithm, &self.endpoint_set.ring, hash) {
            (Algorithm::ConsistentHashing, Some(ring), Some(hash)) => {
                let mut at = hash;
                for _ in 0..TURNS {
                    let endpoint = &self.endpoint_set.endpoints[ring.owner(at)];
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
            let endpoint = &self.endpoint_set.endpoints[self.endpoint_set.turns.at(turn)?];
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
        let mut pick = Pick::new(endpoint.clone(), self.now_ns);
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
        let endpoints = &self.endpoint_set.endpoints;
        let turn = self.group.shared.cursor.next();
        let first = self.endpoint_set.turns.at(turn)?;
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
            let second = self.endpoint_set.turns.drawn(mix(turn))?;
            [first, second].into_iter().filter_map(score).reduce(better)
        };
        best.and_then(|(_, index)| self.enter(&endpoints[index]))
            .or_else(|| self.scan(mix(turn)))
    }

    /// Looks at all endpoints: a random one of those that can be had, by
    /// weight; the next ones if somebody else was faster.
    fn scan(&self, draw: u64) -> Option<Pick> {
        let endpoints = &self.endpoint_set.endpoints;
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
