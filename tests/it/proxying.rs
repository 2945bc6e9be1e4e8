//! What passes between client and upstream, and how failures are answered.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::support::ports::Port;
use crate::support::raw::{Connection, exchange};
use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

/// A door with one service `web` for every host; `fields` are further ones of
/// its record, in YAML flow style.
pub(crate) async fn door_to(url: &str, fields: &str) -> Door {
    let service = format!("- {{name: web, url: '{url}', routes: [{{paths: [/]}}]{fields}}}\n");
    Setup::new().services(&service).start().await
}

#[tokio::test]
async fn a_request_arrives_whole_and_its_answer_returns_whole() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let request = http::client()
        .put(door.proxy_url("/things/1?a=1&b=%20&c"))
        .header("x-trace", "t-1")
        .body("the body");
    let answer = http::send(request).await.expect(200).json();
    assert_eq!(answer["method"], "PUT");
    assert_eq!(answer["target"], "/things/1?a=1&b=%20&c");
    assert_eq!(answer["body"], "the body");
    assert_eq!(answer["headers"]["x-trace"], "t-1");
    let head = http::client().head(door.proxy_url("/"));
    let head = http::send(head).await.expect(200);
    assert_eq!(head.body, "");
}

#[tokio::test]
async fn statuses_headers_and_cookies_of_the_upstream_pass() {
    let whole = b"HTTP/1.1 418 Teapot\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: theirs\r\n\
                  X-Own: yes\r\nContent-Length: 3\r\nConnection: close\r\n\r\ntea";
    let upstream = Upstream::start(|_| Reply::Raw(whole.to_vec())).await;
    let door = door_to(&upstream.url(""), "").await;
    let answer = door.get("a.test", "/").await.expect(418);
    assert_eq!(answer.body, "tea");
    assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 2);
    assert_eq!(answer.header("server"), "theirs");
    assert_eq!(answer.header("x-own"), "yes");
}

#[tokio::test]
async fn trace_is_not_proxied() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let request = http::client().request(reqwest::Method::TRACE, door.proxy_url("/"));
    http::send(request).await.expect(405);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn an_answer_for_a_dead_upstream_says_how_long_it_took() {
    let port = Port::reserve();
    let door = door_to(&format!("http://{}", port.authority()), "").await;
    let answer = door.get("a.test", "/").await.expect(502);
    for name in ["x-kong-upstream-latency", "x-kong-proxy-latency"] {
        assert!(answer.header(name).parse::<u64>().is_ok(), "{name}");
    }
    // That of answers for which no upstream was asked.
    assert!(!answer.headers.contains_key("x-kong-response-latency"));
}

#[tokio::test]
async fn what_a_proxy_behind_the_gateway_asks_for_stays_behind_it() {
    let head = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\
                 X-Kept: 1\r\nContent-Length: 0\r\n\r\n";
    let upstream = Upstream::start(|_| Reply::Raw(head.to_vec())).await;
    let door = door_to(&upstream.url(""), "").await;
    let answer = door.get("a.test", "/").await.expect(407);
    assert!(!answer.headers.contains_key("proxy-authenticate"));
    assert_eq!(answer.header("x-kept"), "1");
}

#[tokio::test]
async fn hop_by_hop_headers_stay_on_their_hop() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close, X-Private\r\nX-Private: 1\r\n\
                   Keep-Alive: 5\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: close\r\n\
                   Upgrade: foo\r\nX-Kept: 1\r\n\r\n";
    let answer = exchange(&door.proxy(), request.as_bytes())
        .await
        .expect("an answer");
    assert_eq!(answer.status, 200);
    let seen = upstream.last();
    for name in [
        "x-private",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "upgrade",
    ] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("x-kept"), Some("1"));
}

