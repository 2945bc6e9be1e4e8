//! Password hashes as they are stored: our own, and those that other systems
//! made, read from the texts in which directories and applications keep them.
//!
//! Whatever its kind, a hash is checked once: the right password is hashed
//! anew then, at the cost of our own.

mod read;

use std::fmt;
use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::{digest, pbkdf2};
use subtle::ConstantTimeEq;

use doorward_core::clock::random_bytes;
use doorward_core::hex;
use doorward_core::model::secret::Secret;

/// Most memory of a foreign Argon2 hash, in KiB.
const MEMORY_MAX: u32 = 256 * 1024;

/// Most memory that it may write in all its passes, in KiB: about two seconds.
const WRITTEN_MAX: u64 = 2 * 1024 * 1024;

/// Highest cost of a foreign bcrypt hash: about two seconds.
const BCRYPT_MAX: u32 = 15;

/// Most iterations of a foreign PBKDF2 hash: one or two seconds.
const ITERATIONS_MAX: u32 = 5_000_000;

/// Why a text is no hash that passwords can be checked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// It begins like no hash that is known.
    #[error("the kind of hash is not known; known are Argon2, bcrypt, PBKDF2 and salted SHA")]
    Kind,
    /// It is of a known kind, and damaged.
    #[error("the {0} hash can't be read")]
    Damaged(&'static str),
    /// Checking it would take too long.
    #[error("the {kind} hash costs too much to check: {bound}")]
    Costly {
        /// The kind.
        kind: &'static str,
        /// The most that is taken.
        bound: &'static str,
    },
}

/// A digest of the SHA family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sha {
    One,
    Sha256,
    Sha384,
    Sha512,
}

impl Sha {
    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::One => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::One => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha384 => pbkdf2::PBKDF2_HMAC_SHA384,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    /// Bytes of a digest.
    fn length(self) -> usize {
        self.digest().output_len()
    }
}

/// How a password became a key.
#[derive(Clone, Debug)]
enum Kind {
    Argon2 {
        algorithm: Algorithm,
        version: Version,
        params: Params,
    },
    Bcrypt {
        cost: u32,
        /// Whether it is of the SHA-256 digest in hexadecimal.
        digested: bool,
    },
    Pbkdf2 {
        sha: Sha,
        iterations: NonZeroU32,
    },
    /// One round of a digest, over password and salt.
    Salted(Sha),
}

/// A hash, ready to check passwords with.
#[derive(Clone)]
pub struct StoredHash {
    kind: Kind,
    salt: Vec<u8>,
    key: Vec<u8>,
}

impl fmt::Debug for StoredHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredHash")
    }
}

impl StoredHash {
    /// The hash that is stored as this text.
    ///
    /// # Errors
    /// [`HashError::Kind`] and [`HashError::Damaged`].
    pub fn read(text: &Secret) -> Result<Self, HashError> {
        read::hash(text.expose().trim(), 2)
    }

    /// The hash that somebody brings along, if checking it takes a bounded
    /// time.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn foreign(text: &Secret) -> Result<Self, HashError> {
        let hash = Self::read(text)?;
        let costly = |kind, bound| Err(HashError::Costly { kind, bound });
        match &hash.kind {
            Kind::Argon2 { params, .. } => {
                let (memory, passes) = (params.m_cost(), params.t_cost());
                let written = u64::from(memory) * u64::from(passes);
                if memory > MEMORY_MAX || written > WRITTEN_MAX || params.p_cost() > 64 {
                    let bound = "at most 256 MiB, 2 GiB written in all passes and 64 lanes";
                    return costly("Argon2", bound);
                }
            }
            Kind::Bcrypt { cost, .. } if *cost > BCRYPT_MAX => {
                return costly("bcrypt", "at most cost 15");
            }
            Kind::Pbkdf2 { iterations, .. } if iterations.get() > ITERATIONS_MAX => {
                return costly("PBKDF2", "at most 5000000 iterations");
            }
            Kind::Bcrypt { .. } | Kind::Pbkdf2 { .. } | Kind::Salted(_) => {}
        }
        Ok(hash)
    }

    /// Whether checking it takes no time to speak of.
    pub(super) fn is_cheap(&self) -> bool {
        matches!(self.kind, Kind::Salted(_))
    }

    /// A hash that costs the same, and that no password has.
    pub(super) fn of_nobody(&self) -> Self {
        let random = |length: usize| {
            let bytes = random_bytes::<64>();
            bytes.iter().copied().cycle().take(length).collect()
        };
        Self {
            kind: self.kind.clone(),
            salt: random(self.salt.len()),
            key: random(self.key.len()),
        }
    }

    /// Whether the password has this hash. It takes as long as it takes:
    /// never on a thread that serves requests.
    pub(super) fn fits(&self, password: &Secret) -> bool {
        let made = self.derive(password.expose().as_bytes());
        made.is_some_and(|made| made.as_slice().ct_eq(&self.key).into())
    }

    fn derive(&self, password: &[u8]) -> Option<Vec<u8>> {
        let mut made = vec![0; self.key.len()];
        match &self.kind {
            Kind::Argon2 {
                algorithm,
                version,
                params,
            } => {
                let argon2 = Argon2::new(*algorithm, *version, params.clone());
                let done = argon2.hash_password_into(password, &self.salt, &mut made);
                done.ok()?;
            }
            Kind::Bcrypt { cost, digested } => {
                let salt = self.salt.as_slice().try_into().ok()?;
                let hex = digested.then(|| hex::encode(digest::digest(&digest::SHA256, password)));
                let password = hex.as_deref().map_or(password, str::as_bytes);
                // The end of the text counts as a byte of it, up to 72 in all.
                let mut bytes: Vec<u8> = password.iter().copied().take(72).chain([0]).collect();
                bytes.truncate(72);
                let full = bcrypt::bcrypt(*cost, salt, &bytes);
                made.copy_from_slice(full.get(..self.key.len())?);
            }
            Kind::Pbkdf2 { sha, iterations } => {
                pbkdf2::derive(sha.pbkdf2(), *iterations, &self.salt, password, &mut made);
            }
            Kind::Salted(sha) => {
                let mut context = digest::Context::new(sha.digest());
                context.update(password);
                context.update(&self.salt);
                made.copy_from_slice(context.finish().as_ref());
            }
        }
        Some(made)
    }
}

#[cfg(test)]
mod tests;
