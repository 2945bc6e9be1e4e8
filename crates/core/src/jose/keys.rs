//! The provider's signing keys: making them, choosing one, publishing them.
//!
//! Which key signs and which are published is a function of time alone: a key
//! signs from `active_from_ms` until a younger one does, and is published from
//! its creation until `expires_ms`. So all processes agree without talking.

use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::jwks::KeySet;
use super::sign::{Material, Signer};
use super::vault::Vault;
use crate::model::client::SignAlg;
use crate::model::grant::StoredKey;
use crate::model::secret::Secret;

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The library could not make one.
    #[error("a key could not be generated")]
    Generation,
    /// The bytes are no key of this algorithm.
    #[error("the stored key is no usable {} key", .0.as_str())]
    Unusable(SignAlg),
    /// The bytes of what has this name are not what they were.
    #[error("the stored secret of {0} can't be used")]
    Secret(&'static str),
    /// It is encrypted with a master key that is not given.
    #[error("a stored key is encrypted with another master key (identity.keys.master_key)")]
    Sealed,
    /// The text is too short to be a master key.
    #[error("a master key has 32 random bytes or more")]
    Master,
    /// The library could not sign.
    #[error("signing failed")]
    Signing,
}

/// Makes a key that signs from `active_from_ms` on. RSA takes a noticeable
/// part of a second: call it where blocking is allowed.
///
/// # Errors
/// [`KeyError::Generation`]; also for the algorithms whose keys are
/// clients' secrets.
pub fn generate(alg: SignAlg, now_ms: i64, active_from_ms: i64) -> Result<StoredKey, KeyError> {
    let failed = |_| KeyError::Generation;
    let der: Vec<u8> = match Material::of(alg) {
        Material::Rsa(_) => {
            let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(failed)?;
            let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(failed)?;
            der.as_ref().to_vec()
        }
        Material::Ec(curve, _) => {
            let pair = EcdsaKeyPair::generate(curve).map_err(failed)?;
            pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec()
        }
        Material::Ed => {
            let pair = Ed25519KeyPair::generate().map_err(failed)?;
            pair.to_pkcs8().map_err(failed)?.as_ref().to_vec()
        }
        Material::Hmac(_) => return Err(KeyError::Generation),
    };
    let signer = Signer::from_pkcs8(alg, &der)?;
    Ok(StoredKey {
        kid: signer.kid().unwrap_or_default().to_owned(),
        alg,
        pkcs8: Secret::new(STANDARD.encode(der)),
        created_ms: now_ms,
        active_from_ms,
        expires_ms: None,
    })
}

/// The parsed keys of a moment.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: Vec<RingKey>,
}

#[derive(Debug)]
struct RingKey {
    signer: Arc<Signer>,
    jwk: Map<String, Value>,
    active_from_ms: i64,
    expires_ms: Option<i64>,
}

impl KeyRing {
    /// Parses stored keys. Those of `previous` are not parsed again.
    ///
    /// # Errors
    /// [`KeyError::Unusable`] for a damaged key.
    /// [`KeyError::Sealed`] for one that `vault` can't open.
    pub fn parse(stored: &[StoredKey], vault: &Vault, previous: &Self) -> Result<Self, KeyError> {
        let mut keys = Vec::with_capacity(stored.len());
        for key in stored {
            let known = previous
                .keys
                .iter()
                .find(|known| known.signer.kid() == Some(&key.kid));
            let signer = match known {
                Some(known) => Arc::clone(&known.signer),
                None => {
                    let der = vault.open(key)?;
                    Arc::new(Signer::from_pkcs8(key.alg, &der)?)
                }
            };
            keys.push(RingKey {
                jwk: signer.public_jwk(),
                signer,
                active_from_ms: key.active_from_ms,
                expires_ms: key.expires_ms,
            });
        }
        Ok(Self { keys })
    }

    /// The key that signs with `alg` at `now_ms`. Before the time of the first
    /// one that is the first one: a clock that is behind finds no other, and
    /// whoever reads the store has its public half.
    pub fn signer(&self, alg: SignAlg, now_ms: i64) -> Option<&Arc<Signer>> {
        let of_alg = || {
            let published = self.published(now_ms);
            published.filter(|key| key.signer.alg() == alg)
        };
        let active = of_alg().filter(|key| key.active_from_ms <= now_ms);
        let active = active.max_by_key(|key| key.active_from_ms);
        let key = active.or_else(|| of_alg().min_by_key(|key| key.active_from_ms));
        key.map(|key| &key.signer)
    }

    fn published(&self, now_ms: i64) -> impl Iterator<Item = &RingKey> {
        let lives = move |key: &&RingKey| key.expires_ms.is_none_or(|end| now_ms < end);
        self.keys.iter().filter(lives)
    }

    /// The published key set (RFC 7517 §5).
    pub fn jwks(&self, now_ms: i64) -> Value {
        let keys: Vec<_> = self.published(now_ms).map(|key| &key.jwk).collect();
        json!({ "keys": keys })
    }