#[tokio::test]
async fn an_upstream_is_told_of_a_client_that_takes_trailers_and_of_no_other_coding() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    for (fields, sent) in [
        ("TE: trailers\r\n", Some("trailers")),
        (
            "TE: deflate;q=0.5, Trailers\r\nConnection: TE\r\n",
            Some("trailers"),
        ),
        ("TE: gzip\r\nTE: trailers\r\n", Some("trailers")),
        ("TE: gzip;q=1, trailersx\r\n", None),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        let mut connection = Connection::open(&door.proxy()).await;
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.response().await.status, 200, "{fields}");
        let seen = upstream.last();
        assert_eq!(seen.all("te"), Vec::from_iter(sent), "{fields}");
        assert_eq!(seen.header("connection"), None, "{fields}");
    }
}

#[tokio::test]
async fn trailers_of_an_upstream_end_with_its_answer() {
    let upstream = Upstream::start(|_| {
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                      2\r\nhi\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n";
        Reply::Raw(answer.into())
    })
    .await;
    let door = door_to(&upstream.url(""), "").await;
    let mut connection = Connection::open(&door.proxy()).await;
    for _ in 0..2 {
        let request = b"GET / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\n\r\n";
        connection.send(request).await;
        let answer = connection.response().await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "hi"));
        assert_eq!(answer.header("x-sum"), None);
        assert_eq!(answer.header("trailer"), None);
    }
}

#[tokio::test]
async fn upstream_connections_are_kept_and_used_again() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let mut connection = Connection::open(&door.proxy()).await;
    for _ in 0..50 {
        connection
            .send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .await;
        assert_eq!(connection.response().await.status, 200);
    }
    assert!(upstream.connections() < 10, "{}", upstream.connections());
}

#[tokio::test]
async fn a_large_download_passes_in_constant_memory() {
    const LENGTH: u64 = 1 << 30;
    let upstream = Upstream::start(|seen| Reply::Stream {
        length: LENGTH,
        chunked: seen.target == "/chunked",
    })
    .await;
    let door = door_to(&upstream.url(""), "").await;
    door.get("a.test", "/nothing-yet").await;
    let before = door.memory_kib("VmHWM");
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(b"GET /sized HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    let head = connection.head().await;
    assert_eq!(head.header("content-length"), Some("1073741824"));
    connection.skip(LENGTH).await;
    let grown = door.memory_kib("VmHWM").saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more for 1 GiB");
}

#[tokio::test]
async fn a_large_upload_passes_in_constant_memory() {
    const LENGTH: u64 = 1 << 30;
    let upstream = Upstream::start(|seen| Reply::Json(200, json!({"length": seen.length}))).await;
    let door = door_to(&upstream.url(""), "").await;
    door.get("a.test", "/").await.expect(200);
    let before = door.memory_kib("VmHWM");
    let mut connection = Connection::open(&door.proxy()).await;
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LENGTH}\r\n\r\n");
    connection.send(head.as_bytes()).await;
    let piece = vec![b'y'; 1 << 18];
    for _ in 0..LENGTH / (1 << 18) {
        connection.send(&piece).await;
    }
    let answer = connection.response().await;
    assert_eq!(answer.text(), json!({"length": LENGTH}).to_string());
    let grown = door.memory_kib("VmHWM").saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more for 1 GiB");
}

#[tokio::test]
async fn pieces_pass_as_they_come_in_both_directions() {
    let upstream = Upstream::start(|_| Reply::WebSocket).await;
    let door = door_to(&upstream.url(""), "").await;
    let url = format!("ws://{}/chat", door.proxy());
    let mut request = url.into_client_request().expect("a request");
    let origin = "http://a.test".parse().expect("a header value");
    request.headers_mut().insert("origin", origin);
    let (mut socket, response) = tokio_tungstenite::connect_async(request)
        .await
        .expect("switched");
    assert_eq!(response.status(), 101);
    for text in ["one", "two", "three"] {
        socket.send(Message::text(text)).await.expect("sent");
        let back = socket.next().await.expect("a message").expect("no error");
        assert_eq!(back.into_text().expect("text").as_str(), text);
    }
    let large = vec![7_u8; 1 << 20];
    socket
        .send(Message::binary(large.clone()))
        .await
        .expect("sent");
    let back = socket.next().await.expect("a message").expect("no error");
    assert_eq!(back.into_data().as_ref(), large);
    let seen = upstream.last();
    assert_eq!(seen.all("upgrade"), ["websocket"]);
    assert_eq!(seen.all("connection"), ["keep-alive, Upgrade"]);
}

