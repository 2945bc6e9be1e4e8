#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::UdpSocket;

use super::*;
use crate::delivery::Deliveries;
use crate::logging::tests::with_record;
use crate::testing::{parts, plugin, plugin_with};

/// The datagrams that a filter of this kind sends for a request with this status.
async fn datagrams(kind: &Kind, mut config: Value, status: u16, count: usize) -> Vec<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    config["host"] = "127.0.0.1".into();
    config["port"] = socket.local_addr().unwrap().port().into();
    let parts = parts();
    let filter = plugin_with(kind, &config, &parts).unwrap();
    with_record(&[], status, |record| filter.on_end(record));
    let deliveries = parts.slots.get_or_default::<Deliveries>();
    assert!(deliveries.flush(Duration::from_secs(60)).await);
    let mut all = Vec::new();
    for _ in 0..count {
        let mut buffer = vec![0; 65_536];
        let length = socket.recv(&mut buffer).await.unwrap();
        all.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    assert!(socket.try_recv(&mut [0; 10]).is_err(), "more than {all:?}");
    all
}

#[tokio::test]
async fn a_metric_is_a_line_under_its_service_status_or_consumer() {
    let config = json!({"prefix": "p", "metrics": [
        {"name": "request_count", "stat_type": "counter", "sample_rate": 1},
        {"name": "latency", "stat_type": "timer"},
        {"name": "request_size", "stat_type": "gauge", "sample_rate": 0.5},
        {"name": "status_count", "stat_type": "counter", "sample_rate": 1},
        {"name": "request_per_user", "stat_type": "counter", "sample_rate": 1},
        {"name": "status_count_per_workspace", "stat_type": "counter", "sample_rate": 1,
         "workspace_identifier": "workspace_name"},
        {"name": "shdict_usage", "stat_type": "gauge", "sample_rate": 1},
    ]});
    // Without service and consumer.
    let lines = datagrams(&KIND, config, 200, 5).await;
    assert_eq!(
        lines,
        [
            "p.global.unmatched.request.count:1|c",
            "p.global.unmatched.latency:12|ms",
            "p.global.unmatched.request.size:120|g|@0.5",
            "p.global.unmatched.status.200:1|c",
            "p.global.unmatched.workspace.default.status.200:1|c",
        ]
    );
}

#[tokio::test]
async fn lines_share_a_datagram_as_far_as_it_goes() {
    let metric = json!({"name": "latency", "stat_type": "timer"});
    let config = json!({"udp_packet_size": 70, "metrics": [metric, metric, metric]});
    let line = "kong.global.unmatched.latency:12|ms";
    let datagrams = datagrams(&KIND, config, 200, 3).await;
    assert_eq!(datagrams, [line, line, line]);
    let config = json!({"udp_packet_size": 71.0, "metrics": [metric, metric, metric]});
    let datagrams = self::datagrams(&KIND, config, 200, 2).await;
    assert_eq!(datagrams, [format!("{line}\n{line}"), line.to_owned()]);
}

#[tokio::test]
async fn statuses_beyond_the_ranges_are_not_told_of() {
    let config = json!({
        "metrics": [{"name": "latency", "stat_type": "timer"}],
        "allow_status_codes": ["200-299", "400-404"],
    });
    for (status, count) in [(200, 1), (299, 1), (404, 1), (405, 0), (500, 0)] {
        datagrams(&KIND, config.clone(), status, count).await;
    }
    let message = plugin(&KIND, &json!({"allow_status_codes": ["2xx"]}))
        .err()
        .unwrap();
    assert!(message.contains("invalid value: 2xx"), "{message}");
}

#[test]
fn tags_are_written_in_each_style_and_no_name_breaks_a_line() {
    let mut tags = Tags::default();
    tags.put("service", "a.b");
    tags.put("consumer", "x|c\nevil:1,y");
    let line = Line {
        prefix: "kong",
        name: "request.count",
        value: "1",
        kind: "c",
        rate: Some(1.0),
    };
    for (style, expected) in [
        (
            line::TagStyle::Dogstatsd,
            "kong.request.count:1|c|#service:a.b,consumer:x_c_evil_1_y",
        ),
        (
            line::TagStyle::Influxdb,
            "kong.request.count,service=a.b,consumer=x_c_evil_1_y:1|c",
        ),
        (
            line::TagStyle::Librato,
            "kong.request.count#service=a.b,consumer=x_c_evil_1_y:1|c",
        ),
        (
            line::TagStyle::Signalfx,
            "kong.request.count[service=a.b,consumer=x_c_evil_1_y]:1|c",
        ),
    ] {
        assert_eq!(line.with(style, &tags), expected);
    }
}

#[test]
fn the_defaults_are_thirteen_metrics_and_the_checks_those_of_the_imitated_gateway() {
    let filter = plugin(&KIND, &json!({})).unwrap();
    assert!(filter.observes() && filter.warnings().is_empty());
    let refused = |metric: Value| plugin(&KIND, &json!({"metrics": [metric]})).err().unwrap();
    let message = refused(json!({"name": "latency", "stat_type": "counter"}));
    assert!(
        message.contains("sample_rate: required field missing"),
        "{message}"
    );
    let message = refused(json!({"name": "latency", "stat_type": "gauge", "sample_rate": 0}));
    assert!(
        message.contains("value must be greater than 0"),
        "{message}"
    );
    let message = refused(json!({"name": "unique_users", "stat_type": "timer"}));
    assert!(message.contains("value must be set"), "{message}");
    let message = refused(json!({"name": "cache_size", "stat_type": "timer"}));
    assert!(
        message.contains("expected one of: kong_latency"),
        "{message}"
    );
}

#[test]
fn datadog_has_its_defaults_and_refuses_open_tags() {
    assert!(plugin(&datadog::KIND, &json!({})).unwrap().observes());
    let metric = json!({"name": "latency", "stat_type": "distribution", "tags": ["a:"]});
    let message = plugin(&datadog::KIND, &json!({"metrics": [metric]}))
        .err()
        .unwrap();
    assert!(message.contains("invalid value: a:"), "{message}");
}

#[tokio::test]
async fn datadog_tells_nothing_of_requests_without_a_service() {
    assert!(
        datagrams(&datadog::KIND, json!({}), 200, 0)
            .await
            .is_empty()
    );
}
