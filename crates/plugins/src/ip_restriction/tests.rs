#![expect(clippy::unwrap_used, reason = "tests")]

use doorward_net::http::reply::ReplyBody;
use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};

async fn answer(config: &Value, client: &str, lines: &str) -> Option<(u16, String)> {
    let filter = plugin(&KIND, config).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange {
        client: format!("{client}:1").parse().unwrap(),
        ..Exchange::default()
    };
    let reply = decide(&*filter, &mut session, &mut exchange).await?;
    assert_eq!(exchange.refusal.as_deref(), Some("address_not_allowed"));
    match reply.body {
        ReplyBody::Message(message) => Some((reply.status.as_u16(), message.into_owned())),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_denied_is_refused_though_it_is_allowed_too() {
    let config = json!({"allow": ["10.0.0.0/8"], "deny": ["10.0.0.1"]});
    assert_eq!(answer(&config, "10.0.0.2", "").await, None);
    for client in ["10.0.0.1", "11.0.0.1"] {
        let message = format!("IP address not allowed: {client}");
        assert_eq!(answer(&config, client, "").await, Some((403, message)));
    }
}

#[tokio::test]
async fn a_list_of_denied_addresses_alone_lets_all_others_in() {
    let config = json!({"deny": ["192.0.2.0/24", "2001:db8::/32"]});
    assert_eq!(answer(&config, "198.51.100.1", "").await, None);
    assert!(answer(&config, "192.0.2.9", "").await.is_some());
    assert!(answer(&config, "[2001:db8::7]", "").await.is_some());
    assert!(answer(&config, "[::ffff:192.0.2.9]", "").await.is_some());
}

#[tokio::test]
async fn status_and_message_are_those_of_the_configuration() {
    let config = json!({"allow": ["10.0.0.1"], "status": 418, "message": "no"});
    let teapot = Some((418, "no".to_owned()));
    assert_eq!(answer(&config, "10.0.0.2", "").await, teapot);
    let config = json!({"allow": ["10.0.0.1"], "status": 200, "message": "no"});
    let failed = Some((500, "An unexpected error occurred".to_owned()));
    assert_eq!(answer(&config, "10.0.0.2", "").await, failed);
    assert_eq!(plugin(&KIND, &config).unwrap().warnings().len(), 1);
}

#[tokio::test]
async fn a_forged_forwarded_address_changes_nothing() {
    let config = json!({"allow": ["10.0.0.1"]});
    let forged = "X-Forwarded-For: 10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\n";
    assert!(answer(&config, "192.0.2.1", forged).await.is_some());
}

#[test]
fn empty_lists_and_what_is_no_address_are_refused() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    let message = refused(json!({"allow": [], "deny": null}));
    assert!(
        message.contains("non-empty: 'config.allow', 'config.deny'"),
        "{message}"
    );
    let message = refused(json!({"deny": ["10.0.0.256"]}));
    assert!(
        message.contains("invalid ip or cidr range: '10.0.0.256'"),
        "{message}"
    );
    assert!(!message.contains("non-empty"), "{message}");
    // What else is wrong is told at once.
    let message = refused(json!({"message": 5}));
    assert!(message.contains("message: expected a string"), "{message}");
    assert!(message.contains("non-empty"), "{message}");
}
