use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// A session with the request of `text`, and the client's end.
async fn session(text: &str) -> (PlainSession, DuplexStream) {
    let (mut client, server) = duplex(1 << 20);
    client.write_all(text.as_bytes()).await.expect("room");
    let framed = FramedStream::new(Box::new(server), false);
    let mut session = PlainSession::new(Box::new(framed));
    assert!(next(&mut session).await);
    (session, client)
}

/// Takes the next request.
async fn next(session: &mut PlainSession) -> bool {
    let plain = session.stream().awaits_plain_request().await;
    plain.expect("a readable connection") && session.take_request()
}

fn head(status: u16, fields: &[(&'static str, &'static str)]) -> Box<ResponseHeader> {
    let mut head = ResponseHeader::build(status, None).expect("a head");
    head.insert_header("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .expect("a field");
    for (name, value) in fields {
        head.insert_header(*name, *value).expect("a field");
    }
    Box::new(head)
}

/// What the client has got so far.
async fn got(client: &mut DuplexStream) -> String {
    let mut bytes = vec![0; 1 << 16];
    match now(client.read(&mut bytes)).await {
        Some(count) => String::from_utf8_lossy(&bytes[..count.expect("open")]).into_owned(),
        None => String::new(),
    }
}

fn body(text: &'static str, end: bool) -> HttpTask {
    HttpTask::Body(Some(Bytes::from_static(text.as_bytes())), end)
}

/// What `future` comes to without waiting.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn one_request_follows_the_other_and_an_early_one_waits() {
    let two = format!("{GET}POST /b HTTP/1.1\r\nhOST: b\r\nContent-Length: 3\r\n\r\nxyz");
    let (mut session, mut client) = session(&two).await;
    assert_eq!(session.req_header().uri.path(), "/a");
    assert!(session.is_body_empty() && session.is_body_done());
    assert!(now(session.left()).await.is_none(), "it came early");
    let written = session.write_response_header(head(204, &[])).await;
    written.expect("a reader");
    session.set_keepalive(Some(60));
    crate::http::framing::answered(&session);
    assert!(session.finish().await);
    assert!(session.req_header().headers.is_empty(), "nothing is held");

    assert!(next(&mut session).await);
    assert_eq!(session.req_header().method, "POST");
    assert_eq!(session.req_header().headers["host"], "b");
    assert!(!session.is_body_done());
    session.enable_retry_buffering();
    let piece = session.read_request_body().await.expect("a body");
    assert_eq!(piece.as_deref(), Some(&b"xyz"[..]));
    assert!(session.is_body_done());
    assert_eq!(session.get_retry_buffer().as_deref(), Some(&b"xyz"[..]));
    assert_eq!(session.read_request_body().await.expect("an end"), None);
    assert_eq!(
        got(&mut client).await,
        "HTTP/1.1 204 No Content\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Connection: keep-alive\r\n\r\n"
    );
}

#[tokio::test]
async fn a_body_is_framed_as_its_head_says() {
    let cases: [(&str, &[(&str, &str)], &str); 3] = [
        ("GET", &[("Content-Length", "5")], "hello"),
        (
            "GET",
            &[("Transfer-Encoding", "chunked")],
            "3\r\nhel\r\n7\r\nlo, you\r\n0\r\n\r\n",
        ),
        ("HEAD", &[("Content-Length", "5")], ""),
    ];
    for (method, fields, wanted) in cases {
        let (mut session, mut client) = session(&GET.replace("GET", method)).await;
        session
            .queue(HttpTask::Header(head(200, fields), false))
            .await
            .expect("a head");
        session.queue(body("hel", false)).await.expect("a piece");
        let done = session.queue(body("lo, you", true)).await.expect("a piece");
        assert!(done, "{method} {fields:?}");
        session.send().await.expect("a reader");
        let got = got(&mut client).await;
        let (head, body) = got.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with("Connection: keep-alive"), "{head}");
        assert_eq!(body, wanted, "{method} {fields:?}");
        assert!(session.finish().await);
    }
}

#[tokio::test]
async fn a_large_piece_is_sent_between_what_frames_it() {
    const LARGE: usize = 0x1_2345;
    let (mut session, mut client) = session(GET).await;
    let chunked = head(200, &[("Transfer-Encoding", "chunked")]);
    session
        .queue(HttpTask::Header(chunked, false))
        .await
        .expect("ok");
    let large = Bytes::from(vec![b'x'; LARGE]);
    session
        .queue(HttpTask::Body(Some(large), false))
        .await
        .expect("ok");
    session.queue(body("end", false)).await.expect("ok");
    assert!(session.queue(HttpTask::Done).await.expect("ok"));
    session.send().await.expect("a reader");
    assert_eq!(session.body_bytes_sent(), LARGE + 3);
    assert!(session.finish().await);
    drop(session);
    let mut all = String::new();
    client.read_to_string(&mut all).await.expect("text");
    let (_, body) = all.split_once("\r\n\r\n").expect("a head");
    let wanted = format!("12345\r\n{}\r\n3\r\nend\r\n0\r\n\r\n", "x".repeat(LARGE));
    assert!(body == wanted, "{} bytes", body.len());
}

