#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use prometheus::proto::MetricType;

use super::encoding::{Resource, Times, requests};
use super::*;
use crate::telemetry::families::{counter, family, gauge, histogram_of};

/// A field of a message.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message, with their numbers: an independent reader.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        number
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (eight, rest) = bytes.split_first_chunk().unwrap();
                bytes = rest;
                Field::Number(u64::from_le_bytes(*eight))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn all(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    let of = fields(message).into_iter().filter(|(n, _)| *n == number);
    of.map(|(_, field)| match field {
        Field::Bytes(bytes) => bytes,
        Field::Number(_) => panic!("a number"),
    })
    .collect()
}

fn one(message: &[u8], number: u64) -> Vec<u8> {
    all(message, number).into_iter().next().unwrap()
}

fn number(message: &[u8], number: u64) -> Option<u64> {
    let mut of = fields(message).into_iter().filter(|(n, _)| *n == number);
    of.next().map(|(_, field)| match field {
        Field::Number(number) => number,
        Field::Bytes(_) => panic!("no number"),
    })
}

/// Names and texts of attributes.
fn attributes(message: &[u8], field: u64) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let attributes = all(message, field).into_iter();
    attributes
        .map(|one_of| (text(one(&one_of, 1)), text(one(&one(&one_of, 2), 1))))
        .collect()
}

const TIMES: (i64, i64) = (1000, 61_000);

fn encode(families: &[MetricFamily], attributes: &[(String, String)]) -> Vec<Vec<u8>> {
    let resource = Resource {
        node: "n1",
        attributes,
    };
    let requests = requests(families, resource, Times::of_ms(TIMES.0, TIMES.1));
    requests.iter().map(Message::encode_to_vec).collect()
}

/// The metrics of a request.
fn metrics(request: &[u8]) -> Vec<Vec<u8>> {
    all(&one(&one(request, 1), 2), 2)
}

