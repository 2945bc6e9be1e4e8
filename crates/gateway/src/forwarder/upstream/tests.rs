use pingora::http::RequestHeader;
use tokio::io::DuplexStream;

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\n";

/// An upstream, and what it is asked.
struct Exchange {
    timer: Timer,
    ours: Option<DuplexStream>,
    theirs: Option<DuplexStream>,
}

impl Exchange {
    fn new() -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        Self {
            theirs: Some(theirs),
            ..Self::over(ours)
        }
    }

    /// Over our end of a connection.
    fn over(ours: DuplexStream) -> Self {
        Self {
            timer: Timer::default(),
            ours: Some(ours),
            theirs: None,
        }
    }

    /// An upstream that has answered before it is asked.
    async fn answering(answer: &str) -> Self {
        let mut exchange = Self::new();
        let written = exchange.theirs().write_all(answer.as_bytes()).await;
        written.expect("no error");
        exchange
    }

    fn theirs(&mut self) -> &mut DuplexStream {
        self.theirs.as_mut().expect("the upstream's end")
    }

    fn session(&mut self) -> UpstreamSession<'_> {
        let mut peer = HttpPeer::new("127.0.0.1:1", false, String::new());
        peer.options.read_timeout = Some(Duration::from_secs(60));
        peer.options.write_timeout = Some(Duration::from_secs(60));
        let stream = Box::new(self.ours.take().expect("no error"));
        UpstreamSession::new(stream, &peer, &mut self.timer)
    }
}

