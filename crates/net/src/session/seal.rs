//! Sealed texts: AES-256-GCM-SIV (RFC 8452) under keys that are derived from
//! secrets, in base64url.
//!
//! A sealed text is bound to the purpose of its sealer and to a context: one
//! that was made for something else does not open, whoever moved it. The mode
//! stays safe should two nonces ever be the same, as nodes that share a secret
//! can't agree on nonces.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, hkdf};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How sealed bytes begin.
const VERSION: u8 = 1;
const ID_LEN: usize = 4;
const TAG_LEN: usize = 16;

/// Why a text does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is no sealed text, or not a whole one.
    #[error("not a sealed text")]
    Malformed,
    /// It was sealed with a key that is not in use here.
    #[error("sealed with an unknown key")]
    UnknownKey,
    /// It was changed, or sealed for something else.
    #[error("changed, or sealed for something else")]
    Forged,
}

/// No key can be made, or the library failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't seal")]
pub struct SealError;

/// Seals and opens the texts of one purpose.
pub struct Sealer {
    /// The first one seals; all of them open.
    keys: Vec<Key>,
}

struct Key {
    id: [u8; ID_LEN],
    key: RandomizedNonceKey,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({} keys)", self.keys.len())
    }
}

impl Sealer {
    /// A sealer for `purpose` with keys derived from `secrets`, of which the
    /// first one seals and all of them open.
    ///
    /// # Errors
    /// [`SealError`] without a secret, or when the library fails.
    pub fn new<'a>(
        purpose: &str,
        secrets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, SealError> {
        let keys = secrets
            .into_iter()
            .map(|secret| Key::derive(secret, purpose));
        let keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() {
            Err(SealError)
        } else {
            Ok(Self { keys })
        }
    }

    /// Seals `plain` for `context`.
    ///
    /// # Errors
    /// [`SealError`] when the library fails.
    pub fn seal(&self, context: &[u8], plain: &[u8]) -> Result<String, SealError> {
        let first = self.keys.first().ok_or(SealError)?;
        let mut inside = plain.to_vec();
        let nonce = first
            .key
            .seal_in_place_append_tag(Aad::from(context), &mut inside)
            .map_err(|_| SealError)?;
        let mut sealed = Vec::with_capacity(1 + ID_LEN + NONCE_LEN + inside.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&first.id);
        sealed.extend_from_slice(nonce.as_ref());
        sealed.append(&mut inside);
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// What tells the key that seals from others; it opens nothing.
    pub fn id(&self) -> [u8; 4] {
        self.keys.first().map_or([0; ID_LEN], |key| key.id)
    }

    /// Whether `text` begins as what was sealed here, or as `mark` followed by
    /// the [`Sealer::id`] of one of the keys.
    pub fn is_own(&self, text: &str, mark: u8) -> bool {
        let begin = text
            .get(..8)
            .and_then(|begin| URL_SAFE_NO_PAD.decode(begin).ok());
        begin.is_some_and(|begin| {
            let known = self.keys.iter().any(|key| begin[1..=ID_LEN] == key.id);
            known && (begin[0] == VERSION || begin[0] == mark)
        })
    }

    /// What is in `sealed`, if it was sealed here for `context`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, context: &[u8], sealed: &str) -> Result<Vec<u8>, OpenError> {
        let malformed = OpenError::Malformed;
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| malformed)?;
        let (version, rest) = bytes.split_first_mut().ok_or(malformed)?;
        let (id, rest) = rest.split_at_mut_checked(ID_LEN).ok_or(malformed)?;
        let (nonce, inside) = rest.split_at_mut_checked(NONCE_LEN).ok_or(malformed)?;
        if *version != VERSION || inside.len() < TAG_LEN {
            return Err(malformed);
        }
        let key = self.keys.iter().find(|key| key.id == *id);
        let key = key.ok_or(OpenError::UnknownKey)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| malformed)?;
        let opened = key.key.open_in_place(nonce, Aad::from(context), inside);
        opened
            .map(|plain| plain.to_vec())
            .map_err(|_| OpenError::Forged)
    }
}

impl Key {
    fn derive(secret: &[u8], purpose: &str) -> Result<Self, SealError> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"doorward login sessions");
        let mut key = [0; 32];
        salt.extract(secret)
            .expand(&[purpose.as_bytes()], hkdf::HKDF_SHA256)
            .and_then(|expanded| expanded.fill(&mut key))
            .map_err(|_| SealError)?;
        let digest = digest::digest(&digest::SHA256, &key);
        let mut id = [0; ID_LEN];
        id.copy_from_slice(&digest.as_ref()[..ID_LEN]);
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &key).map_err(|_| SealError)?;
        Ok(Self { id, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(purpose: &str, secrets: &[&str]) -> Sealer {
        Sealer::new(purpose, secrets.iter().map(|one| one.as_bytes())).expect("a sealer")
    }

    #[test]
    fn what_was_sealed_opens_for_the_same_purpose_and_context_only() {
        let mine = sealer("session", &["one"]);
        let sealed = mine.seal(b"a", b"plain").expect("sealed");
        assert_eq!(mine.open(b"a", &sealed).as_deref(), Ok(&b"plain"[..]));
        assert_eq!(mine.open(b"b", &sealed), Err(OpenError::Forged));
        for other in [sealer("state", &["one"]), sealer("session", &["two"])] {
            assert_eq!(other.open(b"a", &sealed), Err(OpenError::UnknownKey));
        }
        assert_ne!(mine.seal(b"a", b"plain").expect("sealed"), sealed);
    }

    #[test]
    fn what_is_sealed_here_is_known_by_its_beginning() {
        let (mine, other) = (sealer("session", &["one"]), sealer("session", &["two"]));
        let sealed = mine.seal(b"", b"x").expect("sealed");
        assert!(mine.is_own(&sealed, 2) && !other.is_own(&sealed, 2));
        let mut marked = vec![2];
        marked.extend(mine.id());
        marked.push(7);
        let marked = URL_SAFE_NO_PAD.encode(marked);
        assert!(mine.is_own(&marked, 2) && !mine.is_own(&marked, 3));
        for text in ["", "short", "eyJhbGciOiJI", "\u{e4}\u{f6}\u{fc}\u{df}xx"] {
            assert!(!mine.is_own(text, 2), "{text}");
        }
    }

    #[test]
    fn an_earlier_secret_opens_and_no_longer_seals() {
        let old = sealer("session", &["old"]).seal(b"", b"x").expect("sealed");
        let both = sealer("session", &["new", "old"]);
        assert!(both.open(b"", &old).is_ok());
        let new = both.seal(b"", b"x").expect("sealed");
        assert!(sealer("session", &["new"]).open(b"", &new).is_ok());
        assert!(Sealer::new("session", []).is_err());
    }

    #[test]
    fn every_changed_or_cut_text_is_refused() {
        let mine = sealer("session", &["one"]);
        let sealed = mine.seal(b"", b"a session").expect("sealed");
        for length in 0..sealed.len() {
            assert!(mine.open(b"", &sealed[..length]).is_err(), "{length}");
        }
        let bytes = URL_SAFE_NO_PAD.decode(&sealed).expect("base64");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = URL_SAFE_NO_PAD.encode(changed);
            assert!(mine.open(b"", &changed).is_err(), "{at}");
        }
        for text in ["", "!", "AQ", "====", &format!("{sealed}A")] {
            assert!(mine.open(b"", text).is_err(), "{text}");
        }
    }
}
