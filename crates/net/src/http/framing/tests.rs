use std::future::poll_fn;

use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

/// What an engine would read of `input`, that comes in pieces of `size` bytes:
/// heads and bodies one after the other, as text.
async fn read(input: &[u8], size: usize) -> (String, Option<Refusal>) {
    let (mut client, server) = duplex(1 << 20);
    let mut stream = FramedStream::new(Box::new(server), false);
    let pieces: Vec<Vec<u8>> = input.chunks(size).map(<[u8]>::to_vec).collect();
    let sending = async move {
        for piece in pieces {
            client.write_all(&piece).await.expect("room");
            tokio::task::yield_now().await;
        }
    };
    let reading = async {
        let mut out = Vec::new();
        let mut piece = [0; 512];
        loop {
            match stream.read(&mut piece).await {
                Ok(0) => break,
                Ok(count) => out.extend_from_slice(&piece[..count]),
                Err(error) => {
                    out.extend_from_slice(format!("<{error}>").as_bytes());
                    break;
                }
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    };
    let (out, ()) = tokio::join!(reading, sending);
    (out, stream.requests().and_then(|requests| requests.refusal))
}

/// What is read of `input`, in whatever pieces it comes.
async fn whole(input: &str) -> (String, Option<Refusal>) {
    let first = read(input.as_bytes(), 1 << 20).await;
    for size in [1, 2, 7, 100] {
        assert_eq!(read(input.as_bytes(), size).await, first, "{input:?}");
    }
    first
}

async fn passes(input: &str) {
    assert_eq!(whole(input).await, (input.to_owned(), None));
}

async fn refused(input: &str) -> &'static str {
    let mut message = None;
    for size in [1 << 20, 100, 7, 2, 1] {
        let (out, refusal) = read(input.as_bytes(), size).await;
        let refusal = refusal.unwrap_or_else(|| panic!("{input:.80} passed as {out:.80}"));
        assert!(out.contains("\r\nConnection: close\r\n"), "{out:.80}");
        let first = *message.get_or_insert(refusal.message);
        assert_eq!(refusal.message, first, "{input:.80} in pieces of {size}");
    }
    message.unwrap_or_default()
}

#[tokio::test]
async fn good_requests_pass_as_they_are() {
    for input in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a.test:80/x?y HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
        "GET HTTP://A.test/x HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
        "GET https://a.test:443/x HTTP/1.1\r\nHost: a.TEST\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET /{a}|b\\^~[]?{x}|' HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n4\r\nbody\r\n0\r\nA: b\r\n\r\n\
         GET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        passes(input).await;
    }
}

#[tokio::test]
async fn bytes_that_no_uri_holds_are_percent_encoded() {
    let input = "GET /a\"b<c>d`e?q=\"ä\" HTTP/1.1\r\nHost: a\r\nX: \"ä\"\r\n\r\n\
                 POST /ü HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nüGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let wanted = "GET /a%22b%3Cc%3Ed%60e?q=%22%C3%A4%22 HTTP/1.1\r\nHost: a\r\nX: \"ä\"\r\n\r\n\
                  POST /%C3%BC HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nüGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(whole(input).await, (wanted.to_owned(), None));
}

#[tokio::test]
async fn empty_lines_between_requests_are_skipped() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (out, refusal) = whole(&format!("\r\n\n{get}\r\n\r\n{get}")).await;
    assert_eq!((out, refusal), (format!("{get}{get}"), None));
}

