//! Certificates and their keys: read from PEM, matched, and what they say.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chrono::DateTime;
use http::HeaderValue;
use rustls::SignatureAlgorithm;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{X509Name, X509Version};

use crate::hex;

/// A client's certificate that was verified in the handshake.
#[derive(Debug)]
pub struct ClientCertificate {
    /// The subject, as RFC 4514 writes it.
    pub subject: String,
    /// Subject alternative names: host names, addresses, URIs, mailboxes.
    pub names: Vec<String>,
    /// The same in one text, with commas in between.
    pub joined_names: String,
    /// The serial number in lower-case hexadecimal.
    pub serial: String,
    /// SHA-256 of the certificate in lower-case hexadecimal.
    pub fingerprint: String,
    /// SHA-256 of the certificate in base64url, as tokens that are bound to it
    /// have it (`x5t#S256`, RFC 8705 §3.1).
    pub thumbprint: String,
    /// Valid until, in seconds since the epoch.
    pub not_after: i64,
    /// The whole certificate as the header `Client-Cert` (RFC 9440 §2.1).
    pub header: HeaderValue,
}

impl ClientCertificate {
    /// Reads the certificate `der`, which was verified; nothing if it can't be
    /// read.
    pub fn read(der: &[u8]) -> Option<Self> {
        let facts = facts(der).ok()?;
        let digest = digest(&SHA256, der);
        let header = format!(":{}:", STANDARD.encode(der));
        // A comma inside a name must not make two of it.
        let joined: Vec<_> = facts.names.iter().map(|n| n.replace(',', "%2C")).collect();
        Some(Self {
            subject: facts.subject,
            joined_names: joined.join(","),
            names: facts.names,
            serial: facts.serial,
            fingerprint: hex::encode(digest),
            thumbprint: URL_SAFE_NO_PAD.encode(digest.as_ref()),
            not_after: facts.not_after,
            header: HeaderValue::try_from(header).ok()?,
        })
    }
}

/// Why a certificate or a key can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum X509Error {
    /// No certificate, or not one.
    #[error("invalid certificate: {0}")]
    Certificate(String),
    /// No private key, or none that can sign.
    #[error("invalid key: {0}")]
    Key(String),
    /// The key belongs to another certificate.
    #[error("certificate does not match key")]
    Mismatch,
}

/// What a certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The subject, as RFC 4514 writes it: `CN=client,O=Example`.
    pub subject: String,
    /// Subject alternative names: host names, addresses, URIs, mailboxes.
    pub names: Vec<String>,
    /// The serial number in lower-case hexadecimal.
    pub serial: String,
    /// Valid from, in seconds since the epoch.
    pub not_before: i64,
    /// Valid until, in seconds since the epoch.
    pub not_after: i64,
}

/// The certificates of a PEM text, at least one, the leaf first.
///
/// # Errors
/// [`X509Error::Certificate`] if there is none, or if one can't be read.
pub fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, X509Error> {
    let invalid = |error: String| X509Error::Certificate(error);
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| invalid(pem_error(&error).to_owned()))?;
    if found.is_empty() {
        return Err(invalid("no certificate in PEM form".to_owned()));
    }
    found.iter().try_for_each(|der| parse(der).map(drop))?;
    Ok(found)
}

/// What is wrong with a PEM text, without its bytes: they may be of a key.
fn pem_error(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "the line -----END …----- is missing",
        pem::Error::IllegalSectionStart { .. } => "a line -----BEGIN …----- is malformed",
        pem::Error::Base64Decode(_) => "the text between BEGIN and END is not base64",
        pem::Error::NoItemsFound => "nothing in PEM form",
        pem::Error::SectionTooLarge => "longer than 10 MB",
        _ => "not in PEM form",
    }
}

/// The private key of a PEM text: PKCS#8, PKCS#1 or SEC1.
///
/// # Errors
/// [`X509Error::Key`] if there is none.
pub fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, X509Error> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| X509Error::Key(pem_error(&error).to_owned()))
}

