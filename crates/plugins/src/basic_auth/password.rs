//! Passwords as records have them, and as they are checked.

use std::sync::LazyLock;

use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use uuid::Uuid;

use doorward_core::clock::random_bytes;
use doorward_core::model::secret::Secret;

/// What the hashes of other gateways are marked with: SHA-1 of the password and the
/// consumer's id, as 40 hexadecimal digits.
pub const LEGACY: &str = "$sha1$";
/// How hashes of this gateway begin.
const ARGON2: &str = "$argon2id$";

/// Most memory that a hash may ask for, in KiB: a check takes as much.
const MEMORY_MAX: u32 = 64 * 1024;
/// Most passes that a hash may ask for.
const PASSES_MAX: u32 = 16;

/// A password, ready to be checked.
#[derive(Debug)]
pub enum StoredPassword {
    /// As a file declares it.
    Text(Secret),
    /// A hash that takes memory and time.
    Argon2(Box<Argon2Hash>),
    /// A hash of the imitated gateway: quick to check, and quick to guess.
    Sha1(LegacyHash),
    /// A hash that nothing fits.
    Unreadable,
}

/// A hash by Argon2id.
#[derive(Debug)]
pub struct Argon2Hash {
    text: Box<str>,
    params: Params,
    salt: Vec<u8>,
    key: Vec<u8>,
}

/// A hash of the imitated gateway.
#[derive(Debug)]
pub struct LegacyHash {
    digest: Vec<u8>,
    consumer: Uuid,
}

impl StoredPassword {
    /// What a record says of the password of a consumer.
    pub fn read(text: &Secret, consumer: Uuid) -> Self {
        let written = text.expose();
        if let Some(hex) = written.strip_prefix(LEGACY) {
            return match from_hex(hex) {
                Some(digest) => Self::Sha1(LegacyHash { digest, consumer }),
                None => Self::Unreadable,
            };
        }
        if written.starts_with(ARGON2) {
            return match Argon2Hash::read(written) {
                Some(hash) => Self::Argon2(Box::new(hash)),
                None => Self::Unreadable,
            };
        }
        Self::Text(text.clone())
    }

    /// The hash, if a check takes so long that no worker may do it.
    pub(super) fn dear(&self) -> Option<&Argon2Hash> {
        match self {
            Self::Argon2(hash) => Some(hash),
            _ => None,
        }
    }

    /// Whether this is the password. It takes its time with Argon2.
    pub(super) fn fits(&self, password: &[u8]) -> bool {
        match self {
            Self::Text(text) => verify_slices_are_equal(text.expose().as_bytes(), password).is_ok(),
            Self::Argon2(hash) => hash.fits(password),
            Self::Sha1(hash) => {
                let text = [password, hash.consumer.to_string().as_bytes()].concat();
                let made = digest(&SHA1_FOR_LEGACY_USE_ONLY, &text);
                verify_slices_are_equal(made.as_ref(), &hash.digest).is_ok()
            }
            Self::Unreadable => false,
        }
    }
}

impl Argon2Hash {
    fn read(text: &str) -> Option<Self> {
        let hash = PasswordHash::new(text).ok()?;
        let params = Params::try_from(&hash).ok()?;
        let modest = params.m_cost() <= MEMORY_MAX && params.t_cost() <= PASSES_MAX;
        let key = hash.hash.as_ref()?.as_bytes().to_vec();
        let salt = hash.salt.as_ref()?.as_ref().to_vec();
        (modest && key.len() >= 16).then(|| Self {
            text: text.into(),
            params,
            salt,
            key,
        })
    }

    /// What tells it from every other hash.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A hash of the usual cost that no password has.
    pub(super) fn of_nobody() -> &'static Self {
        static NOBODY: LazyLock<Argon2Hash> = LazyLock::new(|| Argon2Hash {
            text: Box::default(),
            params: Params::DEFAULT,
            salt: random_bytes::<16>().to_vec(),
            key: random_bytes::<32>().to_vec(),
        });
        &NOBODY
    }

    pub(super) fn fits(&self, password: &[u8]) -> bool {
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone());
        let mut made = vec![0; self.key.len()];
        let done = argon2.hash_password_into(password, &self.salt, &mut made);
        done.is_ok() && verify_slices_are_equal(&made, &self.key).is_ok()
    }
}

/// Whether a password is in truth the hash of one.
pub fn is_hash(text: &str) -> bool {
    let text = Secret::new(text);
    matches!(
        StoredPassword::read(&text, Uuid::nil()),
        StoredPassword::Argon2(_) | StoredPassword::Sha1(_)
    )
}

/// What is stored for a password of a document: `old`, if it is still the same one,
/// else a new hash. `None`: the document has a hash itself.
pub fn hash_of(password: &Secret, old: Option<&Secret>) -> Option<Secret> {
    let text = password.expose();
    if is_hash(text) {
        return None;
    }
    let same = |old: &&Secret| {
        let old = StoredPassword::read(old, Uuid::nil());
        old.dear().is_some() && old.fits(text.as_bytes())
    };
    old.filter(same).cloned().or_else(|| hash(text))
}

/// The hash of a password. It takes 19 MiB and some time: never on a thread that
/// serves requests.
pub fn hash(password: &str) -> Option<Secret> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT);
    let salt = random_bytes::<16>();
    let hash: PasswordHash = argon2
        .hash_password_with_salt(password.as_bytes(), &salt)
        .ok()?;
    Some(Secret::new(hash.to_string()))
}

/// The bytes of forty lower-case hexadecimal digits.
fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = hex.as_bytes().chunks_exact(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect();
    bytes.filter(|_| hex.len() == 40)
}

/// Whether a text looks like a hash of the imitated gateway.
pub fn is_legacy_hash(text: &str) -> bool {
    from_hex(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> StoredPassword {
        StoredPassword::read(&Secret::new(text), Uuid::from_u128(7))
    }

    #[test]
    fn a_password_fits_its_hash_and_no_other_does() {
        let hash = hash("open sesame").expect("a hash");
        assert!(is_hash(hash.expose()));
        let password = stored(hash.expose());
        assert!(password.dear().is_some());
        assert!(password.fits(b"open sesame") && !password.fits(b"open"));
        assert!(!password.fits(hash.expose().as_bytes()));
    }

    #[test]
    fn a_hash_of_the_imitated_gateway_has_the_consumer_as_its_salt() {
        // SHA-1 of `open sesame00000000-0000-0000-0000-000000000007`.
        let text = format!("open sesame{}", Uuid::from_u128(7));
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let hex = doorward_core::hex::encode(digest);
        assert!(is_legacy_hash(&hex) && !is_hash(&hex));
        let password = stored(&format!("{LEGACY}{hex}"));
        assert!(password.fits(b"open sesame") && !password.fits(hex.as_bytes()));
    }

    #[test]
    fn what_only_looks_like_a_hash_lets_nobody_in() {
        for text in [
            "$sha1$",
            "$sha1$xyz",
            "$argon2id$",
            "$argon2id$v=19$m=4294967295,t=1,p=1$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(matches!(stored(text), StoredPassword::Unreadable), "{text}");
            assert!(!stored(text).fits(text.as_bytes()));
        }
    }
}
