//! What an endpoint learns from tries, probes and operators.

use std::sync::atomic::Ordering;

use super::breaker::{Swing, Ticket};
use super::endpoint::{DOWN, Endpoint, SICK, State, TRIPPED};
use super::health::{Outcome, Rules};
use doorward_core::model::upstream::Algorithm;

impl Endpoint {
    /// Learns from a try that took `elapsed_ns`.
    pub(super) fn learn(
        &self,
        outcome: Outcome,
        ticket: Option<Ticket>,
        elapsed_ns: u64,
        now_ns: u64,
    ) {
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
        let Some(swing) = swing else {
            return;
        };
        let (upstream, target) = (&self.group.name, self.label());
        match swing {
            Swing::Opened => {
                self.state.show_breaker();
                tracing::warn!(%upstream, %target, "breaker opened");
            }
            Swing::Closed => {
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