fn request(method: &str, fields: &[(&'static str, &str)]) -> RequestHeader {
    let mut head = RequestHeader::build(method, b"/path?query", None).expect("no error");
    for (name, value) in fields {
        head.append_header(*name, *value).expect("no error");
    }
    head
}

/// An answer that was read to its end, or to what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    interim: Vec<u16>,
    body: Vec<u8>,
    error: Option<ErrorType>,
    /// Whether the connection may have another request.
    kept: bool,
}

/// What comes of `answer` to a request of `method`, of which so many bytes come at a time.
/// Whether the upstream closes the connection then, `closes` says.
async fn answer_of(method: &str, answer: &[u8], at_a_time: usize, closes: bool) -> Answer {
    let (ours, mut theirs) = tokio::io::duplex(at_a_time);
    let mut exchange = Exchange::over(ours);
    let mut session = exchange.session();
    session.sent = true;
    session.method = Method::from_bytes(method.as_bytes()).expect("no error");
    let write = async move {
        theirs.write_all(answer).await.expect("no error");
        if closes { None } else { Some(theirs) }
    };
    let mut read = Answer {
        status: 0,
        interim: Vec::new(),
        body: Vec::new(),
        error: None,
        kept: false,
    };
    let reading = async {
        loop {
            let task = match session.next().await {
                Ok(task) => task,
                Err(error) => {
                    read.error = Some(error.etype().clone());
                    return;
                }
            };
            let end = task.is_end();
            match task {
                HttpTask::Header(head, _) if head.status.as_u16() < 101 => {
                    read.interim.push(head.status.as_u16());
                }
                HttpTask::Header(head, _) => read.status = head.status.as_u16(),
                HttpTask::Body(piece, _) => read.body.extend(piece.unwrap_or_default()),
                _ => {}
            }
            if end {
                return;
            }
        }
    };
    let _open = tokio::join!(reading, write);
    read.kept = session.finish().is_some();
    read
}

async fn answer(bytes: &str) -> Answer {
    answer_of("GET", bytes.as_bytes(), 1 << 20, true).await
}

#[tokio::test]
async fn an_answer_is_the_same_however_its_bytes_come() {
    let body = "x".repeat(70_000);
    let answers = [
        (format!("{OK}Content-Length: 4\r\n\r\nbody"), "body", true),
        (format!("{OK}Content-Length: 0\r\n\r\n"), "", true),
        (
            format!(
                "{OK}Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;a\r\ndy\r\n0\r\nA: b\r\n\r\n"
            ),
            "body",
            true,
        ),
        (format!("{OK}\r\nbody"), "body", false),
        (
            format!("{OK}Content-Length: 70000\r\n\r\n{body}"),
            &*body,
            true,
        ),
        (
            format!("HTTP/1.1 100 Continue\r\n\r\n{OK}Content-Length: 4\r\n\r\nbody"),
            "body",
            true,
        ),
    ];
    for (bytes, body, kept) in &answers {
        for at_a_time in [1, 2, 3, 7, 100, 5_000, 1 << 20] {
            let read = answer_of("GET", bytes.as_bytes(), at_a_time, true).await;
            let shown = &bytes[..bytes.len().min(80)];
            assert_eq!(read.error, None, "{shown} {at_a_time}");
            assert_eq!(read.status, 200, "{shown} {at_a_time}");
            assert_eq!(read.body, body.as_bytes(), "{shown} {at_a_time}");
            assert_eq!(read.kept, *kept, "{shown} {at_a_time}");
        }
    }
}

#[tokio::test]
async fn the_last_piece_says_that_it_is_the_last() {
    let bytes = format!("{OK}Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n");
    let mut exchange = Exchange::answering(&bytes).await;
    let mut session = exchange.session();
    assert!(matches!(
        session.next().await.expect("no error"),
        HttpTask::Header(_, false)
    ));
    match session.ready().expect("no error").expect("no error") {
        HttpTask::Body(Some(piece), true) => assert_eq!(&piece[..], b"body"),
        task => panic!("{task:?}"),
    }
    assert!(session.finish().is_some());
}

#[tokio::test]
async fn answers_without_a_body_end_with_their_head() {
    for (method, head) in [
        ("HEAD", "200 OK\r\nContent-Length: 4"),
        ("HEAD", "200 OK\r\nTransfer-Encoding: chunked"),
        ("GET", "204 No Content"),
        ("GET", "304 Not Modified\r\nContent-Length: 4"),
    ] {
        let bytes = format!("HTTP/1.1 {head}\r\n\r\n");
        let read = answer_of(method, bytes.as_bytes(), 1 << 20, false).await;
        assert_eq!((read.error, read.body), (None, Vec::new()), "{head}");
        assert!(read.kept, "{head}");
    }
}

#[tokio::test]
async fn a_head_that_is_cut_off_may_be_asked_for_again_only_where_nothing_came() {
    for (bytes, retry) in [
        ("", RetryType::ReusedOnly),
        ("HTTP/1.1 2", RetryType::Decided(false)),
        ("HTTP/1.1 200 OK\r\nA: b", RetryType::Decided(false)),
    ] {
        let mut exchange = Exchange::answering(bytes).await;
        exchange.theirs().shutdown().await.expect("no error");
        let error = exchange.session().next().await.expect_err("refused");
        assert_eq!(*error.etype(), ErrorType::ConnectionClosed, "{bytes}");
        assert_eq!(error.retry, retry, "{bytes}");
    }
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_an_error_and_its_connection_is_not_used_again() {
    for rest in [
        "Content-Length: 4\r\n\r\nbod",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbo",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n",
    ] {
        let read = answer(&format!("{OK}{rest}")).await;
        assert_eq!(read.error, Some(ErrorType::ConnectionClosed), "{rest}");
        assert!(!read.kept, "{rest}");
    }
}

#[tokio::test]
async fn response_splitting_by_what_no_two_readers_agree_on_is_refused() {
    for rest in [
        "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        "Content-Length: 4, 5\r\n\r\nbody",
        "Content-Length: +4\r\n\r\nbody",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 4 4\r\n\r\nbody",
        "Content-Length:\r\n\r\n",
        "Content-Length: 99999999999999999999\r\n\r\n",
        "Na me: x\r\n\r\n",
        "X: a\0b\r\n\r\n",
    ] {
        let read = answer(&format!("{OK}{rest}")).await;
        assert_eq!(read.error, Some(ErrorType::InvalidHTTPHeader), "{rest}");
        assert!(!read.kept, "{rest}");
    }
    for body in [
        "g\r\n",
        "4\nbody\r\n0\r\n\r\n",
        "4\r\nbody0\r\n\r\n",
        "\r\n",
    ] {
        let read = answer(&format!("{OK}Transfer-Encoding: chunked\r\n\r\n{body}")).await;
        assert_eq!(read.error, Some(ErrorType::ReadError), "{body}");
        assert!(!read.kept, "{body}");
    }
}

#[tokio::test]
async fn a_chunked_answer_has_no_length_and_equal_lengths_are_one() {
    let both = format!("{OK}Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let mut exchange = Exchange::answering(&both).await;
    let mut session = exchange.session();
    let HttpTask::Header(head, false) = session.next().await.expect("no error") else {
        panic!("no head");
    };
    assert!(!head.headers.contains_key(header::CONTENT_LENGTH));
    assert!(!answer(&both).await.kept, "which of both ends it is unsure");
    let same = answer(&format!(
        "{OK}Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody"
    ))
    .await;
    assert_eq!((same.body.as_slice(), same.kept), (&b"body"[..], true));
}

#[tokio::test]
async fn a_folded_field_is_handed_on_as_one_line() {
    let bytes = format!("{OK}X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n");
    let mut exchange = Exchange::answering(&bytes).await;
    let mut session = exchange.session();
    let HttpTask::Header(head, true) = session.next().await.expect("no error") else {
        panic!("no head");
    };
    let value = head.headers.get("x-folded").expect("no error").as_bytes();
    assert!(!value.iter().any(|byte| b"\r\n".contains(byte)));
}

#[tokio::test]
async fn a_connection_is_kept_only_as_both_sides_say() {
    for (head, kept) in [
        ("HTTP/1.1 200 OK\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n", false),
        ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n", false),
        (
            "HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\n",
            false,
        ),
        ("HTTP/1.0 200 OK\r\n", false),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", true),
    ] {
        let read = answer(&format!("{head}Content-Length: 4\r\n\r\nbody")).await;
        assert_eq!(read.kept, kept, "{head}");
    }
    let old =
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(!answer(old).await.kept);
    let bytes = format!("{OK}Content-Length: 0\r\nKeep-Alive: max=9, timeout=5\r\n\r\n");
    let mut exchange = Exchange::answering(&bytes).await;
    let mut session = exchange.session();
    session.next().await.expect("no error");
    let (_, idle) = session.finish().expect("no error");
    assert_eq!(idle, Some(Duration::from_secs(5)));
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    let two = format!("{OK}Content-Length: 4\r\n\r\nbody{OK}Content-Length: 0\r\n\r\n");
    let read = answer_of("GET", two.as_bytes(), 1 << 20, false).await;
    assert_eq!(read.body, b"body");
    assert!(!read.kept);
}

#[tokio::test]
async fn heads_without_an_end_are_given_up() {
    let lines = format!("{OK}{}", "A: b\r\n".repeat(255));
    let read = answer(&format!("{lines}Content-Length: 0\r\n\r\n")).await;
    assert_eq!((read.status, read.error), (200, None));
    let many = answer(&format!("{lines}A: b\r\nA: b\r\n\r\n")).await;
    assert_eq!(many.error, Some(ErrorType::InvalidHTTPHeader));
    let long = format!("{OK}A: {}", "x".repeat(LONGEST_HEAD + 4096));
    let long = answer_of("GET", long.as_bytes(), 1 << 20, false).await;
    assert_eq!(long.error, Some(ErrorType::InvalidHTTPHeader));
}

#[tokio::test]
async fn an_upstream_that_says_nothing_is_given_up() {
    let mut exchange = Exchange::new();
    let mut session = exchange.session();
    session.read_timeout = Some(Duration::from_millis(10));
    let error = session.next().await.expect_err("refused");
    assert_eq!(*error.etype(), ErrorType::ReadTimedout);
    let (ours, _theirs) = tokio::io::duplex(8);
    let mut exchange = Exchange::over(ours);
    let mut session = exchange.session();
    session.write_timeout = Some(Duration::from_millis(10));
    let error = session
        .send(&request("GET", &[]), None)
        .await
        .expect_err("refused");
    assert_eq!(*error.etype(), ErrorType::WriteTimedout);
}

/// What `head` and `body` are on the wire, or the kind of error.
async fn sent(head: &RequestHeader, body: Option<&'static str>) -> Result<String, ErrorType> {
    let mut exchange = Exchange::new();
    let mut session = exchange.session();
    let body = body.map(|body| Bytes::from_static(body.as_bytes()));
    let sent = session.send(head, body).await;
    sent.map_err(|error| error.etype().clone())?;
    drop(session);
    let mut read = String::new();
    exchange
        .theirs()
        .read_to_string(&mut read)
        .await
        .expect("no error");
    Ok(read)
}

#[tokio::test]
async fn a_connection_over_which_nothing_was_sent_is_as_good_as_before() {
    let mut exchange = Exchange::new();
    assert!(exchange.session().finish().is_some());
    let mut exchange = Exchange::new();
    let mut session = exchange.session();
    let broken = request("POST", &[("content-length", "3")]);
    let body = Some(Bytes::from_static(b"body"));
    session.send(&broken, body).await.expect_err("refused");
    assert!(session.finish().is_some());
    let mut exchange = Exchange::new();
    let mut session = exchange.session();
    session
        .send(&request("GET", &[]), None)
        .await
        .expect("sent");
    assert!(session.finish().is_none());
}

#[tokio::test]
async fn a_request_is_sent_with_its_body() {
    let head = request("GET", &[("Host", "a.example")]);
    let wire = "GET /path?query HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(sent(&head, None).await.expect("no error"), wire);
    let head = request("POST", &[("content-length", "4")]);
    let wire = sent(&head, Some("body")).await.expect("no error");
    assert!(wire.ends_with("content-length: 4\r\n\r\nbody"), "{wire}");
    let head = request("POST", &[("transfer-encoding", "chunked")]);
    let wire = sent(&head, Some("body")).await.expect("no error");
    assert!(wire.ends_with("\r\n\r\n4\r\nbody\r\n0\r\n\r\n"), "{wire}");
    let wire = sent(&head, None).await.expect("no error");
    assert!(wire.ends_with("\r\n\r\n0\r\n\r\n"), "{wire}");
}

#[tokio::test]
async fn request_smuggling_by_a_length_that_is_not_the_bodys_is_not_sent() {
    for (length, body) in [
        ("3", "body"),
        ("5", "body"),
        ("0", "body"),
        ("+4", "body"),
        ("x", ""),
    ] {
        let head = request("POST", &[("content-length", length)]);
        let error = sent(&head, Some(body)).await.expect_err("refused");
        assert_eq!(error, ErrorType::InternalError, "{length}");
    }
    let error = sent(&request("POST", &[]), Some("body")).await;
    assert_eq!(error.expect_err("refused"), ErrorType::InternalError);
}
