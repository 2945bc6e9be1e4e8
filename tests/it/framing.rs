//! Requests and answers as they are on the wire: what is mended, what is refused,
//! in whose words, and what is sent when.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::hostile::{Attack, END_HEADERS, END_STREAM, HEADERS, counted, field, frame};
use crate::support::raw::{Connection, Response, exchange};
use crate::support::{DEADLINE, Door, Reply, Setup, Upstream, http};

/// A door with one service at `url`; `fields` are further ones of its record, in
/// YAML flow style.
async fn door_to(url: &str, fields: &str) -> Door {
    let service = format!("- {{name: web, url: '{url}', routes: [{{paths: [/]}}]{fields}}}\n");
    Setup::new().services(&service).start().await
}

#[tokio::test]
async fn raw_bytes_in_a_target_reach_the_upstream_percent_encoded() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    for (sent, wanted) in [
        ("/a\"b", "/a%22b"),
        ("/a<b>", "/a%3Cb%3E"),
        ("/a`b", "/a%60b"),
        ("/ä/b", "/%C3%A4/b"),
        ("/q?a=\"<`ü>\"", "/q?a=%22%3C%60%C3%BC%3E%22"),
        ("/q?a={1}|2^[3]\\", "/q?a={1}|2^[3]\\"),
        ("/%22?%22", "/%22?%22"),
    ] {
        let mut connection = Connection::open(&door.proxy()).await;
        // Two, for the second has to begin where the first ends.
        for _ in 0..2 {
            let request =
                format!("POST {sent} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\n\"\"");
            connection.send(request.as_bytes()).await;
            assert_eq!(connection.response().await.status, 200, "{sent}");
            assert_eq!(upstream.last().target, wanted);
            assert_eq!(upstream.last().body, b"\"\"");
        }
    }
    // Bytes that are no UTF-8 either.
    let latin = b"GET /\xe4?\xff HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let answer = exchange(&door.proxy(), latin).await.expect("an answer");
    assert_eq!(answer.status, 200);
    assert_eq!(upstream.last().target, "/%E4?%FF");
    let mut admin = b"GET /services/\xe4 HTTP/1.1\r\nHost: ".to_vec();
    admin.extend(format!("{}\r\n\r\n", door.admin()).bytes());
    let answer = exchange(&door.admin(), &admin).await.expect("an answer");
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn raw_bytes_in_a_target_of_http2_are_percent_encoded_too() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let stream = TcpStream::connect(door.proxy())
        .await
        .expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut client = client.ready().await.expect("room");
    for (sent, wanted) in [
        ("/a\"ä?q=ü{1}", "/a%22%C3%A4?q=%C3%BC{1}"),
        ("/%22", "/%22"),
    ] {
        let url = format!("http://a.test{sent}");
        let request = ::http::Request::get(&url).body(()).expect("a request");
        let (answer, _) = client.send_request(request, true).expect("sent");
        assert_eq!(answer.await.expect("an answer").status(), 200, "{sent}");
        assert_eq!(upstream.last().target, wanted);
    }
}

#[tokio::test]
async fn what_no_parser_of_http2_takes_for_a_path_is_percent_encoded_too() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let mut client = Attack::open(&door.proxy()).await;
    let mut stream = 1;
    for (sent, wanted) in [
        (&b"/plain"[..], "/plain"),
        (b"/a<b>`?q=\"<>\"", "/a%3Cb%3E%60?q=%22%3C%3E%22"),
        (b"/\xe4?\xff", "/%E4?%FF"),
        (b"/plain", "/plain"),
    ] {
        // GET and http, from the table; the authority goes into it.
        let mut block = vec![0x82, 0x86];
        block.extend(field(b":path", sent));
        block.extend([0x41, 0x06]);
        block.extend(b"a.test");
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        client.flood(&request).await;
        let (kinds, _) = client.frames(HEADERS).await;
        assert_eq!(kinds.last(), Some(&HEADERS), "{wanted}");
        assert_eq!(upstream.last().target, wanted);
        stream += 2;
    }
}

/// The line of the access log about a request with this identifier.
async fn logged(door: &Door, id: &str) -> Value {
    let line = door
        .wait_log("the line of the access log", |line| line.contains(id))
        .await;
    serde_json::from_str(&line).expect("JSON")
}

