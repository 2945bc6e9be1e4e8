//! Requests that two parsers may read differently: refused before anything
//! looks at them, and never passed on.

use std::time::Duration;

use tokio::time::timeout;

use crate::support::raw::{Connection, exchange};

use crate::support::{Door, Reply, Setup, Upstream, http};

async fn door_to(upstream: &Upstream) -> Door {
    let url = upstream.url("");
    let service = format!("- {{name: web, url: '{url}', routes: [{{paths: [/]}}]}}\n");
    Setup::new().services(&service).start().await
}

/// Ambiguous or malformed requests, with what each would smuggle.
const REFUSED: &[(&str, &str)] = &[
    ("no Host", "GET / HTTP/1.1\r\n\r\n"),
    (
        "two Hosts",
        "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
    ),
    (
        "a Host list",
        "GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
    ),
    (
        "user information in Host",
        "GET / HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n",
    ),
    ("a space in Host", "GET / HTTP/1.1\r\nHost: a .test\r\n\r\n"),
    ("a path in Host", "GET / HTTP/1.1\r\nHost: a.test/x\r\n\r\n"),
    (
        "a port that is none",
        "GET / HTTP/1.1\r\nHost: a.test:x\r\n\r\n",
    ),
    (
        "target and Host disagree",
        "GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
    ),
    (
        "CL.TE",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    (
        "TE.CL",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 44\r\n\r\n2a\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "two lengths",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    (
        "a list of lengths",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0, 40\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    (
        "a signed length",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +4\r\n\r\nbody",
    ),
    (
        "a negative length",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: -1\r\n\r\n",
    ),
    (
        "a hexadecimal length",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x4\r\n\r\nbody",
    ),
    (
        "another transfer coding",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "an unknown transfer coding",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked twice",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    (
        "a space before the colon",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a folded header",
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\r\n 2\r\n\r\n",
    ),
    (
        "a NUL in a value",
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\x002\r\n\r\n",
    ),
    (
        "a bare CR in a value",
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\rX-B: 2\r\n\r\n",
    ),
    (
        "a header without a name",
        "GET / HTTP/1.1\r\nHost: a.test\r\n: 1\r\n\r\n",
    ),
    (
        "a method that is none",
        "GE T / HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    (
        "a control byte in the target",
        "GET /\x01 HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    (
        "a NUL in the path",
        "GET /a%00b HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    (
        "a broken escape in the path",
        "GET /a%zz HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ),
    (
        "CONNECT",
        "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
    ),
    (
        "HTTP/1.0 with chunks",
        "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
];

#[tokio::test]
async fn ambiguous_requests_are_refused_and_not_passed_on() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let mut wrong = Vec::new();
    for (name, request) in REFUSED {
        let before = upstream.seen().len();
        let proxy = door.proxy();
        let answer = exchange(&proxy, request.as_bytes());
        match timeout(Duration::from_secs(10), answer).await {
            // A connection closed without a word is a refusal as well.
            Ok(None) => {}
            Ok(Some(answer)) if [400, 405, 501].contains(&answer.status) => {}
            Ok(Some(answer)) => wrong.push(format!("{name}: {}", answer.status)),
            Err(_) => wrong.push(format!("{name}: no answer")),
        }
        for seen in &upstream.seen()[before..] {
            wrong.push(format!(
                "{name}: the upstream got {} {}",
                seen.method, seen.target
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_refused_request_ends_its_connection() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    let request = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
                   0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    connection.send(request.as_bytes()).await;
    assert_eq!(connection.response().await.status, 400);
    assert!(connection.is_closed().await);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn bytes_after_a_request_are_never_part_of_it() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    let both = "POST /one HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbodyGET /two HTTP/1.1\r\nHost: a.test\r\n\r\n";
    connection.send(both.as_bytes()).await;
    let first = connection.response().await;
    assert_eq!(first.status, 200);
    // A pipelined request may be answered or dropped, never merged.
    let _ = connection.rest().await;
    assert_eq!(upstream.seen()[0].body, b"body");
    for seen in upstream.seen() {
        assert!(
            ["/one", "/two"].contains(&seen.target.as_str()),
            "{}",
            seen.target
        );
    }
}

#[tokio::test]
async fn an_unread_body_is_not_taken_for_the_next_request() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    door.admin_post("/plugins", &throttle_to_nothing())
        .await
        .expect(201);
    door.get("a.test", "/").await.expect(200);
    let mut connection = Connection::open(&door.proxy()).await;
    // The refusal comes before the body was read.
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{inner}",
        inner.len()
    );
    connection.send(request.as_bytes()).await;
    assert_eq!(connection.response().await.status, 429);
    assert_eq!(connection.rest().await, b"", "one request, one answer");
}

fn throttle_to_nothing() -> serde_json::Value {
    let rate = serde_json::json!({"numberOfRequests": 1, "duration": "1 day"});
    serde_json::json!({"name": "throttling", "config": {"rate": rate}})
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let long = "x".repeat(40 * 1024);
    let many: String = (0..300).map(|n| format!("X-{n}: 1\r\n")).collect();
    for (name, request) in [
        (
            "one value",
            format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-A: {long}\r\n\r\n"),
        ),
        (
            "the target",
            format!("GET /{long} HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ),
        (
            "many fields",
            format!("GET / HTTP/1.1\r\nHost: a.test\r\n{many}\r\n"),
        ),
    ] {
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        let status = answer.map_or(400, |answer| answer.status);
        assert!([400, 414, 431].contains(&status), "{name}: {status}");
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn two_spellings_of_a_header_that_says_who_asks_or_how_long_do_not_both_arrive() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("x_forwarded_for", "6.6.6.6")
        .header("X_Real_IP", "6.6.6.6")
        .header("Content_Length", "5")
        .header("Transfer_Encoding", "chunked")
        .header("X_Forwarded_Host", "evil.test");
    http::send(request).await.expect(200);
    for (name, _) in &upstream.last().headers {
        assert!(!name.contains('_'), "{name}");
    }
}

#[tokio::test]
async fn a_web_socket_handshake_that_is_refused_opens_no_tunnel() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\
                   GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    connection.send(request.as_bytes()).await;
    assert_eq!(connection.response().await.status, 200);
    let _ = connection.rest().await;
    let smuggled = upstream
        .seen()
        .iter()
        .filter(|seen| seen.target == "/smuggled")
        .count();
    // Pipelining may answer it as a request of its own; a tunnel would not
    // have added the gateway's headers.
    for seen in upstream.seen() {
        assert!(seen.header("x-forwarded-for").is_some(), "{}", seen.target);
    }
    assert!(smuggled <= 1);
}

#[tokio::test]
async fn a_stripped_prefix_does_not_open_the_way_out_of_the_service_path() {
    let upstream = Upstream::echo().await;
    let url = upstream.url("/s");
    let service = format!("- {{name: web, url: '{url}', routes: [{{paths: [/foo]}}]}}\n");
    let door = Setup::new().services(&service).start().await;
    for path in ["/foo..", "/foo..%2Fadmin", "/foo..;/x"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        assert_eq!(answer.expect("an answer").status, 400, "{path}");
    }
    assert!(upstream.seen().is_empty());
    for (path, sent) in [("/foo..x", "/s/..x"), ("/foo../x", "/s/x")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        assert_eq!(answer.expect("an answer").status, 200, "{path}");
        assert_eq!(upstream.last().target, sent);
    }
}

#[tokio::test]
async fn a_connection_of_http_1_0_ends_with_its_answer() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream).await;
    for authority in [door.proxy(), door.admin()] {
        let mut connection = Connection::open(&authority).await;
        let request = format!("GET /status HTTP/1.0\r\nHost: {authority}\r\n\r\n");
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.response().await.status, 200);
        assert!(connection.is_closed().await, "{authority}");
    }
}

#[tokio::test]
async fn what_concerns_the_upstreams_connection_stays_there() {
    let upstream = Upstream::start(|_| {
        Reply::Raw(
            b"HTTP/1.1 200 OK\r\nConnection: X-Secret, keep-alive\r\nX-Secret: a\r\n\
              Keep-Alive: timeout=3\r\nContent-Length: 2\r\n\r\nok"
                .to_vec(),
        )
    })
    .await;
    let door = door_to(&upstream).await;
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let answer = exchange(&door.proxy(), request).await.expect("an answer");
    assert_eq!(answer.text(), "ok");
    assert_eq!(answer.header("x-secret"), None);
    assert_eq!(answer.header("keep-alive"), None);
}
