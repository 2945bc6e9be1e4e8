//! Public keys of credentials (RFC 9052 §7, RFC 9053 §7, RFC 8230 §4).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ciborium::Value as Cbor;
use serde::{Deserialize, Serialize};

use super::{WebauthnError, cbor, member};

pub(super) const ES256: i64 = -7;
pub(super) const EDDSA: i64 = -8;
pub(super) const RS256: i64 = -257;

/// Longest modulus, in bytes: 4096 bits.
const MODULUS_MAX: usize = 512;

/// A public key of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "alg")]
pub(in crate::factors) enum PublicKey {
    /// ECDSA on P-256 with SHA-256.
    ES256 {
        /// The point, uncompressed (SEC 1 §2.3.3).
        #[serde(with = "base64url")]
        point: Vec<u8>,
    },
    /// Ed25519.
    EdDSA {
        #[serde(with = "base64url")]
        x: Vec<u8>,
    },
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RS256 {
        #[serde(with = "base64url")]
        n: Vec<u8>,
        #[serde(with = "base64url")]
        e: Vec<u8>,
    },
}

mod base64url {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{Engine, URL_SAFE_NO_PAD};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        URL_SAFE_NO_PAD.decode(text).map_err(D::Error::custom)
    }
}

impl PublicKey {
    /// The key at the start of `bytes`, and what follows it.
    pub(super) fn of_cose(bytes: &[u8]) -> Result<(Self, &[u8]), WebauthnError> {
        const WHAT: &str = "the public key";
        let (Cbor::Map(map), rest) = cbor(bytes, WHAT)? else {
            return Err(WebauthnError::Malformed(WHAT));
        };
        let find = |label: i64| member(&map, &Cbor::Integer(label.into()));
        let number = |label| {
            let value = find(label).and_then(Cbor::as_integer);
            value.and_then(|value| i64::try_from(value).ok())
        };
        let bytes_of = |label| find(label).and_then(Cbor::as_bytes).cloned();
        let of_length = |label, length| {
            bytes_of(label)
                .filter(|bytes| bytes.len() == length)
                .ok_or(WebauthnError::Key)
        };
        // Labels 1 and 3 are type and algorithm; below 0 is what the type says.
        let key = match (number(3), number(1), number(-1)) {
            (Some(ES256), Some(2), Some(1)) => {
                let mut point = vec![4];
                point.extend(of_length(-2, 32)?);
                point.extend(of_length(-3, 32)?);
                Self::ES256 { point }
            }
            (Some(EDDSA), Some(1), Some(6)) => Self::EdDSA {
                x: of_length(-2, 32)?,
            },
            (Some(RS256), Some(3), _) => {
                let n = bytes_of(-1).filter(|n| (256..=MODULUS_MAX).contains(&n.len()));
                let e = bytes_of(-2).filter(|e| (1..=4).contains(&e.len()));
                Self::RS256 {
                    n: n.ok_or(WebauthnError::Key)?,
                    e: e.ok_or(WebauthnError::Key)?,
                }
            }
            (Some(ES256 | EDDSA), ..) => return Err(WebauthnError::Key),
            (Some(RS256), ..) => return Err(WebauthnError::Key),
            _ => return Err(WebauthnError::Algorithm),
        };
        key.is_possible()?;
        Ok((key, rest))
    }

    /// Refuses points that are not on their curve, and moduli that can't be.
    fn is_possible(&self) -> Result<(), WebauthnError> {
        use aws_lc_rs::signature::ParsedPublicKey;
        let parsed = match self {
            Self::ES256 { point } => ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point),
            Self::EdDSA { x } => ParsedPublicKey::new(&ED25519, x),
            // Small exponents and even moduli fail when they are used.
            Self::RS256 { .. } => return Ok(()),
        };
        parsed.map(drop).map_err(|_| WebauthnError::Key)
    }

    /// Checks a signature over `message`.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), WebauthnError> {
        let verified = match self {
            Self::ES256 { point } => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature)
            }
            Self::EdDSA { x } => UnparsedPublicKey::new(&ED25519, x).verify(message, signature),
            Self::RS256 { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
        };
        verified.map_err(|_| WebauthnError::Signature)
    }
}
