#![expect(clippy::unwrap_used, reason = "tests")]

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

#[test]
fn an_echo_would_show_credentials_and_is_refused() {
    let message = plugin(&KIND, &json!({"echo": true})).err().unwrap();
    assert!(
        message.starts_with("echo: can't be served here"),
        "{message}"
    );
}
