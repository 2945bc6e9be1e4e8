//! What is kept of a client's secret.

use aws_lc_rs::digest;
use subtle::ConstantTimeEq;

use crate::clock::random_bytes;
use crate::model::secret::Secret;

/// What is kept of a client's secret.
#[derive(Clone, Debug)]
pub enum ClientSecret {
    /// Nothing: a public client, or one whose secret only the file holds.
    None,
    /// SHA-256 of the salt and the secret. Secrets of clients are made by
    /// machines; a slow hash would cap the rate of `client_credentials`.
    Digest {
        /// Random salt.
        salt: Vec<u8>,
        /// The digest.
        digest: Vec<u8>,
    },
    /// The secret itself: for clients whose tokens are signed with it.
    Plain(Secret),
}

impl ClientSecret {
    /// A digest of `secret`, with a new salt.
    pub fn digested(secret: &Secret) -> Self {
        let salt = random_bytes::<16>().to_vec();
        let digest = digest_of(&salt, secret.expose()).as_ref().to_vec();
        Self::Digest { salt, digest }
    }

    /// Whether `candidate` is the secret of which this is kept, in constant
    /// time; never where nothing is.
    pub fn matches(&self, candidate: &str) -> bool {
        match self {
            Self::None => false,
            Self::Plain(secret) => secret.matches(candidate),
            Self::Digest { salt, digest } => {
                digest_of(salt, candidate).as_ref().ct_eq(digest).into()
            }
        }
    }

    /// Takes as long as [`Self::matches`], for a client that nobody knows.
    pub fn matches_nobody(candidate: &str) {
        let none = [0_u8; 32];
        let digest = digest_of(&none[..16], candidate);
        let _: bool = digest.as_ref().ct_eq(&none).into();
    }
}

fn digest_of(salt: &[u8], secret: &str) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(salt);
    context.update(secret.as_bytes());
    context.finish()
}
