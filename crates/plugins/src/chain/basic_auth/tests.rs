//! The filter as configured, on requests.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{chain_filter, decide, parts, session};

fn filter(config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    chain_filter(&parts(), "HttpBasicAuthFilter", &config, &|_| None)
}

async fn sent(config: Value, head: &str) -> Option<String> {
    let filter = filter(config).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{head}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    assert!(reply.is_none());
    let mut values = session.req_header().headers.get_all(AUTHORIZATION).iter();
    let value = values
        .next()
        .map(|value| value.to_str().unwrap().to_owned());
    assert!(values.next().is_none());
    value
}

#[tokio::test]
async fn the_upstream_gets_the_name_and_the_password() {
    let fixed = json!({"username": "Aladdin", "password": "open sesame"});
    let wanted = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    assert_eq!(sent(fixed.clone(), "").await.as_deref(), Some(wanted));
    let own = "Authorization: Bearer x\r\n";
    assert_eq!(sent(fixed, own).await.as_deref(), Some(wanted));
    let named = json!({"username": "${request.headers['X-User'][0]}", "password": "p:q"});
    let anna = sent(named.clone(), "X-User: anna\r\n").await;
    assert_eq!(anna.as_deref(), Some("Basic YW5uYTpwOnE="));
    for head in ["Authorization: Bearer x\r\n", "X-User: a:b\r\n"] {
        assert_eq!(sent(named.clone(), head).await, None, "{head}");
    }
}

#[test]
fn names_that_can_not_be_sent_are_refused() {
    for (config, field) in [
        (json!({"password": "p"}), "username"),
        (json!({"username": "u"}), "password"),
        (json!({"username": "a:b", "password": "p"}), "username"),
        (json!({"username": "${null}", "password": "p"}), "username"),
    ] {
        let error = filter(config.clone()).err().unwrap();
        assert_eq!(error.field, field, "{config}");
    }
}
