//! The families of the imitated gateway at `/metrics`.

use prometheus::proto::{Metric, MetricFamily, MetricType};

use super::exposition::Telemetry;
use super::families::{counter, family, gauge, histogram_of};

/// The one workspace.
const WORKSPACE: (&str, &str) = ("workspace", "default");

impl Telemetry {
    /// What its `prometheus` plugin has counted, and what it tells of a node.
    pub(super) fn kong_families(&self) -> Vec<MetricFamily> {
        let mut families = self.kong_node_families();
        families.extend(self.kong_traffic_families());
        families.extend(self.kong_latency_families());
        families.push(family(
            "kong_upstream_target_health",
            "1 for the state that a target's address is in.",
            MetricType::GAUGE,
            self.kong_target_health(),
        ));
        families
    }

    fn kong_node_families(&self) -> Vec<MetricFamily> {
        let kong = &self.metrics.kong;
        let (id, version) = kong.node();
        if id.is_empty() {
            return Vec::new();
        }
        let labels = [("node_id", id), ("subsystem", "http")];
        let requests: u64 = self
            .traffic
            .sums()
            .iter()
            .map(|(_, sum)| sum.classes.iter().sum::<u64>())
            .sum();
        let opened = i64::try_from(self.connections.total()).unwrap_or(i64::MAX);
        let total = i64::try_from(requests).unwrap_or(i64::MAX);
        let states = [
            ("accepted", opened),
            ("active", self.connections.open()),
            ("handled", opened),
            ("total", total),
        ];
        let connections = states.map(|(state, n)| {
            let [node, subsystem] = labels;
            gauge(&[node, subsystem, ("state", state)], n)
        });
        let one = |metric: Metric| vec![metric];
        vec![
            family(
                "kong_datastore_reachable",
                "1 if the store answers.",
                MetricType::GAUGE,
                one(gauge(&[], kong.datastore_reachable.get())),
            ),
            family(
                "kong_nginx_connections_total",
                "Client connections by state; total: requests.",
                MetricType::GAUGE,
                connections.into(),
            ),
            family(
                "kong_nginx_metric_errors_total",
                "Numbers that found no room.",
                MetricType::COUNTER,
                one(counter(&[], kong.errors())),
            ),
            family(
                "kong_nginx_requests_total",
                "Requests so far.",
                MetricType::GAUGE,
                one(gauge(&labels, total)),
            ),
            family(
                "kong_node_info",
                "The node and the version of the interface that it speaks.",
                MetricType::GAUGE,
                one(gauge(&[("node_id", id), ("version", version)], 1)),
            ),
        ]
    }

    fn kong_traffic_families(&self) -> [MetricFamily; 2] {
        let kong = &self.metrics.kong;
        let mut requests = Vec::new();
        for (labels, n) in kong.requests() {
            if let [service, route, code, source, consumer] = &labels[..] {
                let labels = [
                    ("service", service.as_str()),
                    ("route", route),
                    ("code", code),
                    ("source", source),
                    WORKSPACE,
                    ("consumer", consumer),
                ];
                requests.push(counter(&labels, n));
            }
        }
        let mut bytes = Vec::new();
        for (labels, counts) in kong.bandwidth() {
            if let [service, route, consumer] = &labels[..] {
                for (direction, n) in ["ingress", "egress"].into_iter().zip(counts) {
                    let labels = [
                        ("service", service.as_str()),
                        ("route", route),
                        ("direction", direction),
                        WORKSPACE,
                        ("consumer", consumer),
                    ];
                    bytes.push(counter(&labels, n));
                }
            }
        }
        [
            family(
                "kong_http_requests_total",
                "Requests by service, route, status, origin of the answer, and consumer.",
                MetricType::COUNTER,
                requests,
            ),
            family(
                "kong_bandwidth_bytes",
                "Bytes from clients (ingress) and to them (egress).",
                MetricType::COUNTER,
                bytes,
            ),
        ]
    }

    fn kong_latency_families(&self) -> [MetricFamily; 3] {
        let (mut own, mut upstream, mut request) = (Vec::new(), Vec::new(), Vec::new());
        self.metrics.kong.for_each_latency(|labels, histograms| {
            let [service, route] = labels else { return };
            let labels = [("service", service.as_str()), ("route", route), WORKSPACE];
            let lists = [&mut own, &mut upstream, &mut request];
            for (list, latency) in lists.into_iter().zip(histograms) {
                let (bounds, counts, sum) = latency.sum();
                if counts.iter().any(|&n| n > 0) {
                    list.push(histogram_of(&labels, bounds, &counts, sum));
                }
            }
        });
        let of = |name, help, list| family(name, help, MetricType::HISTOGRAM, list);
        [
            of(
                "kong_kong_latency_ms",
                "Milliseconds that the gateway and its plugins took.",
                own,
            ),
            of(
                "kong_upstream_latency_ms",
                "Milliseconds until the head of the upstream's answer.",
                upstream,
            ),
            of(
                "kong_request_latency_ms",
                "Milliseconds of whole requests.",
                request,
            ),
        ]
    }

    /// The health of targets, if a plugin wants it shown.
    fn kong_target_health(&self) -> Vec<Metric> {
        const STATES: [&str; 4] = ["healthchecks_off", "healthy", "unhealthy", "dns_error"];
        if self.metrics.kong.upstream_health.get() <= 0 {
            return Vec::new();
        }
        let targets = self.targets.read();
        let metrics = targets.iter().flat_map(|target| {
            STATES.map(|state| {
                let labels = [
                    ("upstream", &*target.upstream),
                    ("target", &*target.target),
                    ("address", &*target.address),
                    ("state", state),
                    ("subsystem", "http"),
                ];
                gauge(&labels, i64::from(state == target.health))
            })
        });
        metrics.collect()
    }
}
