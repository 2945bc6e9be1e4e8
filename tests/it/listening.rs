//! Listeners: addresses that can't be had, connections that do nothing, and
//! clients that leave.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream as Blocking};

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::ports::Port;
use crate::support::tls::Offer;
use crate::support::{Door, Reply, Setup, Upstream, eventually};

const TOKEN: &str = "a-long-admin-token";

#[tokio::test]
async fn an_address_that_can_not_be_had_ends_the_start_with_two_and_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|own| (taken, own.to_string()));
    let (_taken, taken) = taken.expect("an address");
    let proxy = r#"{listen: ["@PROXY@"]}"#;
    let admin = format!("{{listen: \"@ADMIN@\", token: {TOKEN}}}");
    for address in [taken.as_str(), "192.0.2.1:1", "[2001:db8::1]:1"] {
        let sections = [
            (
                "proxy.listen",
                format!("{{listen: [\"@PROXY@\", \"{address}\"]}}"),
                admin.clone(),
            ),
            (
                "proxy.tls.listen",
                format!("{{listen: [\"@PROXY@\"], tls: {{listen: [\"{address}\"]}}}}"),
                admin.clone(),
            ),
            (
                "admin.listen",
                proxy.to_owned(),
                format!("{{listen: \"{address}\", token: {TOKEN}}}"),
            ),
            (
                "admin.tls.listen",
                proxy.to_owned(),
                format!(
                    "{{listen: \"@ADMIN@\", token: {TOKEN}, tls: {{listen: [\"{address}\"]}}}}"
                ),
            ),
        ];
        for (key, proxy, admin) in sections {
            let mut door = Setup::new().proxy(&proxy).admin(&admin).lay_out();
            door.spawn();
            let status = door.wait_exit().await;
            let log = door.log_text();
            assert_eq!(status.code(), Some(2), "{key} {address}: {log}");
            let expected = format!(": {key}: can't listen on {address}: ");
            let told = log.lines().filter(|line| line.starts_with("doorward: "));
            let told: Vec<_> = told.collect();
            assert_eq!(told.len(), 1, "{log}");
            let file = "doorward: doorward.yaml:";
            assert!(
                told[0].starts_with(file) && told[0].contains(&expected),
                "{log}"
            );
            assert!(!log.contains("panicked"), "{log}");
            assert!(!log.contains(" ready "), "nothing was served: {log}");
        }
    }
}

#[tokio::test]
async fn certificates_that_can_not_be_used_end_the_start_with_two() {
    for section in ["proxy", "admin"] {
        let tls = "tls: {listen: [\"127.0.0.1:0\"], certificate: \"@DIR@/no.pem\", key: \"@DIR@/no.key\"}";
        let setup = match section {
            "proxy" => Setup::new().proxy(&format!("{{listen: [\"@PROXY@\"], {tls}}}")),
            _ => Setup::new().admin(&format!("{{listen: \"@ADMIN@\", {tls}}}")),
        };
        let mut door = setup.lay_out();
        door.spawn();
        assert_eq!(door.wait_exit().await.code(), Some(2), "{section}");
        let log = door.log_text();
        assert!(log.contains("no.pem") && !log.contains("panicked"), "{log}");
    }
}

/// Opens `number` connections that say nothing.
fn idle(authority: &str, number: usize) -> Vec<Blocking> {
    let connect = |_| Blocking::connect(authority).expect("a connection");
    (0..number).map(connect).collect()
}

