//! Signing tokens with keys that were parsed once.
//!
//! Parsing an RSA key costs more than signing with it, so a [`Signer`] keeps
//! the parsed key and the encoded header.

mod jwk;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
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
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    /// With the name of its curve.
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
    Hmac(Box<hmac::Key>),
}

/// The kind of key that an algorithm needs.
pub(super) enum Material {
    Rsa(&'static dyn RsaEncoding),
    /// With the name of the curve.
    Ec(&'static EcdsaSigningAlgorithm, &'static str),
    Ed,
    Hmac(hmac::Algorithm),
}

impl Material {
    pub(super) fn of(alg: SignAlg) -> Self {
        match alg {
            SignAlg::RS256 => Self::Rsa(&signature::RSA_PKCS1_SHA256),
            SignAlg::RS384 => Self::Rsa(&signature::RSA_PKCS1_SHA384),
            SignAlg::RS512 => Self::Rsa(&signature::RSA_PKCS1_SHA512),
            SignAlg::PS256 => Self::Rsa(&signature::RSA_PSS_SHA256),
            SignAlg::PS384 => Self::Rsa(&signature::RSA_PSS_SHA384),
            SignAlg::PS512 => Self::Rsa(&signature::RSA_PSS_SHA512),
            SignAlg::ES256 => Self::Ec(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            SignAlg::ES384 => Self::Ec(&signature::ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            SignAlg::ES512 => Self::Ec(&signature::ECDSA_P521_SHA512_FIXED_SIGNING, "P-521"),
            SignAlg::EdDSA => Self::Ed,
            SignAlg::HS256 => Self::Hmac(hmac::HMAC_SHA256),
            SignAlg::HS384 => Self::Hmac(hmac::HMAC_SHA384),
            SignAlg::HS512 => Self::Hmac(hmac::HMAC_SHA512),
        }
    }
}

impl Signer {
    /// The signer of a private key: PKCS#8, DER. Its `kid` is the key's
    /// thumbprint (RFC 7638).
    ///
    /// # Errors
    /// [`KeyError::Unusable`] when the bytes are no key of this algorithm.
    pub fn from_pkcs8(alg: SignAlg, pkcs8: &[u8]) -> Result<Self, KeyError> {
        let unusable = |_| KeyError::Unusable(alg);
        let key = match Material::of(alg) {
            Material::Rsa(encoding) => {
                let pair = RsaKeyPair::from_pkcs8(pkcs8).map_err(unusable)?;
                Key::Rsa(pair, encoding)
            }
            Material::Ec(curve, name) => {
                let pair = EcdsaKeyPair::from_pkcs8(curve, pkcs8).map_err(unusable)?;
                Key::Ec(pair, name)
            }
            Material::Ed => Key::Ed(Ed25519KeyPair::from_pkcs8(pkcs8).map_err(unusable)?),
            Material::Hmac(_) => return Err(KeyError::Unusable(alg)),
        };
        let mut signer = Self::with(alg, None, key);
        signer.kid = Some(signer.thumbprint());
        signer.header = header(alg, signer.kid.as_deref(), JWT);
        Ok(signer)
    }

    /// The signer whose key is a client's secret (OpenID Connect Core §10.1).
    /// Its tokens name no key. `None` for algorithms with other keys.
    pub fn from_secret(alg: SignAlg, secret: &str) -> Option<Self> {
        let Material::Hmac(hash) = Material::of(alg) else {
            return None;
        };
        let key = hmac::Key::new(hash, secret.as_bytes());
        Some(Self::with(alg, None, Key::Hmac(Box::new(key))))
    }

    fn with(alg: SignAlg, kid: Option<String>, key: Key) -> Self {
        let header = header(alg, kid.as_deref(), JWT);
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
        self.sign_below(&self.header, claims)
    }

    /// As [`Signer::sign`], with a media type of its own in the header (RFC 8725
    /// §3.11).
    ///
    /// # Errors
    /// As [`Signer::sign`].
    pub fn sign_as(&self, typ: &str, claims: &impl Serialize) -> Result<String, KeyError> {
        self.sign_below(&header(self.alg, self.kid.as_deref(), typ), claims)
    }

    fn sign_below(&self, header: &str, claims: &impl Serialize) -> Result<String, KeyError> {
        let claims = serde_json::to_vec(claims).map_err(|_| KeyError::Signing)?;
        let mut token = String::with_capacity(header.len() + claims.len() * 4 / 3 + 350);
        token.push_str(header);
        URL_SAFE_NO_PAD.encode_string(&claims, &mut token);
        let signature = self.signature(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature)
                    .map_err(|_| KeyError::Signing)?;
                Ok(signature)
            }
            Key::Ec(pair, _) => {
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
            Key::Rsa(pair, _) => {
                let public = pair.public_key();
                let modulus = public.modulus().big_endian_without_leading_zero().to_vec();
                let exponent = public.exponent().big_endian_without_leading_zero().to_vec();
                json!({"kty": "RSA", "n": encode(&modulus), "e": encode(&exponent)})
            }
            Key::Ec(pair, curve) => {
                // Uncompressed point: 0x04, x, y of the same length.
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
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

/// The media type of tokens that have no other.
const JWT: &str = "JWT";

fn header(alg: SignAlg, kid: Option<&str>, typ: &str) -> String {
    let header = match kid {
        Some(kid) => json!({"typ": typ, "alg": alg.as_str(), "kid": kid}),
        None => json!({"typ": typ, "alg": alg.as_str()}),
    };
    let mut encoded = URL_SAFE_NO_PAD.encode(header.to_string());
    encoded.push('.');
    encoded
}

/// `at_hash`, `c_hash` and `s_hash`: the left half of the hash that `alg` uses,
/// base64url (OpenID Connect Core §3.1.3.6).
pub fn half_hash(alg: SignAlg, value: &str) -> String {
    let algorithm = match alg {
        SignAlg::RS256 | SignAlg::PS256 | SignAlg::ES256 | SignAlg::HS256 => &digest::SHA256,
        SignAlg::RS384 | SignAlg::PS384 | SignAlg::ES384 | SignAlg::HS384 => &digest::SHA384,
        SignAlg::RS512 | SignAlg::PS512 | SignAlg::ES512 | SignAlg::HS512 | SignAlg::EdDSA => {
            &digest::SHA512
        }
    };
    let digest = digest::digest(algorithm, value.as_bytes());
    let bytes = digest.as_ref();
    URL_SAFE_NO_PAD.encode(&bytes[..bytes.len() / 2])
}
