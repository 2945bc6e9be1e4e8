#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;

use http::StatusCode;
use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};
use doorward_net::http::head::UpstreamRequest;

/// What upstream and client get for a request with these header lines.
async fn exchanged(filter: &dyn Filter, lines: &str) -> (String, Option<String>) {
    let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    assert!(decide(filter, &mut session, &mut exchange).await.is_none());
    let mut upstream = session.req_header().clone();
    filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
    let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
    response
        .insert_header("kong-request-id", "upstreams")
        .unwrap();
    filter.on_response(&exchange, &mut response);
    let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
    let echoed = response.headers.get_all("kong-request-id").iter();
    let echoed: Vec<_> = echoed.map(text).collect();
    assert_eq!(echoed.len(), 1);
    let sent = text(&upstream.headers["kong-request-id"]);
    (sent, echoed.into_iter().find(|id| id != "upstreams"))
}

#[tokio::test]
async fn the_default_is_one_uuid_and_a_number_that_begins_with_one() {
    let filter = plugin(&KIND, &json!({})).unwrap();
    let (first, echoed) = exchanged(&*filter, "").await;
    let (uuid, number) = first.split_once('#').unwrap();
    assert!(Uuid::parse_str(uuid).is_ok());
    assert_eq!((number, echoed), ("1", None));
    let (second, _) = exchanged(&*filter, "").await;
    assert_eq!(second, format!("{uuid}#2"));
}

#[tokio::test]
async fn every_uuid_is_another_and_the_client_gets_the_one_of_the_upstream() {
    let config = json!({"generator": "uuid", "echo_downstream": true});
    let filter = plugin(&KIND, &config).unwrap();
    let mut all = HashSet::new();
    for _ in 0..3 {
        let (sent, echoed) = exchanged(&*filter, "").await;
        assert!(Uuid::parse_str(&sent).is_ok());
        assert_eq!(echoed.as_ref(), Some(&sent));
        all.insert(sent);
    }
    assert_eq!(all.len(), 3);
}

#[tokio::test]
async fn a_tracker_has_address_port_process_numbers_and_time() {
    let filter = plugin(&KIND, &json!({"generator": "tracker"})).unwrap();
    let (id, _) = exchanged(&*filter, "").await;
    let process = process::id();
    assert_eq!(id, format!("0.0.0.0-0-{process}-1-1-0.000"));
}

#[tokio::test]
async fn an_identifier_of_the_client_stays_and_a_blank_one_is_none() {
    let filter = plugin(&KIND, &json!({"echo_downstream": true})).unwrap();
    let (sent, echoed) = exchanged(&*filter, "kong-REQUEST-id: mine\r\n").await;
    assert_eq!((sent.as_str(), echoed.as_deref()), ("mine", Some("mine")));
    let (sent, _) = exchanged(&*filter, "Kong-Request-ID:  \r\n").await;
    assert!(sent.ends_with("#1"), "{sent}");
}

#[tokio::test]
async fn a_refusal_of_the_gateway_has_the_identifier() {
    let filter = plugin(&KIND, &json!({"echo_downstream": true})).unwrap();
    let (mut session, _client) = session("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut exchange = Exchange::default();
    decide(&*filter, &mut session, &mut exchange).await;
    // Whatever is in `response_headers` is written to answers of the gateway.
    assert_eq!(exchange.response_headers.len(), 1);
}

#[test]
fn a_wrong_header_name_or_generator_is_refused() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    assert!(refused(json!({"header_name": "a b"})).contains("bad header name 'a b'"));
    let message = refused(json!({"generator": "random"}));
    assert!(message.contains("expected one of: uuid, uuid#counter, tracker"));
    assert!(plugin(&KIND, &json!({"header_name": null})).is_ok());
}
