//! Connections to upstreams begin with a header of the PROXY protocol, which says
//! whose they are.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::ports::Port;
use crate::support::raw::Connection;
use crate::support::{Door, Setup, Upstream, eventually, http};

const REQUEST: &[u8] = b"GET /p HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// A server that demands a header and answers each request with it, and with the
/// number of its connection.
struct Demanding {
    address: SocketAddr,
    headers: Arc<Mutex<Vec<String>>>,
}

impl Demanding {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let headers = Arc::<Mutex<Vec<String>>>::default();
        let seen = headers.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                tokio::spawn(serve(BufReader::new(stream), number, seen.clone()));
            }
        });
        Self { address, headers }
    }

    fn headers(&self) -> Vec<String> {
        self.headers.lock().expect("not poisoned").clone()
    }
}

/// The header as text: a line, or the bytes of the binary form in digits.
async fn header(stream: &mut BufReader<TcpStream>) -> Option<String> {
    if stream.fill_buf().await.ok()?.starts_with(b"PROXY ") {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        return Some(line.trim_end().to_owned());
    }
    let mut head = [0; 16];
    stream.read_exact(&mut head).await.ok()?;
    assert_eq!(head[..12], *b"\r\n\r\n\0\r\nQUIT\n", "no header");
    let mut rest = vec![0; usize::from(u16::from_be_bytes([head[14], head[15]]))];
    stream.read_exact(&mut rest).await.ok()?;
    let all = head[12..].iter().chain(&rest);
    Some(all.map(|byte| format!("{byte:02x}")).collect())
}

