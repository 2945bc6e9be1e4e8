//! Signing tokens with keys that were parsed once.
//!
//! Parsing an RSA key costs more than signing with it, so a [`Signer`] keeps
//! the parsed key and the encoded header.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use aws_lc_rs::{digest, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::keys::KeyError;
use crate::model::client::SignAlg;

/// A key that signs tokens, and the header that they get.
#[derive(Debug)]
pub struct Signer {
    alg: SignAlg,
    kid: Option<String>,
    /// The header, encoded, with the dot.
    header: String,
    key: Key,
}

#[derive(Debug)]
enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Hmac(Box<hmac::Key>),
}

impl Signer {
    /// The signer of a private key: PKCS#8, DER. Its `kid` is the key's
    /// thumbprint (RFC 7638).
    ///
    /// # Errors
    /// [`KeyError::Unusable`] when the bytes are no key of this algorithm.
    pub fn from_pkcs8(alg: SignAlg, pkcs8: &[u8]) -> Result<Self, KeyError> {
        let unusable = |_| KeyError::Unusable(alg);
        let key = match alg {
            SignAlg::RS256 => Key::Rsa(RsaKeyPair::from_pkcs8(pkcs8).map_err(unusable)?),
            SignAlg::ES256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
                Key::Ec(pair.map_err(unusable)?)
            }
            SignAlg::EdDSA => Key::Ed(Ed25519KeyPair::from_pkcs8(pkcs8).map_err(unusable)?),
            SignAlg::HS256 => return Err(KeyError::Unusable(alg)),
        };
        let mut signer = Self::with(alg, None, key);
        signer.kid = Some(signer.thumbprint());
        signer.header = header(alg, signer.kid.as_deref());
        Ok(signer)
    }

    /// The HS256 signer whose key is a client's secret (OpenID Connect Core
    /// §10.1). Its tokens name no key.
    pub fn from_secret(secret: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self::with(SignAlg::HS256, None, Key::Hmac(Box::new(key)))
    }

    fn with(alg: SignAlg, kid: Option<String>, key: Key) -> Self {
        let header = header(alg, kid.as_deref());
        Self {
            alg,
            kid,
            header,
            key,
        }
    }

    /// The algorithm it signs with.
    pub fn alg(&self) -> SignAlg {
        self.alg
    }

    /// The name of its key, if others can know it.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// A compact JWS (RFC 7515 §7.1) of `claims`.
    ///
    /// # Errors
    /// [`KeyError::Signing`] when the claims are no JSON or the library fails.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, KeyError> {
        let claims = serde_json::to_vec(claims).map_err(|_| KeyError::Signing)?;
        let mut token = String::with_capacity(self.header.len() + claims.len() * 4 / 3 + 350);
        token.push_str(&self.header);
        URL_SAFE_NO_PAD.encode_string(&claims, &mut token);
        let signature = self.signature(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(|_| KeyError::Signing)?;
                Ok(signature)
            }
            Key::Ec(pair) => {
                let signature = pair.sign(&random, message).map_err(|_| KeyError::Signing)?;
                Ok(signature.as_ref().to_vec())
            }
            Key::Ed(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Key::Hmac(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
        }
    }

    /// The members that make the public key, and nothing else of it; none for
    /// a shared secret.
    fn public_members(&self) -> Map<String, Value> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let members = match &self.key {
            Key::Rsa(pair) => {
                let public = pair.public_key();
                let modulus = public.modulus().big_endian_without_leading_zero().to_vec();
                let exponent = public.exponent().big_endian_without_leading_zero().to_vec();
                json!({"kty": "RSA", "n": encode(&modulus), "e": encode(&exponent)})
            }
            Key::Ec(pair) => {
                // Uncompressed point: 0x04, x, y of 32 bytes each.
                let point = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)})
            }
            Key::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())})
            }
            Key::Hmac(_) => json!({}),
        };
        match members {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// RFC 7638: the required members in lexicographic order, which is how a
    /// `Map` holds them.
    fn thumbprint(&self) -> String {
        let canonical = Value::Object(self.public_members()).to_string();
        let digest = digest::digest(&digest::SHA256, canonical.as_bytes());
        URL_SAFE_NO_PAD.encode(digest)
    }

    /// The public key as a JSON Web Key with `kid`, `use` and `alg`.
    pub fn public_jwk(&self) -> Map<String, Value> {
        let mut jwk = self.public_members();
        jwk.insert("use".to_owned(), json!("sig"));
        jwk.insert("alg".to_owned(), json!(self.alg.as_str()));
        jwk.insert("kid".to_owned(), json!(self.kid));
        jwk
    }
}

fn header(alg: SignAlg, kid: Option<&str>) -> String {
    let header = match kid {
        Some(kid) => json!({"typ": "JWT", "alg": alg.as_str(), "kid": kid}),
        None => json!({"typ": "JWT", "alg": alg.as_str()}),
    };
    let mut encoded = URL_SAFE_NO_PAD.encode(header.to_string());
    encoded.push('.');
    encoded
}

/// `at_hash` and its like: the left half of the hash that `alg` uses, base64url
/// (OpenID Connect Core §3.1.3.6).
pub fn half_hash(alg: SignAlg, value: &str) -> String {
    let algorithm = match alg {
        SignAlg::RS256 | SignAlg::ES256 | SignAlg::HS256 => &digest::SHA256,
        SignAlg::EdDSA => &digest::SHA512,
    };
    let digest = digest::digest(algorithm, value.as_bytes());
    let bytes = digest.as_ref();
    URL_SAFE_NO_PAD.encode(&bytes[..bytes.len() / 2])
}
