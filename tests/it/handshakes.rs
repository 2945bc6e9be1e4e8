//! TLS listeners: which certificate clients get, who gets in, and what changes
//! without a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use reqwest::Method;
use rustls::ProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::json;

use crate::hostile::counted;
use crate::support::ports::Port;
use crate::support::tls::{Authority, Offer, Pair};
use crate::support::{Door, Setup, eventually, raw};

const MIRROR: &str = "- {name: mirror, protocol: internal, host: echo, routes: [{paths: [/]}]}\n";

/// A door whose TLS listener has these settings and `default` as certificate.
async fn door(port: &Port, settings: &str, default: &Pair, files: &[(&str, &str)]) -> Door {
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], workers: 2, tls: {{listen: [\"{}\"], certificate: \
         \"@DIR@/cert.pem\", key: \"@DIR@/key.pem\"{settings}}}}}",
        port.authority()
    );
    let mut door = Setup::new().proxy(&proxy).services(MIRROR).lay_out();
    door.write("cert.pem", &default.cert);
    door.write("key.pem", &default.key);
    for (name, text) in files {
        door.write(name, text);
    }
    door.start().await;
    door
}

async fn add(door: &Door, pair: &Pair, names: &[&str]) -> String {
    let made = door.admin_post("/certificates", &pair.json(names)).await;
    let made = made.expect(201).json();
    made["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn the_certificate_is_chosen_by_server_name() {
    let port = Port::reserve();
    let (default, exact, wild, last) = (
        Pair::new("default.test"),
        Pair::new("a.test"),
        Pair::new("*.a.test"),
        Pair::new("www.b.test"),
    );
    let door = door(&port, "", &default, &[]).await;
    add(&door, &exact, &["a.test", "www.a.test"]).await;
    add(&door, &wild, &["*.a.test"]).await;
    add(&door, &last, &["www.b.*"]).await;
    let offer = Offer::new();
    for (name, pair) in [
        ("a.test", &exact),
        ("www.a.test", &exact),
        ("WWW.A.test", &exact),
        ("x.a.test", &wild),
        ("y.x.a.test", &default),
        ("www.b.example", &last),
        ("b.test", &default),
        // Addresses are not sent as names.
        ("127.0.0.1", &default),
    ] {
        let shown = offer
            .connect(port.number(), name)
            .expect("connected")
            .shown();
        assert!(shown == pair.der, "{name}");
    }
}

#[tokio::test]
async fn both_versions_and_both_protocols_are_spoken() {
    let port = Port::reserve();
    let _door = door(&port, "", &Pair::new("a.test"), &[]).await;
    for (version, expected) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let offer = Offer::versions(&[version]);
        let mut connection = offer.connect(port.number(), "a.test").expect("connected");
        assert_eq!(connection.version(), expected);
        let answer = connection.get("a.test", "").expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let offer = offer.protocols(&["h2", "http/1.1"]);
        let connection = offer.connect(port.number(), "a.test").expect("connected");
        assert_eq!(connection.protocol(), "h2");
    }
}

#[tokio::test]
async fn a_least_version_is_kept() {
    let port = Port::reserve();
    let _door = door(&port, ", min_version: TLSv1.3", &Pair::new("a.test"), &[]).await;
    let old = Offer::versions(&[&TLS12]).connect(port.number(), "a.test");
    assert!(old.is_err());
    let new = Offer::new().connect(port.number(), "a.test");
    assert_eq!(new.expect("connected").version(), ProtocolVersion::TLSv1_3);
}

/// What a client may offer of TLS 1.2, by the name of the only suite.
fn offer_of(name: &str) -> Offer {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let is_it = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite()) == name;
    provider.cipher_suites.retain(is_it);
    assert_eq!(provider.cipher_suites.len(), 1, "{name}");
    Offer::with(provider, &[&TLS12], None)
}

const OLD_GCM: [&str; 2] = [
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
];
const OLD_CHACHA: &str = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

#[tokio::test]
async fn tls_12_is_spoken_with_aes_gcm_alone() {
    let port = Port::reserve();
    let _door = door(&port, "", &Pair::rsa("a.test"), &[]).await;
    for name in OLD_GCM {
        let connected = offer_of(name).connect(port.number(), "a.test");
        assert!(connected.is_ok(), "{name}");
    }
    let refused = offer_of(OLD_CHACHA).connect(port.number(), "a.test");
    assert!(refused.is_err());
}

