#![expect(clippy::unwrap_used, reason = "tests")]

use doorward_core::model::consumer::Consumer;
use doorward_net::http::reply::ReplyBody;
use serde_json::json;

use super::*;
use crate::testing::{decide, parts, plugin, plugin_with, session};

/// A caller: address, consumer, header lines and target.
#[derive(Clone, Copy, Default)]
struct Caller<'a> {
    ip: &'a str,
    consumer: u128,
    lines: &'a str,
    target: &'a str,
    service: u128,
}

const ANY: Caller<'_> = Caller {
    ip: "192.0.2.1",
    consumer: 0,
    lines: "",
    target: "/",
    service: 0,
};

/// What a request is answered, and its headers.
async fn send(filter: &dyn Filter, caller: Caller<'_>) -> (Option<Reply>, Exchange) {
    let Caller { target, lines, .. } = caller;
    let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange {
        client: format!("{}:1", caller.ip).parse().unwrap(),
        service: (caller.service > 0).then(|| Uuid::from_u128(caller.service)),
        ..Exchange::default()
    };
    if caller.consumer > 0 {
        let consumer = Consumer {
            id: Uuid::from_u128(caller.consumer),
            username: Some("anna".to_owned()),
            custom_id: None,
            tags: None,
            created_at: 0,
            updated_at: 0,
        };
        exchange.consumer = Some(Arc::new(consumer.into()));
    }
    let reply = decide(filter, &mut session, &mut exchange).await;
    (reply, exchange)
}

async fn passes(filter: &dyn Filter, caller: Caller<'_>) -> bool {
    send(filter, caller).await.0.is_none()
}

