//! Long request bodies whose origin answers while they come.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::support::{DEADLINE, Door, Setup};

const LENGTH: usize = 8 << 20;

/// A server with small socket buffers that sends every piece of a body back so many
/// times as its path says, and reads no more of it before that is done.
struct Echo {
    port: u16,
    connections: Arc<AtomicUsize>,
    authority_pem: String,
}

impl Echo {
    async fn start(tls: bool) -> Self {
        let (config, authority_pem) = certificate();
        let listener = listener();
        let port = listener.local_addr().expect("bound").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).expect("sends at once");
                let config = Arc::clone(&config);
                std::thread::spawn(move || {
                    if tls {
                        let connection = ServerConnection::new(config).expect("a connection");
                        serve(StreamOwned::new(connection, stream))
                    } else {
                        serve(stream)
                    }
                });
            }
        });
        Self {
            port,
            connections,
            authority_pem,
        }
    }
}

fn listener() -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.set_send_buffer_size(4096).expect("a small buffer");
    let address = "127.0.0.1:0".parse().expect("an address");
    socket.bind(address).expect("a port");
    let listener = socket.listen(16).expect("a listener");
    let listener = listener.into_std().expect("a listener");
    listener.set_nonblocking(false).expect("waits");
    listener
}

fn certificate() -> (Arc<ServerConfig>, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let leaf = leaf.signed_by(&key, &authority).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a configuration");
    (Arc::new(config), authority.pem())
}

/// Serves until the connection ends.
fn serve(mut stream: impl Read + Write) -> Option<()> {
    let (mut held, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let end = loop {
            if let Some(at) = held.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut piece).ok()? {
                0 => return None,
                count => held.extend_from_slice(&piece[..count]),
            }
        };
        let head = String::from_utf8_lossy(&held[..end]).to_ascii_lowercase();
        held.drain(..end);
        let times = head.split(['/', ' ']).nth(2)?.parse::<usize>().ok()?;
        let mut left = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.trim().parse::<usize>().ok())?;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            left * times
        );
        stream.write_all(answer.as_bytes()).ok()?;
        while left > 0 {
            if held.is_empty() {
                match stream.read(&mut piece).ok()? {
                    0 => return None,
                    count => held.extend_from_slice(&piece[..count]),
                }
            }
            let now = held.len().min(left);
            stream.write_all(&held[..now].repeat(times)).ok()?;
            stream.flush().ok()?;
            held.drain(..now);
            left -= now;
        }
    }
}

async fn door_to(echo: &Echo, tls: bool) -> Door {
    let scheme = if tls { "https" } else { "http" };
    let service = format!(
        "- {{name: web, url: '{scheme}://localhost:{}', routes: [{{paths: [/]}}]}}\n",
        echo.port
    );
    let setup = Setup::new().services(&service);
    let mut door = setup.env("SSL_CERT_FILE", "authority.pem").lay_out();
    door.write("authority.pem", &echo.authority_pem);
    door.start().await;
    door
}

fn body() -> Vec<u8> {
    let words = (0..LENGTH as u32 / 4).map(|n| n.wrapping_mul(2_654_435_761));
    words.flat_map(u32::to_be_bytes).collect()
}

/// Sends a body over HTTP/1 while it reads the answer; what comes back is right.
async fn upload(door: &Door, times: usize, body: &[u8]) {
    let stream = TcpStream::connect(door.proxy()).await.expect("connected");
    let (mut reader, mut writer) = stream.into_split();
    let head =
        format!("POST /{times} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LENGTH}\r\n\r\n");
    let send = async {
        writer.write_all(head.as_bytes()).await.expect("sent");
        writer.write_all(body).await.expect("sent");
    };
    let receive = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(reader.read_u8().await.expect("a head"));
        }
        assert!(
            head.starts_with(b"HTTP/1.1 200 "),
            "{}",
            head.escape_ascii()
        );
        let mut answer = vec![0; LENGTH * times];
        reader
            .read_exact(&mut answer)
            .await
            .expect("the whole answer");
        answer
    };
    let both = async { tokio::join!(send, receive) };
    let ((), answer) = timeout(DEADLINE, both).await.expect("the upload goes on");
    if times == 1 {
        assert!(answer == body, "another body came back");
    }
}

async fn passes_while_the_answer_comes(tls: bool) {
    let echo = Echo::start(tls).await;
    let door = door_to(&echo, tls).await;
    let body = body();
    const TIMES: [usize; 6] = [1, 3, 1, 1, 1, 1];
    for times in TIMES {
        upload(&door, times, &body).await;
    }
    // Each worker has its own.
    let connections = echo.connections.load(Ordering::SeqCst);
    assert!(connections < TIMES.len(), "{connections} connections");
}

#[tokio::test]
async fn an_upload_goes_on_while_its_origin_waits_for_its_answer_to_be_taken() {
    passes_while_the_answer_comes(false).await;
}

#[tokio::test]
async fn an_upload_goes_on_over_tls_while_its_origin_waits_for_its_answer_to_be_taken() {
    passes_while_the_answer_comes(true).await;
}

#[tokio::test]
async fn an_upload_over_http2_goes_on_while_its_origin_waits_for_its_answer_to_be_taken() {
    let echo = Echo::start(false).await;
    let door = door_to(&echo, false).await;
    let body = Bytes::from(body());
    let stream = TcpStream::connect(door.proxy()).await.expect("connected");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut client = client.ready().await.expect("ready");
    let request = http::Request::post(door.proxy_url("/1"))
        .header("content-length", LENGTH)
        .body(())
        .expect("a request");
    let (response, mut stream) = client.send_request(request, false).expect("sent");
    let send = async {
        let mut rest = body.clone();
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
            let room = room.expect("a stream").expect("no reset").min(rest.len());
            let piece = rest.split_to(room);
            stream.send_data(piece, rest.is_empty()).expect("no reset");
        }
    };
    let receive = async {
        let response = response.await.expect("an answer");
        assert_eq!(response.status(), 200);
        let (mut answer, mut incoming) = (Vec::new(), response.into_body());
        while let Some(piece) = incoming.data().await {
            let piece = piece.expect("the rest of the answer");
            let _ = incoming.flow_control().release_capacity(piece.len());
            answer.extend_from_slice(&piece);
        }
        answer
    };
    let both = async { tokio::join!(send, receive) };
    let ((), answer) = timeout(DEADLINE, both).await.expect("the upload goes on");
    assert!(answer == body, "another body came back");
}

#[tokio::test]
async fn an_origin_that_takes_nothing_of_an_upload_is_to_blame_rather_than_its_client() {
    let deaf = listener();
    let service = format!(
        "- {{name: web, url: 'http://{}', read_timeout: 3000, retries: 0, routes: [{{paths: [/]}}]}}\n",
        deaf.local_addr().expect("bound")
    );
    let door = Setup::new().services(&service).start().await;
    let mut stream = TcpStream::connect(door.proxy()).await.expect("connected");
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LENGTH}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let (mut reader, mut writer) = stream.into_split();
    // It is held back, so the answer comes before the end of the body.
    let sending = tokio::spawn(async move { writer.write_all(&body()).await });
    let mut status = [0; 12];
    let answer = timeout(DEADLINE, reader.read_exact(&mut status)).await;
    answer.expect("an answer in time").expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 504");
    sending.abort();
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    assert!(metrics.contains("doorward_upstream_failures_total{kind=\"read_timeout\"} 1"));
}
