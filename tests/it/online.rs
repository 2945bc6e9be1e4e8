//! `doorward check --online`: what the configuration names is asked.

use std::process::Output;

use serde_json::Value;

use crate::support::ports::Port;
use crate::support::redis::RedisServer;
use crate::support::smtp::Relay;
use crate::support::tls::Pair;
use crate::support::{Door, Issuer, Setup, eventually};

fn check(door: &Door, format: &str) -> Output {
    door.run(&[
        "check",
        "--online",
        "--format",
        format,
        "-c",
        "doorward.yaml",
    ])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The section of a provider that sends mail by the relay at `port`.
fn identity(port: u16) -> String {
    format!(
        "\n  base_url: http://@PROXY@\n  mail: {{smtp: {{host: 127.0.0.1, port: {port}, \
         tls: none, from: door@a.test}}}}\n  realms: {{/: {{}}}}\n"
    )
}

fn guarded(issuer: &str) -> String {
    format!(
        "- name: web\n  url: http://127.0.0.1:9\n  routes: [{{paths: [/web]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: '{issuer}', auth_methods: [bearer]}}}}\n"
    )
}

/// A server with tools, and a service whose issuer is only a name.
fn others(issuer: &str) -> String {
    format!(
        "- name: tools\n  url: http://127.0.0.1:9\n  routes: [{{paths: [/tools]}}]\n  plugins:\n  \
         - {{name: mcp, config: {{issuer: '{issuer}', resource: 'http://a.test/tools'}}}}\n\
         - name: named\n  url: http://127.0.0.1:9\n  routes: [{{paths: [/named]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: '{PSEUDO}', using_pseudo_issuer: true, \
         extra_jwks_uris: ['{issuer}/keys'], auth_methods: [bearer]}}}}\n"
    )
}

const PSEUDO: &str = "http://127.0.0.1:9/a-name";

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_the_file_names_answers() {
    let (issuer, relay) = (Issuer::start().await, Relay::start(0).await);
    let (port, folder) = (Port::reserve(), tempfile::tempdir().expect("a folder"));
    let redis = format!("redis: redis://127.0.0.1:{}\nstore:", port.number());
    let arguments = ["--port", &port.number().to_string()];
    let _redis = RedisServer::start(port, folder, &arguments);
    let mut door = Setup::new()
        .identity(&identity(relay.port()))
        .services(&guarded(&issuer.url()))
        .lay_out();
    door.edit("doorward.yaml", "store:", &redis);
    eventually("Redis to be there", || async {
        check(&door, "text").status.success().then_some(())
    })
    .await;
    let before = check(&door, "text");
    let told = text(&before.stdout);
    assert!(before.status.success(), "{told}{}", text(&before.stderr));
    assert!(
        told.contains("store: is empty") || told.contains("store: answers"),
        "{told}"
    );
    door.start().await;
    let output = check(&door, "text");
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    for line in [
        "store: answers".to_owned(),
        "redis: answers".to_owned(),
        format!("issuer {}: publishes its metadata", issuer.url()),
        "identity.mail.smtp: greets".to_owned(),
        "identity.base_url: leads to a process on this store".to_owned(),
        "doorward.yaml: ok".to_owned(),
    ] {
        assert!(told.contains(&line), "{line}\n{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_answer_is_a_finding_with_its_key() {
    let (nobody, other) = (Port::reserve(), Port::reserve());
    let gone = format!("http://127.0.0.1:{}", nobody.number());
    let mut door = Setup::new()
        .identity(&identity(nobody.number()))
        .services(&(guarded(&gone) + &others(&format!("{gone}/other"))))
        .start()
        .await;
    // Clients are sent where nobody is.
    let elsewhere = format!("base_url: http://{}", other.authority());
    door.edit("doorward.yaml", "base_url: http://@PROXY@", &elsewhere);
    let nobody = format!("127.0.0.1:{}", nobody.number());
    let sections = format!(
        "redis: redis://{nobody}\n\
         acme: {{directory: 'https://{nobody}/dir', terms_agreed: true, names: [a.test]}}\nstore:"
    );
    door.edit("doorward.yaml", "store:", &sections);
    let ldap = format!(
        "realms: {{/: {{settings: {{ldap: {{urls: ['ldap://{nobody}'], \
         user_dn: 'uid={{name}},dc=test'}}}}}}}}"
    );
    door.edit("doorward.yaml", "realms: {/: {}}", &ldap);
    let pair = Pair::new("a.test");
    door.write("cert.pem", &pair.cert);
    door.write("key.pem", &pair.key);
    let tls = format!(
        "listen: [\"@PROXY@\"], tls: {{listen: ['{}'], certificate: cert.pem, key: key.pem}}",
        other.authority()
    );
    door.edit("doorward.yaml", "listen: [\"@PROXY@\"]", &tls);
    let output = check(&door, "json");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["ok"], false);
    let online = report["online"].as_array().expect("a list");
    let outcome = |key: &str| {
        let probe = online.iter().find(|probe| probe["key"] == key);
        probe.map(|probe| probe["ok"] == true)
    };
    assert_eq!(outcome("store"), Some(true));
    for key in [
        "redis",
        "acme.directory",
        "identity.mail.smtp",
        "identity.base_url",
    ] {
        assert_eq!(outcome(key), Some(false), "{key}: {report:#}");
    }
    let directory = online.iter().find(|probe| {
        let key = probe["key"].as_str().unwrap_or_default();
        key.contains("ldap")
    });
    assert_eq!(directory.map(|probe| &probe["ok"]), Some(&false.into()));
    let certificate = online
        .iter()
        .find(|probe| probe["key"] == "proxy.tls.certificate");
    let until = certificate.and_then(|probe| probe["message"].as_str());
    assert!(until.is_some_and(|text| text.contains("more days")));
    for (issuer, expected) in [
        (gone.as_str(), Some(false)),
        (&format!("{gone}/other"), Some(false)),
        (PSEUDO, None),
    ] {
        let key = format!("issuer {issuer}");
        assert_eq!(outcome(&key), expected, "{key}: {report:#}");
    }
    let findings = report["findings"].as_array().expect("a list");
    let located = findings.iter().filter(|one| one["line"].is_number());
    assert_eq!(located.count(), 4, "{report:#}");
    let told = text(&check(&door, "text").stderr);
    assert!(told.contains("identity.base_url: "), "{told}");
    door.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_url_that_leads_to_another_provider_is_told() {
    let other = Setup::new().start().await;
    let door = Setup::new().start().await;
    let elsewhere = format!("base_url: http://{}", other.proxy());
    door.edit("doorward.yaml", "base_url: http://@PROXY@", &elsewhere);
    let output = check(&door, "text");
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(told.contains("leads to another provider"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_wrong_is_told_before_anybody_is_asked() {
    let door = Setup::new().proxy("{listen: [nowhere]}").lay_out();
    let output = check(&door, "json");
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report.get("online").is_none(), "{report:#}");
    assert!(text(&output.stdout).contains("'nowhere' is not ADDRESS:PORT"));
}
