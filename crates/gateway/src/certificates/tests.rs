use super::*;
use crate::entities::Origin;
use doorward_core::model::route::Reference;
use doorward_core::model::secret::Secret;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::SignatureScheme as Scheme;

fn pem(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).expect("a key");
    let certificate = CertificateParams::new(vec!["a.test".to_owned()])
        .expect("parameters")
        .self_signed(&key)
        .expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

fn certificate(id: u128, (cert, key): &(String, String)) -> Certificate {
    Certificate {
        id: Uuid::from_u128(id),
        cert: cert.clone(),
        key: Secret::new(key.as_str()),
        cert_alt: None,
        key_alt: None,
        tags: None,
        created_at: 0,
        updated_at: 0,
    }
}

fn put(entities: &mut Entities, certificate: Certificate, names: &[&str]) {
    let id = certificate.id;
    let record = Record::of(certificate, Origin::Store);
    entities.certificates.put(Arc::new(record));
    for name in names {
        let sni = Sni {
            id: Uuid::new_v5(&id, name.as_bytes()),
            name: (*name).to_owned(),
            certificate: Reference { id },
            tags: None,
            created_at: 0,
            updated_at: 0,
        };
        entities.snis.put(Arc::new(Record::of(sni, Origin::Store)));
    }
}

fn found(certificates: &Certificates, name: &str) -> Option<u128> {
    let identity = certificates.find(name)?;
    Some(identity.record.value.id.as_u128())
}

#[test]
fn the_most_specific_name_wins() {
    let pair = pem(&PKCS_ECDSA_P256_SHA256);
    let mut entities = Entities::default();
    put(&mut entities, certificate(1, &pair), &["www.a.test"]);
    put(&mut entities, certificate(2, &pair), &["*.a.test"]);
    put(
        &mut entities,
        certificate(3, &pair),
        &["www.a.*", "www.b.*"],
    );
    let none = Certificates::compile(&entities, None).expect("compiled");
    assert_eq!(found(&none, "c.test"), None);
    put(&mut entities, certificate(4, &pair), &["*"]);
    let all = Certificates::compile(&entities, None).expect("compiled");
    for (name, id) in [
        ("www.a.test", 1),
        ("WWW.a.TEST.", 1),
        ("x.a.test", 2),
        // A wildcard stands for one label.
        ("y.x.a.test", 4),
        ("a.test", 4),
        ("www.b.test", 3),
        ("www.b.co.test", 4),
        ("test", 4),
        ("", 4),
        (".", 4),
    ] {
        assert_eq!(found(&all, name), Some(id), "{name}");
    }
}

#[test]
fn clients_get_the_kind_of_key_that_they_can_verify() {
    let (ecdsa, rsa) = (pem(&PKCS_ECDSA_P256_SHA256), pem(&PKCS_RSA_SHA256));
    let mut both = certificate(1, &rsa);
    (both.cert_alt, both.key_alt) = (Some(ecdsa.0), Some(Secret::new(ecdsa.1)));
    let mut entities = Entities::default();
    put(&mut entities, both, &["a.test"]);
    let compiled = Certificates::compile(&entities, None).expect("compiled");
    let identity = compiled.find("a.test").expect("a certificate");
    let is_rsa = |schemes: &[Scheme]| x509::is_rsa(&identity.choose(schemes).expect("a key"));
    assert!(!is_rsa(&[
        Scheme::RSA_PSS_SHA256,
        Scheme::ECDSA_NISTP256_SHA256
    ]));
    assert!(is_rsa(&[Scheme::RSA_PSS_SHA256]));
}

#[test]
fn unchanged_certificates_are_not_parsed_again() {
    let pair = pem(&PKCS_ECDSA_P256_SHA256);
    let mut entities = Entities::default();
    put(&mut entities, certificate(1, &pair), &["a.test"]);
    let first = Certificates::compile(&entities, None).expect("compiled");
    let same = Certificates::compile(&entities, Some(&first)).expect("compiled");
    assert!(Arc::ptr_eq(&first, &same));
    let other = pem(&PKCS_ECDSA_P256_SHA256);
    put(&mut entities, certificate(2, &other), &["b.test"]);
    let second = Certificates::compile(&entities, Some(&first)).expect("compiled");
    let of = |all: &Certificates| all.find("a.test").expect("a certificate").clone();
    assert!(Arc::ptr_eq(&of(&first), &of(&second)));
    put(&mut entities, certificate(1, &other), &["a.test"]);
    let third = Certificates::compile(&entities, Some(&second)).expect("compiled");
    assert!(!Arc::ptr_eq(&of(&second), &of(&third)));
}

#[test]
fn an_error_names_entity_and_field() {
    let refused = |certificate: Certificate| {
        let mut entities = Entities::default();
        put(&mut entities, certificate, &[]);
        let error = Certificates::compile(&entities, None).map(drop);
        let error = error.expect_err("refused");
        (error.kind, error.field, error.message)
    };
    let (pair, other) = (pem(&PKCS_ECDSA_P256_SHA256), pem(&PKCS_ECDSA_P256_SHA256));
    let mut wrong = certificate(1, &pair);
    wrong.key = Secret::new(other.1.as_str());
    let mismatch = "certificate does not match key".to_owned();
    assert_eq!(refused(wrong), ("certificates", "key".to_owned(), mismatch));
    let mut wrong = certificate(1, &pair);
    wrong.cert_alt = Some("x".to_owned());
    wrong.key_alt = Some(Secret::new(other.1));
    assert_eq!(refused(wrong).1, "cert_alt");
}

#[test]
fn upstreams_get_client_certificates_and_authorities_by_id() {
    let pair = pem(&PKCS_ECDSA_P256_SHA256);
    let mut entities = Entities::default();
    put(&mut entities, certificate(1, &pair), &[]);
    let authority = CaCertificate {
        id: Uuid::from_u128(7),
        cert: pair.0.clone(),
        cert_digest: String::new(),
        tags: None,
        created_at: 0,
        updated_at: 0,
    };
    let record = Arc::new(Record::of(authority, Origin::Store));
    entities.ca_certificates.put(record);
    let compiled = Certificates::compile(&entities, None).expect("compiled");
    let shown = compiled.client_certificate(Uuid::from_u128(1));
    let again = compiled.client_certificate(Uuid::from_u128(1));
    assert!(Arc::ptr_eq(&shown.expect("one"), &again.expect("one")));
    assert!(compiled.client_certificate(Uuid::from_u128(2)).is_none());
    assert!(compiled.authority(Uuid::from_u128(7)).is_some());
}
