//! Series under the names of the imitated gateway (`kong_…`), so that its dashboards
//! work: what its `prometheus` plugin counts, and what it tells of a node.
//!
//! Labels are names of entities and consumers; their number is bounded, and what
//! finds no room is counted in `kong_nginx_metric_errors_total`.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ahash::RandomState;
use dashmap::DashMap;

use super::metrics::{Counter, Gauge, STRIPES, stripe};

/// Most series that are held, histograms counted once.
const SERIES: usize = 20_000;
/// Between the labels of a series in its key.
const BETWEEN: char = '\u{1f}';

/// Upper bounds of the gateway's own latency, in milliseconds.
pub(super) const GATEWAY_BOUNDS: &[u64] = &[
    1, 2, 5, 7, 10, 15, 20, 30, 50, 75, 100, 200, 500, 750, 1000, 3000, 6000,
];
/// Upper bounds of the other latencies, in milliseconds.
pub(super) const BOUNDS: &[u64] = &[
    25, 50, 80, 100, 250, 400, 700, 1000, 2000, 5000, 10_000, 30_000, 60_000,
];

/// What of a request the series count.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Name of the service, or its host.
    pub service: &'a str,
    /// Name of the route, or its id.
    pub route: &'a str,
    /// Name of the consumer; empty: none, or not told apart.
    pub consumer: &'a str,
    /// Status of the answer.
    pub status: u16,
    /// `service` or `kong`: who made the answer.
    pub source: &'static str,
}

/// Latencies of a request; those that are unknown are not counted.
#[derive(Debug, Clone, Copy)]
pub struct LatencySample {
    /// The gateway's own.
    pub gateway: Duration,
    /// The upstream's.
    pub upstream: Option<Duration>,
    /// The whole request.
    pub request: Duration,
}

/// The series of a family by their labels.
type Family<V> = DashMap<Box<str>, V, RandomState>;

/// The series.
#[derive(Debug, Default)]
pub struct KongMetrics {
    requests: Family<Counter>,
    bandwidth: Family<[Counter; 2]>,
    latencies: Family<[LatencyHistogram; 3]>,
    series: AtomicUsize,
    errors: Counter,
    /// Plugins that want the health of targets shown.
    pub upstream_health: Gauge,
    /// Whether the store answered the last time it was asked.
    pub datastore_reachable: Gauge,
    node: OnceLock<(String, &'static str)>,
}

/// A histogram whose parts threads write apart.
#[derive(Debug)]
pub(super) struct LatencyHistogram {
    bounds: &'static [u64],
    stripes: [OnceLock<Box<[AtomicU64]>>; STRIPES],
}

impl LatencyHistogram {
    fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            stripes: [const { OnceLock::new() }; STRIPES],
        }
    }

    /// Counts a latency in whole milliseconds, as the imitated gateway does.
    fn observe(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        // A cell for each bound, one above them, and the sum.
        let cells = self.stripes[stripe()].get_or_init(|| {
            let cells = (0..self.bounds.len() + 2).map(|_| AtomicU64::new(0));
            cells.collect()
        });
        let bucket = self.bounds.partition_point(|&bound| bound < millis);
        cells[bucket].fetch_add(1, Ordering::Relaxed);
        cells[self.bounds.len() + 1].fetch_add(millis, Ordering::Relaxed);
    }

    /// Bounds, counts of each bucket with the one above all bounds, and the sum.
    pub(super) fn sum(&self) -> (&'static [u64], Vec<u64>, u64) {
        let mut total = vec![0; self.bounds.len() + 2];
        for cells in self.stripes.iter().filter_map(OnceLock::get) {
            for (sum, cell) in total.iter_mut().zip(cells.iter()) {
                *sum += cell.load(Ordering::Relaxed);
            }
        }
        let sum = total.pop().unwrap_or_default();
        (self.bounds, total, sum)
    }
}

/// Calls `with` with the key of a series that has these labels.
fn with_key<T>(labels: &[&str], with: impl FnOnce(&str) -> T) -> T {
    thread_local! {
        static KEY: RefCell<String> = const { RefCell::new(String::new()) };
    }
    KEY.with_borrow_mut(|key| {
        key.clear();
        for (i, label) in labels.iter().enumerate() {
            if i > 0 {
                key.push(BETWEEN);
            }
            key.push_str(label);
        }
        with(key)
    })
}

/// The three digits of a status.
fn digits(status: u16) -> [u8; 3] {
    [status / 100, status / 10, status].map(|number| b'0' + (number % 10).to_le_bytes()[0])
}

/// The labels of a key.
fn labels(key: &str) -> Vec<String> {
    key.split(BETWEEN).map(str::to_owned).collect()
}

impl KongMetrics {
    /// Tells dashboards of this node.
    pub fn identify(&self, id: &str, version: &'static str) {
        // Set once, at the start.
        let _ = self.node.set((id.to_owned(), version));
    }

    /// Identifier and version of this node; empty: not told.
    pub fn node(&self) -> (&str, &'static str) {
        self.node
            .get()
            .map_or(("", ""), |(id, version)| (id, version))
    }

    /// The identifier of this node; empty: not told.
    pub fn node_id(&self) -> &str {
        self.node().0
    }

