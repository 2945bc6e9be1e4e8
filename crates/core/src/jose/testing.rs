//! An issuer's signing keys, for tests.

use std::sync::{Arc, OnceLock};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A signing key with a `kid`.
#[derive(Clone)]
pub struct TestKey {
    /// Its `kid`.
    pub kid: &'static str,
    pair: Pair,
}

#[derive(Clone)]
enum Pair {
    Rsa(Arc<RsaKeyPair>),
    Ec(Arc<EcdsaKeyPair>, &'static str),
    Ed(Arc<Ed25519KeyPair>),
}

impl TestKey {
    /// An RSA key: one per process and `other`, as making them takes long.
    pub fn rsa(kid: &'static str, other: bool) -> Self {
        static KEYS: [OnceLock<Arc<RsaKeyPair>>; 2] = [OnceLock::new(), OnceLock::new()];
        let pair = KEYS[usize::from(other)]
            .get_or_init(|| Arc::new(RsaKeyPair::generate(KeySize::Rsa2048).expect("RSA key")));
        Self {
            kid,
            pair: Pair::Rsa(Arc::clone(pair)),
        }
    }

    /// A key of P-256.
    pub fn es256(kid: &'static str) -> Self {
        Self::ec(kid, "ES256")
    }

    /// A key of the curve that `alg` signs with.
    pub fn ec(kid: &'static str, alg: &'static str) -> Self {
        let parameters = match alg {
            "ES256" => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            "ES384" => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        };
        let pair = EcdsaKeyPair::generate(parameters).expect("EC key");
        Self {
            kid,
            pair: Pair::Ec(Arc::new(pair), alg),
        }
    }

    /// A key of Ed25519.
    pub fn ed25519(kid: &'static str) -> Self {
        let pair = Ed25519KeyPair::generate().expect("Ed25519 key");
        Self {
            kid,
            pair: Pair::Ed(Arc::new(pair)),
        }
    }

    /// The algorithm that the key uses unless told otherwise.
    pub fn alg(&self) -> &'static str {
        match &self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_, alg) => alg,
            Pair::Ed(_) => "EdDSA",
        }
    }

    /// The public key as a JWK without `alg`.
    pub fn jwk(&self) -> Value {
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public = pair.public_key();
                let n = public.modulus().big_endian_without_leading_zero();
                let e = public.exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "n": b64(n), "e": b64(e)})
            }
            Pair::Ec(pair, alg) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let crv = match *alg {
                    "ES256" => "P-256",
                    "ES384" => "P-384",
                    _ => "P-521",
                };
                json!({"kty": "EC", "crv": crv, "x": b64(x), "y": b64(y)})
            }
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": b64(pair.public_key().as_ref())})
            }
        };
        jwk["kid"] = self.kid.into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// A token with the usual header.
    pub fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": self.alg(), "kid": self.kid, "typ": "JWT"});
        self.sign(&header.to_string(), &claims.to_string())
    }

    /// A token of any header and payload, signed as the header's `alg` says
    /// where the key can do that.
    pub fn sign(&self, header: &str, payload: &str) -> String {
        let signed = signing_input(header, payload);
        let alg = serde_json::from_str::<Value>(header)
            .ok()
            .and_then(|header| header["alg"].as_str().map(str::to_owned))
            .unwrap_or_default();
        let rng = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                let encoding: &'static dyn RsaEncoding = match alg.as_str() {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                pair.sign(encoding, &rng, signed.as_bytes(), &mut out)
                    .expect("RSA signs");
                out
            }
            Pair::Ec(pair, _) => {
                let signature = pair.sign(&rng, signed.as_bytes()).expect("EC signs");
                signature.as_ref().to_vec()
            }
            Pair::Ed(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A token signed with a shared secret.
pub fn hs256(secret: &[u8], header: &str, payload: &str) -> String {
    let signed = signing_input(header, payload);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

/// A key set document of these keys.
pub fn jwks(keys: &[&TestKey]) -> Value {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()})
}

fn signing_input(header: &str, payload: &str) -> String {
    format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(payload)
    )
}
