//! Requests of every kind on one connection: some go by the gateway's forwarding loop,
//! others by the engine, and the client can't tell which.

use crate::support::raw::Connection;
use crate::support::{Reply, Setup, Upstream};

/// A door whose `/h1` goes to `upstream`, and whose `/h2` goes in HTTP/2 to another
/// door that shows what it gets.
pub(crate) async fn doors(upstream: &Upstream) -> [crate::support::Door; 2] {
    let echo = "- {name: echo, protocol: internal, host: echo, routes: [{paths: [/]}]}\n";
    let behind = Setup::new().services(echo).start().await;
    let services = format!(
        "- {{name: one, url: '{0}', routes: [{{paths: [/h1], strip_path: false}}]}}\n\
         - {{name: sent, url: '{0}', routes: [{{paths: [/sent], strip_path: false, \
         request_buffering: false}}]}}\n\
         - {{name: kept, url: '{0}', routes: [{{paths: [/refused]}}], plugins: [{{name: key-auth}}]}}\n\
         - {{name: web, url: '{0}', routes: [{{paths: [/web], strip_path: false}}], plugins: \
         [{{name: grpc-web}}]}}\n\
         - {{name: made, url: '{0}', routes: [{{paths: [/made], strip_path: false}}], plugins: \
         [{{name: request-transformer, config: {{http_method: POST}}}}]}}\n\
         - {{name: other, url: '{0}', routes: [{{paths: [/other], strip_path: false}}], plugins: \
         [{{name: request-transformer, config: {{add: {{body: ['b:2']}}}}}}]}}\n\
         - {{name: two, url: 'grpc://{1}', routes: [{{paths: [/h2], protocols: [http], \
         strip_path: false}}]}}\n",
        upstream.url(""),
        behind.proxy(),
    );
    [Setup::new().services(&services).start().await, behind]
}

#[tokio::test]
async fn one_connection_carries_requests_of_every_kind() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    for round in 0..3 {
        for request in [
            "GET /h1/plain HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET /h2/handed/over HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "POST /h1/body HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi",
            "GET /h1/named HTTP/1.1\r\nHost: a.test\r\nConnection: x-a\r\nX-A: 1\r\n\r\n",
        ] {
            connection.send(request.as_bytes()).await;
            let answer = connection.response().await;
            assert_eq!(answer.status, 200, "{round}: {request}");
        }
        assert_eq!(upstream.last().header("x-a"), None);
    }
    connection
        .send(b"GET /nowhere HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    assert_eq!(connection.response().await.status, 404);
}

#[tokio::test]
async fn requests_that_come_before_their_turn_are_answered_in_order() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    let all = "GET /h1/1 HTTP/1.1\r\nHost: a.test\r\n\r\n\
               GET /h2/2 HTTP/1.1\r\nHost: a.test\r\n\r\n\
               POST /h1/3 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi\
               GET /h1/4 HTTP/1.1\r\nHost: a.test\r\n\r\n\
               GET /nowhere HTTP/1.1\r\nHost: a.test\r\n\r\n\
               GET /h1/5 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    connection.send(all.as_bytes()).await;
    for status in [200, 200, 200, 200, 404, 200] {
        assert_eq!(connection.response().await.status, status);
    }
    let seen = upstream.seen();
    let requests: Vec<_> = (seen.iter())
        .map(|seen| (&*seen.method, &*seen.target))
        .collect();
    let expected = [
        ("GET", "/h1/1"),
        ("POST", "/h1/3"),
        ("GET", "/h1/4"),
        ("GET", "/h1/5"),
    ];
    assert_eq!(requests, expected, "no byte of a request is lost");
}

#[tokio::test]
async fn a_request_behind_an_announced_empty_body_loses_no_byte() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    for length in ["0", "00"] {
        let mut connection = Connection::open(&door.proxy()).await;
        let head = |method: &str, n: u8| {
            format!("{method} /h1/{n} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n")
        };
        let all = ["POST", "GET", "DELETE", "GET", "GET"];
        let all = all.into_iter().zip(1..).map(|(method, n)| head(method, n));
        connection.send(all.collect::<String>().as_bytes()).await;
        for _ in 1..=5 {
            assert_eq!(connection.response().await.status, 200);
        }
        let seen = upstream.seen();
        let methods: Vec<_> = seen
            .iter()
            .rev()
            .take(5)
            .map(|seen| &*seen.method)
            .collect();
        assert_eq!(methods, ["GET", "GET", "DELETE", "GET", "POST"], "{length}");
    }
}

