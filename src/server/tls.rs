//! Certificate files, read before anything starts: the engine would find out
//! in its workers, when it is too late to say so.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::ServerError;
use crate::config::{ProxyConfig, TlsConfig};

/// Whether every certificate file that `config` names can be used.
///
/// # Errors
/// [`ServerError::Tls`] and [`ServerError::Authorities`] with file and reason.
pub fn check(config: &ProxyConfig) -> Result<(), ServerError> {
    if let Some(tls) = &config.tls {
        certified_key(tls).map_err(|reason| ServerError::Tls {
            certificate: tls.certificate.display().to_string(),
            key: tls.key.display().to_string(),
            reason,
        })?;
    }
    if let Some(file) = &config.upstream_ca {
        authorities(file).map_err(|reason| ServerError::Authorities {
            file: file.display().to_string(),
            reason,
        })?;
    }
    Ok(())
}

fn certified_key(tls: &TlsConfig) -> Result<CertifiedKey, String> {
    let chain = certificates(&tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| format!("{}: {error}", tls.key.display()))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| error.to_string())
}

fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(store)
}

/// The certificates of a PEM file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let said = |error: String| format!("{}: {error}", file.display());
    let found = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| said(error.to_string()))?;
    if found.is_empty() {
        return Err(said("no certificate in it".to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// A certificate and its key as PEM.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn checked(certificate: &str, key: &str) -> Result<(), String> {
        let dir = tempfile::tempdir().expect("a directory");
        let files = [dir.path().join("cert.pem"), dir.path().join("key.pem")];
        std::fs::write(&files[0], certificate).expect("written");
        std::fs::write(&files[1], key).expect("written");
        let [certificate, key] = files;
        let tls = TlsConfig {
            listen: Vec::new(),
            certificate,
            key,
        };
        let config = ProxyConfig {
            tls: Some(tls),
            ..ProxyConfig::default()
        };
        check(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_certificate_needs_its_own_key() {
        let (certificate, key) = pair();
        let (_, other) = pair();
        assert_eq!(checked(&certificate, &key), Ok(()));
        assert!(checked(&certificate, &other).is_err());
        assert!(checked(&certificate, "").is_err());
        let none = checked("", &key).expect_err("no certificate");
        assert!(none.contains("no certificate in it"), "{none}");
    }

    #[test]
    fn missing_authorities_are_named() {
        let config = ProxyConfig {
            upstream_ca: Some("nowhere.pem".into()),
            ..ProxyConfig::default()
        };
        let error = check(&config).expect_err("no file").to_string();
        assert!(error.contains("nowhere.pem"), "{error}");
    }
}
