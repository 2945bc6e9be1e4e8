#![expect(clippy::unwrap_used, reason = "tests")]

use doorward_plugin_api::filter::RouteContext;
use http::header::CACHE_CONTROL;
use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};

async fn answered(config: &Value, target: &str, lines: &str) -> Option<Reply> {
    let filter = plugin(&KIND, config).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    decide(&*filter, &mut session, &mut Exchange::default()).await
}

async fn body(config: &Value) -> (u16, String, Option<String>) {
    let reply = answered(config, "/", "").await.unwrap();
    let body = match &reply.body {
        ReplyBody::Own(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        ReplyBody::Empty => String::new(),
        other => panic!("{other:?}"),
    };
    let mut fields = reply.headers.iter();
    let kind = fields.find(|(name, _)| name == CONTENT_TYPE);
    let kind = kind.map(|(_, value)| value.to_str().unwrap().to_owned());
    (reply.status.as_u16(), body, kind)
}

#[tokio::test]
async fn a_message_is_json_without_an_identifier() {
    let json_type = Some("application/json; charset=utf-8".to_owned());
    let (status, text, kind) = body(&json!({})).await;
    assert_eq!(status, 503);
    assert_eq!(text, r#"{"message":"Service unavailable"}"#);
    assert_eq!(kind, json_type);
    let config = json!({"status_code": 200, "message": "a \"quote\""});
    let (status, text, kind) = body(&config).await;
    assert_eq!((status, kind), (200, json_type));
    assert_eq!(text, r#"{"message":"a \"quote\""}"#);
}

#[tokio::test]
async fn a_status_without_words_has_no_body() {
    let (status, text, kind) = body(&json!({"status_code": 418})).await;
    assert_eq!((status, text.as_str(), kind), (418, "", None));
    let (_, text, _) = body(&json!({"status_code": 404})).await;
    assert_eq!(text, r#"{"message":"Not found"}"#);
}

#[tokio::test]
async fn a_body_goes_out_as_it_stands_with_its_type_or_none() {
    let config = json!({"body": "<p>", "content_type": "text/html"});
    let (_, text, kind) = body(&config).await;
    assert_eq!((text.as_str(), kind.as_deref()), ("<p>", Some("text/html")));
    let (_, _, kind) = body(&json!({"body": "x"})).await;
    assert_eq!(kind, None);
}

#[tokio::test]
async fn a_trigger_is_a_header_or_a_parameter() {
    let config = json!({"trigger": "X-Stop"});
    assert!(answered(&config, "/", "").await.is_none());
    assert!(answered(&config, "/?x-stop", "").await.is_none());
    assert!(answered(&config, "/?a=1&X-Stop", "").await.is_some());
    assert!(answered(&config, "/?%58-Stop=0", "").await.is_some());
    assert!(answered(&config, "/", "x-stop: 1\r\n").await.is_some());
}

#[test]
fn forms_of_bodies_that_exclude_each_other_are_refused() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    let message = refused(json!({"message": "a", "body": "b"}));
    assert!(message.contains("message cannot be used with content_type or body"));
    let message = refused(json!({"content_type": "text/plain"}));
    assert!(message.contains("content_type requires a body"));
    let message = refused(json!({"echo": true, "body": "b"}));
    assert!(message.contains("echo cannot be used with content_type and body"));
    assert!(refused(json!({"body": ""})).contains("length must be at least 1"));
    assert!(refused(json!({"status_code": 600})).contains("between 100 and 599"));
    assert!(refused(json!({"status_code": 101})).contains("informational"));
}

/// The echo of a request, read.
async fn echoed(config: &Value, request: &str, mut exchange: Exchange) -> (Reply, Value) {
    let filter = plugin(&KIND, config).unwrap();
    let (mut session, _client) = session(request).await;
    assert!(filter.wants_body(session.req_header(), &exchange));
    let reply = decide(&*filter, &mut session, &mut exchange).await.unwrap();
    let ReplyBody::Own(body) = &reply.body else {
        panic!("no body of its own");
    };
    let body = serde_json::from_slice(body).unwrap();
    (reply, body)
}

#[tokio::test]
async fn an_echo_shows_the_request_to_the_client_that_has_sent_it() {
    let request = "POST /a/b?x=1&x=2&flag HTTP/1.1\r\nHost: A.test:8000\r\nX-A: 1\r\nX-A: 2\r\n\
                   Authorization: Bearer t\r\n\
                   Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n\r\n";
    let captures = [("0", "/a/b"), ("1", "b"), ("last", "b")];
    let exchange = Exchange {
        body: Some("n=1&n=2".into()),
        local: "127.0.0.1:8000".parse().ok(),
        route_context: Some(Box::new(RouteContext {
            captures: captures
                .map(|(name, text)| (name.into(), text.into()))
                .into(),
            ..RouteContext::default()
        })),
        ..Exchange::default()
    };
    let config = json!({"echo": true, "status_code": 404});
    let (reply, body) = echoed(&config, request, exchange).await;
    assert_eq!(reply.status, 404);
    let field = |wanted: &HeaderName| {
        let mut fields = reply.headers.iter();
        fields.find_map(|(name, value)| (name == wanted).then(|| value.to_str().unwrap()))
    };
    let json_type = "application/json; charset=utf-8";
    assert_eq!(field(&CONTENT_TYPE), Some(json_type));
    assert_eq!(field(&CACHE_CONTROL), Some("no-store"));
    assert_eq!(body["message"], "Not found");
    assert_eq!(body["kong"]["worker_pid"], std::process::id());
    assert!(body["kong"]["hostname"].is_string() && body["kong"]["node_id"].is_string());
    let expected = json!({
        "scheme": "http", "host": "a.test", "port": 8000, "method": "POST", "path": "/a/b",
        "query": {"x": ["1", "2"], "flag": true},
        "headers": {
            "host": "A.test:8000", "x-a": ["1", "2"], "authorization": "Bearer t",
            "content-type": "application/x-www-form-urlencoded", "content-length": "7",
        },
        "raw_body": "n=1&n=2", "body": {"n": ["1", "2"]},
        "uri_captures": {"named": {"last": "b"}, "unnamed": ["b"]},
    });
    assert_eq!(body["request"], expected);
}

#[tokio::test]
async fn an_echo_reads_json_and_forms_in_parts_and_leaves_what_is_malformed() {
    let config = json!({"echo": true, "status_code": 418});
    for (kind, text, expected) in [
        ("application/json", "{\"a\":[1]}", Some(json!({"a": [1]}))),
        ("application/json", "{", None),
        ("text/plain", "a=1", None),
        (
            "multipart/form-data; boundary=b",
            "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n",
            Some(json!({"a": "1"})),
        ),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Type: {kind}\r\n\r\n");
        let exchange = Exchange {
            body: Some(text.to_owned().into()),
            ..Exchange::default()
        };
        let (_, body) = echoed(&config, &request, exchange).await;
        assert_eq!(body["request"].get("body"), expected.as_ref(), "{kind}");
        assert_eq!(body["request"]["raw_body"], text);
        assert_eq!(body.get("message"), None, "418 has no words of its own");
    }
}

#[tokio::test]
async fn an_echo_with_a_trigger_leaves_other_requests_and_their_bodies_alone() {
    let config = json!({"echo": true, "trigger": "X-Debug"});
    let filter = plugin(&KIND, &config).unwrap();
    let (mut session, _client) = session("POST / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let mut exchange = Exchange::default();
    assert!(!filter.wants_body(session.req_header(), &exchange));
    assert!(
        decide(&*filter, &mut session, &mut exchange)
            .await
            .is_none()
    );
    assert!(filter.needs_route());
    assert!(filter.warnings()[0].contains("every header"));
    let plain = plugin(&KIND, &json!({})).unwrap();
    assert!(!plain.needs_route() && !plain.needs_body() && plain.warnings().is_empty());
}