#[tokio::test]
async fn smuggling_heads_are_refused_with_a_reason() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "ä".repeat(20_000));
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(256)
    );
    let endless = "X: y\r\n".repeat(12_000);
    for (input, reason) in [
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET /\rb HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET /a#/../b HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET http://a/x#y HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET *x HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET http://a\\b/x HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", HOST),
        ("GET http://a:443/x HTTP/1.1\r\nHost: a\r\n\r\n", HOST),
        ("GET http://:80/x HTTP/1.1\r\nHost: \r\n\r\n", TARGET),
        ("GET http://a/x HTTP/1.1\r\nHost: a:8080\r\n\r\n", HOST),
        ("GE T / HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", LINE),
        ("GET /\r\n\r\n", LINE),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", LINE),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", VERSION),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", VERSION),
        ("GET / HTTP/3\r\nHost: a\r\n\r\n", VERSION),
        (
            "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
            "Method not allowed",
        ),
        ("GET / HTTP/1.1\r\n\r\n", "Missing Host header"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", HOST),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HOST),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", FIELD),
        ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", FIELD),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", FIELD),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", FIELD),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", FIELD),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            BOTH,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            CODING,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            CODING,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            CODING,
        ),
        (
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            CODING,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            LENGTH,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
            LENGTH,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
            LENGTH,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n",
            LENGTH,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n",
            LENGTH,
        ),
        (&long, LARGE),
        (&many, LARGE),
    ] {
        assert_eq!(refused(input).await, reason, "{input:.80}");
    }
    let endless = format!("GET / HTTP/1.1\r\nHost: a\r\n{endless}");
    let (_, refusal) = read(endless.as_bytes(), 5000).await;
    assert_eq!(refusal.map(|refusal| refusal.message), Some(LARGE));
}

const LINE: &str = "Invalid request line";
const TARGET: &str = "Invalid request target";
const HOST: &str = "Invalid Host header";
const FIELD: &str = "Invalid request header";
const VERSION: &str = "HTTP version not supported";
const LARGE: &str = "Request header or cookie too large";
const BOTH: &str = "Both Transfer-Encoding and Content-Length";
const CODING: &str = "Unsupported Transfer-Encoding";
const LENGTH: &str = "Invalid Content-Length";

#[tokio::test]
async fn noise_is_refused_before_a_line_has_come() {
    for (noise, reason) in [
        (
            &b"\x16\x03\x01\x02\x00\x01\x00"[..],
            "TLS was spoken to a port without it",
        ),
        (b"\x80\x2e\x01", LINE),
        (b"\r\r", LINE),
        (b"{\"a\":1}", LINE),
    ] {
        let (mut client, server) = duplex(1 << 10);
        let mut stream = FramedStream::new(Box::new(server), false);
        client.write_all(noise).await.expect("room");
        let mut piece = [0; 512];
        let count = stream.read(&mut piece).await.expect("a refusal");
        assert!(piece[..count].starts_with(b"- / HTTP/1.1\r\n"));
        assert_eq!(
            stream
                .requests()
                .and_then(|requests| requests.refusal)
                .map(|r| r.message),
            Some(reason)
        );
    }
}

#[tokio::test]
async fn what_follows_a_refused_request_is_never_read_as_one() {
    let input = "GET /a b HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let (out, _) = read(input.as_bytes(), 30).await;
    let (head, rest) = out.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.contains("Content-Length: 9223372036854775807"),
        "{head}"
    );
    assert!(!head.contains("smuggled"), "{head}");
    assert!(rest.len() < 1000, "{rest}");
}

