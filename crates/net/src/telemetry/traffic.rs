//! Counts and latencies of proxied requests, by service and route.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dashmap::DashMap;

use super::metrics::{STRIPES, stripe};

/// Upper bounds of the latency buckets, in microseconds.
pub const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 60_000_000,
];

/// The numbers of one route.
#[derive(Debug)]
pub struct RouteTraffic {
    /// Name (or id) of the service; empty: none.
    pub service: Box<str>,
    /// Name (or id) of the route.
    pub route: Box<str>,
    /// One per thread that served the route, made at its first request.
    stripes: [OnceLock<Box<Cells>>; STRIPES],
}

/// What one thread counted for one route.
#[derive(Debug, Default)]
struct Cells {
    classes: [AtomicU64; 6],
    total: Histogram,
    upstream: Histogram,
    sent: AtomicU64,
    received: AtomicU64,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

/// A histogram summed over all threads.
#[derive(Debug, Default, Clone)]
pub struct HistogramSum {
    /// Observations in each bucket, not cumulated; the last is above all bounds.
    pub buckets: [u64; BOUNDS_US.len() + 1],
    /// Sum of all observations in microseconds.
    pub sum_us: u64,
}

/// The numbers of one route, summed over all threads.
#[derive(Debug, Default, Clone)]
pub struct RouteSum {
    /// Requests by status class; index 0 counts those without an answer.
    pub classes: [u64; 6],
    /// Whole requests.
    pub total: HistogramSum,
    /// From the start of the connection to the upstream's response head.
    pub upstream: HistogramSum,
    /// Body bytes to clients.
    pub sent: u64,
    /// Body bytes from clients.
    pub received: u64,
}

/// One finished request.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Status of the answer; 0: the client left before one.
    pub status: u16,
    /// The whole request.
    pub total: Duration,
    /// Wait for the upstream, if it was asked.
    pub upstream: Option<Duration>,
    /// Body bytes to the client.
    pub sent: u64,
    /// Body bytes from the client.
    pub received: u64,
}

impl RouteTraffic {
    fn new(service: &str, route: &str) -> Self {
        Self {
            service: service.into(),
            route: route.into(),
            stripes: [const { OnceLock::new() }; STRIPES],
        }
    }

    /// Counts a finished request.
    pub fn observe(&self, seen: Observation) {
        let cells = self.stripes[stripe()].get_or_init(Box::default);
        let class = match seen.status / 100 {
            class @ 1..=5 => usize::from(class),
            _ => 0,
        };
        cells.classes[class].fetch_add(1, Ordering::Relaxed);
        cells.total.observe(seen.total);
        if let Some(upstream) = seen.upstream {
            cells.upstream.observe(upstream);
        }
        if seen.sent > 0 {
            cells.sent.fetch_add(seen.sent, Ordering::Relaxed);
        }
        if seen.received > 0 {
            cells.received.fetch_add(seen.received, Ordering::Relaxed);
        }
    }

    /// The sum over all threads, or `None` if there was no request yet.
    pub fn sum(&self) -> Option<RouteSum> {
        let mut sum: Option<RouteSum> = None;
        for cells in self.stripes.iter().filter_map(OnceLock::get) {
            let sum = sum.get_or_insert_default();
            for (to, from) in sum.classes.iter_mut().zip(&cells.classes) {
                *to += from.load(Ordering::Relaxed);
            }
            cells.total.add_to(&mut sum.total);
            cells.upstream.add_to(&mut sum.upstream);
            sum.sent += cells.sent.load(Ordering::Relaxed);
            sum.received += cells.received.load(Ordering::Relaxed);
        }
        sum
    }
}

impl Histogram {
    fn observe(&self, value: Duration) {
        let us = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|&bound| bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn add_to(&self, sum: &mut HistogramSum) {
        for (to, from) in sum.buckets.iter_mut().zip(&self.buckets) {
            *to += from.load(Ordering::Relaxed);
        }
        sum.sum_us += self.sum_us.load(Ordering::Relaxed);
    }
}

/// The numbers of all routes. A route keeps its numbers when it is compiled
/// anew.
#[derive(Debug, Default)]
pub struct Traffic {
    routes: DashMap<(Box<str>, Box<str>), Arc<RouteTraffic>>,
    /// Whether all routes of a service share their numbers.
    by_service: AtomicBool,
}

impl Traffic {
    /// Lets all routes of a service share their numbers, of those that are compiled
    /// from now on: many routes make many series. Routes without a service keep theirs:
    /// what no route takes is not to be counted among them.
    pub fn count_by_service(&self) {
        self.by_service.store(true, Ordering::Relaxed);
    }