#[test]
fn counters_are_cumulative_sums_that_only_grow() {
    let points = vec![counter(&[("route", "a"), ("status", "2xx")], 7)];
    let family = family("doorward_x_total", "Help.", MetricType::COUNTER, points);
    let requests = encode(&[family], &[]);
    let metric = metrics(&requests[0]).remove(0);
    assert_eq!(one(&metric, 1), b"doorward_x_total");
    assert_eq!(one(&metric, 2), b"Help.");
    let sum = one(&metric, 7);
    assert_eq!((number(&sum, 2), number(&sum, 3)), (Some(2), Some(1)));
    let point = one(&sum, 1);
    assert_eq!(number(&point, 2), Some(1_000_000_000));
    assert_eq!(number(&point, 3), Some(61_000_000_000));
    assert_eq!(number(&point, 4), Some(7.0_f64.to_bits()));
    let expected = [("route", "a"), ("status", "2xx")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(attributes(&point, 7), expected);
}

#[test]
fn gauges_have_no_start_and_may_be_negative() {
    let points = vec![gauge(&[], -3)];
    let family = family("doorward_left_seconds", "", MetricType::GAUGE, points);
    let metric = metrics(&encode(&[family], &[])[0]).remove(0);
    assert_eq!(one(&metric, 3), b"s");
    let point = one(&one(&metric, 5), 1);
    assert_eq!(number(&point, 2), None);
    assert_eq!(number(&point, 4), Some((-3.0_f64).to_bits()));
}

#[test]
fn buckets_of_histograms_count_for_themselves() {
    let points = vec![histogram_of(&[], &[1, 2], &[5, 0, 4], 30)];
    let family = family("d", "", MetricType::HISTOGRAM, points);
    let metric = metrics(&encode(&[family], &[])[0]).remove(0);
    let histogram = one(&metric, 9);
    assert_eq!(number(&histogram, 2), Some(2));
    let point = one(&histogram, 1);
    assert_eq!(number(&point, 4), Some(9));
    assert_eq!(number(&point, 5), Some(30.0_f64.to_bits()));
    let eights = |bytes: Vec<u8>| -> Vec<u64> {
        let chunks = bytes.chunks(8).map(|chunk| chunk.try_into().unwrap());
        chunks.map(u64::from_le_bytes).collect()
    };
    // One more than there are bounds.
    assert_eq!(eights(one(&point, 6)), [5, 0, 4]);
    let bounds = [1.0_f64, 2.0].map(f64::to_bits);
    assert_eq!(eights(one(&point, 7)), bounds);
}

#[test]
fn many_series_are_sent_in_bounded_requests() {
    let points = (0..4500).map(|n| counter(&[("n", &n.to_string())], n));
    let family = family("d_total", "", MetricType::COUNTER, points.collect());
    let requests = encode(&[family.clone(), family], &[]);
    let sizes = requests.iter().map(|request| {
        let metrics = metrics(request).into_iter();
        metrics
            .map(|metric| all(&one(&metric, 7), 1).len())
            .sum::<usize>()
    });
    let sizes: Vec<usize> = sizes.collect();
    assert_eq!(sizes.iter().sum::<usize>(), 9000);
    assert!(sizes.iter().all(|size| *size <= 2000), "{sizes:?}");
}

#[test]
fn the_operators_attributes_go_before() {
    let of = [("service.name".to_owned(), "shop".to_owned())];
    let family = family("d", "", MetricType::GAUGE, vec![gauge(&[], 1)]);
    let resource = one(&one(&encode(&[family], &of)[0], 1), 1);
    let names: Vec<(String, String)> = attributes(&resource, 1);
    let names = names.iter().filter(|(name, _)| name == "service.name");
    assert_eq!(names.collect::<Vec<_>>(), [&of[0]]);
}

fn config(settings: &str) -> Result<OtlpConfig, serde_json::Error> {
    serde_json::from_str(settings)
}

#[test]
fn what_can_not_be_sent_to_is_refused_with_its_key() {
    let good = r#"{"metrics_endpoint": "http://127.0.0.1:4318/v1/metrics"}"#;
    config(good).unwrap().check().unwrap();
    let grpc = r#"{"metrics_endpoint": "grpc://127.0.0.1:4317"}"#;
    config(grpc).unwrap().check().unwrap();
    let with = |more: &str| {
        let endpoint = r#""metrics_endpoint": "https://c.test/v1/metrics""#;
        format!("{{{endpoint}, {more}}}")
    };
    let endpoint = |url: &str| format!(r#"{{"metrics_endpoint": "{url}"}}"#);
    for (settings, key) in [
        (endpoint("ftp://c.test/v1/metrics"), "metrics_endpoint"),
        (endpoint("c.test:4318"), "metrics_endpoint"),
        (endpoint("http://c.test:4318"), "metrics_endpoint"),
        (endpoint("http://a:b@c.test/v1/metrics"), "metrics_endpoint"),
        (
            endpoint("grpc://c.test:4317/v1/metrics"),
            "metrics_endpoint",
        ),
        (endpoint("grpc://a:b@c.test"), "metrics_endpoint"),
        (with(r#""interval": "1 ms""#), "interval"),
        (with(r#""interval": "2 hours""#), "interval"),
        (with(r#""interval": "unlimited""#), "interval"),
        (with(r#""timeout": "61 s""#), "timeout"),
        (with(r#""interval": "5 s", "timeout": "6 s""#), "timeout"),
        (with(r#""headers": {"a b": "x"}"#), "headers"),
        (with(r#""headers": {"a": "x\ny: z"}"#), "headers"),
        (with(r#""headers": {"Content-Length": "1"}"#), "headers"),
        (
            with(r#""resource_attributes": {"a": ""}"#),
            "resource_attributes",
        ),
    ] {
        let (at, message) = config(&settings).unwrap().check().unwrap_err();
        assert_eq!(at, key, "{settings}: {message}");
    }
    assert!(config("{}").is_err());
    assert!(config(&with(r#""protocol": "grpc""#)).is_err());
}

#[test]
fn secrets_of_headers_are_not_shown_and_their_changes_are_noticed() {
    let of = |secret: &str| {
        let endpoint = r#""metrics_endpoint": "http://c.test/v1/metrics""#;
        let settings = format!(r#"{{{endpoint}, "headers": {{"x-key": "{secret}"}}}}"#);
        config(&settings).unwrap()
    };
    let (one, other) = (of("s3cret-a"), of("s3cret-b"));
    assert!(!format!("{one:?}").contains("s3cret"));
    assert_ne!(one.fingerprint(), other.fingerprint());
    assert_eq!(one.fingerprint(), of("s3cret-a").fingerprint());
    let message = of("s3cret\\r\\nx: y").check().unwrap_err().1;
    assert!(!message.contains("s3cret"), "{message}");
    let timeout = one.compile().ok().unwrap().collector.timeout;
    assert_eq!(timeout, Duration::from_secs(10));
}
