//! Upstreams that misbehave: the client hears of it once, and the next request
//! finds nothing of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::raw::{Connection, exchange};
use crate::support::{Door, Setup};

const INVALID: &str = "An invalid response was received from the upstream server";
const FINE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

/// A server that answers the first request with `bytes`, and every other
/// with [`FINE`]; `close`: it hangs up after the first answer.
async fn misbehaving(bytes: Vec<u8>, close: bool) -> (Door, tokio::task::JoinHandle<()>) {
    misbehaving_within(30_000, bytes, close).await
}

/// The same behind a service that waits for so many milliseconds.
async fn misbehaving_within(
    wait: u32,
    bytes: Vec<u8>,
    close: bool,
) -> (Door, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let task = tokio::spawn(async move {
        let first = std::sync::Arc::new(AtomicUsize::new(0));
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream, bytes.clone(), close, first.clone()));
        }
    });
    let fields = format!("retries: 0, read_timeout: {wait}, connect_timeout: 30000");
    let service =
        format!("- {{name: web, url: 'http://{address}', {fields}, routes: [{{paths: [/]}}]}}\n");
    (Setup::new().services(&service).start().await, task)
}

async fn serve(
    mut stream: TcpStream,
    bytes: Vec<u8>,
    close: bool,
    first: std::sync::Arc<AtomicUsize>,
) {
    loop {
        let mut head = Vec::new();
        let mut piece = [0; 4096];
        while !head.windows(4).any(|w| w == b"\r\n\r\n") {
            match stream.read(&mut piece).await {
                Ok(count) if count > 0 => head.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        let bad = first.fetch_add(1, Ordering::SeqCst) == 0;
        let answer = if bad { &bytes[..] } else { FINE };
        if stream.write_all(answer).await.is_err() || (bad && close) {
            return;
        }
    }
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// The first request is told 502, once; the second gets what it asked for.
async fn gives_502_and_leaves_nothing(bytes: Vec<u8>, close: bool) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    let (door, _server) = misbehaving(bytes, close).await;
    let answer = exchange(&door.proxy(), GET).await.expect("an answer");
    assert_eq!(answer.status, 502, "{shown}");
    let text = answer.text();
    let told: Vec<_> = text.lines().collect();
    let [message, request] = told[..] else {
        panic!("{shown}: {text}");
    };
    assert_eq!(message, INVALID, "{shown}");
    assert!(request.starts_with("request_id: "), "{request}");
    leaves_nothing(&door).await;
}

async fn leaves_nothing(door: &Door) {
    for _ in 0..3 {
        let answer = exchange(&door.proxy(), GET).await.expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
    }
}

#[tokio::test]
async fn an_upstream_that_closes_before_its_answer_gives_502_once() {
    gives_502_and_leaves_nothing(Vec::new(), true).await;
}

#[tokio::test]
async fn an_upstream_that_closes_within_its_head_gives_502_once() {
    gives_502_and_leaves_nothing(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(), true).await;
}

#[tokio::test]
async fn an_upstream_that_sends_garbage_gives_502_once() {
    gives_502_and_leaves_nothing(b"\x00\xff\x13\x37 not http at all\r\n\r\n".to_vec(), false).await;
}

#[tokio::test]
async fn an_upstream_with_an_oversized_head_gives_502_once() {
    let mut bytes = b"HTTP/1.1 200 OK\r\nX-Large: ".to_vec();
    bytes.resize(3 << 20, b'x');
    gives_502_and_leaves_nothing(bytes, true).await;
}

#[tokio::test]
async fn an_upstream_with_too_many_headers_gives_502_once() {
    let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n".to_vec();
    for number in 0..2000 {
        bytes.extend(format!("X-{number}: y\r\n").bytes());
    }
    bytes.extend(b"\r\n");
    gives_502_and_leaves_nothing(bytes, false).await;
}

#[tokio::test]
async fn two_lengths_that_differ_are_no_answer() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nxHTTP/1.1";
    gives_502_and_leaves_nothing(bytes.to_vec(), false).await;
}

#[tokio::test]
async fn what_an_upstream_says_after_its_answer_reaches_nobody() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nokay\
        HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";
    let (door, _server) = misbehaving(bytes.to_vec(), false).await;
    let answer = exchange(&door.proxy(), GET).await.expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, "okay"));
    leaves_nothing(&door).await;
}

