//! What becomes of a client's connection: whose turn it is, what comes before an
//! answer, and when it ends.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::ports::Port;
use crate::support::raw::{Connection, exchange};
use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

const WHILE: Duration = Duration::from_millis(300);

/// A door to an upstream that takes a while for `/slow`.
async fn door() -> (Door, Upstream) {
    let upstream = Upstream::start(|seen| {
        let answer = Reply::Json(200, json!({"target": seen.target}));
        match seen.target.as_str() {
            "/slow" => Reply::Later(WHILE, Box::new(answer)),
            _ => answer,
        }
    })
    .await;
    (door_to(&upstream.url("")).await, upstream)
}

async fn door_to(url: &str) -> Door {
    let service = format!("- {{name: web, url: '{url}', routes: [{{paths: [/]}}]}}\n");
    Setup::new().services(&service).start().await
}

#[tokio::test]
async fn what_a_client_sends_early_waits_for_its_turn() {
    let (door, upstream) = door().await;
    let mut connection = Connection::open(&door.proxy()).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let post = "POST /slow HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi";
    // At once, while the answer is awaited, and an empty line that belongs nowhere.
    connection
        .send((post.to_owned() + &get("/b")).as_bytes())
        .await;
    eventually("the request", async || {
        (!upstream.seen().is_empty()).then_some(())
    })
    .await;
    connection
        .send(("\r\n".to_owned() + &get("/c")).as_bytes())
        .await;
    for target in ["/slow", "/b", "/c"] {
        let answer = connection.response().await;
        assert_eq!(answer.status, 200, "{target}");
        assert_eq!(answer.text(), json!({"target": target}).to_string());
    }
    assert_eq!(upstream.seen()[0].body, b"hi");
}

#[tokio::test]
async fn smuggling_behind_a_request_that_is_refused_gets_no_turn() {
    let (door, upstream) = door().await;
    for refused in [
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0, 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
    ] {
        let before = upstream.seen().len();
        let mut connection = Connection::open(&door.proxy()).await;
        let both = format!("{refused}GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n");
        connection.send(both.as_bytes()).await;
        let last = refused.contains("close");
        let status = connection.response().await.status;
        assert_eq!(status, if last { 200 } else { 400 }, "{refused}");
        assert!(connection.is_closed().await, "{refused}");
        assert_eq!(upstream.seen().len() - before, usize::from(last));
    }
}

