#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;

/// What a collector was called with: path, headers, body.
type Calls = Arc<Mutex<Vec<(String, HeaderMap, Vec<u8>)>>>;

/// How a collector answers: headers of its head, its body, its trailers.
#[derive(Clone, Default)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
    trailers: Option<Vec<(&'static str, &'static str)>>,
}

fn header_map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
        .collect()
}

/// A collector that speaks HTTP/2 without TLS, and its address.
async fn collector(answer: Answer) -> (String, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("grpc://{}", listener.local_addr().unwrap());
    let calls = Calls::default();
    let noted = calls.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (answer, noted) = (answer.clone(), noted.clone());
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let (answer, noted) = (answer.clone(), noted.clone());
                    tokio::spawn(async move {
                        let (head, mut body) = request.into_parts();
                        let mut read = Vec::new();
                        while let Some(Ok(chunk)) = body.data().await {
                            read.extend_from_slice(&chunk);
                        }
                        noted
                            .lock()
                            .push((head.uri.path().to_owned(), head.headers, read));
                        let mut response = Response::builder().status(answer.status);
                        *response.headers_mut().unwrap() = header_map(&answer.headers);
                        let ends = answer.body.is_empty() && answer.trailers.is_none();
                        let sent = respond.send_response(response.body(()).unwrap(), ends);
                        let mut stream = sent.unwrap();
                        if !ends {
                            let last = answer.trailers.is_none();
                            stream.send_data(Bytes::from(answer.body), last).unwrap();
                        }
                        if let Some(trailers) = answer.trailers {
                            stream.send_trailers(header_map(&trailers)).unwrap();
                        }
                    });
                }
            });
        }
    });
    (address, calls)
}

async fn export(address: &str, signal: Signal) -> Result<(), CollectorError> {
    let collector = Collector {
        endpoint: Endpoint::parse(address, signal).unwrap(),
        headers: header_map(&[("x-key", "k")]),
        timeout: Duration::from_secs(10),
    };
    collector
        .export(&Outbound::new(), b"message".to_vec())
        .await
}

/// A message of gRPC.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// What a collector answers that took everything.
fn taken(message: &[u8]) -> Answer {
    Answer {
        status: 200,
        headers: vec![("content-type", "application/grpc")],
        body: framed(message),
        trailers: Some(vec![("grpc-status", "0")]),
    }
}

#[tokio::test]
async fn a_message_goes_over_grpc_to_the_method_of_its_signal() {
    let (address, calls) = collector(taken(b"")).await;
    for signal in [Signal::Metrics, Signal::Traces, Signal::Logs] {
        export(&address, signal).await.unwrap();
    }
    let calls = calls.lock();
    let paths: Vec<&str> = calls.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        ]
    );
    let (_, headers, body) = &calls[0];
    assert_eq!(headers["content-type"], "application/grpc");
    assert_eq!(headers["te"], "trailers");
    assert_eq!(headers["x-key"], "k");
    assert_eq!(*body, framed(b"message"));
}

#[tokio::test]
async fn a_call_that_grpc_calls_failed_is_a_failure() {
    let refused = Answer {
        trailers: Some(vec![("grpc-status", "16")]),
        ..taken(b"")
    };
    // An answer without a message has its status in the head.
    let head_only = Answer {
        status: 200,
        headers: vec![("grpc-status", "14"), ("grpc-message", "s3cret")],
        ..Answer::default()
    };
    let unsaid = Answer {
        trailers: None,
        ..taken(b"")
    };
    let not_found = Answer {
        status: 404,
        ..Answer::default()
    };
    let compressed = Answer {
        body: vec![1, 0, 0, 0, 1, b'x'],
        ..taken(b"")
    };
    let cut = Answer {
        body: vec![0, 0, 0, 0, 9, b'x'],
        ..taken(b"")
    };
    let two = Answer {
        body: [framed(b"a"), framed(b"b")].concat(),
        ..taken(b"")
    };
    let none = Answer {
        body: Vec::new(),
        ..taken(b"")
    };
    let strange = Answer {
        trailers: Some(vec![("grpc-status", "99999999")]),
        ..taken(b"")
    };
    for (answer, words) in [
        (
            refused,
            "answered with the gRPC status 16 (UNAUTHENTICATED)",
        ),
        (head_only, "answered with the gRPC status 14 (UNAVAILABLE)"),
        (unsaid, "answered without a gRPC status"),
        (strange, "answered without a gRPC status"),
        (not_found, "answered with status 404 Not Found"),
        (compressed, "answered with something else than one message"),
        (cut, "answered with something else than one message"),
        (two, "answered with something else than one message"),
        (none, "answered with something else than one message"),
    ] {
        let (address, _) = collector(answer).await;
        let error = export(&address, Signal::Traces).await.unwrap_err();
        assert_eq!(error.to_string(), words);
    }
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let long = Answer {
        body: vec![0; crate::http::outbound::BODY_MAX + 6],
        ..taken(b"")
    };
    let (address, _) = collector(long).await;
    let error = export(&address, Signal::Traces).await.unwrap_err();
    assert_eq!(error.to_string(), "answer is too long");
}