    /// What found no room.
    pub(super) fn errors(&self) -> u64 {
        self.errors.get()
    }

    fn count<V>(
        &self,
        family: &Family<V>,
        key: &str,
        new: impl FnOnce() -> V,
        act: impl FnOnce(&V),
    ) {
        if let Some(series) = family.get(key) {
            return act(&series);
        }
        if self.series.load(Ordering::Relaxed) >= SERIES {
            return self.errors.inc();
        }
        let series = family.entry(key.into()).or_insert_with(|| {
            self.series.fetch_add(1, Ordering::Relaxed);
            new()
        });
        act(&series);
    }

    /// Counts a request by status (`kong_http_requests_total`).
    pub fn count_status(&self, sample: &Sample<'_>) {
        let digits = digits(sample.status);
        let labels = [
            sample.service,
            sample.route,
            std::str::from_utf8(&digits).unwrap_or_default(),
            sample.source,
            sample.consumer,
        ];
        with_key(&labels, |key| {
            self.count(&self.requests, key, Counter::default, Counter::inc);
        });
    }

    /// Counts the bytes of a request, from the client and to it
    /// (`kong_bandwidth_bytes`).
    pub fn count_bytes(&self, sample: &Sample<'_>, bytes: [u64; 2]) {
        let labels = [sample.service, sample.route, sample.consumer];
        with_key(&labels, |key| {
            self.count(&self.bandwidth, key, Default::default, |counters| {
                for (counter, bytes) in counters.iter().zip(bytes) {
                    counter.add(bytes);
                }
            });
        });
    }

    /// Counts the latencies of a request.
    pub fn count_latency(&self, sample: &Sample<'_>, latency: LatencySample) {
        let new = || {
            let [gateway, upstream, request] = [GATEWAY_BOUNDS, BOUNDS, BOUNDS];
            [gateway, upstream, request].map(LatencyHistogram::new)
        };
        with_key(&[sample.service, sample.route], |key| {
            self.count(&self.latencies, key, new, |[gateway, upstream, request]| {
                gateway.observe(latency.gateway);
                if let Some(time) = latency.upstream {
                    upstream.observe(time);
                }
                request.observe(latency.request);
            });
        });
    }

    /// Requests so far: service, route, status, source and consumer of each series.
    pub(super) fn requests(&self) -> Vec<(Vec<String>, u64)> {
        let all = self.requests.iter();
        let mut all: Vec<_> = all
            .map(|series| (labels(series.key()), series.value().get()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Bytes so far, from clients and to them: service, route and consumer.
    pub(super) fn bandwidth(&self) -> Vec<(Vec<String>, [u64; 2])> {
        let all = self.bandwidth.iter();
        let mut all: Vec<_> = all
            .map(|series| {
                let [ingress, egress] = series.value();
                (labels(series.key()), [ingress.get(), egress.get()])
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// Calls `with` with service, route and histograms (gateway, upstream, request)
    /// of each series.
    pub(super) fn for_each_latency(&self, mut with: impl FnMut(&[String], &[LatencyHistogram; 3])) {
        let mut keys: Vec<Box<str>> = self.latencies.iter().map(|one| one.key().clone()).collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(series) = self.latencies.get(&key) {
                with(&labels(&key), &series);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample<'a>(consumer: &'a str) -> Sample<'a> {
        Sample {
            service: "orders",
            route: "all",
            consumer,
            status: 200,
            source: "service",
        }
    }

    #[test]
    fn requests_with_the_same_labels_are_one_series() {
        let metrics = KongMetrics::default();
        for consumer in ["", "anna", "anna"] {
            metrics.count_status(&sample(consumer));
            metrics.count_bytes(&sample(consumer), [10, 20]);
        }
        let counts: Vec<u64> = metrics.requests().iter().map(|(_, n)| *n).collect();
        assert_eq!(counts, [1, 2]);
        assert_eq!(metrics.bandwidth()[1].1, [20, 40]);
        assert_eq!(
            metrics.requests()[1].0,
            ["orders", "all", "200", "service", "anna"]
        );
    }

    #[test]
    fn a_bound_is_inclusive_and_an_unknown_latency_is_not_counted() {
        let metrics = KongMetrics::default();
        let latency = LatencySample {
            gateway: Duration::from_micros(2900),
            upstream: None,
            request: Duration::from_secs(3600),
        };
        metrics.count_latency(&sample(""), latency);
        metrics.for_each_latency(|_, [gateway, upstream, request]| {
            let (bounds, counts, sum) = gateway.sum();
            assert_eq!((bounds[1], counts[1], sum), (2, 1, 2));
            assert_eq!(upstream.sum().1.iter().sum::<u64>(), 0);
            assert_eq!(request.sum().1.last(), Some(&1));
        });
    }

    #[test]
    fn what_finds_no_room_is_counted_as_an_error() {
        let metrics = KongMetrics::default();
        for i in 0..SERIES + 5 {
            metrics.count_status(&sample(&i.to_string()));
        }
        assert_eq!(metrics.requests().len(), SERIES);
        assert_eq!(metrics.errors(), 5);
        metrics.count_status(&sample("0"));
        assert_eq!(metrics.errors(), 5, "a known series goes on");
    }
}
