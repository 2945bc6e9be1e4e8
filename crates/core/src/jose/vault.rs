//! Private keys encrypted at rest, with a master key that is not in the store.
//!
//! A sealed key says which master key opens it, and is bound to its name and
//! algorithm: one can't be put in the place of another.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, hkdf};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::keys::KeyError;
use crate::model::grant::StoredKey;
use crate::model::secret::Secret;

/// How sealed keys begin; no base64 has a colon.
const SEALED: &str = "sealed:1:";

/// The shortest text of a master key, in bytes: it must be random, and no
/// password.
pub const MASTER_KEY_MIN: usize = 32;

/// What private keys are sealed and opened with.
#[derive(Default)]
pub struct Vault {
    /// The first one seals; all of them open.
    keys: Vec<MasterKey>,
}

struct MasterKey {
    id: String,
    key: RandomizedNonceKey,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|key| key.id.as_str()).collect();
        write!(f, "Vault({ids:?})")
    }
}

impl Vault {
    /// A vault that seals with the first of these texts and opens with all.
    /// With none, keys are stored as they are.
    ///
    /// # Errors
    /// [`KeyError::Master`] for a text shorter than [`MASTER_KEY_MIN`] bytes.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a Secret>) -> Result<Self, KeyError> {
        let keys = texts.into_iter().map(MasterKey::derive);
        Ok(Self {
            keys: keys.collect::<Result<_, _>>()?,
        })
    }

    /// The private key of `stored`: PKCS#8, DER.
    ///
    /// # Errors
    /// [`KeyError::Sealed`] when no master key of ours opens it;
    /// [`KeyError::Unusable`] when it is damaged.
    pub fn open(&self, stored: &StoredKey) -> Result<Vec<u8>, KeyError> {
        self.opened(&aad(stored), &stored.pkcs8, KeyError::Unusable(stored.alg))
    }

    /// What is in `stored`, a text in base64 of this name.
    ///
    /// # Errors
    /// As [`Vault::open`]; [`KeyError::Secret`] when it is damaged.
    pub fn open_text(&self, name: &'static str, stored: &Secret) -> Result<Vec<u8>, KeyError> {
        self.opened(&aad_of(name), stored, KeyError::Secret(name))
    }

    /// As [`Vault::open_text`], for one of many texts of this name: that of
    /// `owner`, and of nobody else.
    ///
    /// # Errors
    /// As [`Vault::open_text`].
    pub fn open_own(
        &self,
        name: &'static str,
        owner: &str,
        stored: &Secret,
    ) -> Result<Vec<u8>, KeyError> {
        let aad = format!("{}\n{owner}", aad_of(name));
        self.opened(&aad, stored, KeyError::Secret(name))
    }

    /// As [`Vault::seal_text`], for one of many texts of this name: that of
    /// `owner`.
    ///
    /// # Errors
    /// As [`Vault::open_text`].
    pub fn seal_own(
        &self,
        name: &'static str,
        owner: &str,
        stored: &Secret,
    ) -> Result<Option<Secret>, KeyError> {
        let aad = format!("{}\n{owner}", aad_of(name));
        self.sealed(&aad, stored, KeyError::Secret(name))
    }

    fn opened(&self, aad: &str, stored: &Secret, damaged: KeyError) -> Result<Vec<u8>, KeyError> {
        let text = stored.expose();
        let Some(sealed) = text.strip_prefix(SEALED) else {
            return STANDARD.decode(text).map_err(|_| damaged);
        };
        let (id, sealed) = sealed.split_once(':').ok_or(damaged)?;
        let master = self.keys.iter().find(|key| key.id == id);
        let master = master.ok_or(KeyError::Sealed)?;
        let mut bytes = STANDARD.decode(sealed).map_err(|_| damaged)?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or(damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged)?;
        let opened = master.key.open_in_place(nonce, Aad::from(aad), sealed);
        opened.map(|der| der.to_vec()).map_err(|_| damaged)
    }

    /// `stored` as the store shall keep it; `None`: as it is already.
    ///
    /// # Errors
    /// As [`Vault::open`].
    pub fn seal(&self, stored: &StoredKey) -> Result<Option<Secret>, KeyError> {
        let damaged = KeyError::Unusable(stored.alg);
        self.sealed(&aad(stored), &stored.pkcs8, damaged)
    }

    /// As [`Vault::seal`], for a text in base64 of this name.
    ///
    /// # Errors
    /// As [`Vault::open_text`].
    pub fn seal_text(
        &self,
        name: &'static str,
        stored: &Secret,
    ) -> Result<Option<Secret>, KeyError> {
        self.sealed(&aad_of(name), stored, KeyError::Secret(name))
    }

    fn sealed(
        &self,
        aad: &str,
        stored: &Secret,
        damaged: KeyError,
    ) -> Result<Option<Secret>, KeyError> {
        let Some(master) = self.keys.first() else {
            return Ok(None);
        };
        let begins = format!("{SEALED}{}:", master.id);
        if stored.expose().starts_with(&begins) {
            return Ok(None);
        }
        let mut bytes = self.opened(aad, stored, damaged)?;
        let nonce = master
            .key
            .seal_in_place_append_tag(Aad::from(aad), &mut bytes)
            .map_err(|_| KeyError::Generation)?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut bytes);
        let text = format!("{begins}{}", STANDARD.encode(sealed));
        Ok(Some(Secret::new(text)))
    }
}