/// A POST with this body.
fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\
         Content-Type: application/json\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn bodies_arrive_whole_whoever_sends_them_on() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    // The longest that is gathered, and the shortest that is not.
    for length in [1, 1000, 5000, 64 << 10, (64 << 10) + 1] {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(length));
        let text = &text[text.len() - length..];
        let mut connection = Connection::open(&door.proxy()).await;
        let paths = ["/h1", "/sent", "/h1", "/h2", "/sent", "/h1"];
        let all: String = paths.iter().map(|path| post(path, text)).collect();
        // Next to each other they would fill the buffers of the system, unread.
        if length < 10_000 {
            connection.send(all.as_bytes()).await;
        }
        for path in paths {
            if length >= 10_000 {
                connection.send(post(path, text).as_bytes()).await;
            }
            let answer = connection.response().await;
            assert_eq!(answer.status, 200, "{length}: {path}");
            if path == "/h2" {
                let told: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
                assert_eq!(told["body"], text, "{length}");
            }
        }
        let seen = upstream.seen();
        for seen in seen.iter().rev().take(5) {
            assert_eq!(seen.length, length as u64);
            // Upstreams keep as much as is gathered.
            assert!(text.as_bytes().starts_with(&seen.body), "{length}");
            assert_eq!(seen.body.len(), length.min(64 << 10));
        }
    }
    assert_eq!(
        upstream.seen().len(),
        25,
        "nothing was sent twice, or too much"
    );
}

#[tokio::test]
async fn a_body_may_come_late_and_in_pieces() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    for path in ["/h1", "/sent", "/h2", "/other", "/h1"] {
        let request = post(path, "{\"a\":1}");
        for piece in request.as_bytes().chunks(50) {
            connection.send(piece).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(connection.response().await.status, 200, "{path}");
    }
    let seen = upstream.seen();
    let bodies: Vec<_> = seen.iter().map(|seen| &*seen.body).collect();
    let expected: [&[u8]; 4] = [
        b"{\"a\":1}",
        b"{\"a\":1}",
        b"{\"a\":1,\"b\":\"2\"}",
        b"{\"a\":1}",
    ];
    assert_eq!(bodies, expected);
}

#[tokio::test]
async fn what_an_unread_body_holds_is_no_request() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let smuggled = "GET /h1/smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for path in ["/refused", "/nowhere", "/sent", "/h1", "/h2"] {
        let mut connection = Connection::open(&door.proxy()).await;
        let end = "GET /nowhere HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
        connection
            .send((post(path, smuggled) + end).as_bytes())
            .await;
        let first = connection.response().await;
        // An answer before the body was read ends the connection.
        if first.status == 200 {
            assert_eq!(connection.response().await.status, 404, "{path}");
        } else {
            assert_eq!(first.header("connection"), Some("close"), "{path}");
        }
        assert!(connection.is_closed().await, "{path}");
    }
    let seen = upstream.seen();
    assert!(!seen.iter().any(|seen| seen.target.contains("smuggled")));
}

#[tokio::test]
async fn a_client_that_leaves_within_its_body_has_asked_for_nothing() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let request = post("/h1", "{\"a\":1}");
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(&request.as_bytes()[..request.len() - 1])
        .await;
    drop(connection);
    let mut connection = Connection::open(&door.proxy()).await;
    connection.send(request.as_bytes()).await;
    assert_eq!(connection.response().await.status, 200);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_body_ends_once_for_the_upstream_however_it_is_decoded() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let kind = "Host: a.test\r\nContent-Type: application/grpc-web-text\r\n";
    for body in [
        "Content-Length: 0\r\n\r\n",
        "Content-Length: 4\r\n\r\nQUJD",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nQUJD\r\n0\r\n\r\n",
    ] {
        let mut connection = Connection::open(&door.proxy()).await;
        let request = format!("POST /web HTTP/1.1\r\n{kind}{body}");
        connection.send(request.as_bytes()).await;
        connection.response().await;
        let first = upstream.last();
        assert_eq!(first.method, "POST");
        // Somebody else's request goes over the same connection.
        connection
            .send(b"GET /h1 HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .await;
        assert_eq!(connection.response().await.status, 200, "{body}");
        let next = upstream.last();
        assert_eq!(
            (&*next.method, &*next.target),
            ("GET", "/h1"),
            "nothing is left over: {body}"
        );
        if !body.starts_with("Transfer") {
            assert_eq!(next.connection, first.connection, "{body}");
        }
    }
}

#[tokio::test]
async fn a_request_that_became_a_post_is_not_repeated() {
    let upstream = Upstream::start(|_| Reply::Close).await;
    let [door, _behind] = doors(&upstream).await;
    for field in ["", "TE: trailers\r\n"] {
        let before = upstream.seen().len();
        let mut connection = Connection::open(&door.proxy()).await;
        let request =
            format!("PUT /made HTTP/1.1\r\nHost: a.test\r\n{field}Content-Length: 2\r\n\r\nhi");
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.response().await.status, 502);
        let seen = upstream.seen();
        let methods: Vec<_> = seen[before..].iter().map(|seen| &*seen.method).collect();
        assert_eq!(methods, ["POST"]);
    }
}
