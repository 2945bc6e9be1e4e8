//! The signature algorithms of JSON Web Signatures (RFC 7518, 8037, 9864).

use aws_lc_rs::{hmac, rsa, signature};

use crate::model::client::SignAlg;

/// A signature algorithm that a token may name. `none` is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// Ed25519, as `EdDSA` or `Ed25519`.
    EdDsa,
}

use Algorithm::*;

impl Algorithm {
    /// The six algorithms of an RSA key.
    pub(super) const RSA: [Self; 6] = [Rs256, Rs384, Rs512, Ps256, Ps384, Ps512];

    /// The algorithm called `name`, exactly.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "HS256" => Hs256,
            "HS384" => Hs384,
            "HS512" => Hs512,
            "RS256" => Rs256,
            "RS384" => Rs384,
            "RS512" => Rs512,
            "PS256" => Ps256,
            "PS384" => Ps384,
            "PS512" => Ps512,
            "ES256" => Es256,
            "ES384" => Es384,
            "ES512" => Es512,
            "EdDSA" | "Ed25519" => EdDsa,
            _ => return None,
        })
    }

    /// Whether the key is a shared secret.
    pub fn is_symmetric(self) -> bool {
        self.hmac().is_some()
    }

    /// The same algorithm as records name it.
    pub fn as_sign_alg(self) -> SignAlg {
        match self {
            Hs256 => SignAlg::HS256,
            Hs384 => SignAlg::HS384,
            Hs512 => SignAlg::HS512,
            Rs256 => SignAlg::RS256,
            Rs384 => SignAlg::RS384,
            Rs512 => SignAlg::RS512,
            Ps256 => SignAlg::PS256,
            Ps384 => SignAlg::PS384,
            Ps512 => SignAlg::PS512,
            Es256 => SignAlg::ES256,
            Es384 => SignAlg::ES384,
            Es512 => SignAlg::ES512,
            EdDsa => SignAlg::EdDSA,
        }
    }

    /// How an HMAC of this algorithm is made.
    pub(super) fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            Hs256 => Some(hmac::HMAC_SHA256),
            Hs384 => Some(hmac::HMAC_SHA384),
            Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }

    /// How an RSA key of at least 2048 bits is used with this algorithm.
    pub(super) fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }

    /// How a key on this algorithm's only curve is used, with the length of
    /// a coordinate in bytes.
    pub(super) fn curve(self) -> Option<(&'static dyn signature::VerificationAlgorithm, usize)> {
        match self {
            Es256 => Some((&signature::ECDSA_P256_SHA256_FIXED, 32)),
            Es384 => Some((&signature::ECDSA_P384_SHA384_FIXED, 48)),
            Es512 => Some((&signature::ECDSA_P521_SHA512_FIXED, 66)),
            EdDsa => Some((&signature::ED25519, 32)),
            _ => None,
        }
    }
}

/// Parameters of a verification with an RSA key.
pub(super) type RsaParameters = signature::RsaParameters;
/// The two numbers of an RSA public key.
pub(super) type RsaComponents<'a> = rsa::PublicKeyComponents<&'a [u8]>;