#[tokio::test]
async fn idle_admin_connections_leave_the_proxy_its_files() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- {{name: api, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let encrypted = Port::reserve();
    let admin = format!(
        "{{listen: \"@ADMIN@\", tls: {{listen: [\"{}\"]}}}}",
        encrypted.authority()
    );
    let mut door = Setup::new().admin(&admin).services(&service).lay_out();
    door.start_with_files(256).await;
    let mut silent = idle(&door.admin(), 400);
    silent.extend(idle(&encrypted.authority(), 400));
    for connection in &mut silent[..200] {
        // Half a request is no more than none; some are closed already.
        let _ = connection.write_all(b"GET /");
    }
    for _ in 0..20 {
        let clients = (0..20).map(|_| door.get("a.test", "/"));
        for answer in futures_util::future::join_all(clients).await {
            answer.expect(200);
        }
    }
    drop(silent);
    eventually("the admin listener", async || {
        let request = crate::support::http::client().get(door.admin_url("/status"));
        let answer = crate::support::http::try_send(request).await.ok()?;
        (answer.status == 200).then_some(())
    })
    .await;
    // And the other way round.
    let silent = idle(&door.proxy(), 400);
    door.admin_get("/status").await.expect(200);
    drop(silent);
    eventually("the proxy", async || {
        let request = crate::support::http::client().get(door.proxy_url("/"));
        let answer = crate::support::http::try_send(request).await.ok()?;
        (answer.status == 200).then_some(())
    })
    .await;
}

/// Connects, sends `bytes` and resets the connection.
async fn reset_after(authority: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(authority).await.expect("a connection");
    stream.write_all(bytes).await.expect("sent");
    stream.set_zero_linger().expect("an option");
}

/// Connects, sends `bytes`, reads the start of the answer and resets the
/// connection.
async fn reset_within(authority: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(authority).await.expect("a connection");
    stream.write_all(bytes).await.expect("sent");
    let mut start = [0; 16];
    stream.read_exact(&mut start).await.expect("an answer");
    stream.set_zero_linger().expect("an option");
}

/// Begins requests of HTTP/2 and leaves in the midst of them.
async fn leave_http2(authority: &str) {
    for reset in [true, false] {
        let stream = TcpStream::connect(authority).await.expect("a connection");
        if reset {
            stream.set_zero_linger().expect("an option");
        }
        let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let driver = tokio::spawn(connection);
        for (method, path) in [
            ("POST", "/slow"),
            ("POST", "/echo"),
            ("GET", "/large"),
            ("GET", "/"),
        ] {
            let request = http::Request::builder().method(method);
            let request = request.uri(format!("http://a.test{path}")).body(());
            let request = request.expect("a request");
            client = client.ready().await.expect("HTTP/2");
            let whole = method == "GET";
            let (answer, mut body) = client.send_request(request, whole).expect("sent");
            if whole {
                answer.await.expect("an answer");
            } else {
                // The stream may have its answer already.
                let _ = body.send_data(Bytes::from_static(b"begun"), false);
            }
            body.send_reset(h2::Reason::CANCEL);
        }
        driver.abort();
    }
}

async fn aborts(door: &Door) -> f64 {
    let text = door.admin_get("/metrics").await.expect(200).body;
    let lines = text
        .lines()
        .filter(|line| line.starts_with("doorward_client_aborts_total{"));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[tokio::test]
async fn clients_that_leave_are_counted_and_write_no_errors() {
    let upstream = Upstream::start(|seen| match seen.target.as_str() {
        "/large" => Reply::Stream {
            length: 64 << 20,
            chunked: false,
        },
        "/slow" => Reply::Hang,
        _ => Reply::Json(200, json!({})),
    })
    .await;
    let services = format!(
        "- {{name: api, url: '{}', routes: [{{paths: [/], strip_path: false}}]}}\n\
         - {{name: echo, protocol: internal, host: echo, routes: [{{paths: [/echo]}}]}}\n\
         - {{name: gone, url: 'http://127.0.0.1:1', retries: 0, routes: [{{paths: [/gone]}}]}}\n",
        upstream.url("")
    );
    let (secure, secure_admin) = (Port::reserve(), Port::reserve());
    let tls = |port: &Port| format!("tls: {{listen: [\"{}\"]}}", port.authority());
    let door = Setup::new()
        .proxy(&format!("{{listen: [\"@PROXY@\"], {}}}", tls(&secure)))
        .admin(&format!("{{listen: \"@ADMIN@\", {}}}", tls(&secure_admin)))
        .services(&services)
        .start()
        .await;
    door.wait_log("the start", |line| line.contains(" ready "))
        .await;
    door.clear_log();
    for authority in [door.proxy(), door.admin()] {
        for bytes in [
            "",
            "GET / HT",
            "GET / HTTP/1.1\r\nHost: a.test\r\n",
            "POST /slow HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nbegun",
            "POST /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nbegun",
            "POST /echo HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbe",
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: many\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: -1\r\n\r\n",
            "GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "CONNECT a.test:1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nno frame of HTTP/2, but long enough for one",
        ] {
            reset_after(&authority, bytes.as_bytes()).await;
            let mut ended = TcpStream::connect(&authority).await.expect("a connection");
            ended.write_all(bytes.as_bytes()).await.expect("sent");
            drop(ended);
        }
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        // Between two requests, and the first one not read.
        reset_within(&authority, (get("/echo") + &get("/echo")).as_bytes()).await;
        leave_http2(&authority).await;
    }
    for _ in 0..5 {
        let large = b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n";
        reset_within(&door.proxy(), large).await;
    }
    for port in [&secure, &secure_admin] {
        reset_after(&port.authority(), b"").await;
        reset_after(&port.authority(), b"\x16\x03\x01\x02\x00\x01").await;
        reset_after(&port.authority(), b"GET / HTTP/1.1\r\n\r\n").await;
        reset_after(&port.authority(), &[0x16; 600]).await;
        for protocol in ["http/1.1", "h2"] {
            let number = port.number();
            let abandoned = tokio::task::spawn_blocking(move || {
                let offer = Offer::new().protocols(&[protocol]);
                let mut connection = offer.connect(number, "a.test").expect("connected");
                let begun = b"POST /slow HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\n1";
                connection.send(begun).expect("sent");
            });
            abandoned.await.expect("no panic");
        }
    }
    eventually("the clients in the metric", async || {
        (aborts(&door).await >= 8.0).then_some(())
    })
    .await;
    // What an upstream does is told as before, and ends the wait for the rest.
    door.get("a.test", "/gone").await.expect(502);
    door.wait_log("the upstream's error", |line| {
        line.contains("ERROR") && line.contains("Fail to proxy")
    })
    .await;
    let log = door.log_text();
    let loud = log
        .lines()
        .filter(|line| line.contains(" WARN ") || line.contains("ERROR"));
    let loud: Vec<_> = loud.filter(|line| !line.contains("/gone")).collect();
    assert_eq!(loud, [] as [&str; 0], "{log}");
}

#[tokio::test]
async fn one_upstream_that_fails_does_not_fill_the_log() {
    let service = "- {name: gone, url: 'http://127.0.0.1:1', retries: 0, routes: [{paths: [/]}]}\n";
    let door = Setup::new().services(service).start().await;
    for _ in 0..300 {
        door.get("a.test", "/").await.expect(502);
    }
    let text = door.admin_get("/metrics").await.expect(200).body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("doorward_log_lines_suppressed_total "));
    let suppressed: f64 = line.and_then(|n| n.parse().ok()).expect("the metric");
    assert!(suppressed > 0.0);
    eventually("the first lines", async || {
        let printed = door.log_text().matches("Fail to proxy").count();
        (printed >= 100).then_some(())
    })
    .await;
}