fn aad(stored: &StoredKey) -> String {
    format!("{}\n{}", stored.alg.as_str(), stored.kid)
}

/// No algorithm has this name.
fn aad_of(name: &str) -> String {
    format!("secret\n{name}")
}

impl MasterKey {
    fn derive(text: &Secret) -> Result<Self, KeyError> {
        // A file's last line may end.
        let text = text.expose().trim_end_matches(['\r', '\n']);
        if text.len() < MASTER_KEY_MIN {
            return Err(KeyError::Master);
        }
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"doorward");
        let extracted = salt.extract(text.as_bytes());
        let mut key = [0; 32];
        extracted
            .expand(&[b"private keys"], hkdf::HKDF_SHA256)
            .and_then(|expanded| expanded.fill(&mut key))
            .map_err(|_| KeyError::Master)?;
        let digest = digest::digest(&digest::SHA256, &key);
        let id = URL_SAFE_NO_PAD.encode(&digest.as_ref()[..6]);
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| KeyError::Master)?;
        Ok(Self { id, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::keys::generate;
    use crate::model::client::SignAlg;

    fn vault(texts: &[&str]) -> Vault {
        let texts: Vec<_> = texts.iter().map(|text| Secret::new(*text)).collect();
        Vault::new(&texts).expect("a vault")
    }

    fn sealed(vault: &Vault, key: &StoredKey) -> StoredKey {
        let pkcs8 = vault.seal(key).expect("sealed").expect("a change");
        StoredKey {
            pkcs8,
            ..key.clone()
        }
    }

    const ONE: &str = "one-master-key-of-32-bytes-or-more";
    const TWO: &str = "two-master-key-of-32-bytes-or-more";

    #[test]
    fn a_sealed_key_opens_with_its_master_key_only() {
        let key = generate(SignAlg::ES256, 0, 0).expect("a key");
        let plain = vault(&[]).open(&key).expect("plain");
        let kept = sealed(&vault(&[ONE]), &key);
        assert!(!kept.pkcs8.expose().contains(key.pkcs8.expose()));
        assert_eq!(vault(&[ONE]).open(&kept), Ok(plain.clone()));
        assert_eq!(vault(&[]).open(&kept), Err(KeyError::Sealed));
        assert_eq!(vault(&[TWO]).open(&kept), Err(KeyError::Sealed));
        // A newline at the end of a file changes nothing.
        assert_eq!(vault(&[&format!("{ONE}\n")]).open(&kept), Ok(plain));
        assert!(vault(&[ONE]).seal(&kept).expect("sealed").is_none());
    }

    #[test]
    fn another_master_key_takes_over_what_an_earlier_one_sealed() {
        let key = generate(SignAlg::EdDSA, 0, 0).expect("a key");
        let old = sealed(&vault(&[ONE]), &key);
        let new = sealed(&vault(&[TWO, ONE]), &old);
        assert!(vault(&[TWO]).open(&new).is_ok());
        assert_eq!(vault(&[ONE]).open(&new), Err(KeyError::Sealed));
    }

    #[test]
    fn a_sealed_key_that_was_changed_or_moved_does_not_open() {
        let key = generate(SignAlg::ES256, 0, 0).expect("a key");
        let kept = sealed(&vault(&[ONE]), &key);
        let moved = StoredKey {
            kid: "other".to_owned(),
            ..kept.clone()
        };
        let damaged = Err(KeyError::Unusable(SignAlg::ES256));
        assert_eq!(vault(&[ONE]).open(&moved), damaged);
        for text in ["sealed:1:x", "sealed:1:", "!"] {
            let broken = StoredKey {
                pkcs8: Secret::new(text),
                ..kept.clone()
            };
            assert!(vault(&[ONE]).open(&broken).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_no_master_key() {
        let short = Vault::new(&[Secret::new("password")]);
        assert_eq!(short.err(), Some(KeyError::Master));
    }
}
