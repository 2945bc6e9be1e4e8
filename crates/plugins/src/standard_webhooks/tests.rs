#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{decide, parts, plugin_with, session};

const BODY: &str = r#"{"a":1}"#;

fn signature(secret: &[u8], timestamp: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let message = format!("msg_1.{timestamp}.{body}");
    let tag = hmac::sign(&key, message.as_bytes());
    format!("v1,{}", STANDARD.encode(tag))
}

/// Whether a request with these headers and this body passes, at second 1000.
async fn passes(secret: &str, headers: &[(&str, String)], body: &str) -> bool {
    let parts = parts();
    parts.clock.advance(1_000_000);
    let filter = plugin_with(&KIND, &json!({ "secret_v1": secret }), &parts).unwrap();
    assert!(filter.needs_body());
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let lines: String = lines.collect();
    let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange {
        body: Some(body.to_owned().into()),
        ..Exchange::default()
    };
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    reply.is_none_or(|reply| {
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        false
    })
}

fn headers(timestamp: i64, signatures: String) -> Vec<(&'static str, String)> {
    vec![
        ("webhook-id", "msg_1".to_owned()),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signatures),
    ]
}

#[tokio::test]
async fn a_signed_webhook_passes_with_either_form_of_the_secret() {
    let good = signature(b"secret", 1000, BODY);
    assert!(passes("secret", &headers(1000, good.clone()), BODY).await);
    let encoded = format!("whsec_{}", STANDARD.encode("secret"));
    assert!(passes(&encoded, &headers(1000, good.clone()), BODY).await);
    let several = format!("v1,AAAA v1a,x {good}");
    assert!(passes("secret", &headers(1000, several), BODY).await);
}

#[tokio::test]
async fn forged_old_future_and_incomplete_webhooks_are_refused() {
    let good = |timestamp| headers(timestamp, signature(b"secret", timestamp, BODY));
    assert!(!passes("other", &good(1000), BODY).await);
    assert!(!passes("secret", &good(1000), "{}").await);
    assert!(passes("secret", &good(700), BODY).await && passes("secret", &good(1300), BODY).await);
    for timestamp in [699, 1301, i64::MIN, i64::MAX] {
        assert!(
            !passes("secret", &good(timestamp), BODY).await,
            "{timestamp}"
        );
    }
    for missing in 0..3 {
        let mut some = good(1000);
        some.remove(missing);
        assert!(!passes("secret", &some, BODY).await, "{missing}");
    }
    let mut twice = good(1000);
    twice.push(("webhook-id", "msg_2".to_owned()));
    assert!(!passes("secret", &twice, BODY).await);
    let empty = headers(1000, signature(b"secret", 1000, ""));
    assert!(!passes("secret", &empty, "").await);
}

#[test]
fn a_secret_is_needed_and_the_tolerance_is_not_below_zero() {
    let refused = |config: Value| plugin_with(&KIND, &config, &parts()).err().unwrap();
    assert!(refused(json!({})).contains("required field missing"));
    let below = json!({"secret_v1": "x", "tolerance_second": -1});
    assert!(refused(below).contains("value must be greater than -1"));
}
