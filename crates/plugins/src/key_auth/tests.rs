use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::authentication::testing::{ask, ask_as, entry, filter, parts_with};
use crate::testing::plugin;
use doorward_plugin_api::filter::Exchange;

fn key_auth(config: &Value) -> Arc<dyn Filter> {
    let parts = parts_with(|directory| {
        let mut put = |key: &str, expires_at| {
            let digest = KeyDigest::of_sent(key.as_bytes());
            let entry = Entry {
                expires_at,
                ..entry(())
            };
            directory.keys.put(digest.bytes().into(), entry);
        };
        put("good", None);
        put("over", Some(0));
        put("a&b", None);
    });
    filter(&KIND, config, &parts)
}

#[tokio::test]
async fn the_first_place_that_has_something_counts() {
    let filter = key_auth(&json!({"key_names": ["apikey", "api_key"]}));
    for (lines, passes) in [
        ("GET / HTTP/1.1\r\napikey: good", true),
        ("GET /?apikey=good HTTP/1.1", true),
        ("GET /?apikey=a%26b HTTP/1.1", true),
        ("GET / HTTP/1.1\r\napi_key: good", true),
        ("GET / HTTP/1.1\r\napi-key: good", true),
        ("GET / HTTP/1.1\r\napi-key: wrong\r\napikey: good", true),
        ("GET /?apikey=good HTTP/1.1\r\napikey: wrong", false),
        ("GET /?apikey=good HTTP/1.1\r\napikey:", false),
        ("GET /?apikey=wrong&api_key=good HTTP/1.1", false),
        ("GET /?APIKEY=good HTTP/1.1", false),
        ("GET / HTTP/1.1\r\napikey: over", false),
    ] {
        let outcome = ask(&*filter, lines).await;
        assert_eq!(outcome.consumer().is_some(), passes, "{lines}");
        assert_eq!(outcome.reply.is_none(), passes, "{lines}");
    }
}

#[tokio::test]
async fn each_refusal_has_its_words() {
    let filter = key_auth(&json!({"realm": "all"}));
    for (lines, message) in [
        ("GET / HTTP/1.1", "No API key found in request"),
        ("GET /?apikey HTTP/1.1", "No API key found in request"),
        ("GET /?apikey= HTTP/1.1", "No API key found in request"),
        ("GET /?apikey=no HTTP/1.1", "Unauthorized"),
        ("GET / HTTP/1.1\r\napikey: over", "Unauthorized"),
        (
            "GET / HTTP/1.1\r\napikey: good\r\napikey: good",
            "Duplicate API key found",
        ),
        (
            "GET /?apikey=good&apikey=no HTTP/1.1",
            "Duplicate API key found",
        ),
    ] {
        let outcome = ask(&*filter, lines).await;
        assert_eq!(outcome.message().as_deref(), Some(message), "{lines}");
        assert_eq!(outcome.challenge(), Some("Key realm=\"all\""));
    }
}

#[tokio::test]
async fn with_anonymous_whoever_is_refused_is_nobody_and_whoever_is_known_is_spared() {
    let filter = key_auth(&json!({"anonymous": "nobody", "hide_credentials": true}));
    let outcome = ask(&*filter, "GET /?apikey=no&a HTTP/1.1").await;
    assert_eq!(outcome.consumer(), Some("nobody"));
    assert!(outcome.exchange.credential.is_none());
    assert_eq!(outcome.head.uri.query(), Some("a"));
    // A credential that another plugin has found: nothing is looked at or taken out.
    let known = Exchange {
        credential: Some(Arc::clone(&entry(()).credential)),
        ..Exchange::default()
    };
    let outcome = ask_as(&*filter, "GET /?apikey=no&a HTTP/1.1", known).await;
    assert_eq!(outcome.consumer(), None);
    assert_eq!(outcome.head.uri.query(), Some("apikey=no&a"));
}

#[tokio::test]
async fn without_the_anonymous_consumer_nobody_gets_in() {
    let filter = key_auth(&json!({"anonymous": "ghost"}));
    let outcome = ask(&*filter, "GET / HTTP/1.1").await;
    let reply = outcome.reply.expect("a refusal");
    assert_eq!(reply.status.as_u16(), 500);
}

