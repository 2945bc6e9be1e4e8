//! The proxy on a Unix socket, for another one in front on the same machine.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::support::{Door, Setup, Upstream};

async fn lay_out(upstream: &Upstream, settings: &str) -> Door {
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let listen = "listen: [\"unix:@DIR@/proxy.sock\", \"@PROXY@\"], workers: 3";
    let proxy = format!("{{{listen}{settings}}}");
    Setup::new().proxy(&proxy).services(&service).lay_out()
}

async fn ask(door: &Door, lines: &str) -> String {
    let path = door.path("proxy.sock");
    let mut stream = UnixStream::connect(path).await.expect("a connection");
    let request = format!("GET /p HTTP/1.1\r\nHost: a.test\r\n{lines}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn requests_come_by_a_unix_socket() {
    let upstream = Upstream::echo().await;
    let mut door = lay_out(&upstream, ", socket_mode: \"0600\"").await;
    // A process that is gone has left one.
    drop(UnixListener::bind(door.path("proxy.sock")).expect("a socket"));
    door.start().await;
    let metadata = std::fs::metadata(door.path("proxy.sock")).expect("there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    for _ in 0..10 {
        // Nobody is trusted unless the file says so.
        let answer = ask(&door, "X-Forwarded-For: 203.0.113.7\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(upstream.last().header("x-real-ip"), Some("0.0.0.0"));
    }
    let named = |log: &str| log.contains(r#""client":"unix:""#);
    door.wait_log("a client without an address", named).await;
}

#[tokio::test]
async fn a_proxy_behind_the_socket_may_be_trusted() {
    let upstream = Upstream::echo().await;
    let mut door = lay_out(&upstream, ", trusted_ips: [\"unix:\"]").await;
    door.start().await;
    let answer = ask(&door, "X-Forwarded-For: 203.0.113.7\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.last().header("x-real-ip"), Some("203.0.113.7"));
    // Whoever comes by TCP is not.
    let url = door.proxy_url("/p");
    let request = crate::support::http::client().get(url);
    let request = request.header("x-forwarded-for", "203.0.113.7");
    crate::support::http::send(request).await.expect(200);
    assert_eq!(upstream.last().header("x-real-ip"), Some("127.0.0.1"));
}

#[tokio::test]
async fn a_socket_that_somebody_listens_on_is_not_taken_away() {
    let upstream = Upstream::echo().await;
    let mut door = lay_out(&upstream, "").await;
    let _other = UnixListener::bind(door.path("proxy.sock")).expect("a socket");
    door.spawn();
    assert!(!door.wait_exit().await.success());
    let told = door.log_text();
    assert!(
        told.contains("doorward.yaml:1: proxy.listen: can't listen on unix:"),
        "{told}"
    );
}
