//! `/metrics`: everything that is counted, in the Prometheus text format.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};

use super::acme::AcmeMetrics;
use super::connections::Connections;
use super::families::{counter, family, gauge, histogram};
use super::listeners::{Expiry, ListenerCounters};
use super::metrics::{Counter, Gauge, Metrics};
use super::otlp::OtlpMetrics;
use super::process_log;
use super::refused_requests::RefusedRequests;
use super::targets::Targets;
use super::traffic::Traffic;
use super::upstreams::{DnsMetrics, Failure, UpstreamMetrics};

/// Every number of the process, in one place.
#[derive(Debug, Default, Clone)]
pub struct Telemetry {
    /// Decisions of plugins.
    pub metrics: Arc<Metrics>,
    /// Requests by service and route.
    pub traffic: Arc<Traffic>,
    /// Client connections.
    pub connections: Connections,
    /// Names of upstreams.
    pub dns: DnsMetrics,
    /// Failed tries at upstreams.
    pub upstreams: UpstreamMetrics,
    /// Endpoints of upstreams.
    pub targets: Targets,
    /// Reloads of the configuration files that were put in force.
    pub reloads_done: Counter,
    /// Reloads that were refused.
    pub reloads_failed: Counter,
    /// 1 if the files as they are now are in force.
    pub config_current: Gauge,
    /// Route files by what became of them: `loaded`, `stale`, `refused`.
    pub route_files: [Gauge; 3],
    /// Access log lines lost to a slow reader.
    pub log_lines_lost: Counter,
    /// Requests that were refused last.
    pub refused_requests: RefusedRequests,
    /// What is wrong with the files as they are now; empty: they are in force.
    pub config_errors: Arc<Mutex<Vec<String>>>,
    /// What the writer of the files should know, though they work; without the ends of
    /// certificates, which come near as time passes.
    pub config_warnings: Arc<Mutex<Vec<String>>>,
    /// What the log was told of the ends of certificates that files name.
    pub certificates_told: Arc<Mutex<Vec<String>>>,
    /// Where files name certificates, by the labels of [`Expiry`].
    pub certificate_places: Arc<Mutex<BTreeMap<String, String>>>,
    /// Connections to the listeners for clients.
    pub proxy_listener: ListenerCounters,
    /// Connections to the listeners for operators.
    pub admin_listener: ListenerCounters,
    /// Orders for certificates.
    pub acme: AcmeMetrics,
    /// Exports over OTLP.
    pub otlp: OtlpMetrics,
    certificates: Certificates,
}

/// Tells the certificates in force.
#[derive(Clone, Default)]
struct Certificates(Arc<OnceLock<Box<dyn Fn() -> Vec<Expiry> + Send + Sync>>>);

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates")
    }
}

/// Most certificates that are shown: those that expire first.
const SHOWN_CERTIFICATES: usize = 1000;

