//! A public key as operators write it: PEM, for one algorithm.

use aws_lc_rs::signature::{ParsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::algorithm::Algorithm;

/// What can go before the key itself in a PEM text.
const KINDS: [&str; 2] = ["PUBLIC KEY", "RSA PUBLIC KEY"];

/// A public key that verifies one algorithm.
#[derive(Debug)]
pub struct PublicKey {
    algorithm: Algorithm,
    key: ParsedPublicKey,
}

impl PublicKey {
    /// The key of a PEM text, for `algorithm`. `None`: there is none in it, or it is
    /// not one of that algorithm, or an RSA key below 2048 bits.
    pub fn read(algorithm: Algorithm, pem: &str) -> Option<Self> {
        let der = der(pem)?;
        let parameters: &'static dyn VerificationAlgorithm = match algorithm.rsa() {
            Some(parameters) => parameters,
            None => algorithm.curve()?.0,
        };
        let key = ParsedPublicKey::new(parameters, der).ok()?;
        Some(Self { algorithm, key })
    }

    /// The one algorithm that it verifies.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether its owner has signed `message`.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }
}

/// The bytes of the first public key in a PEM text.
fn der(pem: &str) -> Option<Vec<u8>> {
    KINDS.iter().find_map(|kind| {
        let begin = format!("-----BEGIN {kind}-----");
        let (_, rest) = pem.split_once(&begin)?;
        let (body, _) = rest.split_once(&format!("-----END {kind}-----"))?;
        let text: String = body.split_ascii_whitespace().collect();
        STANDARD.decode(text).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

    #[test]
    fn a_key_is_read_for_its_own_algorithm_only() {
        let pem = |algorithm| {
            let pair = KeyPair::generate_for(algorithm).expect("a key");
            pair.public_key_pem()
        };
        let (point, edwards) = (pem(&PKCS_ECDSA_P256_SHA256), pem(&PKCS_ED25519));
        assert!(PublicKey::read(Algorithm::Es256, &point).is_some());
        assert!(PublicKey::read(Algorithm::EdDsa, &edwards).is_some());
        for algorithm in [
            Algorithm::Rs256,
            Algorithm::Ps512,
            Algorithm::EdDsa,
            Algorithm::Hs256,
        ] {
            assert!(
                PublicKey::read(algorithm, &point).is_none(),
                "{algorithm:?}"
            );
        }
        assert!(PublicKey::read(Algorithm::Es256, &edwards).is_none());
    }

    #[test]
    fn what_is_no_key_is_none() {
        for text in [
            "",
            "key",
            "-----BEGIN PUBLIC KEY-----",
            "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----",
            "-----BEGIN PUBLIC KEY-----\n!!\n-----END PUBLIC KEY-----",
        ] {
            assert!(PublicKey::read(Algorithm::Rs256, text).is_none(), "{text}");
        }
    }
}
