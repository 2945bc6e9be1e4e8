//! Answers of upstreams that are compressed on their way to clients.

use std::io::Read as _;

use crate::support::raw::{self, Connection, Response};
use crate::support::{Door, Reply, Setup, Upstream};

/// What the upstream has: repetitive, and long enough.
fn text() -> String {
    "{\"all\": \"work and no play\"}, ".repeat(2000)
}

/// An upstream with a text of this type and further header lines, whole or chunked.
async fn upstream(kind: &'static str, lines: &'static str, chunked: bool) -> Upstream {
    Upstream::start(move |_| {
        let text = text();
        let body = if chunked {
            let (one, two) = text.split_at(1000);
            format!(
                "{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
                one.len(),
                two.len()
            )
        } else {
            text.clone()
        };
        let framing = if chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {}", text.len())
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{lines}{framing}\r\n\r\n");
        Reply::Raw(format!("{head}{body}").into_bytes())
    })
    .await
}

async fn door_to(upstream: &Upstream, section: &str, plugins: &str) -> Door {
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]{plugins}}}\n",
        upstream.url("")
    );
    let proxy = format!("{{listen: [\"@PROXY@\"], {section}}}");
    Setup::new().proxy(&proxy).services(&service).start().await
}

async fn get(door: &Door, lines: &str) -> Response {
    let request = format!("GET /p HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let answer = raw::exchange(&door.proxy(), request.as_bytes()).await;
    answer.expect("an answer")
}

fn decoded(answer: &Response) -> String {
    let mut out = String::new();
    let body = &*answer.body;
    match answer.header("content-encoding") {
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_string(&mut out),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_string(&mut out),
        Some("zstd") => zstd::stream::read::Decoder::new(body)
            .expect("a decoder")
            .read_to_string(&mut out),
        other => panic!("{other:?}"),
    }
    .expect("decoded");
    out
}

#[tokio::test]
async fn an_answer_is_compressed_as_the_client_wants_it() {
    for chunked in [false, true] {
        let upstream = upstream("application/json", "ETag: \"v1\"\r\n", chunked).await;
        let door = door_to(&upstream, "compression: {}", "").await;
        for (accept, coding) in [
            ("gzip", "gzip"),
            ("gzip, br", "br"),
            ("gzip, deflate, br, zstd", "zstd"),
            ("gzip;q=1, zstd;q=0.2", "gzip"),
        ] {
            let answer = get(&door, &format!("Accept-Encoding: {accept}\r\n")).await;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("content-encoding"), Some(coding), "{accept}");
            assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
            assert_eq!(answer.header("etag"), Some("W/\"v1\""));
            assert_eq!(answer.header("content-length"), None);
            assert!(answer.body.len() < text().len() / 20);
            assert_eq!(decoded(&answer), text(), "{accept}");
            // The upstream is asked as the client asked.
            assert_eq!(upstream.last().header("accept-encoding"), Some(accept));
        }
        let plain = get(&door, "").await;
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
        assert_eq!(plain.header("etag"), Some("\"v1\""));
        assert_eq!(plain.text(), text());
    }
}

#[tokio::test]
async fn nothing_is_compressed_without_the_setting() {
    let upstream = upstream("application/json", "", false).await;
    let door = door_to(&upstream, "", "").await;
    let answer = get(&door, "Accept-Encoding: gzip\r\n").await;
    assert_eq!(
        (answer.header("content-encoding"), answer.header("vary")),
        (None, None)
    );
    assert_eq!(answer.text(), text());
}

#[tokio::test]
async fn what_may_not_be_changed_passes_as_it_is() {
    for (kind, lines) in [
        ("image/png", ""),
        ("text/event-stream", ""),
        ("application/json", "Cache-Control: no-transform\r\n"),
        ("application/json", "Content-Digest: sha-256=:x:\r\n"),
        ("application/json", "Content-Encoding: deflate\r\n"),
    ] {
        let upstream = upstream(kind, lines, false).await;
        let door = door_to(&upstream, "compression: {}", "").await;
        let answer = get(&door, "Accept-Encoding: gzip, br, zstd\r\n").await;
        assert_eq!(answer.text(), text(), "{kind} {lines}");
        assert_eq!(answer.header("vary"), None, "{kind} {lines}");
    }
}