/// Whether a client can show this chain: the library takes no leaf but one of
/// X.509 version 3 for that, although servers may have older ones.
///
/// # Errors
/// [`X509Error::Certificate`] for another version, or what can't be read.
pub fn check_client(chain: &[CertificateDer<'_>]) -> Result<(), X509Error> {
    let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
    if parse(leaf)?.version() == X509Version::V3 {
        return Ok(());
    }
    let message = "a client certificate must be of X.509 version 3";
    Err(X509Error::Certificate(message.to_owned()))
}

/// Whether a certificate is valid at this time, in seconds since the epoch.
///
/// # Errors
/// Since when it is not, or from when on it is. One that can't be read is not
/// judged.
pub fn valid_at(der: &[u8], now: i64) -> Result<(), String> {
    let Ok(facts) = facts(der) else {
        return Ok(());
    };
    if facts.not_after < now {
        return Err(format!(
            "the certificate expired on {}",
            date(facts.not_after)
        ));
    }
    if facts.not_before > now {
        let from = date(facts.not_before);
        return Err(format!("the certificate is not valid before {from}"));
    }
    Ok(())
}

fn date(seconds: i64) -> String {
    let time = DateTime::from_timestamp(seconds, 0);
    time.map_or_else(String::new, |time| time.format("%Y-%m-%d").to_string())
}

/// Tells when a certificate ends, if `end` is less than `seconds` after `now` (all in
/// seconds since the epoch).
pub fn expires_within(end: i64, now: i64, seconds: i64) -> Option<String> {
    if end >= now.saturating_add(seconds) {
        return None;
    }
    let verb = if end < now { "expired" } else { "expires" };
    Some(format!("the certificate {verb} on {}", date(end)))
}

/// `chain` with the key that signs for its leaf.
///
/// # Errors
/// [`X509Error::Key`] for a key of an unknown type, [`X509Error::Mismatch`]
/// for the key of another certificate.
pub fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, X509Error> {
    let signing = provider()
        .key_provider
        .load_private_key(key)
        .map_err(|error| X509Error::Key(error.to_string()))?;
    let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
    // The library's own comparison refuses certificates of version 1.
    match signing.public_key() {
        Some(key) if *key == *parse(leaf)?.tbs_certificate.subject_pki.raw => {}
        _ => return Err(X509Error::Mismatch),
    }
    Ok(Arc::new(CertifiedKey::new(chain, signing)))
}

/// Whether `key` signs with RSA: the one that old clients need, and the one
/// that costs more.
pub fn is_rsa(key: &CertifiedKey) -> bool {
    key.key.algorithm() == SignatureAlgorithm::RSA
}

/// The cryptography that all of TLS uses.
pub fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// What the certificate `der` says of itself.
///
/// # Errors
/// [`X509Error::Certificate`] if it can't be read.
pub fn facts(der: &[u8]) -> Result<CertificateInfo, X509Error> {
    let certificate = parse(der)?;
    let mut names = Vec::new();
    // One that repeats the extension names nobody.
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        names.extend(extension.value.general_names.iter().filter_map(alternative));
    }
    let validity = certificate.validity();
    Ok(CertificateInfo {
        subject: distinguished(certificate.subject()),
        names,
        serial: hex::encode(certificate.raw_serial()),
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
    })
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, X509Error> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err(X509Error::Certificate("trailing bytes".to_owned())),
        // The reader tells its own types.
        Err(_) => Err(X509Error::Certificate("not X.509 in DER".to_owned())),
    }
}

fn alternative(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| v6()).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// A name as RFC 4514 writes it: the last part first, special characters
/// escaped, so that no value can pretend to be two.
fn distinguished(name: &X509Name<'_>) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let mut text = String::new();
    for part in parts.into_iter().rev() {
        for (index, attribute) in part.iter().enumerate() {
            if !text.is_empty() {
                text.push(if index == 0 { ',' } else { '+' });
            }
            let oid = attribute.attr_type();
            let known = x509_parser::objects::oid2abbrev(oid, x509_parser::objects::oid_registry());
            match known {
                Ok(short) => text.push_str(short),
                Err(_) => text.push_str(&oid.to_id_string()),
            }
            text.push('=');
            match attribute.as_str() {
                Ok(value) => escape(value, &mut text),
                Err(_) => {
                    text.push('#');
                    text.push_str(&hex::encode(attribute.as_slice()));
                }
            }
        }
    }
    text
}

/// RFC 4514 §2.4.
fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (index, c) in value.chars().enumerate() {
        let special = matches!(c, '"' | '+' | ',' | ';' | '<' | '>' | '\\')
            || (index == 0 && matches!(c, ' ' | '#'))
            || (index == last && c == ' ');
        if c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(text, "\\{byte:02x}");
            }
            continue;
        }
        if special {
            text.push('\\');
        }
        text.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn named(common_name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Example");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params
            .subject_alt_names
            .push(SanType::IpAddress(IpAddr::from([127, 0, 0, 1])));
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate, key)
    }

    #[test]
    fn a_certificate_needs_its_own_key() {
        let (certificate, key) = named("a");
        let (_, other) = named("b");
        let chain = chain(certificate.pem().as_bytes()).expect("a chain");
        let with = |key: &KeyPair| {
            let key = super::key(key.serialize_pem().as_bytes()).expect("a key");
            certified(chain.clone(), key).map(drop)
        };
        assert_eq!(with(&key), Ok(()));
        assert_eq!(with(&other), Err(X509Error::Mismatch));
    }

    #[test]
    fn what_is_no_certificate_and_no_key_is_refused() {
        assert!(matches!(chain(b""), Err(X509Error::Certificate(_))));
        assert!(matches!(super::key(b"x"), Err(X509Error::Key(_))));
        let garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(chain(garbage), Err(X509Error::Certificate(_))));
    }

    #[test]
    fn facts_are_read_and_a_name_cannot_pretend_to_be_two() {
        let (certificate, _) = named("x,O=Bank");
        let facts = facts(certificate.der()).expect("facts");
        assert_eq!(facts.subject, "CN=x\\,O=Bank,O=Example");
        assert_eq!(facts.names, ["a.test", "127.0.0.1"]);
        assert!(facts.not_before < facts.not_after);
    }
}