#[tokio::test]
async fn options_pass_only_if_preflights_may() {
    let lines = "OPTIONS / HTTP/1.1";
    let outcome = ask(&*key_auth(&json!({})), lines).await;
    assert!(outcome.reply.is_some());
    let filter = key_auth(&json!({"run_on_preflight": false}));
    let outcome = ask(&*filter, lines).await;
    assert!(outcome.reply.is_none() && outcome.exchange.consumer.is_none());
}

#[tokio::test]
async fn keys_are_read_in_bodies_and_taken_out_of_them() {
    let filter = key_auth(&json!({"key_in_body": true, "hide_credentials": true}));
    assert!(filter.needs_body());
    for (kind, body, rest) in [
        (
            "application/x-www-form-urlencoded",
            "a=1&apikey=good",
            Some("a=1"),
        ),
        (
            "application/json; charset=utf-8",
            r#"{"a":1,"apikey":"good"}"#,
            Some(r#"{"a":1}"#),
        ),
        ("application/json", r#"{"apikey":["good","no"]}"#, None),
        ("text/plain", "apikey=good", None),
        (
            "multipart/form-data; boundary=x",
            "--x\r\nContent-Disposition: form-data; name=\"apikey\"\r\n\r\ngood\r\n--x\r\n\
             Content-Disposition: form-data; name=a; filename=f\r\n\r\n1\r\n--x--\r\n",
            Some("--x\r\nContent-Disposition: form-data; name=a; filename=f\r\n\r\n1\r\n--x--\r\n"),
        ),
        (
            "multipart/form-data; boundary=x",
            "--x\r\nContent-Disposition: form-data; name=apikey\r\n\r\ngood\r\n--x\r\n\
             Content-Disposition: form-data; name=apikey\r\n\r\nbad\r\n--x--\r\n",
            None,
        ),
        // Readers differ on where this one ends.
        (
            "multipart/form-data; boundary=x",
            "--x\r\nContent-Disposition: form-data; name=apikey\r\n\r\ngood\n--x--\r\n",
            None,
        ),
        (
            "multipart/form-data",
            "--x\r\nContent-Disposition: form-data; name=apikey\r\n\r\ngood\r\n--x--\r\n",
            None,
        ),
    ] {
        let exchange = Exchange {
            body: Some(Bytes::from(body)),
            ..Exchange::default()
        };
        let lines = format!("POST / HTTP/1.1\r\nContent-Type: {kind}");
        let outcome = ask_as(&*filter, &lines, exchange).await;
        assert_eq!(outcome.consumer().is_some(), rest.is_some(), "{body}");
        if let Some(rest) = rest {
            let sent = outcome.exchange.replacement;
            assert_eq!(sent.as_deref(), Some(rest.as_bytes()));
        }
    }
}

#[test]
fn names_are_those_of_headers_and_a_realm_fits_into_one() {
    let refused = |config: Value| plugin(&KIND, &config).err().unwrap_or_default();
    let told = refused(json!({"key_names": ["a b"]}));
    assert!(told.contains("bad header name 'a b'"), "{told}");
    let told = refused(json!({"realm": "a\", error=\"x"}));
    assert!(told.starts_with("realm: "), "{told}");
}

#[tokio::test]
async fn whoever_guesses_keys_learns_nothing_for_the_rest_of_the_minute() {
    let filter = key_auth(&json!({}));
    for guess in 0..300 {
        let outcome = ask(&*filter, &format!("GET /?apikey={guess} HTTP/1.1")).await;
        assert_eq!(outcome.message().as_deref(), Some("Unauthorized"));
    }
    for key in ["no", "good"] {
        let outcome = ask(&*filter, &format!("GET /?apikey={key} HTTP/1.1")).await;
        assert_eq!(outcome.message().as_deref(), Some("Too many attempts"));
        assert_eq!(outcome.reply.expect("a refusal").status.as_u16(), 429);
    }
    // Without a key nothing is guessed.
    let outcome = ask(&*filter, "GET / HTTP/1.1").await;
    assert_eq!(outcome.reply.expect("a refusal").status.as_u16(), 401);
}
