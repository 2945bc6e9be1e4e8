//! The filter as configured, against requests.
#![expect(clippy::unwrap_used, reason = "tests")]

mod configuration;

use std::sync::Arc;

use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;

use super::KIND;
use doorward_core::clock::Clock;
use doorward_core::model::token::AccessToken;
use doorward_net::http::outbound::Outbound;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};
use pingora::protocols::http::ServerSession;

fn parts() -> Parts {
    let outbound = Arc::new(Outbound::new());
    Parts::new(Clock::manual(0), outbound, Arc::new(Metrics::default()))
}

fn build(config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    (KIND.build)(config.as_object().unwrap(), &parts())
}

fn rate(requests: u64, duration: &str) -> Value {
    json!({"numberOfRequests": requests, "duration": duration})
}

/// A request as Pingora hands it to filters.
async fn session(headers: &str) -> ServerSession {
    let (mut client, server) = tokio::io::duplex(4096);
    let head = format!("GET /p?q=1 HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let mut session = ServerSession::new_http1(Box::new(server));
    assert!(session.read_request().await.unwrap());
    session
}

fn from(client: &str) -> Exchange {
    Exchange {
        client: client.parse().unwrap(),
        ..Exchange::default()
    }
}

fn of_subject(subject: &str) -> Exchange {
    let mut claims = Map::new();
    claims.insert("sub".into(), subject.into());
    Exchange {
        token: Some(Arc::new(AccessToken {
            token: "t".into(),
            claims,
            scopes: Vec::new(),
            expires_at: None,
        })),
        ..Exchange::default()
    }
}

/// The filter's answer; `None`: the request goes on.
fn answer(filter: &dyn Filter, session: &mut Session, exchange: &mut Exchange) -> Option<Reply> {
    match filter.on_request(session, exchange) {
        Verdict::Now(Flow::Continue) => None,
        Verdict::Now(Flow::Respond(reply)) => Some(reply),
        Verdict::Wait => panic!("throttling never waits"),
    }
}

fn passes(filter: &dyn Filter, session: &mut Session, mut exchange: Exchange, n: usize) -> usize {
    (0..n)
        .filter(|_| answer(filter, session, &mut exchange).is_none())
        .count()
}

#[tokio::test]
async fn the_seventh_request_is_refused_with_empty_body_and_retry_after() {
    let filter = build(json!({"rate": rate(6, "10 s")})).unwrap();
    let mut session = session("").await;
    assert_eq!(passes(&*filter, &mut session, from("192.0.2.1:1"), 6), 6);
    let mut exchange = from("192.0.2.2:1");
    let reply = answer(&*filter, &mut session, &mut exchange).unwrap();
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(matches!(reply.body, ReplyBody::Empty));
    assert_eq!(reply.headers.len(), 1);
    assert_eq!(reply.headers[0].0, RETRY_AFTER);
    assert_eq!(reply.headers[0].1, "2");
    assert_eq!(exchange.refusal.as_deref(), Some("throttled"));
    assert!(exchange.response_headers.is_empty());
}

fn shown(exchange: &Exchange) -> Vec<String> {
    let headers = exchange.response_headers.iter();
    headers
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn quota_headers_agree_with_retry_after() {
    let filter = build(json!({
        "rates": [{"name": "burst", "numberOfRequests": 2, "duration": "2 h"}, "9/9 days"],
        "headers": "draft",
    }))
    .unwrap();
    let mut session = session("").await;
    for left in [1, 0] {
        let mut exchange = from("192.0.2.1:1");
        assert!(answer(&*filter, &mut session, &mut exchange).is_none());
        assert_eq!(
            shown(&exchange),
            [
                "ratelimit-policy: \"burst\";q=2;w=7200, \"9/9d\";q=9;w=777600".to_owned(),
                format!(
                    "ratelimit: \"burst\";r={left};t=3600, \"9/9d\";r={};t=86400",
                    left + 7
                ),
            ]
        );
    }
    let mut exchange = from("192.0.2.1:1");
    let reply = answer(&*filter, &mut session, &mut exchange).unwrap();
    let wait = reply.headers[0].1.to_str().unwrap();
    assert_eq!(
        shown(&exchange)[1],
        format!("ratelimit: \"burst\";r=0;t={wait}, \"9/9d\";r=7;t={wait}")
    );
}

#[tokio::test]
async fn a_shadow_counts_and_reports_and_refuses_nothing() {
    let parts = parts();
    let config = json!({"rate": rate(2, "1 h"), "shadow": true, "headers": "draft"});
    let filter = (KIND.build)(config.as_object().unwrap(), &parts).unwrap();
    let mut session = session("").await;
    assert_eq!(passes(&*filter, &mut session, from("192.0.2.1:1"), 5), 5);
    let mut exchange = from("192.0.2.1:1");
    assert!(answer(&*filter, &mut session, &mut exchange).is_none());
    assert!(shown(&exchange).is_empty(), "clients are told nothing");
    assert_eq!(exchange.refusal.as_deref(), Some("would_throttle"));
    let counted = |decision| parts.metrics.decision("throttling", decision).get();
    assert_eq!(
        (counted("pass"), counted("would_refuse"), counted("refuse")),
        (2, 4, 0)
    );
    let report = filter.partitioned().unwrap().report();
    assert!(report.shadow);
    assert_eq!(
        (report.hottest[0].passed, report.hottest[0].refused),
        (2, 4)
    );

    let broken = json!({
        "requestGroupingPolicy": "${request.headers['X-User'][0]}",
        "rate": rate(2, "1 h"), "shadow": true,
    });
    let filter = build(broken).unwrap();
    assert_eq!(passes(&*filter, &mut session, from("192.0.2.1:1"), 5), 5);
}

#[tokio::test]
async fn without_a_grouping_all_requests_are_one_partition() {
    let mut session = session("").await;
    for grouping in [json!(null), json!(""), json!("${''}")] {
        let config = json!({"requestGroupingPolicy": grouping, "rate": rate(2, "1 h")});
        let config = (KIND.schema)().complete(config.as_object().cloned().unwrap());
        let filter = build(config.unwrap().into()).unwrap();
        let passed = passes(&*filter, &mut session, from("192.0.2.1:1"), 1)
            + passes(&*filter, &mut session, from("192.0.2.2:1"), 3);
        assert_eq!(passed, 2, "{grouping}");
    }
}

#[tokio::test]
async fn a_client_with_a_whole_ipv6_network_is_one_partition() {
    let mut session = session("").await;
    let address = "${contexts.client.remoteAddress}";
    for policy in [address, "client ${contexts.client.remoteAddress}"] {
        let config = json!({"requestGroupingPolicy": policy, "rate": rate(2, "1 h")});
        let filter = build(config).unwrap();
        assert_eq!(
            passes(&*filter, &mut session, from("[2001:db8:0:1::1]:1"), 3),
            2
        );
        assert_eq!(
            passes(&*filter, &mut session, from("[2001:db8:0:1:ffff::9]:1"), 3),
            0
        );
        assert_eq!(
            passes(&*filter, &mut session, from("[2001:db8:0:2::1]:1"), 3),
            2
        );
        assert_eq!(passes(&*filter, &mut session, from("192.0.2.1:1"), 3), 2);
        assert_eq!(passes(&*filter, &mut session, from("192.0.2.2:1"), 3), 2);
    }
    for (length, passing) in [(128, 2), (56, 0), (1, 0)] {
        let filter = build(json!({
            "requestGroupingPolicy": address, "rate": rate(2, "1 h"), "ipv6PrefixLength": length,
        }))
        .unwrap();
        assert_eq!(
            passes(&*filter, &mut session, from("[2001:db8::1]:1"), 3),
            2
        );
        assert_eq!(
            passes(&*filter, &mut session, from("[2001:db8::2]:1"), 3),
            passing
        );
    }
}

#[tokio::test]
async fn tiers_by_claim_hold_and_switching_them_refills_nothing() {
    let filter = build(json!({
        "throttlingRatePolicy": {"type": "MappedThrottlingPolicy", "config": {
            "throttlingRateMapper": "${contexts.oauth2.accessToken.info.sub}",
            "throttlingRatesMapping": {
                "gold": ["9/1 h", "10/1 day"],
                "silver": ["3/1 h", "10/1 day"],
            },
            "defaultRate": "1/1 h",
        }},
    }))
    .unwrap();
    let mut session = session("").await;
    assert_eq!(passes(&*filter, &mut session, of_subject("silver"), 5), 3);
    // The day is that of both.
    assert_eq!(passes(&*filter, &mut session, of_subject("gold"), 9), 7);
    assert_eq!(passes(&*filter, &mut session, of_subject("silver"), 5), 0);
    assert_eq!(passes(&*filter, &mut session, of_subject("other"), 5), 1);
}

#[tokio::test]
async fn an_expression_names_the_rate() {
    for policy in [
        json!({"type": "ExpressionThrottlingPolicy", "config": {
            "rate": "${request.headers['X-Rate'][0]}",
        }}),
        json!({"type": "ScriptableThrottlingPolicy", "config": {
            "type": "application/x-expression", "source": "${request.headers['X-Rate'][0]}",
        }}),
    ] {
        let filter = build(json!({"throttlingRatePolicy": policy})).unwrap();
        let mut three = session("X-Rate: 3/1 h\r\n").await;
        let mut same = session("X-Rate: 3/60 min\r\n").await;
        let mut none = session("").await;
        let mut broken = session("X-Rate: a lot\r\n").await;
        assert_eq!(passes(&*filter, &mut three, from("192.0.2.1:1"), 5), 3);
        assert_eq!(passes(&*filter, &mut same, from("192.0.2.1:1"), 5), 0);
        assert_eq!(passes(&*filter, &mut none, from("192.0.2.1:1"), 5), 5);
        let mut exchange = from("192.0.2.1:1");
        let reply = answer(&*filter, &mut broken, &mut exchange).unwrap();
        assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(exchange.refusal.as_deref(), Some("no_rate"));
    }
}

#[tokio::test]
async fn a_groovy_script_that_chooses_a_rate_is_read_as_an_expression() {
    let policy = json!({"type": "ScriptableThrottlingPolicy", "config": {
        "type": "application/x-groovy",
        "source": [
            "/**",
            " * Script to throttle access to the accounts team",
            " */",
            "import org.forgerock.openig.filter.throttling.ThrottlingRate",
            "if (request.headers['X-Forwarded-For'].values[0] == department) {",
            "    return new ThrottlingRate(6, '10 seconds')",
            "} else {",
            "    return null",
            "}"
        ],
        "args": {"department": "accounts"},
    }});
    let filter = build(json!({"throttlingRatePolicy": policy})).unwrap();
    for (head, wanted) in [
        ("X-Forwarded-For: accounts\r\n", 6),
        ("X-Forwarded-For: sales\r\n", 9),
        ("", 9),
    ] {
        let mut session = session(head).await;
        let passed = passes(&*filter, &mut session, from("192.0.2.1:1"), 9);
        assert_eq!(passed, wanted, "{head}");
    }
}

#[tokio::test]
async fn policies_may_be_given_by_name() {
    let declared = json!({
        "Mapped": {"type": "MappedThrottlingPolicy", "config": {
            "throttlingRateMapper": "${request.headers['X-Plan'][0]}",
            "throttlingRatesMapping": {"free": rate(1, "1 h")},
        }},
        "Default": {"type": "DefaultRateThrottlingPolicy", "config": {
            "delegateThrottlingRatePolicy": "Mapped", "defaultRate": rate(2, "1 h"),
        }},
        "Circle": {"type": "DefaultRateThrottlingPolicy", "config": {
            "delegateThrottlingRatePolicy": "Circle", "defaultRate": rate(2, "1 h"),
        }},
    });
    let build = |name: &str| {
        let config = json!({"throttlingRatePolicy": name});
        let named = |name: &str| declared.get(name).cloned();
        super::filter::build_named(config.as_object().unwrap(), &parts(), &named)
    };
    let filter = build("Default").unwrap();
    let mut free = session("X-Plan: free\r\n").await;
    let mut paid = session("X-Plan: paid\r\n").await;
    assert_eq!(passes(&*filter, &mut free, from("192.0.2.1:1"), 5), 1);
    assert_eq!(passes(&*filter, &mut paid, from("192.0.2.1:1"), 5), 2);
    for (name, words) in [
        ("Circle", "too often"),
        ("Nobody", "no object named 'Nobody'"),
    ] {
        let Err(error) = build(name) else {
            panic!("{name} was accepted");
        };
        assert!(error.message.contains(words), "{error}");
    }
}

#[tokio::test]
async fn operators_see_the_hottest_partitions_and_reset_one() {
    let filter = build(json!({
        "requestGroupingPolicy": "${request.headers['X-User'][0]}",
        "rates": ["3/1 h", "9/1 day"],
    }))
    .unwrap();
    let mut ada = session("X-User: ada\r\n").await;
    let mut bob = session("X-User: bob\r\n").await;
    passes(&*filter, &mut bob, from("192.0.2.1:1"), 2);
    passes(&*filter, &mut ada, from("192.0.2.1:1"), 5);
    let partitioned = filter.partitioned().unwrap();
    let report = partitioned.report();
    assert_eq!((report.held, report.maximum), (4, 1_000_000));
    let [first, second] = &report.hottest[..] else {
        panic!("{report:?}");
    };
    assert_eq!((&*first.text, first.passed, first.refused), ("ada", 3, 2));
    assert_eq!(
        (&*second.text, second.passed, second.refused),
        ("bob", 2, 0)
    );
    let bucket = |i: usize| (first.buckets[i].rate.as_str(), first.buckets[i].remaining);
    assert_eq!([bucket(0), bucket(1)], [("3/1h", 0), ("9/1d", 6)]);

    assert!(partitioned.reset(&first.id).await);
    assert_eq!(passes(&*filter, &mut ada, from("192.0.2.1:1"), 5), 3);
    assert!(
        partitioned.reset("bob").await,
        "a text names a partition too"
    );
    assert!(!partitioned.reset("bob").await);
    assert_eq!(passes(&*filter, &mut bob, from("192.0.2.1:1"), 5), 3);
    assert!(!partitioned.reset("carol").await);
}

#[tokio::test]
async fn requests_are_grouped_by_client_header_or_subject() {
    let mut ada = session("X-User: ada\r\n").await;
    let mut bob = session("X-User: bob\r\n").await;
    let grouped = |policy: &str| {
        build(json!({"requestGroupingPolicy": policy, "rate": rate(2, "1 h")})).unwrap()
    };

    let filter = grouped("${contexts.client.remoteAddress}");
    assert_eq!(passes(&*filter, &mut ada, from("192.0.2.1:1"), 3), 2);
    assert_eq!(
        passes(&*filter, &mut ada, from("[::ffff:192.0.2.1]:9"), 3),
        0
    );
    assert_eq!(passes(&*filter, &mut ada, from("192.0.2.2:1"), 3), 2);

    let filter = grouped("${request.headers['x-user'][0]}");
    assert_eq!(passes(&*filter, &mut ada, from("192.0.2.1:1"), 3), 2);
    assert_eq!(passes(&*filter, &mut bob, from("192.0.2.1:1"), 3), 2);

    let filter = grouped("${contexts.oauth2.accessToken.info.sub}");
    assert_eq!(passes(&*filter, &mut ada, of_subject("demo"), 3), 2);
    assert_eq!(passes(&*filter, &mut bob, of_subject("demo"), 3), 0);
    assert_eq!(passes(&*filter, &mut ada, of_subject("other"), 3), 2);
}

#[tokio::test]
async fn a_partition_that_is_null_or_no_text_is_an_error_not_a_free_pass() {
    let mut session = session("").await;
    for policy in [
        "${request.headers['X-User'][0]}",
        "${contexts.oauth2.accessToken.info.sub}",
        "${contexts.client.remotePort}",
        "${null}",
    ] {
        let filter = build(json!({
            "requestGroupingPolicy": policy,
            "throttlingRatePolicy": {
                "type": "MappedThrottlingPolicy",
                "config": {"throttlingRateMapper": "${null}"},
            },
        }))
        .unwrap();
        let mut exchange = from("192.0.2.1:1");
        let reply = answer(&*filter, &mut session, &mut exchange).unwrap();
        assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR, "{policy}");
        assert!(matches!(reply.body, ReplyBody::Empty));
        assert!(reply.headers.is_empty());
    }
}

#[tokio::test]
async fn a_mapped_policy_gives_each_value_its_rate() {
    let filter = build(json!({
        "requestGroupingPolicy": "${request.headers['UserId'][0]}",
        "throttlingRatePolicy": {
            "name": "MappedPolicy",
            "type": "MappedThrottlingPolicy",
            "config": {
                "throttlingRateMapper": "${request.headers['X-Forwarded-For'][0]}",
                "throttlingRatesMapping": {
                    "accounts": rate(6, "10 seconds"),
                    "${'sales'}": {"numberOfRequests": "3", "duration": "10 seconds"},
                },
                "defaultRate": rate(1, "10 seconds"),
            },
        },
    }))
    .unwrap();
    let client = || from("192.0.2.1:1");
    for (headers, expected) in [
        ("UserId: alice\r\nX-Forwarded-For: accounts\r\n", 6),
        ("UserId: bob\r\nX-Forwarded-For: accounts\r\n", 6),
        ("UserId: carol\r\nX-Forwarded-For: sales\r\n", 3),
        ("UserId: carol\r\nX-Forwarded-For: Sales\r\n", 1),
        ("UserId: dave\r\n", 1),
        // Switching rates back and forth refills nothing.
        ("UserId: carol\r\nX-Forwarded-For: sales\r\n", 0),
    ] {
        let mut session = session(headers).await;
        assert_eq!(
            passes(&*filter, &mut session, client(), 8),
            expected,
            "{headers}"
        );
    }
}

#[tokio::test]
async fn without_a_rate_for_it_a_request_is_not_throttled() {
    let mapped = json!({
        "type": "MappedThrottlingPolicy",
        "config": {
            "throttlingRateMapper": "${request.headers['X-Plan'][0]}",
            "throttlingRatesMapping": {"free": rate(1, "1 h")},
        },
    });
    let mut free = session("X-Plan: free\r\n").await;
    let mut paid = session("X-Plan: paid\r\n").await;
    let filter = build(json!({"throttlingRatePolicy": mapped})).unwrap();
    assert_eq!(passes(&*filter, &mut free, from("192.0.2.1:1"), 5), 1);
    assert_eq!(passes(&*filter, &mut paid, from("192.0.2.1:1"), 5), 5);

    let filter = build(json!({"throttlingRatePolicy": {
        "type": "DefaultRateThrottlingPolicy",
        "config": {"delegateThrottlingRatePolicy": mapped, "defaultRate": rate(2, "1 h")},
    }}))
    .unwrap();
    assert_eq!(passes(&*filter, &mut free, from("192.0.2.1:1"), 5), 1);
    assert_eq!(passes(&*filter, &mut paid, from("192.0.2.1:1"), 5), 2);
}

#[test]
fn a_dropped_filter_gives_its_partitions_back() {
    let parts = parts();
    let config = json!({"rate": rate(6, "10 s"), "cleaningInterval": "1 ms"});
    let filter = (KIND.build)(config.as_object().unwrap(), &parts).unwrap();
    let weak = Arc::downgrade(&filter);

    drop(filter);
    assert!(
        weak.upgrade().is_none(),
        "the sweeper keeps no filter alive"
    );
}
