use rcgen::{
    BasicConstraints, CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
    SignatureAlgorithm,
};
use serde_json::{Map, Value, json};

use super::*;
use doorward_core::model::schema::Source;

fn pair(algorithm: &'static SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).expect("a key");
    let params = CertificateParams::new(vec!["a.example".to_owned()]).expect("parameters");
    let cert = params.self_signed(&key).expect("signs");
    (cert.pem(), key.serialize_pem())
}

fn ca() -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&key).expect("signs").pem()
}

fn made(schema: &Schema, input: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(input) = input else {
        panic!("an object");
    };
    let read = schema.read(input, Source::Json);
    read.and_then(|record| schema.complete(record))
        .map_err(|violations| violations.message())
}

#[test]
fn a_certificate_must_fit_its_key() {
    let (cert, key) = pair(&PKCS_ECDSA_P256_SHA256);
    let (_, other) = pair(&PKCS_ECDSA_P256_SHA256);
    let record = made(certificate(), json!({"cert":cert,"key":key})).expect("is fine");
    assert_eq!(record["cert_alt"], Value::Null);
    assert_eq!(
        made(certificate(), json!({"cert":cert,"key":other})),
        Err("schema violation (certificate does not match key)".to_owned())
    );
}

#[test]
fn an_alternative_is_whole_and_of_another_type() {
    let (cert, key) = pair(&PKCS_ECDSA_P256_SHA256);
    let (same, same_key) = pair(&PKCS_ECDSA_P256_SHA256);
    let (other, other_key) = pair(&PKCS_ED25519);
    let with = |cert_alt: &str, key_alt: Option<&str>| {
        let input = json!({"cert":cert,"key":key,"cert_alt":cert_alt,"key_alt":key_alt});
        made(certificate(), input)
    };
    with(&other, Some(&other_key)).expect("is fine");
    assert_eq!(
        with(&other, None),
        Err(
            "schema violation (all or none of these fields must be set: 'cert_alt', 'key_alt')"
                .to_owned()
        )
    );
    assert_eq!(
        with(&other, Some(&same_key)),
        Err("schema violation (alternative certificate does not match key)".to_owned())
    );
    let message = with(&same, Some(&same_key)).expect_err("is refused");
    assert!(message.contains("both of the same type"), "{message}");
}

#[test]
fn what_is_no_pem_is_refused_without_being_repeated() {
    let (cert, key) = pair(&PKCS_ECDSA_P256_SHA256);
    for (cert, key) in [
        ("nonsense", key.as_str()),
        ("", key.as_str()),
        (cert.as_str(), "hunter2"),
        (cert.as_str(), cert.as_str()),
        (key.as_str(), key.as_str()),
    ] {
        let message = made(certificate(), json!({"cert":cert,"key":key})).expect_err("is refused");
        assert!(message.contains(": invalid "), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    let message = made(certificate(), json!({})).expect_err("is refused");
    assert_eq!(
        message,
        "2 schema violations (cert: required field missing; key: required field missing)"
    );
}

#[test]
fn a_ca_certificate_is_one_certificate_of_an_authority() {
    let authority = ca();
    let record = made(
        ca_certificate(),
        json!({"cert":authority,"cert_digest":"made up"}),
    );
    let digest = record.expect("is fine")["cert_digest"].clone();
    let digest = digest.as_str().expect("a text");
    assert!(
        digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()),
        "{digest}"
    );
    assert_eq!(
        made(
            ca_certificate(),
            json!({"cert":format!("{authority}{authority}")})
        ),
        Err("schema violation (please submit only one certificate at a time)".to_owned())
    );
    let (leaf, _) = pair(&PKCS_ECDSA_P256_SHA256);
    let message = made(ca_certificate(), json!({"cert":leaf})).expect_err("is refused");
    assert!(
        message.starts_with("schema violation (certificate does not appear to be a CA"),
        "{message}"
    );
}

#[test]
fn server_names_may_have_one_wildcard_label() {
    let named = |name: &str| {
        let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        made(sni(), json!({"name":name,"certificate":{"id":id}}))
    };
    for good in ["a.example", "*.example.com", "example.*"] {
        named(good).expect(good);
    }
    for (bad, message) in [
        (
            "a.*.com",
            "wildcard must be leftmost or rightmost character",
        ),
        ("*.a.*", "only one wildcard must be specified"),
        ("10.0.0.1", "must not be an IP"),
        ("a.example:443", "must not have a port"),
    ] {
        assert_eq!(
            named(bad),
            Err(format!("schema violation (name: {message})"))
        );
    }
}