#[tokio::test]
async fn smuggling_by_a_broken_body_ends_the_connection() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (out, refusal) = whole(&format!(
        "{head}\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    ))
    .await;
    assert_eq!(refusal, None);
    assert_eq!(
        out,
        format!("{head}<what the client sent is not framed as it has to be>")
    );
}

/// What is there to be read now.
async fn now(stream: &mut FramedStream) -> String {
    let mut space = [0; 1024];
    let mut out = ReadBuf::new(&mut space);
    poll_fn(|cx| {
        let _ = Pin::new(&mut *stream).poll_read(cx, &mut out);
        Poll::Ready(())
    })
    .await;
    String::from_utf8_lossy(out.filled()).into_owned()
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n";

async fn upgrading(more: &str) -> (FramedStream, DuplexStream) {
    let (mut client, server) = duplex(1 << 16);
    let mut stream = FramedStream::new(Box::new(server), false);
    let sent = format!("{UPGRADE}{more}");
    client.write_all(sent.as_bytes()).await.expect("room");
    assert_eq!(now(&mut stream).await, UPGRADE);
    assert_eq!(now(&mut stream).await, "");
    (stream, client)
}

#[tokio::test]
async fn what_follows_a_request_to_upgrade_waits_for_its_answer() {
    let get = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut stream, _client) = upgrading(get).await;
    stream.answered.store(1, Ordering::Relaxed);
    assert_eq!(now(&mut stream).await, get);
    let (mut stream, mut client) = upgrading("\x01 no HTTP\r\n\r\n").await;
    stream.tunnel.store(true, Ordering::Relaxed);
    assert_eq!(now(&mut stream).await, "\x01 no HTTP\r\n\r\n");
    client.write_all(b"\x02").await.expect("room");
    assert_eq!(now(&mut stream).await, "\x02");
}

#[tokio::test]
async fn no_more_is_held_than_may_wait() {
    let (mut stream, mut client) = upgrading("").await;
    client.write_all(&[b'x'; 60_000]).await.expect("room");
    for _ in 0..20 {
        assert_eq!(now(&mut stream).await, "");
    }
    assert!(stream.held.len() <= WAITING + PIECE);
}

#[tokio::test]
async fn a_session_tells_why_its_request_is_refused() {
    let (mut client, server) = duplex(1 << 16);
    let stream: Stream = Box::new(FramedStream::new(Box::new(server), false));
    let mut session = ServerSession::new_http1(stream);
    client
        .write_all(b"GET /a b HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n")
        .await
        .expect("room");
    assert!(session.read_request().await.expect("a request"));
    assert_eq!(refusal(&session).map(|r| r.message), Some(TARGET));
    assert_eq!(session.req_header().method, "GET");
    assert_eq!(session.req_header().headers["accept"], "text/html");
    assert!(!asks_for_upgrade(&session));
    let head = ResponseHeader::build(400, None).expect("a head");
    session
        .write_response_header(Box::new(head))
        .await
        .expect("written");
    answered(&session);
    assert_eq!(refusal(&session), None, "it is over");
}

#[tokio::test]
async fn what_passes_here_the_engine_takes() {
    const HEADS: &[&str] = &[
        "GET /a/b?c=d HTTP/1.1\r\nHost: a.test:80\r\nX-Y: z\r\n\r\n",
        "POST http://a.test/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n",
        "PUT / HTTP/1.0\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    const PIECES: &[&str] = &[
        "\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        ":",
        "\0",
        "\"",
        "<",
        "@",
        "/",
        "//",
        "\\",
        "#",
        "?",
        "[",
        "%",
        ",",
        ", 5",
        "ä",
        "\u{7f}",
        "http://",
        "https://b",
        "HTTP/1.1",
        "HTTP/2",
        "CONNECT ",
        "Host: b\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap_or(0)
    };
    let mut refusals = 0;
    for _ in 0..5000 {
        let mut input = HEADS[random(HEADS.len())].as_bytes().to_vec();
        for _ in 0..=random(2) {
            let at = random(input.len());
            match random(3) {
                0 => input[at] = u8::try_from(random(256)).unwrap_or(0),
                1 => drop(input.remove(at)),
                _ => drop(input.splice(at..at, PIECES[random(PIECES.len())].bytes())),
            }
        }
        let (mut client, server) = duplex(1 << 12);
        client.write_all(&input).await.expect("room");
        drop(client);
        let stream = FramedStream::new(Box::new(server), false);
        let mut session = ServerSession::new_http1(Box::new(stream));
        let read = session.read_request().await;
        assert!(read.is_ok(), "{}: {read:?}", input.escape_ascii());
        refusals += u32::from(matches!(read, Ok(true)) && refusal(&session).is_some());
    }
    assert!((500..4500).contains(&refusals), "{refusals} were refused");
}

#[tokio::test]
async fn no_field_ends_a_connection_of_http2() {
    const STREAMS: u32 = 400;
    const TEXTS: &[&[u8]] = &[
        b":path",
        b":method",
        b":scheme",
        b":authority",
        b":status",
        b":protocol",
        b":x",
        b"a",
        b"A",
        b"",
        b"te",
        b"cookie",
        b"host",
        b"content-length",
        b"/",
        b"/\"<",
        b"\xff",
        b"a b",
        b"a\r\nb: c",
        b"\0",
        b"http",
        b"0",
        b"1, 2",
    ];
    let frame = |stream: u32, block: &[u8]| {
        let [.., a, b, c] = block.len().to_be_bytes();
        // HEADERS with END_STREAM and END_HEADERS.
        let head = [&[a, b, c, 1, 5][..], &stream.to_be_bytes()].concat();
        [&head, block].concat()
    };
    let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let mut good = b"\x82\x86".to_vec();
    hpack::encode(b":path", b"/good", &mut good);
    hpack::encode(b":authority", b"a", &mut good);
    let mut state = 7_u32;
    for at in 0..STREAMS {
        let mut bad = match at % 2 {
            0 => good.clone(),
            _ => Vec::new(),
        };
        for _ in 0..=at % 3 {
            let mut text = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                TEXTS[(state >> 8) as usize % TEXTS.len()]
            };
            let (name, value) = (text(), text());
            hpack::encode(name, value, &mut bad);
        }
        input.extend(frame(4 * at + 1, &bad));
        input.extend(frame(4 * at + 3, &good));
    }
    let (client, server) = duplex(1 << 20);
    let (mut from, mut to) = tokio::io::split(client);
    let sending = async {
        to.write_all(&input).await.expect("room");
        // What is answered is of no interest.
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await
    };
    let serving = async move {
        let stream = FramedStream::new(Box::new(server), true);
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        let mut served = 0;
        while served < STREAMS {
            let accepted = connection.accept().await.expect("a request");
            let (request, mut respond) = accepted.expect("no error of the connection");
            served += u32::from(request.uri().path() == "/good" && request.headers().is_empty());
            let answer = http::Response::new(());
            respond.send_response(answer, true).expect("an open stream");
        }
    };
    tokio::select! {
        () = serving => {}
        ended = sending => panic!("the connection ended: {ended:?}"),
    }
}

