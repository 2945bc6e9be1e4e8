//! Upstreams that want to know who is asking: certificates of a service.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, Issuer, KeyPair};
use reqwest::Method;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use crate::support::{Door, Setup, eventually};

/// An authority, and what it signs.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Self { issuer }
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        (params.signed_by(&key, issuer).expect("a certificate"), key)
    }
}

/// A server that answers with the serial number of nobody but whom `ours` has
/// signed; returns its port.
fn strict(ours: &Authority) -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ours.issuer.der().clone()).expect("an authority");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .expect("a verifier");
    let (leaf, key) = ours.sign("localhost");
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a configuration");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            std::thread::spawn(move || serve(StreamOwned::new(connection, stream)));
        }
    });
    port
}

/// Keeps the connection for further requests.
fn serve(stream: StreamOwned<ServerConnection, std::net::TcpStream>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
            line.clear();
        }
        if line != "\r\n" {
            return;
        }
        let stream = reader.get_mut();
        let sent = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret");
        if sent.and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

async fn made(door: &Door, path: &str, body: serde_json::Value) -> String {
    let answer = door.admin_post(path, &body).await.expect(201);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// A service at `https://localhost` for `host`, with further fields.
async fn serve_as(door: &Door, host: &str, port: u16, fields: serde_json::Value) {
    let mut service = json!({"name": host, "protocol": "https", "host": "localhost",
        "port": port, "retries": 0});
    for (name, value) in fields.as_object().expect("fields") {
        service[name] = value.clone();
    }
    door.admin_post("/services", &service).await.expect(201);
    let route = json!({"hosts": [host]});
    door.admin_post(&format!("/services/{host}/routes"), &route)
        .await
        .expect(201);
}

#[tokio::test]
async fn certificates_are_shown_where_a_service_has_them_and_connections_are_not_shared() {
    let ours = Authority::new();
    let port = strict(&ours);
    let door = Setup::new().start().await;
    let (certificate, key) = ours.sign("door");
    let pair = json!({"cert": certificate.pem(), "key": key.serialize_pem()});
    let certificate = made(&door, "/certificates", pair).await;
    let authority = made(
        &door,
        "/ca_certificates",
        json!({"cert": ours.issuer.pem()}),
    )
    .await;
    let trusting = json!({"ca_certificates": [authority]});
    let known = json!({"ca_certificates": [authority], "client_certificate": {"id": certificate}});
    serve_as(&door, "known.test", port, known).await;
    serve_as(&door, "stranger.test", port, trusting).await;
    serve_as(
        &door,
        "wary.test",
        port,
        json!({"client_certificate": {"id": certificate}}),
    )
    .await;
    assert_eq!(door.get("known.test", "/").await.expect(200).body, "secret");
    // The connection of the first is kept, but is not theirs.
    door.get("stranger.test", "/").await.expect(502);
    door.get("wary.test", "/").await.expect(502);
    assert_eq!(door.get("known.test", "/").await.expect(200).body, "secret");
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_at_once() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let port = strict(&ours);
    let door = Setup::new().start().await;
    let (certificate, key) = ours.sign("door");
    let pair = json!({"cert": certificate.pem(), "key": key.serialize_pem()});
    let certificate = made(&door, "/certificates", pair).await;
    let authority = made(
        &door,
        "/ca_certificates",
        json!({"cert": ours.issuer.pem()}),
    )
    .await;
    let fields = json!({"ca_certificates": [authority], "client_certificate": {"id": certificate}});
    serve_as(&door, "known.test", port, fields).await;
    door.get("known.test", "/").await.expect(200);
    let (other, key) = theirs.sign("door");
    let pair = json!({"cert": other.pem(), "key": key.serialize_pem()});
    let path = format!("/certificates/{certificate}");
    door.admin_json(reqwest::Method::PATCH, &path, &pair)
        .await
        .expect(200);
    door.get("known.test", "/").await.expect(502);
}

#[tokio::test]
async fn a_stranger_cannot_take_targets_out_with_a_host_that_has_no_certificate() {
    let ours = Authority::new();
    let port = strict(&ours);
    let door = Setup::new().start().await;
    let (certificate, key) = ours.sign("door");
    let pair = json!({"cert": certificate.pem(), "key": key.serialize_pem()});
    let certificate = made(&door, "/certificates", pair).await;
    let authority = json!({"cert": ours.issuer.pem()});
    let authority = made(&door, "/ca_certificates", authority).await;
    let passive = json!({"unhealthy": {"tcp_failures": 1, "http_failures": 1, "timeouts": 1}});
    let pool = json!({"name": "pool", "healthchecks": {"passive": passive}});
    door.admin_post("/upstreams", &pool).await.expect(201);
    let target = json!({"target": format!("localhost:{port}")});
    door.admin_post("/upstreams/pool/targets", &target)
        .await
        .expect(201);
    let service = json!({"name": "pooled", "protocol": "https", "host": "pool", "port": 443,
        "ca_certificates": [authority], "client_certificate": {"id": certificate}});
    door.admin_post("/services", &service).await.expect(201);
    let route = json!({"paths": ["/pool"], "preserve_host": true});
    door.admin_post("/services/pooled/routes", &route)
        .await
        .expect(201);
    door.get("localhost", "/pool").await.expect(200);
    for _ in 0..3 {
        door.get("evil.test", "/pool").await.expect(502);
    }
    let answer = door.get("localhost", "/pool").await.expect(200);
    assert_eq!(answer.body, "secret");
}

/// Waits until the only target of `upstream` has this health.
async fn becomes(door: &Door, upstream: &str, wanted: &str) {
    let path = format!("/upstreams/{upstream}/health");
    eventually(&format!("{upstream} to be {wanted}"), || async {
        let about = door.admin_get(&path).await.expect(200).json();
        (about["data"][0]["health"] == wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn probes_show_the_upstreams_certificate_and_trust_the_proxys_authorities() {
    let ours = Authority::new();
    let port = strict(&ours);
    let section = r#"{listen: ["@PROXY@"], upstream_ca: "@DIR@/ca.pem"}"#;
    let mut door = Setup::new().proxy(section).lay_out();
    door.write("ca.pem", &ours.issuer.pem());
    door.start().await;
    let (certificate, key) = ours.sign("door");
    let pair = json!({"cert": certificate.pem(), "key": key.serialize_pem()});
    let certificate = made(&door, "/certificates", pair).await;
    let active = json!({"type": "https", "https_sni": "localhost",
        "healthy": {"interval": 0.1, "successes": 1},
        "unhealthy": {"interval": 0.1, "tcp_failures": 1}});
    let known = json!({"name": "known", "client_certificate": {"id": certificate},
        "healthchecks": {"active": active}});
    let stranger = json!({"name": "stranger", "healthchecks": {"active": active}});
    for upstream in [known, stranger] {
        door.admin_post("/upstreams", &upstream).await.expect(201);
        let path = format!(
            "/upstreams/{}/targets",
            upstream["name"].as_str().expect("a name")
        );
        let target = json!({"target": format!("127.0.0.1:{port}")});
        door.admin_post(&path, &target).await.expect(201);
    }
    becomes(&door, "stranger", "UNHEALTHY").await;
    let path = format!("/upstreams/known/targets/127.0.0.1:{port}/unhealthy");
    door.admin_json(Method::PUT, &path, &json!({}))
        .await
        .expect(204);
    becomes(&door, "known", "HEALTHY").await;
    // A certificate that comes later is shown without further ado.
    let shown = json!({"client_certificate": {"id": certificate}});
    door.admin_json(Method::PATCH, "/upstreams/stranger", &shown)
        .await
        .expect(200);
    becomes(&door, "stranger", "HEALTHY").await;
}