impl Telemetry {
    /// The metrics as `text/plain; version=0.0.4`.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        if let Err(error) = TextEncoder::new().encode(&self.gather(), &mut out) {
            tracing::error!(%error, "metrics can't be rendered");
        }
        out
    }

    /// All metrics, also those of the process itself.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.families();
        families.extend(prometheus::gather());
        families
    }

    /// Shows the certificates that `expiries` tells from now on.
    pub fn watch_certificates(&self, expiries: impl Fn() -> Vec<Expiry> + Send + Sync + 'static) {
        // Set once, at the start.
        let _ = self.certificates.0.set(Box::new(expiries));
    }

    /// Certificates, those that expire first; a bounded number.
    pub fn certificate_expiries(&self) -> Vec<Expiry> {
        let mut all = self
            .certificates
            .0
            .get()
            .map_or_else(Vec::new, |tell| tell());
        all.sort_by(|a, b| (a.seconds_left, &a.label).cmp(&(b.seconds_left, &b.label)));
        all.truncate(SHOWN_CERTIFICATES);
        all
    }

    fn listener_families(&self) -> Vec<MetricFamily> {
        let listeners = [
            ("proxy", &self.proxy_listener),
            ("admin", &self.admin_listener),
        ];
        let (mut open, mut refused, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for (listener, counters) in listeners {
            let label = ("listener", listener);
            open.push(gauge(&[label], counters.open()));
            for (reason, n) in [
                ("too_many", counters.too_many.get()),
                ("too_slow", counters.too_slow.get()),
                ("proxy_header", counters.proxy_header.get()),
            ] {
                refused.push(counter(&[label, ("reason", reason)], n));
            }
            for (reason, n) in counters.failures().filter(|(_, n)| *n > 0) {
                failures.push(counter(&[label, ("reason", reason)], n));
            }
        }
        let certificates = self.certificate_expiries();
        let certificates = certificates.iter().map(|expiry| {
            let label = ("certificate", expiry.label.as_str());
            gauge(&[label], expiry.seconds_left)
        });
        vec![
            family(
                "doorward_listener_connections",
                "Open connections, with or without a request.",
                MetricType::GAUGE,
                open,
            ),
            family(
                "doorward_connections_refused_total",
                "Connections closed because there were too many, or no request or PROXY header came in time.",
                MetricType::COUNTER,
                refused,
            ),
            family(
                "doorward_tls_handshake_failures_total",
                "Failed TLS handshakes.",
                MetricType::COUNTER,
                failures,
            ),
            family(
                "doorward_certificate_expiry_seconds",
                "Seconds until a certificate expires; negative: it has expired.",
                MetricType::GAUGE,
                certificates.collect(),
            ),
            family(
                "doorward_acme_orders_total",
                "Orders of this node for certificates by ACME.",
                MetricType::COUNTER,
                vec![
                    counter(&[("result", "issued")], self.acme.issued.get()),
                    counter(&[("result", "failed")], self.acme.failed.get()),
                ],
            ),
            family(
                "doorward_acme_failing",
                "Certificates by ACME whose last order failed.",
                MetricType::GAUGE,
                vec![gauge(&[], self.acme.failing.get())],
            ),
        ]
    }

    fn families(&self) -> Vec<MetricFamily> {
        let mut families = self.traffic_families();
        families.extend(self.upstream_families());
        families.extend(self.listener_families());
        let decisions = self.metrics.decisions();
        let lookups = self.metrics.token_lookups();
        let [sign_ins, locks] = self.metrics.signed_in();
        let [dropped, suppressed] = process_log::lost();
        families.extend([
            family(
                "doorward_plugin_decisions_total",
                "Decisions of plugins on requests.",
                MetricType::COUNTER,
                decisions
                    .into_iter()
                    .map(|(plugin, decision, n)| {
                        counter(&[("plugin", plugin), ("decision", decision)], n)
                    })
                    .collect(),
            ),
            family(
                "doorward_mcp_calls_total",
                "Calls of the Model Context Protocol, by method, name and decision.",
                MetricType::COUNTER,
                self.metrics
                    .all_mcp_calls()
                    .into_iter()
                    .map(|(method, name, decision, n)| {
                        let labels = [
                            ("method", &*method),
                            ("name", &name),
                            ("decision", decision),
                        ];
                        counter(&labels, n)
                    })
                    .collect(),
            ),
            family(
                "doorward_token_cache_total",
                "Look-ups of verified tokens.",
                MetricType::COUNTER,
                lookups
                    .into_iter()
                    .map(|(result, n)| counter(&[("result", result)], n))
                    .collect(),
            ),
            family(
                "doorward_backchannel_logouts_total",
                "Tries to tell clients that a session has ended; a failed one is repeated.",
                MetricType::COUNTER,
                self.metrics
                    .logout_notifications()
                    .into_iter()
                    .map(|(outcome, n)| counter(&[("outcome", outcome)], n))
                    .collect(),
            ),
            family(
                "doorward_identity_sign_ins_total",
                "Passwords that were checked, by outcome.",
                MetricType::COUNTER,
                sign_ins
                    .into_iter()
                    .map(|(outcome, n)| counter(&[("outcome", outcome)], n))
                    .collect(),
            ),
            family(
                "doorward_identity_locks_total",
                "Names and addresses that were locked after wrong passwords.",
                MetricType::COUNTER,
                locks
                    .into_iter()
                    .map(|(kind, n)| counter(&[("kind", kind)], n))
                    .collect(),
            ),
            family(
                "doorward_federated_sign_ins_total",
                "Sign-ins through other OpenID providers, by provider and outcome.",
                MetricType::COUNTER,
                self.metrics
                    .federated()
                    .into_iter()
                    .map(|(provider, outcome, n)| {
                        counter(&[("provider", &provider), ("outcome", outcome)], n)
                    })
                    .collect(),
            ),
            family(
                "doorward_openid_issuer_up",
                "Whether an OpenID provider of the plugins answered the last time.",
                MetricType::GAUGE,
                self.metrics
                    .issuers()
                    .into_iter()
                    .map(|(issuer, up)| gauge(&[("issuer", &issuer)], up))
                    .collect(),
            ),
            family(
                "doorward_openid_issuer_fetches_total",
                "Fetches of metadata and keys of OpenID providers, by outcome.",
                MetricType::COUNTER,
                self.metrics
                    .issuers_fetched()
                    .into_iter()
                    .map(|(issuer, outcome, n)| {
                        counter(&[("issuer", &issuer), ("outcome", outcome)], n)
                    })
                    .collect(),
            ),
            family(
                "doorward_directory_checks_total",
                "Verdicts of directories (LDAP) on passwords, by directory and outcome.",
                MetricType::COUNTER,
                self.metrics
                    .directory_checks()
                    .into_iter()
                    .map(|(directory, outcome, n)| {
                        counter(&[("directory", &directory), ("outcome", outcome)], n)
                    })
                    .collect(),
            ),
            family(
                "doorward_throttle_partitions",
                "Partitions that throttling filters hold.",
                MetricType::GAUGE,
                vec![gauge(&[], self.metrics.throttle_partitions().get())],
            ),
            family(
                "doorward_throttle_overflow_total",
                "Requests throttled together because a filter holds as many partitions as it may.",
                MetricType::COUNTER,
                vec![counter(&[], self.metrics.throttle_overflow().get())],
            ),
            family(
                "doorward_throttle_local_total",
                "Requests counted in this process alone because the shared Redis gave no answer.",
                MetricType::COUNTER,
                vec![counter(&[], self.metrics.throttle_alone().get())],
            ),
            family(
                "doorward_redis_up",
                "1 if the shared Redis is in use.",
                MetricType::GAUGE,
                Vec::from_iter(self.metrics.redis_is_up().map(|up| gauge(&[], up))),
            ),
            family(
                "doorward_redis_failures_total",
                "Answers of the shared Redis that were errors or did not come in time.",
                MetricType::COUNTER,
                Vec::from_iter(
                    self.metrics
                        .redis_is_up()
                        .map(|_| counter(&[], self.metrics.redis_failures().get())),
                ),
            ),
            family(
                "doorward_session_store_up",
                "1 if the Redis or memcached of login sessions is in use.",
                MetricType::GAUGE,
                Vec::from_iter(self.metrics.session_store_is_up().map(|up| gauge(&[], up))),
            ),
            family(
                "doorward_session_store_failures_total",
                "Answers of the Redis or memcached of login sessions that were errors or late.",
                MetricType::COUNTER,
                Vec::from_iter(
                    self.metrics
                        .session_store_is_up()
                        .map(|_| counter(&[], self.metrics.session_store_failures().get())),
                ),
            ),
            family(
                "doorward_connections",
                "Open client connections.",
                MetricType::GAUGE,
                vec![gauge(&[], self.connections.open())],
            ),
            family(
                "doorward_connections_total",
                "Client connections so far.",
                MetricType::COUNTER,
                vec![counter(&[], self.connections.total())],
            ),
            family(
                "doorward_reloads_total",
                "Reloads of the configuration files.",
                MetricType::COUNTER,
                vec![
                    counter(&[("result", "done")], self.reloads_done.get()),
                    counter(&[("result", "failed")], self.reloads_failed.get()),
                ],
            ),
            family(
                "doorward_config_current",
                "1 if the configuration files as they are now are in force.",
                MetricType::GAUGE,
                vec![gauge(&[], self.config_current.get())],
            ),
            family(
                "doorward_route_files",
                "Route files in force, in force with their last good version, not in force.",
                MetricType::GAUGE,
                ["loaded", "stale", "refused"]
                    .iter()
                    .zip(&self.route_files)
                    .map(|(state, n)| gauge(&[("state", state)], n.get()))
                    .collect(),
            ),
            family(
                "doorward_access_log_lost_total",
                "Access log lines that were not written.",
                MetricType::COUNTER,
                vec![counter(&[], self.log_lines_lost.get())],
            ),
            family(
                "doorward_log_lines_dropped_total",
                "Log lines that found no room or could not be written.",
                MetricType::COUNTER,
                vec![
                    counter(&[("stream", "access_log")], self.log_lines_lost.get()),
                    counter(&[("stream", "stderr")], dropped),
                ],
            ),
            family(
                "doorward_log_lines_suppressed_total",
                "Warnings and errors left out because one place logged too many.",
                MetricType::COUNTER,
                vec![counter(&[], suppressed)],
            ),
            family(
                "doorward_client_aborts_total",
                "Clients that left before they had their answer.",
                MetricType::COUNTER,
                process_log::client_aborts()
                    .counts()
                    .map(|(phase, n)| counter(&[("phase", phase)], n))
                    .collect(),
            ),
            family(
                "doorward_audit_records_total",
                "Records of the audit log that were written.",
                MetricType::COUNTER,
                vec![counter(&[], self.metrics.audit_records().get())],
            ),
            family(
                "doorward_audit_dropped_total",
                "Records of the audit log that were lost because too many waited.",
                MetricType::COUNTER,
                vec![counter(&[], self.metrics.audit_dropped().get())],
            ),
            family(
                "doorward_audit_failures_total",
                "Failed tries to write records of the audit log.",
                MetricType::COUNTER,
                vec![counter(&[], self.metrics.audit_failures().get())],
            ),
            family(
                "doorward_build_info",
                "The running version.",
                MetricType::GAUGE,
                vec![gauge(&[("version", env!("CARGO_PKG_VERSION"))], 1)],
            ),
        ]);
        families.extend(self.target_families());
        families.push(self.otlp.family());
        families.extend(self.delivery_families());
        families.extend(self.kong_families());
        // A family without samples is left out rather than refused.
        families.retain(|family| !family.get_metric().is_empty());
        families
    }

    fn upstream_families(&self) -> [MetricFamily; 4] {
        let dns = &self.dns;
        let results = [
            ("found", &dns.found),
            ("not_found", &dns.not_found),
            ("failed", &dns.failed),
        ];
        let failures = Failure::ALL.map(|failure| {
            let n = self.upstreams.failures(failure).get();
            counter(&[("kind", failure.as_str())], n)
        });
        let retries = [
            counter(&[("result", "made")], self.upstreams.retries.get()),
            counter(
                &[("result", "refused")],
                self.upstreams.retries_refused.get(),
            ),
        ];
        [
            family(
                "doorward_dns_lookups_total",
                "Look-ups of the names of upstreams.",
                MetricType::COUNTER,
                results
                    .map(|(result, n)| counter(&[("result", result)], n.get()))
                    .into(),
            ),
            family(
                "doorward_dns_stale_names",
                "Names whose expired addresses are in use because no server answers.",
                MetricType::GAUGE,
                vec![gauge(&[], dns.stale.get())],
            ),
            family(
                "doorward_upstream_failures_total",
                "Tries at upstreams that failed.",
                MetricType::COUNTER,
                failures.into(),
            ),
            family(
                "doorward_upstream_retries_total",
                "Further tries after a failed one.",
                MetricType::COUNTER,
                retries.into(),
            ),
        ]
    }

    fn traffic_families(&self) -> Vec<MetricFamily> {
        const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
        let mut requests = Vec::new();
        let (mut total, mut upstream) = (Vec::new(), Vec::new());
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for (route, sum) in self.traffic.sums() {
            let labels = [("service", &*route.service), ("route", &*route.route)];
            for (class, &n) in CLASSES.iter().zip(&sum.classes).filter(|(_, n)| **n > 0) {
                requests.push(counter(&[labels[0], labels[1], ("status", class)], n));
            }
            total.push(histogram(&labels, &sum.total));
            if sum.upstream.buckets.iter().any(|&n| n > 0) {
                upstream.push(histogram(&labels, &sum.upstream));
            }
            sent.push(counter(&labels, sum.sent));
            received.push(counter(&labels, sum.received));
        }
        vec![
            family(
                "doorward_requests_total",
                "Requests by service, route and status class.",
                MetricType::COUNTER,
                requests,
            ),
            family(
                "doorward_request_duration_seconds",
                "From the request's head to the end of the answer.",
                MetricType::HISTOGRAM,
                total,
            ),
            family(
                "doorward_upstream_duration_seconds",
                "From the choice of the peer to the upstream's response head.",
                MetricType::HISTOGRAM,
                upstream,
            ),
            family(
                "doorward_sent_bytes_total",
                "Body bytes to clients.",
                MetricType::COUNTER,
                sent,
            ),
            family(
                "doorward_received_bytes_total",
                "Body bytes from clients.",
                MetricType::COUNTER,
                received,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::traffic::Observation;
    use std::time::Duration;

    #[test]
    fn requests_are_shown_by_service_route_and_status_class() {
        let telemetry = Telemetry::default();
        telemetry
            .traffic
            .route("orders", "all\"")
            .observe(Observation {
                status: 200,
                total: Duration::from_millis(3),
                upstream: None,
                sent: 1,
                received: 0,
            });
        telemetry.metrics.decision("throttling", "refuse").inc();
        let text = String::from_utf8(telemetry.render()).expect("text");
        for line in [
            "doorward_requests_total{service=\"orders\",route=\"all\\\"\",status=\"2xx\"} 1",
            "doorward_request_duration_seconds_bucket{service=\"orders\",route=\"all\\\"\",le=\"0.005\"} 1",
            "doorward_request_duration_seconds_bucket{service=\"orders\",route=\"all\\\"\",le=\"0.0025\"} 0",
            "doorward_request_duration_seconds_count{service=\"orders\",route=\"all\\\"\"} 1",
            "doorward_plugin_decisions_total{plugin=\"throttling\",decision=\"refuse\"} 1",
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(
            !text.contains("doorward_upstream_duration_seconds"),
            "nothing proxied"
        );
    }
}
