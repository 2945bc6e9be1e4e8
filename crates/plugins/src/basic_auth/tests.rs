use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::authentication::testing::{Outcome, ask, ask_as, entry, filter, parts_with};
use doorward_core::model::secret::Secret;

/// A filter, and the users `anna` (as a file declares her), `bert` (as the store has
/// him) and `carl` (of the imitated gateway).
fn basic_auth(config: &Value) -> Arc<dyn Filter> {
    let parts = parts_with(|directory| {
        let hash = hash("open").expect("a hash");
        // SHA-1 of `open` and the nil UUID.
        let legacy = "$sha1$4a7e2dcbf0cbd6bd7ba6e0a0dcc0a31b1ee5d1f0";
        for (name, text) in [
            ("anna", "pass:word"),
            ("bert", hash.expose()),
            ("carl", legacy),
        ] {
            let password = StoredPassword::read(&Secret::new(text), Uuid::nil());
            directory
                .passwords
                .put(name.as_bytes().into(), entry(password));
        }
        directory.has_dear_passwords = true;
    });
    filter(&KIND, config, &parts)
}

async fn try_with(filter: &dyn Filter, header: &str) -> Outcome {
    ask(filter, &format!("GET / HTTP/1.1\r\n{header}")).await
}

fn login(name: &str, password: &str) -> String {
    STANDARD.encode(format!("{name}:{password}"))
}

#[tokio::test]
async fn a_name_and_its_password_get_in() {
    let filter = basic_auth(&json!({}));
    for (header, passes) in [
        (
            format!("Authorization: Basic {}", login("anna", "pass:word")),
            true,
        ),
        (
            format!("Authorization: basic{}", login("anna", "pass:word")),
            true,
        ),
        (
            format!("Proxy-Authorization: Basic {}", login("bert", "open")),
            true,
        ),
        (
            format!("Authorization: Basic {}", login("bert", "open")),
            true,
        ),
        (
            format!("Authorization: Basic {}", login("bert", "shut")),
            false,
        ),
        (
            format!("Authorization: Basic {}", login("anna", "pass")),
            false,
        ),
        (
            format!("Authorization: Basic {}", login("", "pass:word")),
            false,
        ),
        (
            format!("Authorization: Bearer {}", login("anna", "pass:word")),
            false,
        ),
        ("Authorization: Basic !".to_owned(), false),
        ("Authorization: Basic YW5uYQ==".to_owned(), false),
    ] {
        let outcome = try_with(&*filter, &header).await;
        assert_eq!(outcome.consumer().is_some(), passes, "{header}");
        if !passes {
            assert_eq!(outcome.message().as_deref(), Some("Unauthorized"));
            assert_eq!(outcome.challenge(), Some("Basic realm=\"service\""));
        }
    }
}

#[tokio::test]
async fn an_unknown_name_leads_to_the_next_header_and_a_wrong_password_does_not() {
    let filter = basic_auth(&json!({}));
    let right = format!("Authorization: Basic {}", login("anna", "pass:word"));
    for (name, passes) in [("nobody", true), ("bert", false)] {
        let first = format!("Proxy-Authorization: Basic {}", login(name, "x"));
        let outcome = try_with(&*filter, &format!("{first}\r\n{right}")).await;
        assert_eq!(outcome.consumer().is_some(), passes, "{name}");
    }
}

#[tokio::test]
async fn a_stolen_hash_is_no_password() {
    let filter = basic_auth(&json!({}));
    let legacy = "$sha1$4a7e2dcbf0cbd6bd7ba6e0a0dcc0a31b1ee5d1f0";
    for password in [legacy, &legacy[6..]] {
        let header = format!("Authorization: Basic {}", login("carl", password));
        let outcome = try_with(&*filter, &header).await;
        assert!(outcome.consumer().is_none());
    }
}

#[tokio::test]
async fn only_the_header_that_was_read_is_taken_out() {
    let filter = basic_auth(&json!({"hide_credentials": true, "anonymous": "nobody"}));
    for (header, left) in [
        (
            format!("Authorization: Basic {}", login("anna", "pass:word")),
            false,
        ),
        (
            format!("Authorization: Basic {}", login("anna", "no")),
            false,
        ),
        ("Authorization: Bearer token".to_owned(), true),
    ] {
        let outcome = try_with(&*filter, &header).await;
        let there = outcome.head.headers.contains_key("authorization");
        assert_eq!(there, left, "{header}");
        assert!(outcome.consumer().is_some());
    }
}

#[tokio::test]
async fn guessing_is_braked_and_whoever_was_right_before_goes_on() {
    let filter = basic_auth(&json!({}));
    let right = format!("Authorization: Basic {}", login("bert", "open"));
    let outcome = try_with(&*filter, &right).await;
    assert!(outcome.consumer().is_some());
    let mut statuses = Vec::new();
    for _ in 0..31 {
        let wrong = format!("Authorization: Basic {}", login("bert", "same"));
        let reply = try_with(&*filter, &wrong).await.reply.expect("a refusal");
        statuses.push(reply.status.as_u16());
    }
    assert_eq!(statuses[..30], [401; 30]);
    assert_eq!(statuses[30], 429);
    let outcome = try_with(&*filter, &right).await;
    assert!(outcome.consumer().is_some());
}

#[tokio::test]
async fn a_right_guess_is_no_news_where_only_another_address_has_been_right() {
    let filter = basic_auth(&json!({}));
    let right = format!("Authorization: Basic {}", login("bert", "open"));
    assert!(try_with(&*filter, &right).await.consumer().is_some());
    let guess = async |password: &str| {
        let exchange = Exchange {
            client: "192.0.2.1:1".parse().expect("an address"),
            ..Exchange::default()
        };
        let header = format!("Authorization: Basic {}", login("bert", password));
        let outcome = ask_as(&*filter, &format!("GET / HTTP/1.1\r\n{header}"), exchange).await;
        outcome.reply.map(|reply| reply.status.as_u16())
    };
    for _ in 0..30 {
        assert_eq!(guess("same").await, Some(401));
    }
    assert_eq!(guess("open").await, Some(429));
    assert!(try_with(&*filter, &right).await.consumer().is_some());
}