#[tokio::test]
async fn a_message_that_was_taken_in_part_is_told_apart() {
    let (address, _) = collector(taken(&[0x0a, 2, 0x08, 3])).await;
    let error = export(&address, Signal::Metrics).await.unwrap_err();
    assert!(matches!(error, CollectorError::Partial), "{error}");
}

#[test]
fn a_refusal_of_some_entries_is_noticed() {
    for signal in [Signal::Metrics, Signal::Traces, Signal::Logs] {
        let refuses_some = |answer: &[u8]| signal.refuses_some(answer);
        assert!(!refuses_some(b""));
        assert!(!refuses_some(&[0x0a, 0]));
        assert!(refuses_some(&[0x0a, 2, 0x08, 3]));
        assert!(refuses_some(&[0x0a, 4, 0x08, 3, 0x12, 0]));
        // With the message first, and with a long one, whose length takes two bytes.
        assert!(refuses_some(&[0x0a, 5, 0x12, 1, b'x', 0x08, 3]));
        let long = [&[0x0a, 0x82, 0x01, 0x08, 3, 0x12, 0x7e][..], &[b'x'; 126]].concat();
        assert!(refuses_some(&long));
        // A warning alone, and no such message.
        assert!(!refuses_some(&[0x0a, 3, 0x12, 1, b'x']));
        assert!(!refuses_some(b"{}"));
    }
}

#[test]
fn the_address_of_a_collector_says_its_protocol() {
    let url = |text| {
        let endpoint = Endpoint::parse(text, Signal::Traces).unwrap();
        (endpoint.protocol, endpoint.url.to_string())
    };
    let path = Signal::Traces.method();
    for (text, base) in [
        ("grpc://c.test", "http://c.test:4317"),
        ("grpc://c.test:80/", "http://c.test"),
        ("grpcs://c.test", "https://c.test:4317"),
        ("grpcs://c.test:443", "https://c.test"),
        ("grpc://[::1]:4317", "http://[::1]:4317"),
        ("grpc://a:b@c.test:9", "http://a:b@c.test:9"),
    ] {
        assert_eq!(
            url(text),
            (Protocol::Grpc, format!("{base}{path}")),
            "{text}"
        );
    }
    let http = "https://c.test/v1/traces?key=1";
    assert_eq!(url(http), (Protocol::Http, http.to_owned()));
    for text in [
        "c.test:4317",
        "grpc:c.test",
        "grpc://",
        "grpc:///v1",
        "grpc://c.test/v1/traces",
        "grpc://c.test?x=1",
        "ftp://c.test/v1/traces",
        "unix:///run/otel.sock",
    ] {
        assert!(Endpoint::parse(text, Signal::Traces).is_err(), "{text}");
    }
}

#[test]
fn user_and_password_of_an_address_become_a_header() {
    let mut endpoint = Endpoint::parse("grpc://a:b%20c@c.test", Signal::Logs).unwrap();
    assert!(endpoint.has_credentials());
    let header = endpoint.take_credentials().unwrap();
    assert_eq!(header, "Basic YTpiIGM=");
    assert!(header.is_sensitive());
    assert!(!endpoint.has_credentials());
    assert_eq!(endpoint.origin(), "http://c.test:4317");
}