/// Requests that are refused before anything looks at them, and how.
const REFUSED: &[(&[u8], u16, &str, &str)] = &[
    (
        b"GET /a b HTTP/1.1\r\nHost: a.test\r\n\r\n",
        400,
        "GET",
        "Invalid request target",
    ),
    (
        b"GET /a#/../b HTTP/1.1\r\nHost: a.test\r\n\r\n",
        400,
        "GET",
        "Invalid request target",
    ),
    (
        b"GET /a\tb HTTP/1.1\r\nHost: a.test\r\n\r\n",
        400,
        "GET",
        "Invalid request target",
    ),
    (
        b"GET /a\x01b HTTP/1.1\r\nHost: a.test\r\n\r\n",
        400,
        "GET",
        "Invalid request target",
    ),
    (
        b"GET /a\x7fb HTTP/1.1\r\nHost: a.test\r\n\r\n",
        400,
        "GET",
        "Invalid request target",
    ),
    (
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX y: z\r\n\r\n",
        400,
        "GET",
        "Invalid request header",
    ),
    (
        b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
        400,
        "GET",
        "Invalid Host header",
    ),
    (
        b"GET / HTTP/3.1\r\nHost: a.test\r\n\r\n",
        505,
        "GET",
        "HTTP version not supported",
    ),
    (b"GET /\r\n\r\n", 400, "-", "Invalid request line"),
    (b"nonsense\r\n\r\n", 400, "-", "Invalid request line"),
    (
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        400,
        "-",
        "TLS was spoken to a port without it",
    ),
    (
        b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
        405,
        "-",
        "Method not allowed",
    ),
];

/// Whether `answer` is one of the gateway's own.
fn is_ours(answer: &Response, status: u16, message: &str) {
    assert_eq!(answer.status, status, "{message}");
    let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(body["message"], message);
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn every_refusal_has_our_body_an_identifier_a_line_and_a_count() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let many = "X: y\r\n".repeat(300);
    let many = format!("GET /many HTTP/1.1\r\nHost: a.test\r\n{many}\r\n");
    let large = (
        many.as_bytes(),
        400,
        "GET",
        "Request header or cookie too large",
    );
    for (request, status, method, message) in REFUSED.iter().copied().chain([large]) {
        for pieces in [request.len(), 1] {
            let mut connection = Connection::open(&door.proxy()).await;
            for piece in request.chunks(pieces) {
                connection.try_send(piece).await;
            }
            let answer = connection.response().await;
            is_ours(&answer, status, message);
            let id = answer.header("x-kong-request-id").expect("an identifier");
            let line = logged(&door, id).await;
            assert_eq!(line["status"], status, "{line}");
            assert_eq!(line["method"], method, "{line}");
            assert_eq!(line["refusal"], "malformed_request", "{line}");
            assert!(connection.is_closed().await, "{message}");
        }
        let mut connection = Connection::open(&door.admin()).await;
        connection.try_send(request).await;
        let answer = connection.response().await;
        is_ours(&answer, status, message);
    }
    assert!(upstream.seen().is_empty());
    let few = REFUSED
        .iter()
        .filter(|(_, status, ..)| *status < 500)
        .count()
        + 1;
    let line = format!("status=\"4xx\"}} {}", 2 * few);
    counted(&door, &line).await;
}

#[tokio::test]
async fn smuggling_by_chunks_that_others_read_differently_is_refused() {
    let upstream = Upstream::echo().await;
    let services = format!(
        "- {{name: far, url: '{}', routes: [{{paths: [/far]}}]}}\n\
         - {{name: near, protocol: internal, host: echo, routes: [{{paths: [/near]}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    for body in [
        "\r\n\r\n",
        "4\r\nbody\r\n\r\n\r\n",
        "4;a\nb\r\nbody\r\n0\r\n\r\n",
        "4;a\rb\r\nbody\r\n0\r\n\r\n",
        "4\nbody\r\n0\r\n\r\n",
        "4\r\nbody\n0\r\n\r\n",
        "4\r\nbody!\r\n0\r\n\r\n",
        "0\r\n\n",
        "0\r\nno trailer\r\n\r\n",
        "ffffffffffffffff\r\n",
    ] {
        for path in ["/far", "/near"] {
            let mut connection = Connection::open(&door.proxy()).await;
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{body}\
                 GET /far/smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"
            );
            connection.send(request.as_bytes()).await;
            let answer = connection.response().await;
            assert_eq!(answer.status, 400, "{path} {body:?}");
            assert_eq!(connection.rest().await, b"", "{path} {body:?}");
            assert!(connection.is_closed().await, "{path} {body:?}");
        }
    }
    for seen in upstream.seen() {
        assert_eq!(seen.target, "/far", "what was smuggled got through");
    }
    // What is allowed there passes.
    let mut connection = Connection::open(&door.proxy()).await;
    for _ in 0..2 {
        let request = "POST /far HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                       4;a=\"b\"\r\nbody\r\n0\r\nDigest: x\r\n\r\n";
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.response().await.status, 200);
        assert_eq!(upstream.last().body, b"body");
    }
}

