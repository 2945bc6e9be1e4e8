//! A public key as operators write it: PEM, for one algorithm.

use aws_lc_rs::signature::{ParsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::algorithm::Algorithm;
use super::jwks;

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
            Some(parameters) if is_sound_rsa(&der) => parameters,
            Some(_) => return None,
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

/// Whether there is an RSA key, as RFC 5280 or RFC 8017 has it, that proves anything.
fn is_sound_rsa(der: &[u8]) -> bool {
    let info = SubjectPublicKeyInfo::from_der(der);
    let key = match &info {
        Ok((_, info)) => &*info.subject_public_key.data,
        Err(_) => der,
    };
    let bare = |number: &[u8]| {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        number.get(zeros..).unwrap_or_default().to_vec()
    };
    let numbers = RSAPublicKey::from_der(key);
    numbers.is_ok_and(|(_, key)| jwks::is_sound_rsa(&bare(key.modulus), &bare(key.exponent)))
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

    /// The key of this modulus and exponent, as RFC 8017 has it and as RFC 5280 has it.
    fn rsa(modulus: &[u8], exponent: &[u8]) -> [String; 2] {
        fn of(tag: u8, content: &[u8]) -> Vec<u8> {
            let [high, low] = u16::try_from(content.len()).expect("short").to_be_bytes();
            let length = match (high, low) {
                (0, ..0x80) => &[low][..],
                (0, _) => &[0x81, low],
                _ => &[0x82, high, low],
            };
            [&[tag][..], length, content].concat()
        }
        let number = |bytes: &[u8]| {
            let sign = bytes.first().filter(|high| **high >= 0x80).map(|_| 0);
            of(
                2,
                &sign
                    .into_iter()
                    .chain(bytes.iter().copied())
                    .collect::<Vec<_>>(),
            )
        };
        let key = of(0x30, &[number(modulus), number(exponent)].concat());
        let kind = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
        let bits = of(3, &[&[0], &*key].concat());
        let info = of(0x30, &[&kind[..], &bits].concat());
        [("RSA PUBLIC KEY", key), ("PUBLIC KEY", info)].map(|(kind, der)| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----")
        })
    }

    #[test]
    fn an_rsa_key_that_proves_nothing_is_none() {
        for (bytes, exponent, is_one) in [
            (256, &[1, 0, 1][..], true),
            (256, &[3], true),
            (128, &[1, 0, 1], false),
            (255, &[1, 0, 1], false),
            (1025, &[1, 0, 1], false),
            (256, &[1], false),
            (256, &[2], false),
            (256, &[1, 0, 0, 0, 1], false),
        ] {
            let modulus = vec![0xc1; bytes];
            for pem in rsa(&modulus, exponent) {
                let is_read = is_sound_rsa(&der(&pem).expect("DER"));
                assert_eq!(is_read, is_one, "{bytes} {exponent:?}");
                if !is_one {
                    assert!(PublicKey::read(Algorithm::Rs256, &pem).is_none());
                }
            }
        }
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