#[tokio::test]
async fn a_slow_reader_slows_the_upstream_down() {
    // Far more than all socket buffers hold: were it read ahead, memory would
    // show it.
    let upstream = Upstream::start(|_| Reply::Stream {
        length: 1 << 28,
        chunked: true,
    })
    .await;
    let door = door_to(&upstream.url(""), "").await;
    door.get("a.test", "/").await;
    let before = door.memory_kib("VmRSS");
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    connection.head().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let grown = door.memory_kib("VmRSS").saturating_sub(before);
    assert!(
        grown < 32 * 1024,
        "{grown} KiB buffered for a reader that does not read"
    );
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_spoken_in_the_clear() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    http::client();
    let client = http::builder()
        .http2_prior_knowledge()
        .build()
        .expect("a client");
    let requests = (0..20).map(|n| {
        let request = client
            .post(door.proxy_url(&format!("/{n}")))
            .body(format!("body {n}"));
        async move {
            let response = request.send().await.expect("an answer");
            assert_eq!(response.version(), reqwest::Version::HTTP_2);
            response.json::<Value>().await.expect("JSON")
        }
    });
    for (n, answer) in futures_util::future::join_all(requests)
        .await
        .iter()
        .enumerate()
    {
        assert_eq!(answer["target"], format!("/{n}"));
        assert_eq!(answer["body"], format!("body {n}"));
    }
}

#[tokio::test]
async fn an_answer_without_content_announces_none() {
    for framing in ["Content-Length: 2", "Transfer-Encoding: chunked"] {
        let head = format!("HTTP/1.1 204 No\r\n{framing}\r\n\r\n");
        let upstream = Upstream::start(move |_| Reply::Raw(head.clone().into_bytes())).await;
        let door = door_to(&upstream.url(""), "").await;
        http::client();
        for builder in [http::builder(), http::builder().http2_prior_knowledge()] {
            let client = builder.build().expect("a client");
            let answer = client.get(door.proxy_url("/")).send().await;
            let answer = answer.expect("an answer");
            assert_eq!(answer.status(), 204);
            for name in ["content-length", "transfer-encoding"] {
                assert!(!answer.headers().contains_key(name), "{framing}");
            }
        }
    }
}

#[tokio::test]
async fn cookies_of_http2_arrive_as_one_field() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    http::client();
    let client = http::builder()
        .http2_prior_knowledge()
        .build()
        .expect("a client");
    let request = client.get(door.proxy_url("/"));
    let request = request.header("cookie", "a=1").header("cookie", "b=2");
    request.send().await.expect("an answer");
    assert_eq!(upstream.last().all("cookie"), ["a=1; b=2"]);
}

#[tokio::test]
async fn an_upstream_that_refuses_connections_gives_502() {
    let nobody = Port::reserve();
    let door = door_to(&format!("http://{}", nobody.authority()), "").await;
    let answer = door.get("a.test", "/").await.expect(502);
    let message = "An invalid response was received from the upstream server";
    assert_eq!(answer.json()["message"], message);
}