#[tokio::test]
async fn a_body_that_is_too_short_ends_the_connection_and_one_too_long_is_cut() {
    let (mut session, _client) = session(GET).await;
    let five = || HttpTask::Header(head(200, &[("Content-Length", "5")]), false);
    session.queue(five()).await.expect("a head");
    session.queue(body("four", false)).await.expect("a piece");
    assert!(session.queue(HttpTask::Done).await.is_err());

    let (mut session, mut client) = self::session(GET).await;
    session.queue(five()).await.expect("a head");
    assert!(
        session
            .queue(body("six more", false))
            .await
            .expect("a piece")
    );
    session.send().await.expect("a reader");
    assert!(got(&mut client).await.ends_with("\r\n\r\nsix m"));
}

#[tokio::test]
async fn an_answer_before_the_body_and_one_without_an_end_close_the_connection() {
    let post = "POST /b HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n";
    let cases = [
        (post, head(413, &[("Content-Length", "0")])),
        (GET, head(200, &[])),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: Close\r\n\r\n",
            head(200, &[("Content-Length", "0")]),
        ),
    ];
    for (request, head) in cases {
        let (mut session, mut client) = session(request).await;
        session.write_response_header(head).await.expect("a reader");
        let got = got(&mut client).await;
        assert!(got.ends_with("Connection: close\r\n\r\n"), "{got}");
        assert!(!session.may_keep());
        assert!(!session.finish().await);
    }
}

#[tokio::test]
async fn interim_heads_precede_the_one_head_of_the_answer() {
    let (mut session, mut client) = session(GET).await;
    let hints = || HttpTask::Header(head(103, &[]), false);
    assert!(!session.queue(hints()).await.expect("a head"));
    let empty = HttpTask::Header(head(200, &[("Content-Length", "0")]), true);
    assert!(session.queue(empty).await.expect("a head"));
    session.queue(hints()).await.expect("left out");
    session
        .queue(HttpTask::Header(head(500, &[]), true))
        .await
        .expect("left out");
    session.send().await.expect("a reader");
    let got = got(&mut client).await;
    assert!(got.starts_with("HTTP/1.1 103 "), "{got}");
    assert_eq!(got.matches("HTTP/1.1 ").count(), 2, "{got}");
    assert_eq!(got.matches("Connection:").count(), 1, "{got}");
    assert_eq!(session.response_written().expect("a head").status, 200);
}

/// What a client gets of an answer with these fields that is given `behind` too.
async fn answered(
    fields: &[(&'static str, &'static str)],
    behind: &[(&'static str, &'static str)],
    takes: bool,
) -> String {
    let (mut session, mut client) = session(GET).await;
    let mut head = head(200, fields);
    let mut behind: Vec<_> = behind
        .iter()
        .map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        })
        .collect();
    if takes {
        session.take_fields(&mut behind);
    }
    for (name, value) in behind {
        head.append_header(name, value).expect("a field");
    }
    session
        .queue(HttpTask::Header(head, true))
        .await
        .expect("a head");
    session.send().await.expect("a reader");
    got(&mut client).await
}

#[tokio::test]
async fn fields_past_a_head_are_written_as_if_they_were_in_it() {
    let length = ("Content-Length", "0");
    let own = [("x-one", "1"), ("ratelimit-limit", "2")];
    for fields in [&[length][..], &[length, ("Connection", "Upgrade")]] {
        let in_map = answered(fields, &own, false).await;
        assert_eq!(answered(fields, &own, true).await, in_map);
        assert!(in_map.contains("x-one: 1\r\nratelimit-limit: 2\r\n"));
    }
    // These names have another spelling in a head.
    let own = [("x-one", "1"), ("set-cookie", "a=b")];
    let in_map = answered(&[length], &own, false).await;
    assert_eq!(answered(&[length], &own, true).await, in_map);
    assert!(in_map.contains("Set-Cookie: a=b"));
}

#[tokio::test]
async fn fields_past_a_head_follow_none_that_is_not_the_answer() {
    let (mut session, mut client) = session(GET).await;
    let mut fields = vec![(
        HeaderName::from_static("x-one"),
        HeaderValue::from_static("1"),
    )];
    session.take_fields(&mut fields);
    assert!(fields.is_empty());
    for status in [103, 204] {
        let mut head = head(status, &[]);
        head.remove_header("Date");
        let task = HttpTask::Header(head, status == 204);
        session.queue(task).await.expect("a head");
    }
    session.send().await.expect("a reader");
    let got = got(&mut client).await;
    let (interim, answer) = got.split_once("\r\n\r\n").expect("two heads");
    assert!(!interim.contains("x-one"), "{got}");
    let fields: Vec<_> = answer.lines().skip(1).collect();
    assert_eq!(fields[0], "x-one: 1");
    assert!(fields[1].starts_with("Date: "), "{got}");
    assert_eq!(fields[2], "Connection: keep-alive");
}

