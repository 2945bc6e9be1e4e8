//! TLS on both sides: upstreams that are verified, with SNI, and clients.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::ports::Port;
use crate::support::raw::Connection;
use crate::support::{Door, Setup, http};

/// A TLS server whose certificate for `localhost` a private authority signed.
struct TlsUpstream {
    port: u16,
    authority_pem: String,
    server_names: Arc<Mutex<Vec<String>>>,
}

impl TlsUpstream {
    fn start() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
            .expect("an authority");
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec!["localhost".to_owned()])
            .expect("parameters")
            .signed_by(&key, &authority)
            .expect("a certificate");
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .expect("a configuration");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let server_names = Arc::default();
        let names = Arc::clone(&server_names);
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
                let names = Arc::clone(&names);
                std::thread::spawn(move || serve(StreamOwned::new(connection, stream), &names));
            }
        });
        Self {
            port,
            authority_pem: authority.pem(),
            server_names,
        }
    }
}

fn serve(stream: StreamOwned<ServerConnection, std::net::TcpStream>, names: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        line.clear();
    }
    if line != "\r\n" {
        return;
    }
    let stream = reader.get_mut();
    let name = stream.conn.server_name().unwrap_or_default().to_owned();
    names.lock().expect("not poisoned").push(name);
    let _ = stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret");
    let _ = stream.flush();
}

async fn door_to(host: &str, upstream: &TlsUpstream, trusted: bool, fields: &str) -> Door {
    let service = format!(
        "- {{name: web, url: 'https://{host}:{}', retries: 0, routes: [{{paths: [/]}}]{fields}}}\n",
        upstream.port
    );
    let mut setup = Setup::new().services(&service);
    if trusted {
        setup = setup.env("SSL_CERT_FILE", "authority.pem");
    }
    let mut door = setup.lay_out();
    door.write("authority.pem", &upstream.authority_pem);
    door.start().await;
    door
}

#[tokio::test]
async fn a_trusted_upstream_is_reached_and_told_the_server_name() {
    let upstream = TlsUpstream::start();
    let door = door_to("localhost", &upstream, true, "").await;
    assert_eq!(door.get("a.test", "/").await.expect(200).body, "secret");
    assert_eq!(
        *upstream.server_names.lock().expect("not poisoned"),
        ["localhost"]
    );
}

#[tokio::test]
async fn an_upstream_with_an_unknown_authority_is_not_spoken_to() {
    let upstream = TlsUpstream::start();
    let door = door_to("localhost", &upstream, false, "").await;
    door.get("a.test", "/").await.expect(502);
    assert!(
        upstream
            .server_names
            .lock()
            .expect("not poisoned")
            .is_empty()
    );
}

#[tokio::test]
async fn a_machine_without_authorities_serves_what_needs_none_and_says_so() {
    let upstream = TlsUpstream::start();
    let service = format!(
        "- {{name: web, url: 'https://localhost:{}', retries: 0, routes: [{{paths: [/]}}]}}\n\
         - {{name: mirror, protocol: internal, host: echo, routes: [{{paths: [/mirror]}}]}}\n",
        upstream.port
    );
    let setup = Setup::new().services(&service);
    let setup = setup.env("SSL_CERT_FILE", "nowhere.pem");
    let mut door = setup.env("SSL_CERT_DIR", "nowhere").lay_out();
    door.start().await;
    door.get("a.test", "/mirror").await.expect(200);
    // A short body, and one that goes by connections of its own.
    door.get("a.test", "/").await.expect(502);
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n";
    let long = "x".repeat(300_000);
    let long = format!("{head}Content-Length: {}\r\n\r\n{long}", long.len());
    let mut connection = Connection::open(&door.proxy()).await;
    connection.send(long.as_bytes()).await;
    assert_eq!(connection.response().await.status, 502);
    let status = door.admin_get("/status").await.json();
    let warnings = status["configuration"]["warnings"].to_string();
    assert!(warnings.contains("proxy.upstream_ca"), "{warnings}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let upstream = TlsUpstream::start();
    // The address is right, the certificate names only `localhost`.
    let door = door_to("127.0.0.1", &upstream, true, "").await;
    door.get("a.test", "/").await.expect(502);
    assert!(
        upstream
            .server_names
            .lock()
            .expect("not poisoned")
            .is_empty()
    );
}

#[tokio::test]
async fn verification_can_be_switched_off_for_one_service() {
    let upstream = TlsUpstream::start();
    let door = door_to("localhost", &upstream, false, ", tls_verify: false").await;
    door.get("a.test", "/").await.expect(200);
}

/// A door with a TLS listener for `localhost` whose certificate is `cert.pem`.
async fn tls_door(port: &Port) -> (Door, String) {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .expect("parameters")
        .self_signed(&key)
        .expect("a certificate");
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"], certificate: \"@DIR@/cert.pem\", \
         key: \"@DIR@/key.pem\"}}}}",
        port.authority()
    );
    let service = "- {name: mirror, protocol: internal, host: echo, routes: [{hosts: [localhost], protocols: [https]}]}\n";
    let mut door = Setup::new().proxy(&proxy).services(service).lay_out();
    door.write("cert.pem", &certificate.pem());
    door.write("key.pem", &key.serialize_pem());
    door.start().await;
    (door, certificate.pem())
}

#[tokio::test]
async fn clients_speak_http1_and_http2_over_tls() {
    let port = Port::reserve();
    let (_door, pem) = tls_door(&port).await;
    http::client();
    let root = reqwest::Certificate::from_pem(pem.as_bytes()).expect("a certificate");
    let url = format!("https://localhost:{}/x", port.number());
    for (version, one) in [
        (reqwest::Version::HTTP_11, true),
        (reqwest::Version::HTTP_2, false),
    ] {
        let mut client = http::builder().tls_certs_only([root.clone()]);
        if one {
            client = client.http1_only();
        }
        let client = client.build().expect("a client");
        let answer = client.get(&url).send().await.expect("an answer");
        assert_eq!(answer.version(), version);
        let seen: serde_json::Value = answer.json().await.expect("JSON");
        assert_eq!(seen["headers"]["x-forwarded-proto"], "https", "{seen}");
        assert_eq!(
            seen["headers"]["x-forwarded-port"],
            port.number().to_string()
        );
    }
}

#[tokio::test]
async fn a_route_for_https_is_not_served_in_the_clear() {
    let port = Port::reserve();
    let (door, _) = tls_door(&port).await;
    door.get("localhost", "/x").await.expect(426);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_stops_the_start() {
    let port = Port::reserve();
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"], certificate: nowhere.pem, key: nowhere.pem}}}}",
        port.authority()
    );
    let mut door = Setup::new().proxy(&proxy).lay_out();
    door.spawn();
    assert_eq!(door.wait_exit().await.code(), Some(2));
    let log = door.log_text();
    assert!(
        log.contains("nowhere.pem") && !log.contains("panicked"),
        "{log}"
    );
    let check = door.run(&["check", "-c", "doorward.yaml"]);
    assert_eq!(check.status.code(), Some(1));
}
