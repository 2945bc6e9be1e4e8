//! Certificates by ACME, from a real authority: pebble, which asks the running program
//! for answers to its challenges.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::stores::postgres::Cluster;
use crate::support::door::IDENTITY;
use crate::support::ports::Port;
use crate::support::process::Process;
use crate::support::{Door, Setup, eventually, http};

const NEEDED: &str = "target/tools/bin";

fn tool(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(NEEDED)
        .join(name)
}

fn run(name: &str, arguments: &[&str], env: &[(&str, &str)]) -> Process {
    let child = Command::new(tool(name))
        .args(arguments)
        .envs(env.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Process(child.expect("`make test` installs it"))
}

/// The authority, the DNS that it asks, and a door that orders from it.
struct Scene {
    door: Door,
    tls: Port,
    directory: Port,
    management: Port,
    records: Port,
    authority_pem: String,
    _running: [Process; 2],
}

/// Where the authority speaks, and with which certificate.
fn own_certificate(directory: &Path) -> String {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let issuer = issuer.expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).expect(name);
    write("authority-cert.pem", &leaf.pem());
    write("authority-key.pem", &key.serialize_pem());
    issuer.pem()
}

/// A door that orders from the authority at `directory`, and the root of that one's own
/// certificate; a new one, unless `authority_pem` says which.
fn laid_out(
    store: &str,
    tls: &Port,
    directory: &Port,
    acme: &str,
    authority_pem: Option<&str>,
) -> (Door, String) {
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], https_redirect: true, tls: {{listen: [\"{}\"]}}}}",
        tls.authority()
    );
    let identity = format!("\n  base_url: http://door.test{IDENTITY}");
    let service = "- {name: mirror, protocol: internal, host: echo, routes: [{hosts: [www.a.test], protocols: [https]}]}\n";
    let setup = Setup::new().proxy(&proxy).identity(&identity);
    let door = setup.services(service).store(store).lay_out();
    let authority_pem = authority_pem.map(str::to_owned);
    let authority_pem = authority_pem.unwrap_or_else(|| own_certificate(door.dir()));
    door.write("authority.pem", &authority_pem);
    let section = format!(
        "acme:\n  directory: https://localhost:{}/dir\n  ca: authority.pem\n  \
         terms_agreed: true\n{acme}\nstore:",
        directory.number()
    );
    door.edit("doorward.yaml", "store:", &section);
    (door, authority_pem)
}

impl Scene {
    /// `acme` is the rest of the section, `more` is said of the authority.
    async fn new(acme: &str, more: &str) -> Self {
        Self::on("sqlite:@DIR@/data/doorward.db", acme, more).await
    }

    /// As [`Scene::new`], with this store.
    async fn on(store: &str, acme: &str, more: &str) -> Self {
        let (tls, directory, management) = (Port::reserve(), Port::reserve(), Port::reserve());
        let (dns, records) = (Port::reserve(), Port::reserve());
        let (door, authority_pem) = laid_out(store, &tls, &directory, acme, None);
        let config = format!(
            r#"{{"pebble": {{"listenAddress": "{}", "managementListenAddress": "{}",
                "certificate": "@DIR@/authority-cert.pem", "privateKey": "@DIR@/authority-key.pem",
                "httpPort": @PROXY_PORT@, "tlsPort": {}, "keyAlgorithm": "ecdsa",
                "domainBlocklist": ["blocked.test"], "retryAfter": {{"authz": 1, "order": 1}},
                "profiles": {{"brief": {{"description": "b", "validityPeriod": 30}},
                "default": {{"description": "d", "validityPeriod": 7776000}}}}{more}}}}}"#,
            directory.authority(),
            management.authority(),
            tls.number(),
        );
        door.write("pebble.json", &config);
        let env = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "10")];
        let pebble = run(
            "pebble",
            &[
                "-strict",
                "-config",
                &door.fill("@DIR@/pebble.json"),
                "-dnsserver",
                &dns.authority(),
            ],
            &env,
        );
        let servers = run(
            "pebble-challtestsrv",
            &[
                "-defaultIPv6",
                "",
                "-dnsserver",
                &dns.authority(),
                "-management",
                &records.authority(),
                "-doh",
                "",
                "-http01",
                "",
                "-https01",
                "",
                "-tlsalpn01",
                "",
            ],
            &[],
        );
        Self {
            door,
            tls,
            directory,
            management,
            records,
            authority_pem,
            _running: [pebble, servers],
        }
    }

    async fn started(mut self) -> Self {
        self.door.start().await;
        self
    }

    async fn status(&self) -> Value {
        self.door.admin_get("/acme").await.json()
    }

    /// The first certificate's status, once it is in this state.
    async fn until(&self, state: &str) -> Value {
        eventually(&format!("a certificate that is {state}"), || async {
            let status = self.status().await;
            let first = status["certificates"][0].clone();
            (first["state"] == state).then_some(first)
        })
        .await
    }

    /// The root that vouches for what the authority issues.
    async fn root(&self) -> CertificateDer<'static> {
        let trusted = reqwest::Certificate::from_pem(self.authority_pem.as_bytes()).expect("one");
        http::client();
        let client = http::builder()
            .tls_certs_only([trusted])
            .build()
            .expect("a client");
        let url = format!("https://localhost:{}/roots/0", self.management.number());
        let answer = client.get(url).send().await.expect("an answer");
        let pem = answer.text().await.expect("a text");
        let mut chain = doorward_core::x509::chain(pem.as_bytes()).expect("a root");
        chain.remove(0)
    }

    /// Shakes hands as a client of `name` that trusts this root.
    fn trusts(&self, root: &CertificateDer<'static>, name: &str) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        let socket = std::net::TcpStream::connect(self.tls.authority()).expect("connected");
        let mut stream = StreamOwned::new(connection, socket);
        stream
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .map_err(|error| error.to_string())
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs"]
async fn a_certificate_by_http_is_issued_served_and_kept() {
    let names = "  names: [www.a.test, [b.test, c.test]]";
    let mut scene = Scene::new(names, "").await.started().await;
    let online = scene
        .door
        .run(&["check", "--online", "-c", "doorward.yaml"]);
    let told = String::from_utf8_lossy(&online.stdout).into_owned();
    assert!(
        told.contains("acme.directory: answers, and suggests when to renew"),
        "{told}"
    );
    scene.until("valid").await;
    eventually("both certificates", || async {
        let status = scene.status().await;
        (status["certificates"][1]["state"] == "valid").then_some(())
    })
    .await;
    let root = scene.root().await;
    for name in ["www.a.test", "b.test", "c.test"] {
        scene.trusts(&root, name).expect(name);
    }
    scene
        .trusts(&root, "other.test")
        .expect_err("no certificate of ours");
    // Another start finds it in the store, also where the authority is gone.
    scene.door.kill();
    scene.door.start().await;
    scene.trusts(&root, "www.a.test").expect("it was kept");
    let metrics = http::client()
        .get(scene.door.admin_url("/metrics"))
        .send()
        .await;
    let metrics = metrics.expect("an answer").text().await.expect("a text");
    assert!(
        metrics.contains("doorward_certificate_expiry_seconds{certificate=\"www.a.test\"}"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs"]
async fn a_certificate_by_tls_is_issued() {
    let acme = "  challenge: tls-alpn-01\n  names: [www.a.test]";
    let scene = Scene::new(acme, "").await.started().await;
    scene.until("valid").await;
    let root = scene.root().await;
    scene.trusts(&root, "www.a.test").expect("it serves");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs"]
async fn a_wildcard_is_issued_by_a_record_of_the_hook() {
    let acme = "  challenge: dns-01\n  names: [['*.a.test', a.test]]\n  \
                dns_hook: {command: [\"@DIR@/hook\"], wait_seconds: 0}";
    let mut scene = Scene::new(acme, "").await;
    let hook = format!(
        "#!/bin/sh\necho $1 >> '@DIR@/hook.log'\n\
         if [ $1 = present ]; then curl -sf -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" \
         http://{}/set-txt; fi\n",
        scene.records.authority()
    );
    scene.door.write("hook", &hook);
    let program = scene.door.path("hook");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
    scene.door.start().await;
    scene.until("valid").await;
    let root = scene.root().await;
    for name in ["a.test", "any.a.test"] {
        scene.trusts(&root, name).expect(name);
    }
    scene
        .trusts(&root, "too.deep.a.test")
        .expect_err("one label");
    let log = std::fs::read_to_string(scene.door.path("hook.log")).expect("a log");
    assert_eq!(log, "present\npresent\ncleanup\ncleanup\n");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs"]
async fn a_host_of_a_route_gets_its_certificate_when_a_client_asks() {
    let scene = Scene::new("  on_demand: true", "").await.started().await;
    let root = scene.root().await;
    let scene = Arc::new(scene);
    let asking = (scene.clone(), root.clone());
    let shaken = tokio::task::spawn_blocking(move || asking.0.trusts(&asking.1, "www.a.test"));
    shaken.await.expect("asked").expect("the handshake waits");
    scene
        .trusts(&root, "stranger.test")
        .expect_err("no route has it");
    let status = scene.status().await;
    let all = status["certificates"].as_array().expect("a list");
    assert_eq!(all.len(), 1, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs, and PostgreSQL"]
async fn a_node_answers_for_the_order_of_another_and_has_its_certificate() {
    let database = Cluster::shared().database("acme_nodes");
    // The authority asks this one, which orders nothing by itself.
    let scene = Scene::on(&database, "  on_demand: true", "");
    let scene = scene.await.started().await;
    let tls = Port::reserve();
    let names = "  names: [www.a.test]";
    let pem = Some(scene.authority_pem.as_str());
    let (mut other, _) = laid_out(&database, &tls, &scene.directory, names, pem);
    other.start().await;
    scene.until("valid").await;
    let root = scene.root().await;
    scene.trusts(&root, "www.a.test").expect("it serves");
    let log = other.log_text();
    assert!(log.contains("certificate issued"), "{log}");
    assert!(!scene.door.log_text().contains("certificate issued"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs"]
async fn a_refused_name_is_told_and_harms_no_other() {
    let names = "  names: [blocked.test, www.a.test]";
    let scene = Scene::new(names, "").await.started().await;
    let refused = scene.until("failing").await;
    assert_eq!(
        refused["problem"]["type"], "rejectedIdentifier",
        "{refused}"
    );
    eventually("the other certificate", || async {
        let status = scene.status().await;
        (status["certificates"][1]["state"] == "valid").then_some(())
    })
    .await;
    let log = scene.door.log_text();
    assert!(log.contains("order: rejectedIdentifier: "), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs"]
async fn a_brief_certificate_is_renewed_while_it_serves() {
    let acme = "  profile: brief\n  names: [www.a.test]";
    let scene = Scene::new(acme, "").await.started().await;
    let first = scene.until("valid").await;
    eventually("a later certificate", || async {
        let status = scene.status().await;
        let now = status["certificates"][0]["not_after"].as_i64()?;
        (now > first["not_after"].as_i64()?).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pebble, which `make test` installs"]
async fn an_external_account_is_bound_and_missed() {
    let authority = ", \"externalAccountBindingRequired\": true, \
                     \"externalAccountMACKeys\": {\"kid-1\": \"zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\"}";
    let names = "  names: [www.a.test]";
    let scene = Scene::new(names, authority).await.started().await;
    let refused = scene.until("failing").await;
    assert_eq!(
        refused["problem"]["type"], "externalAccountRequired",
        "{refused}"
    );
    let online = scene
        .door
        .run(&["check", "--online", "-c", "doorward.yaml"]);
    let told = String::from_utf8_lossy(&online.stderr).into_owned();
    assert!(
        told.contains("acme.directory: the authority takes nobody without eab"),
        "{told}"
    );
    drop(scene);
    let bound = format!(
        "{names}\n  eab: {{kid: kid-1, hmac_key: zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W}}"
    );
    let scene = Scene::new(&bound, authority).await.started().await;
    scene.until("valid").await;
}

#[test]
fn a_wrong_section_is_told_by_file_line_and_key() {
    let door = Setup::new().lay_out();
    door.edit(
        "doorward.yaml",
        "store:",
        "acme:\n  names: [\"*.a.test\"]\nstore:",
    );
    let output = door.run(&["check", "-c", "doorward.yaml"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    for finding in [
        "doorward.yaml:3: acme.terms_agreed: must be true",
        "doorward.yaml:4: acme.names[0]: '*.a.test' needs challenge: dns-01",
        "doorward.yaml:3: acme: has no effect without proxy.tls",
    ] {
        assert!(told.contains(finding), "{finding}\n{told}");
    }
}
