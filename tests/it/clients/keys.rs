//! Keys of clients, made anew for each run.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

/// A key pair: what it is used with, PKCS #8, and the public JWK.
struct Key {
    alg: &'static str,
    pkcs8: Vec<u8>,
    public: Value,
}

impl Key {
    fn new(alg: &'static str, pkcs8: &[u8], private: &EncodingKey, algorithm: Algorithm) -> Self {
        let jwk = Jwk::from_encoding_key(private, algorithm).expect("a public key");
        let mut public = serde_json::to_value(jwk).expect("a JWK is JSON");
        public["kid"] = Value::from(format!("the-{alg}"));
        public["use"] = Value::from("sig");
        public["alg"] = Value::from(alg);
        Self {
            alg,
            pkcs8: pkcs8.to_vec(),
            public,
        }
    }
}

/// A key pair for each of the usual algorithms.
pub(super) struct Keys(Vec<Key>);

impl Keys {
    /// Makes them.
    pub(super) fn make() -> Self {
        let rng = SystemRandom::new();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng);
        let ec = ec.expect("a key pair");
        let ec_key = EncodingKey::from_ec_der(ec.as_ref());
        let ed = Ed25519KeyPair::generate_pkcs8v1(&rng).expect("a key pair");
        let ed_key = EncodingKey::from_ed_der(ed.as_ref());
        let rsa = rsa::KeyPair::generate(KeySize::Rsa2048).expect("a key pair");
        let rsa: Pkcs8V1Der<'_> = rsa.as_der().expect("PKCS #8");
        let pem = pem("PRIVATE KEY", rsa.as_ref());
        let rsa_key = EncodingKey::from_rsa_pem(pem.as_bytes()).expect("a key");
        Self(vec![
            Key::new("ES256", ec.as_ref(), &ec_key, Algorithm::ES256),
            Key::new("EdDSA", ed.as_ref(), &ed_key, Algorithm::EdDSA),
            Key::new("RS256", rsa.as_ref(), &rsa_key, Algorithm::RS256),
            Key::new("PS256", rsa.as_ref(), &rsa_key, Algorithm::PS256),
        ])
    }

    /// `text` with each public key in the place of its algorithm's name.
    pub(super) fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, key| {
            text.replace(&format!("@{}@", key.alg), &key.public.to_string())
        })
    }

    /// By algorithm: the private key in PEM and the public JWK.
    pub(super) fn json(&self) -> Value {
        let keys = self.0.iter().map(|key| {
            let private = pem("PRIVATE KEY", &key.pkcs8);
            (
                key.alg.to_owned(),
                json!({"pem": private, "jwk": key.public}),
            )
        });
        Value::Object(keys.collect())
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .map(String::from_utf8_lossy)
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}
