//! Families of metrics as messages of OTLP (opentelemetry-proto,
//! `metrics/v1/metrics.proto`).

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use prometheus::proto::{self, MetricFamily, MetricType};

use crate::telemetry::attributes;

/// Most numbers in one request: collectors refuse long ones.
const POINTS: usize = 2000;
/// Sums count since the start.
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

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
) -> Vec<ExportMetricsServiceRequest> {
    let mut requests = Vec::new();
    let (mut metrics, mut points) = (Vec::new(), 0);
    for family in families {
        for part in family.get_metric().chunks(POINTS) {
            if points + part.len() > POINTS {
                requests.push(request(std::mem::take(&mut metrics), resource));
                points = 0;
            }
            points += part.len();
            metrics.push(metric(family, part, times));
        }
    }
    if points > 0 {
        requests.push(request(metrics, resource));
    }
    requests
}

fn request(metrics: Vec<Metric>, of: Resource<'_>) -> ExportMetricsServiceRequest {
    let own = [
        ("service.name", "doorward"),
        ("service.instance.id", of.node),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let scope = InstrumentationScope {
        name: "doorward".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = ScopeMetrics {
        scope: Some(scope),
        metrics,
        ..ScopeMetrics::default()
    };
    let resource_metrics = ResourceMetrics {
        resource: Some(attributes::resource(&own, of.attributes)),
        scope_metrics: vec![scope_metrics],
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![resource_metrics],
    }
}

/// A metric with these of its points.
fn metric(family: &MetricFamily, points: &[proto::Metric], times: Times) -> Metric {
    let points = points.iter();
    let data = match family.get_field_type() {
        MetricType::COUNTER => Data::Sum(Sum {
            data_points: points
                .map(|point| NumberDataPoint {
                    start_time_unix_nano: times.start,
                    ..number_point(point, point.get_counter().get_value(), times)
                })
                .collect(),
            aggregation_temporality: CUMULATIVE,
            // They only grow.
            is_monotonic: true,
        }),
        MetricType::HISTOGRAM => Data::Histogram(Histogram {
            data_points: points.map(|point| histogram_point(point, times)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
        // There are no others but gauges.
        _ => Data::Gauge(Gauge {
            data_points: points
                .map(|point| number_point(point, point.get_gauge().get_value(), times))
                .collect(),
        }),
    };
    Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        unit: unit(family.name()).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// The unit that a name ends with (UCUM); empty: none.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    if name.ends_with("_seconds") {
        "s"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        ""
    }
}

/// A number as of now.
fn number_point(point: &proto::Metric, value: f64, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: labels(point),
        time_unix_nano: times.now,
        value: Some(Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

/// The text format counts what is below each bound, this one what is between two of
/// them.
fn histogram_point(point: &proto::Metric, times: Times) -> HistogramDataPoint {
    let histogram = point.get_histogram();
    let total = histogram.get_sample_count();
    let finite = histogram.get_bucket().iter();
    let finite = finite.filter(|bucket| bucket.upper_bound().is_finite());
    let (mut bucket_counts, mut explicit_bounds) = (Vec::new(), Vec::new());
    let mut below = 0;
    for bucket in finite {
        let count = bucket.cumulative_count();
        bucket_counts.push(count.saturating_sub(below));
        explicit_bounds.push(bucket.upper_bound());
        below = count;
    }
    bucket_counts.push(total.saturating_sub(below));
    HistogramDataPoint {
        attributes: labels(point),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: total,
        sum: Some(histogram.get_sample_sum()),
        bucket_counts,
        explicit_bounds,
        ..HistogramDataPoint::default()
    }
}

fn labels(point: &proto::Metric) -> Vec<KeyValue> {
    let labels = point.get_label().iter();
    labels
        .map(|label| attributes::text(label.name(), label.value()))
        .collect()
}
