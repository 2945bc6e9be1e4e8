use super::*;
use crate::config::ProxyConfig;
use rcgen::{CertificateParams, KeyPair};

/// A certificate and its key as PEM.
fn pair() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn section(&self) -> TlsConfig {
        TlsConfig {
            certificate: Some(self.0.path().join("cert.pem")),
            key: Some(self.0.path().join("key.pem")),
            ..TlsConfig::default()
        }
    }

    fn write(&self, certificate: &str, key: &str) {
        std::fs::write(self.0.path().join("cert.pem"), certificate).expect("written");
        std::fs::write(self.0.path().join("key.pem"), key).expect("written");
    }
}

fn dir() -> Dir {
    Dir(tempfile::tempdir().expect("a directory"))
}

fn clock() -> Clock {
    Clock::manual(1_790_000_000_000)
}

fn checked(certificate: &str, key: &str) -> Result<(), String> {
    let dir = dir();
    dir.write(certificate, key);
    let mut config = Config::default();
    config.proxy.tls = Some(dir.section());
    let errors = check(&config, &clock());
    errors
        .first()
        .map_or(Ok(()), |error| Err(error.to_string()))
}

#[test]
fn a_certificate_needs_its_own_key() {
    let (certificate, key) = pair();
    let (_, other) = pair();
    assert_eq!(checked(&certificate, &key), Ok(()));
    assert!(checked(&certificate, &other).is_err());
    assert!(checked(&certificate, "").is_err());
    let none = checked("", &key).expect_err("no certificate");
    assert!(none.contains("no certificate in PEM form"), "{none}");
}

#[test]
fn what_is_wrong_names_its_key_and_its_file() {
    let (certificate, key) = pair();
    let (_, other) = pair();
    for (certificate, key, at, what) in [
        ("", key.as_str(), "proxy.tls.certificate: ", "cert.pem: "),
        (&*certificate, "", "proxy.tls.key: ", "key.pem: "),
        (&*certificate, &*other, "proxy.tls.key: ", "not the key of"),
    ] {
        let told = checked(certificate, key).expect_err("refused");
        assert!(told.starts_with(at) && told.contains(what), "{told}");
    }
}

#[test]
fn a_certificate_that_is_not_valid_now_does_not_pass_the_check() {
    let dated = |from: i32, until: i32| {
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned()];
        let mut params = CertificateParams::new(names).expect("parameters");
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let certificate = params.self_signed(&key).expect("a certificate");
        checked(&certificate.pem(), &key.serialize_pem())
    };
    assert_eq!(dated(2020, 2030), Ok(()));
    let expired = dated(2020, 2021).expect_err("expired");
    assert!(expired.starts_with("proxy.tls.certificate: "), "{expired}");
    assert!(expired.ends_with("expired on 2021-01-01"), "{expired}");
    let early = dated(2029, 2030).expect_err("not yet valid");
    assert!(early.ends_with("not valid before 2029-01-01"), "{early}");
}

#[test]
fn missing_authorities_are_named() {
    let config = Config {
        proxy: ProxyConfig {
            upstream_ca: Some("nowhere.pem".into()),
            ..ProxyConfig::default()
        },
        ..Config::default()
    };
    let errors = check(&config, &clock());
    let [error] = errors.as_slice() else {
        panic!("one error: {errors:?}");
    };
    assert!(error.to_string().contains("nowhere.pem"), "{error}");
}

#[test]
fn files_are_replaced_when_they_are_good_and_kept_when_they_are_not() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let dir = dir();
    let (certificate, key) = pair();
    dir.write(&certificate, &key);
    let tls = Tls::open("proxy.tls", &dir.section(), None, None, &clock()).expect("opened");
    let shown = || tls.files.lock().default.cert[0].clone();
    let first = shown();
    dir.write(&certificate, "");
    assert!(tls.prepare(&dir.section()).is_err());
    assert_eq!(shown(), first);
    let (certificate, key) = pair();
    dir.write(&certificate, &key);
    tls.prepare(&dir.section()).expect("good files").commit();
    assert_ne!(shown(), first);
}

#[test]
fn without_a_certificate_one_is_generated_once() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let section = TlsConfig::default();
    let tls = Tls::open("proxy.tls", &section, None, None, &clock()).expect("opened");
    let shown = || tls.files.lock().default.cert[0].clone();
    let first = shown();
    let facts = x509::facts(&first).expect("facts");
    assert_eq!(facts.names, ["localhost", "127.0.0.1", "::1"]);
    assert!(facts.not_after > clock().now_secs());
    tls.prepare(&section).expect("prepared").commit();
    assert_eq!(shown(), first);
}
