//! The filter as configured, on requests and answers.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{chain_filter, decide, parts, session};
use doorward_expr::Constants;

fn filter(config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    let mut parts = parts();
    parts.constants = Arc::new(Constants::default().leniently());
    chain_filter(&parts, "AssignmentFilter", &config, &|_| None)
}

#[tokio::test]
async fn values_of_the_request_and_names_for_later_are_given() {
    let filter = filter(json!({"onRequest": [
        {"target": "${attributes.user}", "value": "${request.headers['X-User'][0]}"},
        {"target": "${attributes['n']}", "value": 5},
        {"target": "${request.headers['X-Both']}", "value": "${attributes.user}-${attributes.n}"},
        {"target": "${request.headers['X-User'][0]}", "value": null},
        {"target": "${request.uri.path}", "value": "/u/${attributes.user}",
         "condition": "${request.method == 'GET'}"},
        {"target": "${request.method}", "value": "PUT", "condition": "${request.uri.query == 'q'}"},
        {"target": "${request.headers.Host}", "value": "no host"},
        {"target": "${request.headers['X-Never']}", "value": "1",
         "condition": "${attributes.nobody == 'x'}"},
    ]}))
    .unwrap();
    let request = "GET /a?q HTTP/1.1\r\nHost: h\r\nX-User: anna\r\nX-Both: forged\r\n\r\n";
    let (mut session, _client) = session(request).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    assert!(reply.is_none());
    let sent = session.req_header();
    let all: Vec<_> = sent.headers.get_all("x-both").iter().collect();
    assert_eq!(all, ["anna-5"]);
    assert!(!sent.headers.contains_key("x-user"));
    assert!(!sent.headers.contains_key("x-never"));
    assert_eq!(sent.headers["host"], "h", "a value that it can't have");
    assert_eq!(
        (sent.method.as_str(), sent.uri.to_string().as_str()),
        ("PUT", "/u/anna?q")
    );
    let original = exchange.original.as_ref().unwrap();
    assert_eq!(
        (original.method.as_str(), original.uri.path()),
        ("GET", "/a")
    );
}

#[tokio::test]
async fn values_of_the_answer_are_given() {
    let filter = filter(json!({"onResponse": [
        {"target": "${response.headers['X-Was']}", "value": "${response.status.code}"},
        {"target": "${response.headers['X-Text']}", "value": "was ${response.status.code}"},
        {"target": "${response.status}", "value": 404, "condition": "${response.status.code == 403}"},
    ]}))
    .unwrap();
    let (session, _client) = session("GET /a HTTP/1.1\r\nHost: h\r\n\r\n").await;
    for (status, wanted) in [(403, 404), (200, 200), (304, 304)] {
        let mut response = ResponseHeader::build(status, None).unwrap();
        response.insert_header("X-Text", "old").unwrap();
        filter.on_response_to(session.req_header(), &Exchange::default(), &mut response);
        assert_eq!(response.status, wanted);
        assert_eq!(response.headers["x-text"], format!("was {status}"));
    }
}

#[test]
fn what_can_not_be_given_a_value_is_refused() {
    for (config, field) in [
        (json!({"onRequest": {}}), "onRequest"),
        (json!({"onRequest": [1]}), "onRequest.0"),
        (json!({"onRequest": [{"value": "a"}]}), "onRequest.0.target"),
        (
            json!({"onRequest": [{"target": "${session.a}"}]}),
            "onRequest.0.target",
        ),
        (
            json!({"onRequest": [{"target": "${attributes.openid}"}]}),
            "onRequest.0.target",
        ),
        (
            json!({"onRequest": [{"target": "${response.status}"}]}),
            "onRequest.0.target",
        ),
        (
            json!({"onResponse": [{"target": "${attributes.a}"}]}),
            "onResponse.0.target",
        ),
        (
            json!({"onRequest": [{"target": "${request.headers['Content-Length']}"}]}),
            "onRequest.0.target",
        ),
        (
            json!({"onRequest": [{"target": "${attributes.a}", "value": "${response.status.code}"}]}),
            "onRequest.0.value",
        ),
    ] {
        let error = filter(config.clone()).err().unwrap();
        assert_eq!(error.field, field, "{config}");
    }
}
