#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};
use doorward_net::http::head::UpstreamRequest;

/// The filter with a limit of two videos a minute and of five images.
fn filter(more: &Value) -> Arc<dyn Filter> {
    let mut config = json!({"limits": {"video": {"minute": 2}, "image": {"minute": 5, "hour": 9}},
                            "limit_by": "ip"});
    let fields = more.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(fields);
    plugin(&KIND, &config).unwrap()
}

/// One request and an answer that costs so much: the status, or the headers of the
/// limits, in order.
async fn answered(filter: &Arc<dyn Filter>, cost: &str) -> Result<Vec<String>, u16> {
    let (mut session, _client) = session("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let mut exchange = Exchange::default();
    if let Some(reply) = decide(&**filter, &mut session, &mut exchange).await {
        return Err(reply.status.as_u16());
    }
    let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
    response.append_header("x-kong-limit", cost).unwrap();
    let request = session.req_header();
    let flow = filter.on_upstream_response(request, &mut exchange, &mut response);
    if let ResponseFlow::Replace(reply) = flow.await {
        return Err(reply.status.as_u16());
    }
    assert!(!response.headers.contains_key("x-kong-limit"));
    let headers = exchange.response_headers.iter();
    let shown = headers.filter(|(name, _)| name.as_str().contains("remaining"));
    let mut shown: Vec<_> = shown
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    shown.sort();
    Ok(shown)
}

#[tokio::test]
async fn an_answer_costs_what_the_upstream_says() {
    let filter = filter(&json!({}));
    let left = answered(&filter, "video=1, image=2, other=9, image=x")
        .await
        .unwrap();
    assert_eq!(
        left,
        [
            "x-ratelimit-remaining-image-hour: 7",
            "x-ratelimit-remaining-image-minute: 3",
            "x-ratelimit-remaining-video-minute: 1",
        ]
    );
    assert!(answered(&filter, "video=5").await.is_ok());
    // Nothing is left, and what has no cost passes.
    assert_eq!(answered(&filter, "video=1").await, Err(429));
    assert!(answered(&filter, "image=0").await.is_ok());
}

#[tokio::test]
async fn an_answer_that_is_refused_is_counted_under_no_name() {
    let filter = filter(&json!({}));
    assert!(answered(&filter, "video=2").await.is_ok());
    for _ in 0..9 {
        assert_eq!(answered(&filter, "image=3, video=1").await, Err(429));
    }
    let left = answered(&filter, "image=1").await.unwrap();
    assert_eq!(left[1], "x-ratelimit-remaining-image-minute: 4");
}

#[tokio::test]
async fn requests_are_refused_beforehand_where_that_is_asked_for() {
    let filter = filter(&json!({"block_on_first_violation": true, "hide_client_headers": true}));
    assert_eq!(answered(&filter, "video=7").await, Ok(Vec::new()));
    assert_eq!(answered(&filter, "image=1").await, Err(429));
}

#[tokio::test]
async fn negative_and_unreadable_costs_give_nothing_back() {
    let filter = filter(&json!({}));
    assert!(answered(&filter, "video=2").await.is_ok());
    for cost in ["video=-5", "video=nan", "video=-inf", "video", "video==1"] {
        assert!(answered(&filter, cost).await.is_ok(), "{cost}");
        assert_eq!(answered(&filter, "video=1").await, Err(429), "{cost}");
    }
}

#[tokio::test]
async fn the_upstream_is_told_what_is_left() {
    let filter = filter(&json!({}));
    let (mut session, _client) = session("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let mut exchange = Exchange::default();
    assert!(
        decide(&*filter, &mut session, &mut exchange)
            .await
            .is_none()
    );
    let mut request = session.req_header().clone();
    filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut request));
    assert_eq!(request.headers["x-ratelimit-remaining-image"], "5");
    assert_eq!(filter.owned_headers().len(), 2);
}

#[test]
fn wrong_limits_are_refused_with_the_imitated_words() {
    let refused = |config: Value| plugin(&KIND, &config).err().unwrap();
    for (limits, words) in [
        (json!({}), "length must be at least 1"),
        (
            json!({"a": {}}),
            "at least one of these fields must be non-empty",
        ),
        (json!({"a": {"second": 0}}), "value must be greater than 0"),
        (
            json!({"a": {"second": 20, "hour": 10}}),
            "the limit for hour(10.0) cannot be lower than the limit for second(20.0)",
        ),
        (
            json!({"a b": {"second": 1}}),
            "can't be part of a header's name",
        ),
    ] {
        let message = refused(json!({ "limits": limits }));
        assert!(message.contains(words), "{message}");
    }
    assert!(refused(json!({})).contains("required field missing"));
}