#[test]
fn a_request_is_plain_that_has_a_short_body_and_concerns_no_connection_but_as_kept() {
    let is_plain = |text: &str| match super::head::read(text.as_bytes(), 0) {
        super::head::HeadScan::Head(head) => head.plain,
        _ => panic!("no head: {text}"),
    };
    let plain = [
        "",
        "Connection: close\r\n",
        "connection: Keep-Alive\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 1\r\n",
        "Content-Length: 65536\r\n",
    ];
    for fields in plain {
        let text = format!("GET /a HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        assert!(is_plain(&text), "{fields}");
    }
    for fields in [
        "Connection: x-secret\r\n",
        "Connection: keep-alive, x-secret\r\n",
        "Connection: close\r\nConnection: x-secret\r\n",
        "Upgrade: websocket\r\n",
        "Expect: 100-continue\r\n",
        "TE: trailers\r\n",
        "Trailer: x\r\n",
        "Keep-Alive: timeout=5\r\n",
        "Proxy-Connection: keep-alive\r\n",
        "Proxy-Authorization: Basic eA==\r\n",
        "Proxy-Authenticate: Basic\r\n",
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Content-Length: 65537\r\n",
        "Content-Length: 1\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        let text = format!("GET /a HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        assert!(!is_plain(&text), "{fields}");
    }
    for line in [
        "GET /a HTTP/1.0",
        "OPTIONS * HTTP/1.1",
        "GET http://a.test/ HTTP/1.1",
    ] {
        let text = format!("{line}\r\nHost: a.test\r\n\r\n");
        assert!(!is_plain(&text), "{line}");
    }
}