#[tokio::test]
async fn cipher_suites_are_the_operators_choice() {
    let port = Port::reserve();
    let settings = format!(", cipher_suites: [TLS_AES_128_GCM_SHA256, {OLD_CHACHA}]");
    let door = door(&port, &settings, &Pair::rsa("a.test"), &[]).await;
    let connected = offer_of(OLD_CHACHA).connect(port.number(), "a.test");
    assert!(connected.is_ok());
    for name in OLD_GCM {
        let refused = offer_of(name).connect(port.number(), "a.test");
        assert!(refused.is_err(), "{name}");
    }
    // The file is refused with a client that rules it out, by name and place.
    let fapi = "identity:\n  realms:\n    /:\n      clients:\n        - {client_id: bank, \
                profile: fapi2, token_endpoint_auth_method: private_key_jwt, \
                jwks_uri: \"https://bank.example/keys\", redirect_uris: [\"https://bank.example/cb\"], \
                scope: openid}\n";
    let text = std::fs::read_to_string(door.path("doorward.yaml")).expect("the file");
    let lines = text.lines().filter(|line| {
        ["proxy:", "admin:", "store:"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    let lines: Vec<_> = lines.collect();
    door.write("fapi.yaml", &format!("{}\n{fapi}", lines.join("\n")));
    let checked = door.run(&["check", "-c", "fapi.yaml"]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success());
    assert!(said.contains("'bank' with profile fapi2"), "{said}");
    assert!(said.contains("cipher_suites"), "{said}");
}

#[tokio::test]
async fn old_clients_get_the_rsa_certificate_and_others_the_cheaper_one() {
    let port = Port::reserve();
    let door = door(&port, "", &Pair::new("default.test"), &[]).await;
    let (rsa, ecdsa) = (Pair::rsa("a.test"), Pair::new("a.test"));
    let mut both = rsa.json(&["a.test"]);
    both["cert_alt"] = json!(ecdsa.cert);
    both["key_alt"] = json!(ecdsa.key);
    door.admin_post("/certificates", &both).await.expect(201);
    let shown = |offer: Offer| {
        offer
            .connect(port.number(), "a.test")
            .expect("connected")
            .shown()
    };
    assert!(shown(Offer::new()) == ecdsa.der);
    assert!(shown(Offer::rsa_only()) == rsa.der);
}

#[tokio::test]
async fn certificates_are_swapped_under_load_without_a_failed_handshake() {
    let port = Port::reserve();
    let pairs = [Pair::new("a.test"), Pair::new("a.test")];
    let door = door(&port, "", &Pair::new("default.test"), &[]).await;
    let id = add(&door, &pairs[0], &["a.test"]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let known = pairs.each_ref().map(|pair| pair.der.clone());
    let done: [_; 2] = std::array::from_fn(|_| Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = done
        .iter()
        .map(|done| {
            let (stop, known, port) = (stop.clone(), known.clone(), port.number());
            let done = done.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // A new offer each time, so that no session is resumed.
                    let connected = Offer::new().connect(port, "a.test");
                    let mut connection = connected.expect("a handshake");
                    assert!(known.contains(&connection.shown()));
                    let answer = connection.get("a.test", "").expect("an answer");
                    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let path = format!("/certificates/{id}");
    for turn in 1..=20 {
        let pair = &pairs[turn % 2];
        let change = json!({"cert": pair.cert, "key": pair.key});
        let changed = door.admin_json(Method::PATCH, &path, &change).await;
        changed.expect(200);
        // In force as soon as it is acknowledged.
        let shown = Offer::new()
            .connect(port.number(), "a.test")
            .expect("connected")
            .shown();
        assert!(shown == pair.der, "turn {turn}");
    }
    eventually(
        "each client to have been served, or to have failed",
        || async {
            let served = |done: &Arc<AtomicUsize>| done.load(Ordering::Relaxed) > 0;
            let failed = clients.iter().any(std::thread::JoinHandle::is_finished);
            (failed || done.iter().all(served)).then_some(())
        },
    )
    .await;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no failed handshake");
    }
}

#[tokio::test]
async fn a_deleted_certificate_is_not_shown_any_more() {
    let port = Port::reserve();
    let (default, pair) = (Pair::new("default.test"), Pair::new("a.test"));
    let door = door(&port, "", &default, &[]).await;
    let id = add(&door, &pair, &["a.test"]).await;
    let shown = || {
        Offer::new()
            .connect(port.number(), "a.test")
            .expect("connected")
            .shown()
    };
    assert!(shown() == pair.der);
    door.admin_delete(&format!("/certificates/{id}"))
        .await
        .expect(204);
    assert!(shown() == default.der);
}

#[tokio::test]
async fn the_default_certificate_is_read_again_when_its_file_changes() {
    let port = Port::reserve();
    let (first, second) = (Pair::new("a.test"), Pair::new("a.test"));
    let door = door(&port, "", &first, &[]).await;
    let shown = || {
        Offer::new()
            .connect(port.number(), "a.test")
            .expect("connected")
            .shown()
    };
    assert!(shown() == first.der);
    // A key that does not fit changes nothing, and is told.
    door.write("key.pem", &second.key);
    door.wait_log("the refusal", |line| line.contains("not reloaded"))
        .await;
    assert!(shown() == first.der);
    door.write("cert.pem", &second.cert);
    eventually("the new certificate", || {
        let new = shown() == second.der;
        async move { new.then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn sessions_resume_on_any_worker() {
    let port = Port::reserve();
    let _door = door(&port, "", &Pair::new("a.test"), &[]).await;
    for version in [&TLS12, &TLS13] {
        let offer = Offer::versions(&[version]);
        let mut first = offer.connect(port.number(), "a.test").expect("connected");
        first.get("a.test", "").expect("an answer");
        assert!(!first.is_resumed());
        // Enough that both of the workers are met.
        for _ in 0..16 {
            let mut next = offer.connect(port.number(), "a.test").expect("connected");
            assert!(next.is_resumed(), "{version:?}");
            next.get("a.test", "").expect("an answer");
        }
    }
}

#[tokio::test]
async fn without_a_certificate_a_generated_one_is_shown_and_said_so() {
    let port = Port::reserve();
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"]}}}}",
        port.authority()
    );
    let door = Setup::new().proxy(&proxy).services(MIRROR).start().await;
    let mut connection = Offer::new()
        .connect(port.number(), "a.test")
        .expect("connected");
    let answer = connection.get("a.test", "").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    door.wait_log("the warning", |line| line.contains("self-signed"))
        .await;
}

#[tokio::test]
async fn an_expired_certificate_is_shown_and_counted_as_such() {
    let port = Port::reserve();
    let pair = Pair::expired("old.test");
    let door = door(&port, "", &Pair::new("a.test"), &[]).await;
    add(&door, &pair, &["old.test"]).await;
    let shown = Offer::new()
        .connect(port.number(), "old.test")
        .expect("connected")
        .shown();
    assert!(shown == pair.der);
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let line = "doorward_certificate_expiry_seconds{certificate=\"old.test\"} -";
    assert!(metrics.contains(line), "{metrics}");
    let own = "doorward_certificate_expiry_seconds{certificate=\"proxy.tls\"} ";
    assert!(metrics.contains(own), "{metrics}");
}

#[tokio::test]
async fn optional_client_certificates_are_verified_and_forwarded() {
    let port = Port::reserve();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let settings = ", client_certificates: {mode: optional, ca: \"@DIR@/ca.pem\", forward: true}";
    let pem = ours.pem();
    let door = door(&port, settings, &Pair::new("a.test"), &[("ca.pem", &pem)]).await;
    let forged = "Client-Cert: :Zm9yZ2Vk:\r\nX_Client_Cert_Dn: CN=admin\r\n";
    let ask = |offer: Offer| {
        let mut connection = offer.connect(port.number(), "a.test")?;
        connection.get("a.test", forged)
    };
    let without = ask(Offer::new()).expect("an answer");
    assert!(without.starts_with("HTTP/1.1 200"), "{without}");
    assert!(!without.to_lowercase().contains("client-cert"), "{without}");
    assert!(!without.contains("CN=admin"), "{without}");
    let with = ask(Offer::certificate(&ours.client("worker"))).expect("an answer");
    assert!(with.contains("\"client-cert\":\":MII"), "{with}");
    assert!(
        with.contains("\"x-client-cert-dn\":\"CN=worker\""),
        "{with}"
    );
    assert!(with.contains("\"x-client-cert-san\":\"worker\""), "{with}");
    door.wait_log("the subject in the access log", |line| {
        line.contains("\"certificate\":\"CN=worker\"")
    })
    .await;
    // One that is shown must be good.
    let stranger = ask(Offer::certificate(&theirs.client("worker")));
    assert!(stranger.is_err(), "{stranger:?}");
    // Nor may one be claimed where there is no TLS.
    let request = format!("GET /x HTTP/1.1\r\nHost: a\r\n{forged}\r\n");
    let plain = raw::exchange(&door.proxy(), request.as_bytes()).await;
    let plain = plain.expect("an answer").text();
    assert!(
        !plain.contains("Zm9yZ2Vk") && !plain.contains("CN=admin"),
        "{plain}"
    );
}

#[tokio::test]
async fn required_client_certificates_keep_others_out() {
    let port = Port::reserve();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let settings = ", client_certificates: {mode: required, ca: \"@DIR@/ca.pem\"}";
    let pem = ours.pem();
    let door = door(&port, settings, &Pair::new("a.test"), &[("ca.pem", &pem)]).await;
    let ask = |offer: Offer| {
        let mut connection = offer.connect(port.number(), "a.test")?;
        connection.get("a.test", "")
    };
    for version in [&TLS12, &TLS13] {
        assert!(ask(Offer::versions(&[version])).is_err(), "{version:?}");
    }
    assert!(ask(Offer::certificate(&theirs.client("worker"))).is_err());
    let ours = ask(Offer::certificate(&ours.client("worker"))).expect("an answer");
    assert!(ours.starts_with("HTTP/1.1 200"), "{ours}");
    let line = "doorward_tls_handshake_failures_total{listener=\"proxy\",\
                reason=\"client_certificate\"} 3";
    counted(&door, line).await;
}

#[tokio::test]
async fn a_connection_made_for_one_name_serves_no_other_with_a_certificate_of_its_own() {
    let port = Port::reserve();
    let authority = Authority::new();
    let settings = ", client_certificates: {mode: optional, ca: \"@DIR@/ca.pem\"}";
    let pem = authority.pem();
    let door = door(&port, settings, &Pair::new("d.test"), &[("ca.pem", &pem)]).await;
    add(&door, &Pair::new("a.test"), &["a.test", "aa.test"]).await;
    add(&door, &Pair::new("b.test"), &["b.test"]).await;
    let ask = |host| {
        let connected = Offer::new().connect(port.number(), "a.test");
        connected
            .expect("connected")
            .get(host, "")
            .expect("an answer")
    };
    for (host, status) in [
        ("a.test", 200),
        ("aa.test", 200),
        ("b.test", 421),
        ("c", 421),
    ] {
        let answer = ask(host);
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{host}: {answer}");
    }
}

#[tokio::test]
async fn routes_are_found_by_the_name_of_the_handshake() {
    let port = Port::reserve();
    let door = door(&port, "", &Pair::new("a.test"), &[]).await;
    let service = json!({"name": "named", "protocol": "internal", "host": "echo",
        "path": "/named"});
    door.admin_post("/services", &service).await.expect(201);
    let route = json!({"name": "by-name", "snis": ["named.test"], "protocols": ["https"],
        "paths": ["/x"], "strip_path": false});
    let made = door.admin_post("/services/named/routes", &route).await;
    made.expect(201);
    let connected = Offer::new().connect(port.number(), "NAMED.test");
    let answer = connected
        .expect("connected")
        .get("any.host", "")
        .expect("an answer");
    assert!(answer.contains("\"/named/x\""), "{answer}");
    let connected = Offer::new().connect(port.number(), "other.test");
    let answer = connected
        .expect("connected")
        .get("any.host", "")
        .expect("an answer");
    assert!(answer.contains("\"/x\""), "{answer}");
}

#[tokio::test]
async fn the_admin_listener_speaks_tls_too() {
    let port = Port::reserve();
    let admin = format!(
        "{{listen: \"@ADMIN@\", token: 0123456789abcdef, tls: {{listen: [\"{}\"]}}}}",
        port.authority()
    );
    let mut door = Setup::new().admin(&admin).services(MIRROR).lay_out();
    door.spawn();
    door.wait_log("the start", |line| line.contains("ready"))
        .await;
    for (token, status) in [("Kong-Admin-Token: 0123456789abcdef\r\n", 404), ("", 401)] {
        let connected = Offer::new().connect(port.number(), "localhost");
        let answer = connected.expect("connected").get("localhost", token);
        let answer = answer.expect("an answer");
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{answer}");
    }
}