    /// The published keys, ready to verify with.
    pub fn verifiers(&self, now_ms: i64) -> KeySet {
        let document = self.jwks(now_ms).to_string();
        KeySet::parse(document.as_bytes()).unwrap_or_default()
    }

    /// The newest key's activation, if there is a key of this algorithm that
    /// will not leave.
    pub fn newest_activation(&self, alg: SignAlg) -> Option<i64> {
        let of_alg = self.keys.iter().filter(|key| key.signer.alg() == alg);
        of_alg
            .filter(|key| key.expires_ms.is_none())
            .map(|key| key.active_from_ms)
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::verify::{Unverified, VerifyError};

    fn ring(stored: &[StoredKey]) -> KeyRing {
        KeyRing::parse(stored, &Vault::default(), &KeyRing::default()).expect("usable keys")
    }

    #[test]
    fn every_algorithm_signs_what_the_verifier_accepts() {
        for alg in SignAlg::OWN {
            let ring = ring(&[generate(alg, 0, 0).expect("a key")]);
            let signer = ring.signer(alg, 0).expect("an active key");
            let token = signer.sign(&json!({"sub": "demo"})).expect("a token");
            let unverified = Unverified::parse(&token).expect("a token");
            assert_eq!(unverified.kid(), signer.kid());
            let claims = unverified
                .verify(&ring.verifiers(0))
                .expect("a good signature");
            assert_eq!(claims["sub"], "demo", "{alg:?}");
        }
    }

    #[test]
    fn before_the_time_of_the_first_key_the_first_one_signs() {
        let alg = SignAlg::ES256;
        let keys = [5000, 9000].map(|from| generate(alg, 1000, from).expect("a key"));
        let ring = ring(&keys);
        for (now, kid) in [
            (0, &keys[0].kid),
            (4999, &keys[0].kid),
            (5000, &keys[0].kid),
            (9000, &keys[1].kid),
        ] {
            let signer = ring.signer(alg, now).expect("a key");
            assert_eq!(signer.kid(), Some(kid.as_str()), "{now}");
        }
        assert!(ring.signer(SignAlg::EdDSA, 0).is_none());
    }

    #[test]
    fn a_secret_signs_what_only_the_secret_verifies() {
        let signer = Signer::from_secret(SignAlg::HS512, "0123456789").expect("a signer");
        let token = signer.sign(&json!({"sub": "demo"})).expect("a token");
        let unverified = Unverified::parse(&token).expect("a token");
        assert!(unverified.verify_hmac(b"0123456789").is_ok());
        assert_eq!(
            unverified.verify_hmac(b"other"),
            Err(VerifyError::BadSignature)
        );
    }

    #[test]
    fn the_key_set_holds_public_members_only() {
        let ring = ring(&[
            generate(SignAlg::RS256, 0, 0).expect("a key"),
            generate(SignAlg::ES256, 0, 0).expect("a key"),
            generate(SignAlg::EdDSA, 0, 0).expect("a key"),
        ]);
        let jwks = ring.jwks(0);
        let keys = jwks["keys"].as_array().expect("keys");
        let kids: std::collections::HashSet<_> = keys.iter().map(|k| k["kid"].as_str()).collect();
        assert_eq!(kids.len(), 3);
        for key in keys {
            assert_eq!(key["use"], "sig");
            for private in ["d", "p", "q", "dp", "dq", "qi", "k"] {
                assert!(key.get(private).is_none(), "{private} is published");
            }
        }
    }

    #[test]
    fn the_thumbprint_is_that_of_rfc_7638() {
        // The example key of RFC 8037 A.2 and its thumbprint of A.3.
        let seed = [
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec,
            0x2c, 0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03,
            0x1c, 0xae, 0x7f, 0x60,
        ];
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a key");
        let der = pair.to_pkcs8().expect("PKCS#8");
        let signer = Signer::from_pkcs8(SignAlg::EdDSA, der.as_ref()).expect("a signer");
        assert_eq!(
            signer.kid(),
            Some("kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k")
        );
    }

    #[test]
    fn a_successor_is_published_before_it_signs_and_the_old_key_after() {
        let mut old = generate(SignAlg::ES256, 0, 0).expect("a key");
        let new = generate(SignAlg::ES256, 50, 100).expect("a key");
        old.expires_ms = Some(200);
        let ring = ring(&[old.clone(), new.clone()]);
        let signs = |now| {
            ring.signer(SignAlg::ES256, now)
                .and_then(|signer| signer.kid())
        };
        assert_eq!(signs(99), Some(old.kid.as_str()));
        assert_eq!(signs(100), Some(new.kid.as_str()));
        let published = |now| ring.jwks(now)["keys"].as_array().map(Vec::len);
        assert_eq!(published(99), Some(2));
        assert_eq!(published(199), Some(2));
        assert_eq!(published(200), Some(1));
    }
}