#[tokio::test]
async fn a_body_that_came_with_its_head_is_taken_whole_and_still_sent_on() {
    let post = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let (mut both, _client) =
        session(&format!("{post}helloGET /b HTTP/1.1\r\nHost: b\r\n\r\n")).await;
    assert_eq!(both.take_ready_body(4), None, "longer than asked for");
    assert!(!both.is_body_done());
    assert_eq!(both.take_ready_body(5).as_deref(), Some(&b"hello"[..]));
    assert!(both.is_body_done() && both.body_bytes_read() == 5);
    assert_eq!(both.take_ready_body(5), None, "it was taken");
    both.enable_retry_buffering();
    assert_eq!(both.read_request_body().await.expect("an end"), None);
    assert_eq!(both.get_retry_buffer().as_deref(), Some(&b"hello"[..]));
    let written = both.write_response_header(head(204, &[])).await;
    written.expect("a reader");
    crate::http::framing::answered(&both);
    assert!(both.finish().await);
    assert!(next(&mut both).await);
    assert_eq!(both.req_header().uri.path(), "/b");
    assert_eq!(both.get_retry_buffer(), None);

    let (mut part, mut client) = session(&format!("{post}hell")).await;
    assert_eq!(part.take_ready_body(5), None, "a byte is missing");
    client.write_all(b"o").await.expect("room");
    part.enable_retry_buffering();
    let piece = part.read_request_body().await.expect("a piece");
    assert_eq!(piece.as_deref(), Some(&b"hell"[..]));
    assert_eq!(part.take_ready_body(5), None, "some of it was read");

    let (mut whole, _client) = session(&format!("{post}hello")).await;
    whole.take_ready_body(5).expect("a body");
    let (_, read) = whole.into_parts();
    assert_eq!(&read[..], format!("{post}hello").as_bytes());
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let (mut session, client) = session(GET).await;
    assert!(now(session.left()).await.is_none());
    drop(client);
    let error = session.left().await;
    assert_eq!(*error.etype(), ErrorType::ConnectionClosed);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let post = "POST /b HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nx";
    let (mut session, client) = session(post).await;
    drop(client);
    let read = session.read_request_body().await.expect("a piece");
    assert_eq!(read.as_deref(), Some(&b"x"[..]));
    assert!(session.read_request_body().await.is_err());
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_waited_for_no_longer_than_the_limit() {
    let (client, server) = duplex(64);
    let framed = FramedStream::new(Box::new(server), false);
    let mut session = PlainSession::new(Box::new(framed));
    let mut client = client;
    client.write_all(GET.as_bytes()).await.expect("room");
    assert!(next(&mut session).await);
    session.set_write_timeout(Some(Duration::from_millis(5)));
    let large = head(200, &[("Content-Length", "100000")]);
    session
        .queue(HttpTask::Header(large, false))
        .await
        .expect("ok");
    let late = session.send().await.expect_err("nobody reads");
    assert_eq!(*late.etype(), ErrorType::WriteTimedout);
}

#[tokio::test]
async fn a_handed_over_request_begins_again_with_what_was_read() {
    let post = "POST /b HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n";
    let (mut session, mut client) = session(post).await;
    session.enable_retry_buffering();
    client.write_all(b"xy").await.expect("room");
    session.read_request_body().await.expect("a piece");
    let (_, read) = session.into_parts();
    assert_eq!(read, format!("{post}xy"));
}

#[tokio::test]
async fn a_head_that_is_put_back_is_read_by_whoever_comes_next() {
    let (mut client, server) = duplex(1 << 12);
    let two = format!("{GET}{GET}");
    client.write_all(two.as_bytes()).await.expect("room");
    let mut stream = FramedStream::new(Box::new(server), false);
    for _ in 0..2 {
        assert!(stream.awaits_plain_request().await.expect("a head"));
        let (head, body) = stream.take_head();
        assert_eq!((&*head, body), (GET.as_bytes(), 0));
        stream.put_back(&head);
    }
    let mut read = vec![0; GET.len()];
    stream.read_exact(&mut read[..1]).await.expect("a byte");
    let plain = stream.awaits_plain_request().await.expect("a head");
    assert!(!plain, "a part of it is elsewhere");
    stream.read_exact(&mut read[1..]).await.expect("the rest");
    assert_eq!(read, GET.as_bytes());
    assert!(stream.awaits_plain_request().await.expect("a head"));
}
