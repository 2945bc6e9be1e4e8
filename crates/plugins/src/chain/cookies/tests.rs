//! The filter as configured, on requests and answers.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{chain_filter, decide, parts, session};

fn filter(config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    chain_filter(&parts(), "CookieFilter", &config, &|_| None)
}

/// The cookies that the upstream gets, and those that the client is given.
async fn passed(config: Value) -> (Vec<String>, Vec<String>) {
    let filter = filter(config).unwrap();
    let request = "GET / HTTP/1.1\r\nHost: h\r\nCookie: a=1; B=2;c=\"3\"\r\nCookie: b=4\r\nCookie: d=5\r\n\r\n";
    let (mut session, _client) = session(request).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    assert!(reply.is_none());
    let mut response = ResponseHeader::build(200, None).unwrap();
    for value in ["a=1; Path=/", "b=2; Path=/", "d=3"] {
        response.append_header(SET_COOKIE, value).unwrap();
    }
    filter.on_response_to(session.req_header(), &exchange, &mut response);
    let texts = |values: http::header::GetAll<'_, HeaderValue>| {
        let values = values.iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    };
    let sent = &session.req_header().headers;
    (
        texts(sent.get_all(COOKIE)),
        texts(response.headers.get_all(SET_COOKIE)),
    )
}

#[tokio::test]
async fn cookies_pass_that_are_relayed() {
    let (sent, given) = passed(json!({"suppressed": ["b"], "defaultAction": "relay"})).await;
    assert_eq!(sent, ["a=1; c=\"3\"", "d=5"]);
    assert_eq!(given, ["a=1; Path=/", "d=3"]);
    let only = json!({"relayed": ["b", "a"], "suppressed": ["a"], "defaultAction": "SUPPRESS"});
    let (sent, given) = passed(only).await;
    assert_eq!(sent, ["B=2", "b=4"]);
    assert_eq!(given, ["b=2; Path=/"]);
    let (sent, given) = passed(json!({"defaultAction": "RELAY"})).await;
    assert_eq!(sent, ["a=1; B=2;c=\"3\"", "b=4", "d=5"], "left as it came");
    assert_eq!(given.len(), 3);
    let (sent, given) = passed(json!({"defaultAction": "SUPPRESS"})).await;
    assert!(sent.is_empty() && given.is_empty());
}

#[test]
fn a_session_that_keeps_cookies_is_refused() {
    for (config, field) in [
        (json!({}), "defaultAction"),
        (json!({"defaultAction": "MANAGE"}), "defaultAction"),
        (json!({"defaultAction": "DROP"}), "defaultAction"),
        (
            json!({"managed": ["a"], "defaultAction": "RELAY"}),
            "managed",
        ),
    ] {
        let error = filter(config.clone()).err().unwrap();
        assert_eq!(error.field, field, "{config}");
    }
}