async fn serve(mut stream: BufReader<TcpStream>, number: usize, seen: Arc<Mutex<Vec<String>>>) {
    let Some(header) = header(&mut stream).await else {
        return;
    };
    seen.lock().expect("not poisoned").push(header.clone());
    loop {
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let body = format!("{number} {header}");
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn door_to(address: SocketAddr, version: &str, proxy: &str) -> Door {
    let service = format!(
        "- {{name: web, url: 'http://{address}', proxy_protocol: {version}, routes: [{{paths: [/]}}]}}\n"
    );
    // One worker: its pool is the one that has to keep clients apart.
    let proxy = format!("{{listen: [\"@PROXY@\"], workers: 1{proxy}}}");
    Setup::new().proxy(&proxy).services(&service).start().await
}

/// A client's connection, and its address.
async fn client(door: &Door) -> (Connection, SocketAddr) {
    let stream = TcpStream::connect(door.proxy()).await.expect("connected");
    let own = stream.local_addr().expect("an address");
    (Connection::of(stream), own)
}

async fn ask(connection: &mut Connection, request: &[u8]) -> String {
    connection.send(request).await;
    let answer = connection.response().await;
    assert_eq!(answer.status, 200);
    answer.text()
}

/// The line for a client of `door`.
fn line(door: &Door, client: SocketAddr) -> String {
    let port = door.proxy().rsplit_once(':').expect("a port").1.to_owned();
    format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {port}", client.port())
}

#[tokio::test]
async fn no_client_gets_a_connection_that_names_another_one() {
    let server = Demanding::start().await;
    let door = door_to(server.address, "v1", "").await;
    let (mut first, its) = client(&door).await;
    let (mut second, others) = client(&door).await;
    for _ in 0..2 {
        // Each keeps its own.
        assert_eq!(
            ask(&mut first, REQUEST).await,
            format!("0 {}", line(&door, its))
        );
        let expected = format!("1 {}", line(&door, others));
        assert_eq!(ask(&mut second, REQUEST).await, expected);
    }
    drop(first);
    let (mut third, own) = client(&door).await;
    assert_eq!(
        ask(&mut third, REQUEST).await,
        format!("2 {}", line(&door, own))
    );
}

#[tokio::test]
async fn requests_that_the_engine_serves_name_their_client_too() {
    let server = Demanding::start().await;
    let door = door_to(server.address, "v1", "").await;
    let long = vec![b'x'; 300_000];
    let mut upload = b"POST /p HTTP/1.1\r\nHost: a.test\r\nContent-Length: 300000\r\n\r\n".to_vec();
    upload.extend(long);
    let socket =
        b"GET /p HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let awaiting = b"POST /p HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n";
    for request in [&upload[..], socket, awaiting] {
        for _ in 0..2 {
            let (mut connection, own) = client(&door).await;
            let said = ask(&mut connection, request).await;
            assert!(said.ends_with(&line(&door, own)), "{said}");
        }
    }
    // By HTTP/2 too.
    let builder = http::builder().http2_prior_knowledge();
    let two = builder.build().expect("a client");
    let said = http::send(two.get(door.proxy_url("/p"))).await.expect(200);
    assert!(
        said.body.contains("PROXY TCP4 127.0.0.1 127.0.0.1 "),
        "{}",
        said.body
    );
}

#[tokio::test]
async fn the_binary_header_names_whom_a_trusted_proxy_speaks_for() {
    let server = Demanding::start().await;
    let trusted = ", trusted_ips: [127.0.0.1]";
    let door = door_to(server.address, "v2", trusted).await;
    let (mut connection, _) = client(&door).await;
    let port = door
        .proxy()
        .rsplit_once(':')
        .expect("a port")
        .1
        .parse::<u16>();
    let port = port.expect("a number");
    for (number, name, ip) in [
        (0, "203.0.113.7", "cb007107"),
        (1, "198.51.100.9", "c6336409"),
    ] {
        let request = format!("GET /p HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: {name}\r\n\r\n");
        let expected = format!("{number} 2111000c{ip}7f0000010000{port:04x}");
        assert_eq!(ask(&mut connection, request.as_bytes()).await, expected);
    }
}

#[tokio::test]
async fn a_client_that_makes_up_an_address_is_named_by_its_own() {
    let server = Demanding::start().await;
    let door = door_to(server.address, "v1", "").await;
    let (mut connection, own) = client(&door).await;
    let forged = b"GET /p HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 203.0.113.7\r\n\
        X-Real-IP: 203.0.113.7\r\nForwarded: for=203.0.113.7\r\n\r\n";
    let said = ask(&mut connection, forged).await;
    assert_eq!(said, format!("0 {}", line(&door, own)));
}

#[tokio::test]
async fn health_checks_speak_for_the_gateway_itself() {
    let server = Demanding::start().await;
    let door = Setup::new().start().await;
    let active = json!({
        "http_path": "/health",
        "healthy": {"interval": 0.1, "successes": 1}, "unhealthy": {"interval": 0.1}
    });
    let group = json!({
        "name": "group", "proxy_protocol": "v2", "healthchecks": {"active": active}
    });
    door.admin_post("/upstreams", &group).await.expect(201);
    let target = json!({"target": server.address.to_string()});
    door.admin_post("/upstreams/group/targets", &target)
        .await
        .expect(201);
    eventually("a health check", || {
        let seen = server.headers().contains(&"20000000".to_owned());
        async move { seen.then_some(()) }
    })
    .await;
    let service = json!({"name": "web", "host": "group"});
    door.admin_post("/services", &service).await.expect(201);
    let route = json!({"paths": ["/web"]});
    door.admin_post("/services/web/routes", &route)
        .await
        .expect(201);
    // Services of the upstream need not say it again.
    let answer = door.get("a.test", "/web").await.expect(200);
    assert!(
        answer.body.contains(" 2111000c7f0000017f000001"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn the_header_goes_before_tls_and_another_gateway_reads_it() {
    let upstream = Upstream::echo().await;
    let tls = Port::reserve();
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"]}}, proxy_protocol_from: [127.0.0.1]}}",
        tls.authority()
    );
    let behind = Setup::new().proxy(&proxy).services(&service).start().await;
    for (version, address) in [("v1", "203.0.113.7"), ("v2", "2001:db8::7")] {
        let service = format!(
            "- {{name: web, url: 'https://{}', tls_verify: false, proxy_protocol: {version}, \
             routes: [{{paths: [/]}}]}}\n",
            tls.authority()
        );
        let proxy = "{listen: [\"@PROXY@\"], trusted_ips: [127.0.0.1]}";
        let door = Setup::new().proxy(proxy).services(&service).start().await;
        let answer = door.get_with("/p", &[("x-forwarded-for", address)]).await;
        answer.expect(200);
        assert_eq!(upstream.last().header("x-real-ip"), Some(address));
    }
    drop(behind);
}

struct Haproxy(Child);

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.0.kill().expect("our own process can be killed");
        self.0.wait().expect("our own process can be waited for");
    }
}

const HAPROXY: &str = "
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend web
  bind @WEB@ accept-proxy
  bind unix@@DIR@/web.sock accept-proxy
  http-request return status 200 content-type text/plain lf-string \"%[src]:%[src_port]\"
";

#[tokio::test(flavor = "multi_thread")]
async fn a_real_haproxy_learns_the_client_by_either_version() {
    let web = Port::reserve();
    let address: SocketAddr = web.authority().parse().expect("an address");
    let directory = tempfile::tempdir().expect("a directory");
    let configuration = directory.path().join("haproxy.cfg");
    let own = directory.path().to_str().expect("UTF-8");
    let text = HAPROXY.replace("@WEB@", &web.authority());
    std::fs::write(&configuration, text.replace("@DIR@", own)).expect("written");
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(&configuration).arg("-db");
    let Ok(child) = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn() else {
        return; // not installed
    };
    let _haproxy = Haproxy(child);
    eventually("haproxy listens", || {
        let connected = std::net::TcpStream::connect(address).ok();
        async move { connected }
    })
    .await;
    for version in ["v1", "v2"] {
        let socket = format!("{own}/web.sock");
        let service = format!(
            "- {{name: web, url: 'http://web.test', socket: {socket}, \
             proxy_protocol: {version}, routes: [{{paths: [/]}}]}}\n"
        );
        let doors = [
            door_to(address, version, "").await,
            Setup::new().services(&service).start().await,
        ];
        for door in doors {
            let (mut first, its) = client(&door).await;
            let (mut second, others) = client(&door).await;
            for _ in 0..2 {
                assert_eq!(ask(&mut first, REQUEST).await, its.to_string());
                assert_eq!(ask(&mut second, REQUEST).await, others.to_string());
            }
        }
    }
}

#[tokio::test]
async fn what_can_not_name_clients_is_refused() {
    let door = Setup::new().start().await;
    for (protocol, version) in [("http", "v3"), ("grpc", "v1"), ("grpcs", "v2")] {
        let service = json!({
            "host": "a.test", "protocol": protocol, "proxy_protocol": version
        });
        let refused = door.admin_post("/services", &service).await.expect(400);
        assert!(refused.body.contains("proxy_protocol"), "{}", refused.body);
    }
    let group = json!({"name": "group", "proxy_protocol": "v1"});
    door.admin_post("/upstreams", &group).await.expect(201);
    let shared = json!({"host": "group", "protocol": "grpc"});
    let refused = door.admin_post("/services", &shared).await.expect(400);
    assert!(refused.body.contains("gRPC"), "{}", refused.body);
    // Nobody else's records show the field.
    let plain = json!({"name": "plain", "host": "a.test"});
    let made = door
        .admin_post("/services", &plain)
        .await
        .expect(201)
        .json();
    assert!(made.get("proxy_protocol").is_none(), "{made}");
}