#[tokio::test]
async fn a_body_to_a_head_request_reaches_nobody() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";
    let (door, _server) = misbehaving(bytes.to_vec(), false).await;
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    assert_eq!(connection.head().await.status, 200);
    leaves_nothing(&door).await;
}

#[tokio::test]
async fn a_client_keeps_its_connection_when_an_upstream_fails() {
    let no_head = b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n".to_vec();
    for (bytes, closes) in [(no_head, false), (Vec::new(), true)] {
        let (door, _server) = misbehaving(bytes, closes).await;
        let mut connection = Connection::open(&door.proxy()).await;
        let request = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
        connection.send(request.as_bytes()).await;
        let answer = connection.response().await;
        assert_eq!(answer.status, 502);
        assert_eq!(answer.header("connection"), Some("keep-alive"));
        connection.send(GET).await;
        let answer = connection.response().await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
    }
}

/// The head was sent before the body broke: the client's connection ends
/// within the body.
async fn ends_within_the_body(bytes: &[u8]) {
    let shown = String::from_utf8_lossy(bytes).into_owned();
    let (door, _server) = misbehaving(bytes.to_vec(), true).await;
    let mut connection = Connection::open(&door.proxy()).await;
    connection.send(GET).await;
    let head = connection.head().await;
    if head.status == 502 {
        // The head had not been sent yet.
        leaves_nothing(&door).await;
        return;
    }
    assert_eq!(head.status, 200, "{shown}");
    assert!(connection.is_closed().await, "{shown}");
    let rest = String::from_utf8_lossy(&connection.rest().await).into_owned();
    assert!(
        !rest.ends_with("0\r\n\r\n"),
        "a broken body looks whole: {rest}"
    );
    leaves_nothing(&door).await;
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_not_made_to_look_whole() {
    ends_within_the_body(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort").await;
}

#[tokio::test]
async fn a_chunked_body_without_its_end_is_not_made_to_look_whole() {
    ends_within_the_body(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n")
        .await;
}

#[tokio::test]
async fn a_bad_chunk_size_is_not_made_to_look_whole() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for size in ["zz", "-1", "fffffffffffffffff", "5 5"] {
        ends_within_the_body(format!("{head}{size}\r\nshort\r\n").as_bytes()).await;
    }
}

#[tokio::test]
async fn an_http10_client_gets_no_chunks() {
    let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nokay\r\n0\r\n\r\n";
    let (door, _server) = misbehaving(bytes.to_vec(), false).await;
    let request = b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n";
    let answer = exchange(&door.proxy(), request).await.expect("an answer");
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(answer.text(), "okay");
}

#[tokio::test]
async fn a_client_that_pauses_its_upload_is_waited_for() {
    let (door, _server) = misbehaving_within(4000, FINE.to_vec(), false).await;
    let mut connection = Connection::open(&door.proxy()).await;
    let head = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nab";
    connection.send(head).await;
    // Longer than the read timeout of the service.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    connection.send(b"cd").await;
    assert_eq!(connection.response().await.status, 200);
}

#[tokio::test]
async fn a_client_that_pauses_a_long_upload_is_told_so_and_the_upstream_is_not_blamed() {
    let (door, _server) = misbehaving(FINE.to_vec(), false).await;
    // The upstream answers after the whole request only.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("bound"));
    door.expose("silent", &url, "b.test").await;
    let fields = serde_json::json!({"read_timeout": 300});
    door.admin_json(reqwest::Method::PATCH, "/services/silent", &fields)
        .await
        .expect(200);
    let mut connection = Connection::open(&door.proxy()).await;
    let head = b"PUT / HTTP/1.1\r\nHost: b.test\r\nContent-Length: 100000\r\n\r\nab";
    connection.send(head).await;
    assert_eq!(connection.response().await.status, 408);
    let metrics = door.admin_get("/metrics").await.body;
    assert!(metrics.contains("doorward_upstream_failures_total{kind=\"read_timeout\"} 0"));
}
