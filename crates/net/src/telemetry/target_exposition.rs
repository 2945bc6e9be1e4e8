//! The families of upstreams' targets, and of the queues of plugins.

use prometheus::proto::{MetricFamily, MetricType};

use super::exposition::Telemetry;
use super::families::{counter, family, gauge};

impl Telemetry {
    pub(super) fn delivery_families(&self) -> [MetricFamily; 2] {
        let entries = self.metrics.all_deliveries().into_iter();
        let entries = entries.map(|(plugin, outcome, n)| {
            let labels = [("plugin", plugin), ("outcome", outcome)];
            counter(&labels, n)
        });
        let waiting = self.metrics.all_deliveries_waiting().into_iter();
        let waiting = waiting.map(|(plugin, n)| gauge(&[("plugin", plugin)], n));
        [
            family(
                "doorward_deliveries_total",
                "Entries of the queues of plugins that were delivered or lost.",
                MetricType::COUNTER,
                entries.collect(),
            ),
            family(
                "doorward_deliveries_waiting",
                "Entries that wait in the queues of plugins.",
                MetricType::GAUGE,
                waiting.collect(),
            ),
        ]
    }

    pub(super) fn target_families(&self) -> Vec<MetricFamily> {
        const HEALTHS: [&str; 4] = ["healthy", "unhealthy", "healthchecks_off", "dns_error"];
        const BREAKERS: [&str; 3] = ["closed", "open", "half_open"];
        const KINDS: [&str; 3] = ["http", "tcp", "timeout"];
        let (mut health, mut breakers) = (Vec::new(), Vec::new());
        let (mut picks, mut failures, mut in_flight) = (Vec::new(), Vec::new(), Vec::new());
        for seen in self.targets.read() {
            let labels = [
                ("upstream", &*seen.upstream),
                ("target", &*seen.target),
                ("address", &*seen.address),
            ];
            let with = |name, value| {
                let [a, b, c] = labels;
                [a, b, c, (name, value)]
            };
            for state in HEALTHS {
                let is = i64::from(state == seen.health);
                health.push(gauge(&with("state", state), is));
            }
            for state in BREAKERS.into_iter().filter(|_| seen.breaker.is_some()) {
                let is = i64::from(Some(state) == seen.breaker);
                breakers.push(gauge(&with("state", state), is));
            }
            for (kind, &n) in KINDS.iter().zip(&seen.failures) {
                failures.push(counter(&with("kind", kind), n));
            }
            picks.push(counter(&labels, seen.picks));
            in_flight.push(gauge(
                &labels,
                i64::try_from(seen.in_flight).unwrap_or(i64::MAX),
            ));
        }
        vec![
            family(
                "doorward_upstream_target_health",
                "1 for the state that a target's address is in.",
                MetricType::GAUGE,
                health,
            ),
            family(
                "doorward_upstream_target_breaker",
                "1 for the state that the breaker of a target's address is in.",
                MetricType::GAUGE,
                breakers,
            ),
            family(
                "doorward_upstream_target_picks_total",
                "Tries at a target's address.",
                MetricType::COUNTER,
                picks,
            ),
            family(
                "doorward_upstream_target_failures_total",
                "Failed tries at a target's address, by kind.",
                MetricType::COUNTER,
                failures,
            ),
            family(
                "doorward_upstream_target_in_flight",
                "Requests in flight at a target's address.",
                MetricType::GAUGE,
                in_flight,
            ),
        ]
    }
}
