//! Families of metrics as messages of OTLP (opentelemetry-proto,
//! `metrics/v1/metrics.proto`).

use prometheus::proto::{Histogram, Metric, MetricFamily, MetricType};

use crate::telemetry::protobuf;

/// Most numbers in one request: collectors refuse long ones.
const POINTS: usize = 2000;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: sums since the start.
const CUMULATIVE: u64 = 2;

/// What says whose the numbers are.
#[derive(Clone, Copy)]
pub(super) struct Resource<'a> {
    /// The node's identifier; empty: not known.
    pub(super) node: &'a str,
    /// What the operator says; it goes before.
    pub(super) attributes: &'a [(String, String)],
}

/// Since when sums are counted, and until when, in nanoseconds since the epoch.
#[derive(Clone, Copy)]
pub(super) struct Times {
    start: u64,
    now: u64,
}

impl Times {
    pub(super) fn of_ms(started_ms: i64, now_ms: i64) -> Self {
        let nanos = |ms: i64| u64::try_from(ms).unwrap_or_default() * 1_000_000;
        let start = nanos(started_ms);
        Self {
            start,
            // A clock that was set back.
            now: nanos(now_ms).max(start),
        }
    }
}

/// Requests that have all numbers together, each a bounded part.
pub(super) fn requests(
    families: &[MetricFamily],
    resource: Resource<'_>,
    times: Times,
) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    let (mut metrics, mut points) = (Vec::new(), 0);
    for family in families {
        for part in family.get_metric().chunks(POINTS) {
            if points + part.len() > POINTS {
                requests.push(request(&metrics, resource));
                metrics.clear();
                points = 0;
            }
            points += part.len();
            metric(&mut metrics, family, part, times);
        }
    }
    if points > 0 {
        requests.push(request(&metrics, resource));
    }
    requests
}

/// `ExportMetricsServiceRequest`.
fn request(metrics: &[u8], of: Resource<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(metrics.len() + 512);
    protobuf::message(&mut out, 1, |out| {
        protobuf::message(out, 1, |out| resource(out, of));
        protobuf::message(out, 2, |out| {
            protobuf::message(out, 1, |out| {
                protobuf::bytes(out, 1, b"doorward");
                protobuf::bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            out.extend_from_slice(metrics);
        });
    });
    out
}

fn resource(out: &mut Vec<u8>, of: Resource<'_>) {
    let own = [
        ("service.name", "doorward"),
        ("service.instance.id", of.node),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    protobuf::resource(out, &own, of.attributes);
}

/// Appends a metric with these of its points.
fn metric(out: &mut Vec<u8>, family: &MetricFamily, points: &[Metric], times: Times) {
    protobuf::message(out, 2, |out| {
        protobuf::bytes(out, 1, family.name().as_bytes());
        protobuf::bytes(out, 2, family.help().as_bytes());
        if let Some(unit) = unit(family.name()) {
            protobuf::bytes(out, 3, unit.as_bytes());
        }
        match family.get_field_type() {
            MetricType::COUNTER => protobuf::message(out, 7, |out| {
                for point in points {
                    let value = point.get_counter().get_value();
                    number_point(out, point, value, (Some(times.start), times.now));
                }
                protobuf::number(out, 2, CUMULATIVE);
                // They only grow.
                protobuf::number(out, 3, 1);
            }),
            MetricType::HISTOGRAM => protobuf::message(out, 9, |out| {
                for point in points {
                    histogram_point(out, point, point.get_histogram(), times);
                }
                protobuf::number(out, 2, CUMULATIVE);
            }),
            // There are no others but gauges.
            _ => protobuf::message(out, 5, |out| {
                for point in points {
                    let value = point.get_gauge().get_value();
                    number_point(out, point, value, (None, times.now));
                }
            }),
        }
    });
}

/// The unit that a name ends with (UCUM).
fn unit(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix("_total").unwrap_or(name);
    if name.ends_with("_seconds") {
        Some("s")
    } else if name.ends_with("_bytes") {
        Some("By")
    } else {
        None
    }
}

/// Appends a `NumberDataPoint`.
fn number_point(out: &mut Vec<u8>, point: &Metric, value: f64, (start, now): (Option<u64>, u64)) {
    protobuf::message(out, 1, |out| {
        if let Some(start) = start {
            protobuf::fixed64(out, 2, start);
        }
        protobuf::fixed64(out, 3, now);
        protobuf::fixed64(out, 4, value.to_bits());
        labels(out, 7, point);
    });
}

/// Appends a `HistogramDataPoint`. The text format counts what is below each bound,
/// this one what is between two of them.
fn histogram_point(out: &mut Vec<u8>, point: &Metric, histogram: &Histogram, times: Times) {
    let total = histogram.get_sample_count();
    let finite = histogram.get_bucket().iter();
    let finite = finite.filter(|bucket| bucket.upper_bound().is_finite());
    let (mut counts, mut bounds) = (Vec::new(), Vec::new());
    let mut below = 0;
    for bucket in finite {
        let count = bucket.cumulative_count();
        counts.extend_from_slice(&count.saturating_sub(below).to_le_bytes());
        bounds.extend_from_slice(&bucket.upper_bound().to_le_bytes());
        below = count;
    }
    counts.extend_from_slice(&total.saturating_sub(below).to_le_bytes());
    protobuf::message(out, 1, |out| {
        protobuf::fixed64(out, 2, times.start);
        protobuf::fixed64(out, 3, times.now);
        protobuf::fixed64(out, 4, total);
        protobuf::fixed64(out, 5, histogram.get_sample_sum().to_bits());
        protobuf::bytes(out, 6, &counts);
        protobuf::bytes(out, 7, &bounds);
        labels(out, 9, point);
    });
}

fn labels(out: &mut Vec<u8>, field: u8, point: &Metric) {
    for label in point.get_label() {
        protobuf::text_attribute(out, field, label.name(), label.value());
    }
}