#[tokio::test]
async fn an_upload_that_has_waited_for_permission_keeps_its_connection() {
    let upstream = Upstream::echo().await;
    let services = format!(
        "- {{name: far, url: '{}', routes: [{{paths: [/far]}}]}}\n\
         - {{name: near, protocol: internal, host: echo, routes: [{{paths: [/near]}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    let mut connection = Connection::open(&door.proxy()).await;
    for path in ["/far", "/near", "/far"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\
             Expect: 100-continue\r\n\r\n"
        );
        connection.send(head.as_bytes()).await;
        assert_eq!(connection.head().await.status, 100, "{path}");
        connection.send(b"body").await;
        let answer = connection.response().await;
        assert_eq!(answer.status, 200, "{path}");
        assert_ne!(answer.header("connection"), Some("close"), "{path}");
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_no_interim_response() {
    let upstream = Upstream::start(|_| {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        Reply::Raw(format!("{interim}{answer}").into_bytes())
    })
    .await;
    let door = door_to(&upstream.url("")).await;
    for (version, line, first) in [
        ("1.0", "", 200),
        ("1.0", "Expect: 100-continue\r\n", 200),
        ("1.1", "", 103),
    ] {
        let request = format!("GET / HTTP/{version}\r\nHost: a.test\r\n{line}\r\n");
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        assert_eq!(answer.expect("an answer").status, first, "{version} {line}");
    }
}

/// Requests that the forwarding loop and the engine serve.
const BY_EITHER: [&str; 2] = [
    "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
];

#[tokio::test]
async fn an_upstream_that_leaves_after_an_interim_answer_has_not_answered() {
    let upstream =
        Upstream::start(|_| Reply::Raw(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec()))
            .await;
    let door = door_to(&upstream.url("")).await;
    for request in BY_EITHER {
        let mut connection = Connection::open(&door.proxy()).await;
        connection.send(request.as_bytes()).await;
        let mut answer = connection.head().await;
        while answer.status < 200 {
            answer = connection.head().await;
        }
        assert_eq!(answer.status, 502, "{request}");
    }
}

#[tokio::test]
async fn a_flood_of_interim_answers_ends_in_a_failure() {
    let upstream = Upstream::start(|_| {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1000);
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        Reply::Raw(format!("{interim}{answer}").into_bytes())
    })
    .await;
    let door = door_to(&upstream.url("")).await;
    for request in BY_EITHER {
        let mut connection = Connection::open(&door.proxy()).await;
        connection.send(request.as_bytes()).await;
        let mut interim = 0;
        let mut answer = connection.head().await;
        while answer.status < 200 {
            interim += 1;
            answer = connection.head().await;
        }
        assert_eq!(answer.status, 502, "{request}");
        assert!(interim <= 101, "{request}: {interim}");
    }
}

#[tokio::test]
async fn an_answer_that_can_not_be_read_is_not_asked_for_again() {
    for answer in [
        "garbage\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(300)),
    ] {
        let bytes = answer.clone().into_bytes();
        let upstream = Upstream::start(move |_| Reply::Raw(bytes.clone())).await;
        let door = door_to(&upstream.url("")).await;
        let put = http::client().put(door.proxy_url("/")).body("once");
        http::send(put).await.expect(502);
        let seen = upstream.seen().len();
        assert_eq!(seen, 1, "{}", answer.escape_debug());
    }
}

#[tokio::test]
async fn a_length_that_an_upstream_repeats_is_passed_on_once() {
    for lengths in [
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2, 2",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nok");
        let upstream = Upstream::start(move |_| Reply::Raw(answer.clone().into_bytes())).await;
        let door = door_to(&upstream.url("")).await;
        let answer = exchange(&door.proxy(), b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.text(), "ok", "{lengths}");
        let told = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "content-length");
        let told: Vec<_> = told.map(|(_, value)| value.as_str()).collect();
        assert_eq!(told, ["2"], "{lengths}");
    }
}

#[tokio::test]
async fn httpoxy_headers_of_proxies_do_not_reach_the_upstream() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url("")).await;
    let mut request = http::client().get(door.proxy_url("/"));
    for name in ["Proxy", "Proxy-Foo", "proxy_foo", "Proxy-Authorization"] {
        request = request.header(name, "evil");
    }
    http::send(request.header("Proxied", "fine"))
        .await
        .expect(200);
    let seen = upstream.last();
    let of_proxies = |name: &str| name.starts_with("proxy");
    assert!(
        !seen.headers.iter().any(|(name, _)| of_proxies(name)),
        "{seen:?}"
    );
    assert_eq!(seen.header("proxied"), Some("fine"));
}

#[tokio::test]
async fn the_host_of_an_ipv6_service_is_in_brackets() {
    let port = Port::reserve();
    let authority = format!("[::1]:{}", port.number());
    let upstream = Upstream::at(&authority, |seen| Reply::Json(200, seen.json())).await;
    let service = format!(
        "- {{name: web, host: '::1', port: {}, routes: [{{paths: [/]}}]}}\n",
        port.number()
    );
    let door = Setup::new().services(&service).start().await;
    door.get("a.test", "/").await.expect(200);
    assert_eq!(upstream.last().header("host"), Some(authority.as_str()));
}

#[tokio::test]
async fn an_answer_after_the_word_to_stop_promises_no_next_request() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", upstream.local_addr().expect("bound"));
    let mut door = door_to(&url).await;
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    let (mut asked, _) = upstream.accept().await.expect("the request");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(asked.read_u8().await.expect("a whole head"));
    }
    door.signal("TERM");
    door.wait_log("the word to stop", |line| line.contains("stopping"))
        .await;
    // The listener is told what the connections are told.
    let proxy = door.proxy();
    eventually("the listener to close", || async {
        TcpStream::connect(&proxy).await.is_err().then_some(())
    })
    .await;
    // Of an exchange that was short it is not asked again whether all stops.
    tokio::time::sleep(WHILE).await;
    let fine = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";
    asked.write_all(fine).await.expect("sent");
    let answer = connection.response().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(door.wait_exit().await.success());
}
