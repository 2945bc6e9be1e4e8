//! Load balancers in front say in the PROXY protocol whose a connection is.

use crate::support::ports::Port;
use crate::support::raw::Connection;
use crate::support::tls::Offer;
use crate::support::{Door, Setup, Upstream};

const REQUEST: &[u8] = b"GET /p HTTP/1.1\r\nHost: a.test\r\n\r\n";
const LINE: &[u8] = b"PROXY TCP4 203.0.113.7 192.0.2.2 40000 443\r\n";

async fn door_to(upstream: &Upstream, proxy: &str) -> Door {
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let proxy = format!("{{listen: [\"@PROXY@\"], {proxy}}}");
    Setup::new().proxy(&proxy).services(&service).start().await
}

/// The status of a request behind `header`; none where the connection is closed.
async fn status(door: &Door, header: &[u8], request: &[u8]) -> Option<u16> {
    let mut connection = Connection::open(&door.proxy()).await;
    connection.try_send(header).await;
    connection.try_send(request).await;
    connection.try_head().await.map(|head| head.status)
}

#[tokio::test]
async fn the_header_of_a_load_balancer_names_the_client() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream, "proxy_protocol_from: [127.0.0.0/8]").await;
    assert_eq!(status(&door, LINE, REQUEST).await, Some(200));
    let seen = upstream.last();
    assert_eq!(seen.header("x-real-ip"), Some("203.0.113.7"));
    assert_eq!(seen.header("x-forwarded-for"), Some("203.0.113.7"));
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    binary.extend([198, 51, 100, 9, 192, 0, 2, 2, 0, 80, 1, 187]);
    assert_eq!(status(&door, &binary, REQUEST).await, Some(200));
    assert_eq!(upstream.last().header("x-real-ip"), Some("198.51.100.9"));
    // The balancer itself asks for health.
    let own = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    assert_eq!(status(&door, own, REQUEST).await, Some(200));
    assert_eq!(upstream.last().header("x-real-ip"), Some("127.0.0.1"));
}

#[tokio::test]
async fn a_header_comes_once_a_connection_and_in_pieces_if_need_be() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream, "proxy_protocol_from: [127.0.0.1]").await;
    let mut connection = Connection::open(&door.proxy()).await;
    for byte in LINE {
        connection.send(&[*byte]).await;
    }
    for _ in 0..2 {
        connection.send(REQUEST).await;
        let answer = connection.response().await;
        assert_eq!(answer.status, 200);
        assert_eq!(upstream.last().header("x-real-ip"), Some("203.0.113.7"));
    }
    // A second one is no request.
    connection.send(LINE).await;
    connection.send(REQUEST).await;
    assert_eq!(connection.head().await.status, 400);
}

#[tokio::test]
async fn a_client_that_pretends_to_be_a_load_balancer_is_not_believed() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream, "proxy_protocol_from: [192.0.2.0/24]").await;
    assert_eq!(status(&door, LINE, REQUEST).await, Some(400));
    assert_eq!(status(&door, b"", REQUEST).await, Some(200));
    assert_eq!(upstream.last().header("x-real-ip"), Some("127.0.0.1"));
}

#[tokio::test]
async fn a_load_balancer_that_sends_no_header_is_closed_and_counted() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream, "proxy_protocol_from: [127.0.0.1]").await;
    assert_eq!(status(&door, b"", REQUEST).await, None);
    let malformed = b"PROXY TCP4 203.0.113.7 192.0.2.2 40000\r\n";
    assert_eq!(status(&door, malformed, REQUEST).await, None);
    assert_eq!(upstream.seen().len(), 0);
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let line = "doorward_connections_refused_total{listener=\"proxy\",reason=\"proxy_header\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn an_address_of_the_header_is_no_trusted_proxy_by_itself() {
    let upstream = Upstream::echo().await;
    let lists = "proxy_protocol_from: [127.0.0.1], trusted_ips: [127.0.0.1]";
    let door = door_to(&upstream, lists).await;
    let request = b"GET /p HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n";
    assert_eq!(status(&door, LINE, request).await, Some(200));
    assert_eq!(upstream.last().header("x-real-ip"), Some("203.0.113.7"));
}

#[tokio::test]
async fn the_header_comes_before_the_handshake_of_tls() {
    let upstream = Upstream::echo().await;
    let port = Port::reserve();
    let more = format!(
        "proxy_protocol_from: [127.0.0.1], tls: {{listen: [\"{}\"]}}",
        port.authority()
    );
    let _door = door_to(&upstream, &more).await;
    let number = port.number();
    let answers = tokio::task::spawn_blocking(move || {
        let client = Offer::new();
        let without = client.connect(number, "a.test").is_ok();
        let answer = client
            .connect_behind(LINE, number, "a.test")
            .and_then(|mut connection| connection.get("a.test", ""));
        (without, answer)
    });
    let (without, answer) = answers.await.expect("no panic");
    assert!(!without, "TLS without a header");
    let answer = answer.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.last().header("x-real-ip"), Some("203.0.113.7"));
    assert_eq!(upstream.last().header("x-forwarded-proto"), Some("https"));
}
