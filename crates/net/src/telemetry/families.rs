//! Families of metrics, and what they have: numbers with labels.

use prometheus::proto::{
    Bucket, Counter as CounterValue, Gauge as GaugeValue, Histogram, LabelPair, Metric,
    MetricFamily, MetricType,
};

use super::traffic::{BOUNDS_US, HistogramSum};

pub(super) fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: Vec<Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn labelled(labels: &[(&str, &str)]) -> Metric {
    let pairs = labels
        .iter()
        .map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        })
        .collect();
    Metric::from_label(pairs)
}

pub(super) fn counter(labels: &[(&str, &str)], n: u64) -> Metric {
    let mut metric = labelled(labels);
    let mut value = CounterValue::default();
    value.set_value(n as f64);
    metric.set_counter(value);
    metric
}

pub(super) fn gauge(labels: &[(&str, &str)], n: i64) -> Metric {
    let mut metric = labelled(labels);
    let mut value = GaugeValue::default();
    value.set_value(n as f64);
    metric.set_gauge(value);
    metric
}

pub(super) fn histogram(labels: &[(&str, &str)], sum: &HistogramSum) -> Metric {
    let seconds = BOUNDS_US.map(|bound| bound as f64 / 1e6);
    histogram_with(labels, &seconds, &sum.buckets, sum.sum_us as f64 / 1e6)
}

/// A histogram with whole numbers for bounds; the last of `counts` is above all of
/// them.
pub(super) fn histogram_of(
    labels: &[(&str, &str)],
    bounds: &[u64],
    counts: &[u64],
    sum: u64,
) -> Metric {
    let bounds: Vec<f64> = bounds.iter().map(|&bound| bound as f64).collect();
    histogram_with(labels, &bounds, counts, sum as f64)
}

fn histogram_with(labels: &[(&str, &str)], bounds: &[f64], counts: &[u64], sum: f64) -> Metric {
    let mut metric = labelled(labels);
    let mut count = 0;
    let mut buckets = Vec::with_capacity(bounds.len());
    for (bound, n) in bounds.iter().zip(counts) {
        count += n;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(count);
        buckets.push(bucket);
    }
    count += counts.get(bounds.len()).copied().unwrap_or_default();
    let mut value = Histogram::default();
    value.set_sample_count(count);
    value.set_sample_sum(sum);
    value.set_bucket(buckets);
    metric.set_histogram(value);
    metric
}
