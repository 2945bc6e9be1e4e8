use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::authentication::testing::{Outcome, ask, ask_as, filter, parts_with};
use crate::testing::plugin;

/// A directory that takes `anna` with `open` alone: its port, and how often it was
/// asked.
async fn directory() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut bytes = [0; 1024];
                while let Ok(length) = stream.read(&mut bytes).await
                    && length > 7
                {
                    count.fetch_add(1, Ordering::Relaxed);
                    let request = &bytes[..length];
                    let holds = |text: &[u8]| request.windows(text.len()).any(|w| w == text);
                    let right = holds(b"\x04\x12uid=anna,dc=a,dc=b\x80\x04open");
                    // BindResponse: the result, and two empty texts (RFC 4511 §4.2.2).
                    let result = if right { 0 } else { 49 };
                    let id = request[4];
                    let answer = [
                        0x30, 0x0c, 0x02, 0x01, id, 0x61, 0x07, 0x0a, 0x01, result, 0x04, 0, 0x04,
                        0,
                    ];
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, asked)
}

fn ldap(port: u16, more: Value) -> Arc<dyn Filter> {
    let mut config = json!({"ldap_host": "127.0.0.1", "ldap_port": port, "timeout": 2000,
        "base_dn": "dc=a,dc=b", "attribute": "uid"});
    let more = more.as_object().cloned().unwrap_or_default();
    config.as_object_mut().expect("an object").extend(more);
    filter(&KIND, &config, &parts_with(|_| {}))
}

fn header(name: &str, password: &str) -> String {
    let text = STANDARD.encode(format!("{name}:{password}"));
    format!("Authorization: ldap {text}")
}

async fn send(filter: &dyn Filter, header: &str) -> Outcome {
    ask(filter, &format!("GET / HTTP/1.1\r\n{header}")).await
}

#[tokio::test]
async fn the_directory_decides_and_is_asked_once() {
    let (port, asked) = directory().await;
    let filter = ldap(port, json!({"hide_credentials": true}));
    for _ in 0..2 {
        let outcome = send(&*filter, &header("anna", "open")).await;
        assert!(outcome.reply.is_none());
        assert!(outcome.exchange.credential.is_some() && outcome.consumer().is_none());
        assert!(!outcome.head.headers.contains_key("authorization"));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    for (name, password) in [("anna", "shut"), ("bert", "open"), ("anna", "")] {
        let outcome = send(&*filter, &header(name, password)).await;
        assert_eq!(outcome.message().as_deref(), Some("Unauthorized"), "{name}");
        assert_eq!(outcome.challenge(), Some("LDAP"));
    }
    // Nobody binds without a password: that would succeed.
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_name_with_commas_is_nobody_elses_place() {
    let (port, _) = directory().await;
    let filter = ldap(port, json!({"base_dn": "dc=b"}));
    let outcome = send(&*filter, &header("anna,dc=a", "open")).await;
    assert!(outcome.reply.is_some());
}

#[tokio::test]
async fn without_the_directory_nobody_gets_in_not_even_as_nobody() {
    let filter = ldap(1, json!({"anonymous": "nobody"}));
    let outcome = send(&*filter, &header("anna", "open")).await;
    assert_eq!(outcome.reply.map(|reply| reply.status.as_u16()), Some(500));
    let outcome = send(&*filter, "X-None: 1").await;
    assert_eq!(outcome.consumer(), Some("nobody"));
}

#[test]
fn one_kind_of_tls_is_enough() {
    let config = json!({"ldap_host": "a", "base_dn": "dc=a", "attribute": "uid",
        "ldaps": true, "start_tls": true});
    let refused = plugin(&KIND, &config).err().unwrap_or_default();
    assert!(
        refused.contains("cannot be enabled simultaneously"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_right_guess_is_no_news_where_only_another_address_has_been_right() {
    let (port, _) = directory().await;
    let filter = ldap(port, json!({}));
    let right = format!("GET / HTTP/1.1\r\n{}", header("anna", "open"));
    assert!(ask(&*filter, &right).await.reply.is_none());
    let guess = async |password: &str| {
        let exchange = Exchange {
            client: "192.0.2.1:1".parse().expect("an address"),
            ..Exchange::default()
        };
        let lines = format!("GET / HTTP/1.1\r\n{}", header("anna", password));
        let outcome = ask_as(&*filter, &lines, exchange).await;
        outcome.reply.map(|reply| reply.status.as_u16())
    };
    for _ in 0..30 {
        assert_eq!(guess("same").await, Some(401));
    }
    assert_eq!(guess("open").await, Some(429));
    assert!(ask(&*filter, &right).await.reply.is_none());
}