    /// The numbers of `route` of `service`.
    pub fn route(&self, service: &str, route: &str) -> Arc<RouteTraffic> {
        let merged = self.by_service.load(Ordering::Relaxed);
        let route = if merged && !service.is_empty() {
            ""
        } else {
            route
        };
        self.routes
            .entry((service.into(), route.into()))
            .or_insert_with(|| Arc::new(RouteTraffic::new(service, route)))
            .clone()
    }

    /// Forgets a route that only its caller refers to any more.
    pub fn forget(&self, route: Arc<RouteTraffic>) {
        let key = (route.service.clone(), route.route.clone());
        self.routes.remove_if(&key, |_, known| {
            Arc::ptr_eq(known, &route) && Arc::strong_count(known) <= 2
        });
    }

    /// Forgets routes that nothing refers to any more.
    pub fn prune(&self) {
        self.routes
            .retain(|_, traffic| Arc::strong_count(traffic) > 1);
    }

    /// All routes that were asked for at least once, in the order of their names.
    pub fn sums(&self) -> Vec<(Arc<RouteTraffic>, RouteSum)> {
        let mut sums: Vec<_> = self
            .routes
            .iter()
            .filter_map(|entry| Some((entry.value().clone(), entry.value().sum()?)))
            .collect();
        sums.sort_by(|(a, _), (b, _)| (&a.service, &a.route).cmp(&(&b.service, &b.route)));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_in_its_class_and_bucket() {
        let traffic = Traffic::default();
        let route = traffic.route("orders", "all");
        assert!(traffic.sums().is_empty(), "nothing asked yet");
        route.observe(Observation {
            status: 404,
            total: Duration::from_micros(100),
            upstream: Some(Duration::from_secs(3600)),
            sent: 5,
            received: 7,
        });
        let (_, sum) = traffic.sums().pop().expect("one route");
        assert_eq!(sum.classes, [0, 0, 0, 0, 1, 0]);
        assert_eq!(sum.total.buckets[0], 1, "a bound is inclusive");
        assert_eq!(sum.upstream.buckets[BOUNDS_US.len()], 1);
        assert_eq!((sum.sent, sum.received), (5, 7));
    }

    #[test]
    fn routes_of_a_service_may_share_their_numbers_and_keep_them_while_one_is_left() {
        let traffic = Traffic::default();
        traffic.count_by_service();
        let seen = Observation {
            status: 200,
            total: Duration::from_millis(1),
            upstream: None,
            sent: 0,
            received: 0,
        };
        let (one, other) = (
            traffic.route("orders", "one"),
            traffic.route("orders", "other"),
        );
        one.observe(seen);
        other.observe(seen);
        traffic.route("users", "one").observe(seen);
        traffic.route("", "file").observe(seen);
        // Of requests that no route takes.
        traffic.route("", "").observe(seen);
        // A counter that fell would be a burst to whoever reads it.
        traffic.forget(one);
        let sums = traffic.sums();
        let told = |(route, sum): &(Arc<RouteTraffic>, RouteSum)| {
            (route.service.clone(), route.route.clone(), sum.classes[2])
        };
        let told: Vec<_> = sums.iter().map(told).collect();
        assert_eq!(
            told,
            [
                ("".into(), "".into(), 1),
                ("".into(), "file".into(), 1),
                ("orders".into(), "".into(), 2),
                ("users".into(), "".into(), 1)
            ]
        );
        drop(other);
    }

    #[test]
    fn only_routes_in_use_survive_a_pruning() {
        let traffic = Traffic::default();
        let kept = traffic.route("s", "kept");
        traffic.route("s", "gone");
        traffic.prune();
        assert_eq!(traffic.routes.len(), 1);
        assert_eq!(kept.route.as_ref(), "kept");
    }
}
