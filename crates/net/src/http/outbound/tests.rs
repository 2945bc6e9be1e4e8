#![expect(clippy::unwrap_used, reason = "tests")]

mod ssrf_guard;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::RawForm;
use axum::routing::{get, post};
use axum::{Extension, Json};
use http::HeaderName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::http::ClientInfo;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Answers every connection with `answer` and counts them.
async fn server(answer: Vec<u8>) -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(&format!("http://{}/", listener.local_addr().unwrap()));
    let hits = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&hits);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut head = [0_u8; 2048];
                let _ = socket.read(&mut head).await;
                let _ = socket.write_all(&answer).await;
            });
        }
    });
    (url, hits)
}

fn http(head: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}

#[tokio::test]
async fn a_local_url_never_touches_a_socket() {
    let outbound = Outbound::new();
    let router = Router::new()
        .route("/oauth2/keys", get(|| async { Json(json!({"keys": []})) }))
        .route(
            "/oauth2/access_token",
            post(|RawForm(form): RawForm| async move { form }),
        );
    // Nothing listens there.
    outbound.register_local(&url("http://127.0.0.1:1/"), router);
    let keys: Value = outbound
        .get_json(&url("http://127.0.0.1:1/oauth2/keys"), Options::default())
        .await
        .unwrap();
    assert_eq!(keys, json!({"keys": []}));
    let answer = outbound
        .post_form(
            &url("http://127.0.0.1:1/oauth2/access_token"),
            &[("scope", "a b"), ("client_id", "ü&")],
            HeaderMap::new(),
            Options::default(),
        )
        .await
        .unwrap();
    assert_eq!(answer.body, "scope=a+b&client_id=%C3%BC%26");
}

#[tokio::test]
async fn passing_for_this_machine_by_way_of_a_local_provider() {
    let outbound = Outbound::new();
    let told = |Extension(client): Extension<ClientInfo>| async move {
        Json(json!({"address": client.addr.ip()}))
    };
    let router = Router::new().route("/who", get(told));
    outbound.register_local(&url("http://127.0.0.1:1/"), router);
    let answer: Value = outbound
        .get_json(&url("http://127.0.0.1:1/who"), Options::default())
        .await
        .unwrap();
    assert_eq!(answer, json!({"address": "0.0.0.0"}));
    let forged = HeaderMap::from_iter(
        [
            (HeaderName::from_static("x-forwarded-for"), "127.0.0.1"),
            (header::FORWARDED, "for=127.0.0.1"),
        ]
        .map(|(name, value)| (name, HeaderValue::from_static(value))),
    );
    for (spoken_for, address) in [(None, "0.0.0.0"), (Some("192.0.2.7"), "192.0.2.7")] {
        let options = Options {
            on_behalf_of: spoken_for.map(|client| client.parse().expect("an address")),
            ..Options::default()
        };
        let who = url("http://127.0.0.1:1/who");
        let answer = outbound.get(&who, forged.clone(), options).await.unwrap();
        assert_eq!(answer.body, format!(r#"{{"address":"{address}"}}"#));
    }
}

#[tokio::test]
async fn a_local_base_path_is_a_whole_segment_and_is_cut_off() {
    let outbound = Outbound::new();
    let router = Router::new().route("/x", get(|| async { "inside" }));
    outbound.register_local(&url("https://id.example.com/auth/"), router);
    assert!(outbound.is_local(&url("https://id.example.com:443/auth/x")));
    assert!(outbound.is_local(&url("https://ID.example.com/auth")));
    assert!(!outbound.is_local(&url("https://id.example.com/authentic/x")));
    assert!(!outbound.is_local(&url("http://id.example.com/auth/x")));
    assert!(!outbound.is_local(&url("https://id.example.com:444/auth/x")));
    let answer = outbound
        .get(
            &url("https://id.example.com/auth/x?a=1"),
            HeaderMap::new(),
            Options::default(),
        )
        .await
        .unwrap();
    assert_eq!(answer.body, "inside");
}

#[tokio::test]
async fn a_registration_replaces_the_earlier_one() {
    let outbound = Outbound::new();
    let base = url("http://localhost:8000");
    for name in ["old", "new"] {
        outbound.register_local(
            &base,
            Router::new().route("/", get(move || async move { name })),
        );
    }
    let answer = outbound
        .get(&base, HeaderMap::new(), Options::default())
        .await
        .unwrap();
    assert_eq!(answer.body, "new");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (target, hits) = server(http("200 OK", b"{}")).await;
    let (start, _) = server(http(&format!("302 Found\r\nLocation: {target}"), b"")).await;
    let outcome = Outbound::new()
        .get_json::<Value>(&start, Options::default())
        .await;
    assert!(matches!(outcome, Err(OutboundError::Status(status)) if status == 302));
    assert_eq!(hits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_endless_answer_is_cut_at_the_limit() {
    let (url, _) = server(http("200 OK", &vec![b' '; BODY_MAX + 1])).await;
    let outcome = Outbound::new()
        .get(&url, HeaderMap::new(), Options::default())
        .await;
    assert!(matches!(outcome, Err(OutboundError::TooLong)));
}

#[tokio::test]
async fn a_provider_that_is_away_or_silent_is_an_error_in_time() {
    let outbound = Outbound::new();
    let outcome = outbound
        .get(
            &url("http://127.0.0.1:1/"),
            HeaderMap::new(),
            Options::default(),
        )
        .await;
    assert!(matches!(outcome, Err(OutboundError::Unreachable(_))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = url(&format!("http://{}/", listener.local_addr().unwrap()));
    let options = Options {
        timeout: Duration::from_millis(50),
        ..Options::default()
    };
    let outcome = outbound.get(&silent, HeaderMap::new(), options).await;
    assert!(matches!(outcome, Err(OutboundError::Timeout(_))));
}

#[tokio::test]
async fn another_scheme_than_http_is_refused() {
    let outcome = Outbound::new()
        .get(
            &url("file:///etc/passwd"),
            HeaderMap::new(),
            Options::default(),
        )
        .await;
    assert!(matches!(outcome, Err(OutboundError::Url)));
}

#[test]
fn every_transport_has_a_client_of_its_own() {
    let mut seen = std::collections::HashSet::new();
    for scheme in ["http", "https"] {
        for verify in [true, false] {
            for version in [Version::Http1, Version::Http2, Version::Http2Only] {
                for keepalive in [true, false] {
                    let options = Options {
                        verify,
                        version,
                        keepalive,
                        ..Options::default()
                    };
                    let transport = Transport::new(&url(&format!("{scheme}://h/")), options);
                    seen.insert(transport.index());
                    assert!(transport.index() < Transport::COUNT);
                }
            }
        }
    }
    assert_eq!(seen.len(), Transport::COUNT);
}

/// An https server whose certificate nobody has vouched for.
fn unvouched_server() -> Url {
    use std::io::{Read, Write};

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, socket);
            let _ = stream.read(&mut [0; 2048]);
            let _ = stream.write_all(&http("200 OK", b"{}"));
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    url(&format!("https://localhost:{port}/"))
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_unless_unchecked() {
    let url = unvouched_server();
    let outbound = Outbound::new();
    let outcome = outbound
        .get(&url, HeaderMap::new(), Options::default())
        .await;
    assert!(
        matches!(
            outcome,
            Err(OutboundError::Unreachable(_) | OutboundError::Client(_))
        ),
        "{outcome:?}"
    );
    let options = Options {
        verify: false,
        ..Options::default()
    };
    let answer = outbound.get(&url, HeaderMap::new(), options).await.unwrap();
    assert_eq!(answer.body, "{}");
}
