//! An authenticator of software, and a browser that does what it is told: both
//! ceremonies as tests need them, right or wrong.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ciborium::Value as Cbor;
use serde_json::{Value, json};

/// What the authenticator and the browser say; a test changes what shall be
/// wrong.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticatorBehaviour {
    pub(crate) challenge: Vec<u8>,
    pub(crate) origin: String,
    pub(crate) rp_id: String,
    pub(crate) kind: Option<&'static str>,
    /// Members of the client data that are put in the place of, or beside, its
    /// own.
    pub(crate) client_data: Value,
    pub(crate) flags: u8,
    pub(crate) count: u32,
    pub(crate) format: &'static str,
    pub(crate) statement: Cbor,
    /// What follows the authenticator data.
    pub(crate) trailer: Vec<u8>,
}

impl AuthenticatorBehaviour {
    /// A user who was present and verified, and asks with `challenge`.
    pub(crate) fn right(challenge: &[u8], origin: &str, rp_id: &str) -> Self {
        Self {
            challenge: challenge.to_vec(),
            origin: origin.to_owned(),
            rp_id: rp_id.to_owned(),
            kind: None,
            client_data: json!({}),
            flags: 0x05,
            count: 0,
            format: "none",
            statement: Cbor::Map(Vec::new()),
            trailer: Vec::new(),
        }
    }

    fn client_data(&self, kind: &str) -> Vec<u8> {
        let mut data = json!({
            "type": self.kind.unwrap_or(kind),
            "challenge": URL_SAFE_NO_PAD.encode(&self.challenge),
            "origin": self.origin,
            "crossOrigin": false,
        });
        for (name, value) in self.client_data.as_object().into_iter().flatten() {
            data[name] = value.clone();
        }
        data.to_string().into_bytes()
    }

    fn data(&self, more: u8, credential: &[u8]) -> Vec<u8> {
        let mut data = digest(&SHA256, self.rp_id.as_bytes()).as_ref().to_vec();
        data.push(self.flags | more);
        data.extend(self.count.to_be_bytes());
        data.extend(credential);
        data.extend(&self.trailer);
        data
    }
}

enum Key {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

/// An authenticator with one credential.
pub(crate) struct SoftwareAuthenticator {
    pub(crate) id: Vec<u8>,
    key: Key,
}

impl SoftwareAuthenticator {
    pub(crate) fn es256(id: &[u8]) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING);
        Self::new(id, Key::Es256(key.expect("a key")))
    }

    pub(crate) fn ed_dsa(id: &[u8]) -> Self {
        Self::new(id, Key::EdDsa(Ed25519KeyPair::generate().expect("a key")))
    }

    pub(crate) fn rs256(id: &[u8]) -> Self {
        let key = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048);
        Self::new(id, Key::Rs256(key.expect("a key")))
    }

    fn new(id: &[u8], key: Key) -> Self {
        Self {
            id: id.to_vec(),
            key,
        }
    }

    /// The public key, as COSE has it.
    pub(crate) fn cose(&self) -> Vec<(Cbor, Cbor)> {
        let int = |n: i64| Cbor::Integer(n.into());
        match &self.key {
            Key::Es256(key) => {
                let point = key.public_key().as_ref();
                vec![
                    (int(1), int(2)),
                    (int(3), int(-7)),
                    (int(-1), int(1)),
                    (int(-2), Cbor::Bytes(point[1..33].to_vec())),
                    (int(-3), Cbor::Bytes(point[33..].to_vec())),
                ]
            }
            Key::EdDsa(key) => vec![
                (int(1), int(1)),
                (int(3), int(-8)),
                (int(-1), int(6)),
                (int(-2), Cbor::Bytes(key.public_key().as_ref().to_vec())),
            ],
            Key::Rs256(key) => {
                let n = key.public_key().modulus().big_endian_without_leading_zero();
                let e = key
                    .public_key()
                    .exponent()
                    .big_endian_without_leading_zero();
                vec![
                    (int(1), int(3)),
                    (int(3), int(-257)),
                    (int(-1), Cbor::Bytes(n.to_vec())),
                    (int(-2), Cbor::Bytes(e.to_vec())),
                ]
            }
        }
    }

    /// Client data and attestation object of a new credential.
    pub(crate) fn create(&self, behaviour: &AuthenticatorBehaviour) -> (Vec<u8>, Vec<u8>) {
        self.create_with(behaviour, &Cbor::Map(self.cose()))
    }

    /// As [`SoftwareAuthenticator::create`], with this in the place of the key.
    pub(crate) fn create_with(
        &self,
        behaviour: &AuthenticatorBehaviour,
        key: &Cbor,
    ) -> (Vec<u8>, Vec<u8>) {
        let mut credential = vec![0; 16];
        let length = u16::try_from(self.id.len()).expect("short");
        credential.extend(length.to_be_bytes());
        credential.extend(&self.id);
        ciborium::into_writer(key, &mut credential).expect("CBOR");
        let data = behaviour.data(0x40, &credential);
        (
            behaviour.client_data("webauthn.create"),
            object(behaviour, data),
        )
    }

    /// Client data, authenticator data and signature.
    pub(crate) fn get(&self, behaviour: &AuthenticatorBehaviour) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let client_data = behaviour.client_data("webauthn.get");
        let data = behaviour.data(0, &[]);
        let mut signed = data.clone();
        signed.extend(digest(&SHA256, &client_data).as_ref());
        (client_data, data, self.sign(&signed))
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Es256(key) => key
                .sign(&random, message)
                .expect("signed")
                .as_ref()
                .to_vec(),
            Key::EdDsa(key) => key.sign(message).as_ref().to_vec(),
            Key::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.expect("signed");
                signature
            }
        }
    }
}

/// An attestation object around authenticator data.
pub(crate) fn object(behaviour: &AuthenticatorBehaviour, data: Vec<u8>) -> Vec<u8> {
    let text = |text: &str| Cbor::Text(text.to_owned());
    let object = Cbor::Map(vec![
        (text("fmt"), text(behaviour.format)),
        (text("attStmt"), behaviour.statement.clone()),
        (text("authData"), Cbor::Bytes(data)),
    ]);
    let mut bytes = Vec::new();
    ciborium::into_writer(&object, &mut bytes).expect("CBOR");
    bytes
}