#[tokio::test]
async fn answers_that_others_would_read_differently_are_502() {
    for head in [
        "200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok",
        "200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ] {
        let answer = format!("HTTP/1.1 {head}");
        let upstream = Upstream::start(move |_| Reply::Raw(answer.clone().into_bytes())).await;
        let door = door_to(&upstream.url(""), "").await;
        let request = b"GET / HTTP/1.1\r\nHost: a.test\r\nAccept: application/json\r\n\r\n";
        let answer = timeout(DEADLINE, exchange(&door.proxy(), request)).await;
        let answer = answer.expect("an answer in time").expect("an answer");
        assert_eq!(answer.status, 502, "{head}");
        let message = "An invalid response was received from the upstream server";
        assert!(answer.text().contains(message), "{}", answer.text());
        http::send(http::client().get(door.proxy_url("/")))
            .await
            .expect(502);
    }
}

#[tokio::test]
async fn trailers_that_are_not_passed_on_are_not_announced() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n\r\n\
                  2\r\nok\r\n0\r\nDigest: x\r\n\r\n";
    let upstream = Upstream::start(|_| Reply::Raw(answer.as_bytes().to_vec())).await;
    let door = door_to(&upstream.url(""), "").await;
    let request = "POST / HTTP/1.1\r\nHost: a.test\r\nTrailer: Digest\r\n\
                   Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nDigest: y\r\n\r\n";
    let answer = exchange(&door.proxy(), request.as_bytes()).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.text(), "ok");
    assert_eq!(answer.header("trailer"), None);
    assert_eq!(upstream.last().header("trailer"), None);
}

#[tokio::test]
async fn the_date_of_an_answer_is_its_upstreams() {
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let upstream = Upstream::start(|seen| {
        let date = match seen.target.as_str() {
            "/dated" => format!("Date: {DATE}\r\n"),
            _ => String::new(),
        };
        Reply::Raw(format!("HTTP/1.1 200 OK\r\n{date}Content-Length: 2\r\n\r\nok").into_bytes())
    })
    .await;
    let door = door_to(&upstream.url(""), "").await;
    let mut connection = Connection::open(&door.proxy()).await;
    for (path, is_theirs) in [("/dated", true), ("/", false), ("/dated", true)] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        connection.send(request.as_bytes()).await;
        let answer = connection.response().await;
        assert_eq!(answer.text(), "ok");
        let date = answer.header("date").expect("a date");
        assert_eq!(date == DATE, is_theirs, "{path}: {date}");
    }
}

/// Reads a head and answers piece by piece, as told.
async fn slow_upstream() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    (listener, url)
}

#[tokio::test]
async fn without_buffering_head_and_body_come_as_they_are_sent() {
    let (listener, url) = slow_upstream().await;
    let service = format!(
        "- {{name: web, url: '{url}', routes: [{{paths: [/], response_buffering: false}}]}}\n"
    );
    let door = Setup::new().services(&service).start().await;
    let mut client = Connection::open(&door.proxy()).await;
    for _ in 0..2 {
        client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        let (mut asked, _) = listener.accept().await.expect("the request");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(asked.read_u8().await.expect("a whole head"));
        }
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n";
        asked.write_all(head).await.expect("sent");
        // Nothing more is sent before this has come.
        assert_eq!(client.head().await.status, 200);
        for piece in ["abc", "def"] {
            asked.write_all(piece.as_bytes()).await.expect("sent");
            client.skip(3).await;
        }
    }
}

#[tokio::test]
async fn an_upstream_that_takes_nothing_is_given_up_after_its_write_timeout() {
    let (listener, url) = slow_upstream().await;
    let door = door_to(
        &url,
        ", write_timeout: 500, read_timeout: 30000, retries: 0",
    )
    .await;
    let stream = TcpStream::connect(door.proxy())
        .await
        .expect("a connection");
    let (mut from, mut to) = stream.into_split();
    let began = Instant::now();
    let sending = tokio::spawn(async move {
        let length = 64 << 20;
        let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n");
        to.write_all(head.as_bytes()).await.expect("sent");
        // It is cut off in the midst of it.
        let _ = to.write_all(&vec![b'x'; length]).await;
        to
    });
    let (_never_read, _) = listener.accept().await.expect("the request");
    let mut answer = [0; 12];
    let read = timeout(DEADLINE, from.read_exact(&mut answer)).await;
    read.expect("an answer in time").expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 504");
    // Far from the read timeout, which begins anew when the write has failed.
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    sending.abort();
}