fn header(exchange: &Exchange, name: &str) -> Option<String> {
    let mut fields = exchange.response_headers.iter();
    let (_, value) = fields.find(|(other, _)| other == name)?;
    Some(value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn the_first_of_six_requests_leaves_five_and_the_seventh_is_refused() {
    let filter = plugin(&KIND, &json!({"minute": 6})).unwrap();
    for left in (0..6).rev() {
        let (reply, exchange) = send(&*filter, ANY).await;
        assert!(reply.is_none());
        for (name, value) in [
            ("x-ratelimit-limit-minute", "6".to_owned()),
            ("x-ratelimit-remaining-minute", left.to_string()),
            ("ratelimit-limit", "6".to_owned()),
            ("ratelimit-remaining", left.to_string()),
            ("ratelimit-reset", "60".to_owned()),
        ] {
            assert_eq!(header(&exchange, name), Some(value), "{name}");
        }
        assert_eq!(header(&exchange, "retry-after"), None);
    }
    let (reply, exchange) = send(&*filter, ANY).await;
    let reply = reply.unwrap();
    assert_eq!(reply.status, 429);
    assert!(matches!(reply.body, ReplyBody::Message(text) if text == "API rate limit exceeded"));
    assert_eq!(header(&exchange, "retry-after").as_deref(), Some("60"));
    assert_eq!(
        header(&exchange, "ratelimit-remaining").as_deref(),
        Some("0")
    );
    assert_eq!(exchange.refusal.as_deref(), Some("rate_limit_exceeded"));
}

#[tokio::test]
async fn the_period_with_least_left_is_told_and_of_equals_the_longest() {
    let mut parts = parts();
    parts.clock = Clock::manual(30_000);
    let config = json!({"second": 2, "minute": 2, "hour": 9});
    let filter = plugin_with(&KIND, &config, &parts).unwrap();
    let (_, exchange) = send(&*filter, ANY).await;
    assert_eq!(header(&exchange, "ratelimit-limit").as_deref(), Some("2"));
    assert_eq!(header(&exchange, "ratelimit-reset").as_deref(), Some("30"));
    send(&*filter, ANY).await;
    parts.clock.advance(1000);
    // The second is new, the minute is not.
    let (reply, exchange) = send(&*filter, ANY).await;
    assert_eq!(reply.unwrap().status, 429);
    assert_eq!(header(&exchange, "retry-after").as_deref(), Some("29"));
    let remaining = |name| header(&exchange, name);
    assert_eq!(
        remaining("x-ratelimit-remaining-second").as_deref(),
        Some("2")
    );
    assert_eq!(
        remaining("x-ratelimit-remaining-hour").as_deref(),
        Some("7")
    );
    parts.clock.advance(29_000);
    assert!(passes(&*filter, ANY).await);
}

#[tokio::test]
async fn callers_are_told_apart_by_what_the_plugin_says() {
    let other_ip = Caller {
        ip: "192.0.2.2",
        ..ANY
    };
    let consumer = Caller { consumer: 7, ..ANY };
    let at_home = Caller {
        consumer: 7,
        ..other_ip
    };
    let filter = plugin(&KIND, &json!({"day": 1})).unwrap();
    assert!(passes(&*filter, consumer).await);
    assert!(!passes(&*filter, at_home).await);
    assert!(passes(&*filter, ANY).await);
    assert!(passes(&*filter, other_ip).await);

    let filter = plugin(&KIND, &json!({"day": 1, "limit_by": "ip"})).unwrap();
    assert!(passes(&*filter, consumer).await);
    assert!(!passes(&*filter, ANY).await);
    let mapped = Caller {
        ip: "[::ffff:192.0.2.1]",
        ..ANY
    };
    assert!(!passes(&*filter, mapped).await);

    let filter = plugin(&KIND, &json!({"day": 1, "limit_by": "service"})).unwrap();
    let first = Caller { service: 1, ..ANY };
    assert!(passes(&*filter, first).await);
    assert!(
        !passes(
            &*filter,
            Caller {
                service: 1,
                ..other_ip
            }
        )
        .await
    );
    assert!(passes(&*filter, Caller { service: 2, ..ANY }).await);
}

#[tokio::test]
async fn a_header_or_a_path_identifies_or_else_the_address() {
    let config = json!({"day": 1, "limit_by": "header", "header_name": "X-Key"});
    let filter = plugin(&KIND, &config).unwrap();
    let keyed = Caller {
        lines: "x-key: a\r\nx-key: b\r\n",
        ..ANY
    };
    assert!(passes(&*filter, keyed).await);
    assert!(
        !passes(
            &*filter,
            Caller {
                lines: "X-Key: a\r\n",
                ..ANY
            }
        )
        .await
    );
    assert!(
        passes(
            &*filter,
            Caller {
                lines: "X-Key: b\r\n",
                ..ANY
            }
        )
        .await
    );
    assert!(passes(&*filter, ANY).await);
    assert!(!passes(&*filter, ANY).await);

    let config = json!({"day": 1, "limit_by": "path", "path": "/a"});
    let filter = plugin(&KIND, &config).unwrap();
    assert!(
        passes(
            &*filter,
            Caller {
                target: "/a?x=1",
                ..ANY
            }
        )
        .await
    );
    assert!(
        !passes(
            &*filter,
            Caller {
                target: "/a",
                ip: "192.0.2.9",
                ..ANY
            }
        )
        .await
    );
    for target in ["/%61", "//a", "/b/../a", "/./a?x"] {
        let caller = Caller {
            target,
            ip: "192.0.2.10",
            ..ANY
        };
        assert!(!passes(&*filter, caller).await, "{target}");
    }
    assert!(
        passes(
            &*filter,
            Caller {
                target: "/a/b",
                ..ANY
            }
        )
        .await
    );
    assert!(
        !passes(
            &*filter,
            Caller {
                target: "/c",
                ..ANY
            }
        )
        .await
    );
}

#[tokio::test]
async fn status_message_and_silence_are_those_of_the_configuration() {
    let config = json!({"day": 1, "error_code": 403, "error_message": "a \"no\"",
                        "hide_client_headers": true});
    let filter = plugin(&KIND, &config).unwrap();
    assert!(passes(&*filter, ANY).await);
    let (reply, exchange) = send(&*filter, ANY).await;
    let reply = reply.unwrap();
    assert_eq!(reply.status, 403);
    assert!(matches!(reply.body, ReplyBody::Message(text) if text == "a \"no\""));
    assert!(exchange.response_headers.is_empty());
    let config = json!({"day": 1, "error_code": 302});
    let filter = plugin(&KIND, &config).unwrap();
    send(&*filter, ANY).await;
    assert_eq!(send(&*filter, ANY).await.0.unwrap().status, 500);
    assert_eq!(filter.warnings().len(), 1);
}

#[tokio::test]
async fn a_redis_that_gives_no_answer_lets_all_pass_or_none() {
    let config = |tolerant: bool| {
        json!({"day": 1, "policy": "redis", "fault_tolerant": tolerant,
               "redis": {"host": "127.0.0.1", "port": 1}})
    };
    let filter = plugin(&KIND, &config(true)).unwrap();
    for _ in 0..2 {
        let (reply, exchange) = send(&*filter, ANY).await;
        assert!(reply.is_none() && exchange.response_headers.is_empty());
    }
    let filter = plugin(&KIND, &config(false)).unwrap();
    let (reply, exchange) = send(&*filter, ANY).await;
    assert_eq!(reply.unwrap().status, 500);
    assert!(exchange.response_headers.is_empty());
}

#[tokio::test]
async fn a_cluster_without_redis_counts_here_and_says_so() {
    let filter = plugin(&KIND, &json!({"day": 1, "policy": "cluster"})).unwrap();
    assert!(passes(&*filter, ANY).await);
    assert!(!passes(&*filter, ANY).await);
    assert!(filter.warnings()[0].contains("`cluster`"));
}

#[tokio::test]
async fn the_upstreams_own_limits_give_way() {
    let filter = plugin(&KIND, &json!({"day": 3})).unwrap();
    let (_, exchange) = send(&*filter, ANY).await;
    let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
    response
        .insert_header("RateLimit-Remaining", "1000")
        .unwrap();
    for (name, value) in &exchange.response_headers {
        response.append_header(name.clone(), value.clone()).unwrap();
    }
    filter.on_response(&exchange, &mut response);
    let all = response.headers.get_all("ratelimit-remaining").iter();
    assert_eq!(all.collect::<Vec<_>>(), ["2"]);
}

#[test]
fn what_limits_nothing_or_contradicts_itself_is_refused() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    for (config, words) in [
        (
            json!({}),
            "must be non-empty: 'config.second', 'config.minute'",
        ),
        (json!({"hour": 0}), "hour: value must be greater than 0"),
        (
            json!({"second": 20, "hour": 10}),
            "The limit for hour(10.0) cannot be lower than the limit for second(20.0)",
        ),
        (
            json!({"day": 1, "limit_by": "header"}),
            "header_name: required field missing",
        ),
        (
            json!({"day": 1, "limit_by": "path"}),
            "path: required field missing",
        ),
        (json!({"day": 1, "path": "a"}), "should start with: /"),
        (
            json!({"day": 1, "policy": "redis"}),
            "redis.host: required field missing",
        ),
        (
            json!({"day": 1, "sync_rate": 1}),
            "sync_rate can only be used with the redis policy",
        ),
        (
            json!({"day": 1, "sync_rate": 0.01, "policy": "redis", "redis_host": "a"}),
            "sync_rate must be greater than 0.02, or -1 to disable",
        ),
        (
            json!({"day": 1, "error_code": 0}),
            "error_code: value must be greater than 0",
        ),
        (
            json!({"day": 1, "policy": "other"}),
            "expected one of: local, cluster, redis",
        ),
    ] {
        let message = refused(config);
        assert!(message.contains(words), "{message}");
    }
    let fraction = json!({"second": 0.5, "policy": "redis", "sync_rate": 0.02,
                          "redis": {"host": "127.0.0.1"}});
    assert!(plugin(&KIND, &fraction).is_ok());
}
