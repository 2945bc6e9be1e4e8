#![expect(clippy::unwrap_used, reason = "tests")]

use doorward_net::http::reply::ReplyBody;
use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};

async fn refusal(config: &Value, lines: &str) -> (Option<(u16, String)>, Exchange) {
    let filter = plugin(&KIND, config).unwrap();
    let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    let reply = reply.map(|reply| match reply.body {
        ReplyBody::Message(message) => (reply.status.as_u16(), message.into_owned()),
        other => panic!("{other:?}"),
    });
    (reply, exchange)
}

#[tokio::test]
async fn the_announced_length_is_compared_with_the_limit() {
    for (config, limit) in [
        (json!({}), 128 << 20),
        (
            json!({"allowed_payload_size": 2, "size_unit": "kilobytes"}),
            2048,
        ),
        (json!({"allowed_payload_size": 7, "size_unit": "bytes"}), 7),
        (json!({"allowed_payload_size": -1, "size_unit": "bytes"}), 0),
    ] {
        let fits = format!("Content-Length: {limit}\r\n");
        assert_eq!(refusal(&config, &fits).await.0, None);
        let over = format!("Content-Length: {}\r\n", limit + 1);
        let (answer, exchange) = refusal(&config, &over).await;
        assert_eq!(
            answer,
            Some((413, "Request size limit exceeded".to_owned()))
        );
        assert_eq!(exchange.refusal.as_deref(), Some("body_too_large"));
        let waits = format!("{over}Expect: 100-continue\r\n");
        let (answer, _) = refusal(&config, &waits).await;
        assert_eq!(
            answer,
            Some((417, "Request size limit exceeded".to_owned()))
        );
    }
}

#[tokio::test]
async fn a_body_without_a_length_is_counted_as_it_comes() {
    let config = json!({"allowed_payload_size": 1, "size_unit": "kilobytes"});
    let (answer, exchange) = refusal(&config, "Transfer-Encoding: chunked\r\n").await;
    assert_eq!((answer, exchange.body_limit), (None, Some(1024)));
    let (answer, exchange) = refusal(&config, "Content-Length: 3\r\n").await;
    assert_eq!((answer, exchange.body_limit), (None, None));
}

#[tokio::test]
async fn a_length_can_be_required_of_all_that_is_not_chunked() {
    let config = json!({"require_content_length": true});
    let message = "A valid Content-Length header is required".to_owned();
    assert_eq!(refusal(&config, "").await.0, Some((411, message)));
    let chunked = refusal(&config, "Transfer-Encoding: Chunked\r\n").await;
    assert_eq!(chunked.0, None);
}

#[tokio::test]
async fn a_body_that_was_read_is_measured() {
    let filter = plugin(
        &KIND,
        &json!({"allowed_payload_size": 3, "size_unit": "bytes"}),
    )
    .unwrap();
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut session, _client) = session(request).await;
    let mut exchange = Exchange {
        body: Some("four".into()),
        ..Exchange::default()
    };
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    assert_eq!(reply.unwrap().status, 413);
}