#[tokio::test]
async fn clients_of_http_1_0_and_hostile_wishes_get_the_plain_form() {
    let upstream = upstream("text/html", "", false).await;
    let door = door_to(&upstream, "compression: {}", "").await;
    let old = b"GET /p HTTP/1.0\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n";
    let answer = raw::exchange(&door.proxy(), old).await.expect("an answer");
    assert_eq!(answer.header("content-encoding"), None);
    let many = "br;q=0.0001, ".repeat(1500);
    for accept in [
        &*many,
        "gzip;q=nan",
        "gzip;q=-1",
        "\u{fc}",
        "gzip;q=0, *;q=0",
    ] {
        let answer = get(&door, &format!("Accept-Encoding: {accept}\r\n")).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-encoding"), None);
        assert_eq!(answer.text(), text());
    }
}

#[tokio::test]
async fn a_head_says_that_there_are_two_forms_and_a_range_is_no_whole() {
    let upstream = Upstream::start(|seen| {
        let (status, range) = match seen.header("range") {
            Some(_) => (
                "206 Partial Content",
                "Content-Range: bytes 0-1999/9000\r\n",
            ),
            None => ("200 OK", ""),
        };
        let body = if seen.method == "HEAD" {
            String::new()
        } else {
            "x".repeat(2000)
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/css\r\n{range}");
        Reply::Raw(format!("{head}Content-Length: 2000\r\n\r\n{body}").into_bytes())
    })
    .await;
    let door = door_to(&upstream, "compression: {}", "").await;
    let part = get(&door, "Range: bytes=0-1999\r\nAccept-Encoding: gzip\r\n").await;
    assert_eq!((part.status, part.header("content-encoding")), (206, None));
    assert_eq!(part.body.len(), 2000);
    let mut connection = Connection::open(&door.proxy()).await;
    let request = b"HEAD /p HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n";
    connection.send(request).await;
    let head = connection.head().await;
    assert_eq!(head.header("vary"), Some("Accept-Encoding"));
    assert_eq!(head.header("content-encoding"), None);
    assert_eq!(head.header("content-length"), Some("2000"));
}

#[tokio::test]
async fn stored_answers_are_compressed_for_each_client_apart() {
    let upstream = upstream("text/plain", "", false).await;
    let plugins = ", plugins: [{name: proxy-cache, config: {strategy: memory, \
                   content_type: [text/plain]}}]";
    let door = door_to(&upstream, "compression: {algorithms: [gzip]}", plugins).await;
    for (lines, coding) in [
        ("Accept-Encoding: gzip\r\n", Some("gzip")),
        ("", None),
        ("Accept-Encoding: gzip\r\n", Some("gzip")),
    ] {
        let answer = get(&door, lines).await;
        assert_eq!(answer.header("content-encoding"), coding);
        if coding.is_some() {
            assert_eq!(decoded(&answer), text());
        } else {
            assert_eq!(answer.text(), text());
        }
    }
    assert_eq!(
        upstream.seen().len(),
        1,
        "it is stored once, in the plain form"
    );
}

#[tokio::test]
async fn events_that_are_compressed_come_one_by_one() {
    // The upstream never ends its answer.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).await;
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                      Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
        stream.write_all(answer.as_bytes()).await.expect("written");
        std::future::pending::<()>().await;
    });
    let service =
        format!("- {{name: web, url: 'http://127.0.0.1:{port}', routes: [{{paths: [/]}}]}}\n");
    let proxy = "{listen: [\"@PROXY@\"], compression: {types: [text/event-stream]}}";
    let door = Setup::new().proxy(proxy).services(&service).start().await;
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(b"GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n")
        .await;
    let head = connection.head().await;
    assert_eq!(head.header("content-encoding"), Some("gzip"));
    let chunks = connection.rest().await;
    // The first chunk: its length in hexadecimal, then a beginning of gzip.
    let start = chunks.windows(2).position(|pair| pair == [0x1f, 0x8b]);
    let coded = &chunks[start.expect("gzip")..];
    let mut event = [0; 9];
    flate2::read::GzDecoder::new(coded)
        .read_exact(&mut event)
        .expect("the first event");
    assert_eq!(&event, b"data: 1\n\n");
}
