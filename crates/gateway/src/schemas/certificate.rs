//! The schemas of certificates, CA certificates and SNIs.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Map, Value};

use super::{checks, common, der};
use doorward_core::hex;
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_core::model::vault::is_reference;
use doorward_core::x509;

/// The fields of a certificate.
pub fn certificate() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        fields.extend([
            Field::new("cert", Type::checked(chain))
                .required()
                .referenceable(),
            Field::new("key", Type::checked(private_key))
                .required()
                .referenceable(),
            Field::new("cert_alt", Type::checked(chain)).referenceable(),
            Field::new("key_alt", Type::checked(private_key)).referenceable(),
        ]);
        Schema::new(fields)
            .check(alternative_is_whole)
            .check(keys_match)
    });
    &SCHEMA
}

/// The fields of a CA certificate.
pub fn ca_certificate() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        fields.extend([
            Field::new("cert", Type::checked(chain)).required(),
            Field::new("cert_digest", Type::text()).unique(),
        ]);
        Schema::new(fields)
            .shorthand(digest_of_cert)
            .check(one_authority)
    });
    &SCHEMA
}

/// The fields of an SNI.
pub fn sni() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        fields.extend([
            Field::new("name", Type::checked(checks::sni))
                .required()
                .unique(),
            Field::new("certificate", Type::Foreign("certificates")).required(),
        ]);
        Schema::new(fields)
    });
    &SCHEMA
}

/// The certificates of a PEM text, at least one.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    x509::chain(pem.as_bytes()).map_err(|error| error.to_string())
}

fn chain(pem: &str) -> Result<(), String> {
    certificates(pem).map(drop)
}

fn key(pem: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| "invalid key: no private key in PEM form".to_owned())
}

fn private_key(pem: &str) -> Result<(), String> {
    rustls::crypto::aws_lc_rs::sign::any_supported_type(&key(pem)?)
        .map(|_| ())
        .map_err(|error| format!("invalid key: {error}"))
}

/// One certificate, of an authority.
fn one_authority(record: &Map<String, Value>, violations: &mut Violations) {
    let Some(pem) = record.get("cert").and_then(Value::as_str) else {
        return;
    };
    // What can't be read is told as the field's fault.
    let Ok(found) = certificates(pem) else {
        return;
    };
    let [certificate] = found.as_slice() else {
        violations.put_entity("please submit only one certificate at a time");
        return;
    };
    if !der::is_authority(certificate) {
        violations.put_entity(
            "certificate does not appear to be a CA because it is missing the \"CA\" basic constraint",
        );
    }
}

/// The digest follows from the certificate, whatever was sent.
fn digest_of_cert(input: &mut Map<String, Value>, _: &mut Violations) {
    let Some(Value::String(pem)) = input.get("cert") else {
        return;
    };
    if let Some(digest) = cert_digest(pem) {
        input.insert("cert_digest".to_owned(), digest.into());
    }
}

/// SHA-256 of the first certificate of a PEM text, in hexadecimal digits.
pub fn cert_digest(pem: &str) -> Option<String> {
    let all = certificates(pem).ok()?;
    Some(hex::encode(digest(&SHA256, all.first()?)))
}

/// When the first certificate of a PEM text ends, in seconds since the epoch.
pub fn cert_end(pem: &str) -> Option<i64> {
    let all = certificates(pem).ok()?;
    Some(x509::facts(all.first()?).ok()?.not_after)
}

fn text<'a>(record: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    record.get(field).and_then(Value::as_str)
}

fn alternative_is_whole(record: &Map<String, Value>, violations: &mut Violations) {
    if text(record, "cert_alt").is_some() != text(record, "key_alt").is_some() {
        violations.put_entity("all or none of these fields must be set: 'cert_alt', 'key_alt'");
    }
}

fn keys_match(record: &Map<String, Value>, violations: &mut Violations) {
    let pairs = [
        ("cert", "key", "certificate does not match key"),
        (
            "cert_alt",
            "key_alt",
            "alternative certificate does not match key",
        ),
    ];
    let mut algorithms = Vec::new();
    for (cert_field, key_field, message) in pairs {
        if violations.has(cert_field) || violations.has(key_field) {
            return;
        }
        let (Some(cert), Some(key)) = (text(record, cert_field), text(record, key_field)) else {
            continue;
        };
        // What they stand for is compared when the certificate is to be in force.
        if is_reference(cert) || is_reference(key) {
            continue;
        }
        match certified(cert, key) {
            Ok(certified) => algorithms.push(certified.key.algorithm()),
            Err(_) => violations.put_entity(message),
        }
    }
    if let [first, second] = algorithms.as_slice()
        && first == second
    {
        violations.put_entity(
            "certificate and alternative certificate need to have different type (e.g. RSA and \
             ECDSA), the provided certificates were both of the same type",
        );
    }
}

fn certified(cert: &str, pem: &str) -> Result<Arc<CertifiedKey>, String> {
    x509::certified(certificates(cert)?, key(pem)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