#[tokio::test]
async fn an_upstream_that_speaks_nonsense_gives_502() {
    let upstream = Upstream::start(|_| Reply::Raw(b"SMTP ready\r\n\r\n".to_vec())).await;
    let door = door_to(&upstream.url(""), ", retries: 0").await;
    door.get("a.test", "/").await.expect(502);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_gives_503() {
    let door = door_to("http://no-such-host.invalid", ", retries: 0").await;
    let answer = door.get("a.test", "/").await.expect(503);
    assert_eq!(answer.json()["message"], "name resolution failed");
    // A client that names no form gets JSON, too: no upstream was asked.
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let answer = exchange(&door.proxy(), request).await.expect("an answer");
    let text = answer.text();
    assert!(
        text.contains(r#"{"message":"name resolution failed""#),
        "{text}"
    );
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_in_time_gives_504() {
    let upstream = Upstream::start(|_| Reply::Hang).await;
    let door = door_to(&upstream.url(""), ", read_timeout: 1500, retries: 0").await;
    let answer = door.get("a.test", "/").await.expect(504);
    assert_eq!(
        answer.json()["message"],
        "The upstream server is timing out"
    );
    eventually("the request", || async {
        (!upstream.seen().is_empty()).then_some(())
    })
    .await;
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn an_upstream_that_does_not_read_in_time_gives_504() {
    // Accepts, and then nothing.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", deaf.local_addr().expect("bound"));
    // The engine still looks for an early answer before it gives up. It does so
    // between the pieces of the request too, which a busy client sends slowly.
    let fields = ", write_timeout: 200, read_timeout: 5000, retries: 0";
    let door = door_to(&url, fields).await;
    let mut connection = Connection::open(&door.proxy()).await;
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 99999999\r\n\r\n";
    connection.send(head.as_bytes()).await;
    let piece = vec![b'z'; 1 << 16];
    for _ in 0..99_999_999 / piece.len() {
        let sent = tokio::time::timeout(Duration::from_secs(5), connection.try_send(&piece));
        if !matches!(sent.await, Ok(true)) {
            break;
        }
    }
    assert_eq!(connection.head().await.status, 504);
    door.wait_log("the reason", |line| line.contains("WriteTimedout"))
        .await;
}

#[tokio::test]
async fn the_read_timeout_is_between_reads_not_in_total() {
    let upstream = Upstream::start(|_| {
        let soon = Duration::from_millis(300);
        Reply::Later(soon, Box::new(Reply::Json(200, json!({}))))
    })
    .await;
    let door = door_to(&upstream.url(""), ", read_timeout: 30000").await;
    door.get("a.test", "/").await.expect(200);
}

#[tokio::test]
async fn failed_tries_are_repeated_as_often_as_the_service_says() {
    let upstream = Upstream::start(|_| Reply::Close).await;
    let door = door_to(&upstream.url(""), ", retries: 2").await;
    door.get("a.test", "/").await.expect(502);
    assert_eq!(upstream.seen().len(), 3, "one try and two more");
    let post = http::client().post(door.proxy_url("/")).body("pay");
    http::send(post).await.expect(502);
    assert_eq!(
        upstream.seen().len(),
        4,
        "a POST that was sent is never repeated"
    );
}

#[tokio::test]
async fn an_upstream_of_http_1_0_is_answered_for_in_http_1_1() {
    for length in ["Content-Length: 2\r\n", ""] {
        let answer = format!("HTTP/1.0 200 OK\r\n{length}\r\nok");
        let upstream = Upstream::start(move |_| Reply::Raw(answer.clone().into_bytes())).await;
        let door = door_to(&upstream.url(""), "").await;
        let mut connection = Connection::open(&door.proxy()).await;
        // On one connection, which the upstream's end does not end.
        for _ in 0..2 {
            connection
                .send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
                .await;
            assert_eq!(connection.response().await.text(), "ok");
        }
        let response = http::client().get(door.proxy_url("/")).send().await;
        let version = response.expect("an answer").version();
        assert_eq!(version, ::http::Version::HTTP_11, "{length:?}");
    }
}

#[tokio::test]
async fn the_body_of_an_error_is_what_the_client_accepts() {
    let door = Setup::new().start().await;
    for (accept, kind) in [
        ("application/json", "application/json"),
        ("text/html", "text/html"),
        ("text/plain", "text/plain"),
        ("*/*", "application/json"),
    ] {
        let request = http::client()
            .get(door.proxy_url("/"))
            .header("accept", accept);
        let answer = http::send(request).await.expect(404);
        assert!(answer.header("content-type").starts_with(kind), "{accept}");
        assert!(answer.body.contains("no Route matched with those values"));
    }
}

#[tokio::test]
async fn an_upload_that_goes_on_after_its_answer_is_not_cut_off() {
    // More than lies in the buffers of both systems.
    const PIECES: usize = 32;
    let nobody = Port::reserve();
    let services = format!(
        "- {{name: web, url: 'http://{}', routes: [{{paths: [/gone]}}]}}\n\
         - {{name: near, protocol: internal, host: echo, routes: [{{paths: [/near]}}]}}\n",
        nobody.authority()
    );
    let admin = "{listen: \"@ADMIN@\", token: 0123456789abcdef}";
    let mut door = Setup::new().admin(admin).services(&services).lay_out();
    door.spawn();
    door.wait_log("the start", |line| line.contains("ready"))
        .await;
    let piece = vec![b'y'; 1 << 18];
    let cases = [
        (door.proxy(), "/nowhere", "Connection: close\r\n", 404),
        (door.proxy(), "/gone", "", 502),
        (door.proxy(), "/near", "", 413),
        (door.admin(), "/services", "", 401),
    ];
    for (address, path, line, status) in cases {
        let mut connection = Connection::open(&address).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{line}Content-Length: {}\r\n\r\n",
            PIECES * piece.len()
        );
        connection.send(head.as_bytes()).await;
        connection.send(&piece).await;
        assert_eq!(connection.response().await.status, status, "{path}");
        for _ in 1..PIECES {
            connection.send(&piece).await;
        }
        assert!(connection.is_closed().await, "{path}");
    }
}

#[tokio::test]
async fn a_refused_upload_without_end_is_not_read_without_end() {
    let door = Setup::new().start().await;
    let mut connection = Connection::open(&door.proxy()).await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                Content-Length: 99999999999\r\n\r\n";
    connection.send(head.as_bytes()).await;
    let piece = vec![b'y'; 1 << 20];
    let mut taken = 0;
    while taken < 256 && connection.try_send(&piece).await {
        taken += 1;
    }
    assert!(taken < 256, "{taken} MiB of a refused upload were read");
}

#[tokio::test]
async fn an_upload_of_http2_that_goes_on_after_its_answer_is_not_reset() {
    const LENGTH: usize = 4 << 20;
    let door = Setup::new().start().await;
    let stream = TcpStream::connect(door.proxy()).await;
    let stream = stream.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = ::http::Request::post(door.proxy_url("/nowhere")).body(());
    let request = request.expect("a request");
    let mut client = client.ready().await.expect("ready");
    let (response, mut body) = client.send_request(request, false).expect("sent");
    let mut response = response.await.expect("an answer");
    assert_eq!(response.status(), 404);
    while let Some(piece) = response.body_mut().data().await {
        piece.expect("the rest of the answer");
    }
    let mut left = LENGTH;
    while left > 0 {
        body.reserve_capacity(left);
        let room = poll_fn(|cx| body.poll_capacity(cx)).await;
        let room = room.expect("a stream").expect("no reset").min(left);
        left -= room;
        let piece = Bytes::from(vec![b'y'; room]);
        body.send_data(piece, left == 0).expect("no reset");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_permission_gets_it() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/far]}}]}}\n\
         - {{name: near, protocol: internal, host: echo, routes: [{{paths: [/near]}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    for path in ["/far", "/near"] {
        let mut connection = Connection::open(&door.proxy()).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        );
        connection.send(head.as_bytes()).await;
        assert_eq!(connection.head().await.status, 100, "{path}");
        connection.send(b"body").await;
        let answer = connection.response().await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer.text().contains("\"body\":\"body\""),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn the_echo_upstream_answers_inside_the_process() {
    let service = "- {name: mirror, protocol: internal, host: echo, routes: [{paths: [/mirror], strip_path: false}]}\n";
    let door = Setup::new().services(service).start().await;
    let request = http::client()
        .post(door.proxy_url("/mirror?q=1"))
        .header("x-a", "b")
        .body("hello");
    let answer = http::send(request).await.expect(200).json();
    assert_eq!(answer["method"], "POST");
    assert_eq!(answer["path"], "/mirror");
    assert_eq!(answer["headers"]["x-a"], "b");
    assert_eq!(answer["body"], "hello");
}

#[tokio::test]
async fn the_shortest_request_is_answered() {
    let door = Setup::new().start().await;
    for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:a\r\n\r\n"] {
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        assert_eq!(answer.expect("an answer").status, 404, "{request:?}");
    }
    let answer = exchange(&door.admin(), b"GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.is_some());
}
