//! Credentials of consumers: what a request proves that it comes from one.
//!
//! Each scheme has fields of its own; the rest is the same for all.

use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::route::Reference;
use super::secret::Secret;

/// What stands in an answer for a secret that is not shown.
pub const MASK: &str = "**";

/// A credential of a consumer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Credential<S> {
    /// Assigned identifier.
    pub id: Uuid,
    /// Whom it belongs to.
    pub consumer: Reference,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// The fields of the scheme.
    #[serde(flatten)]
    pub scheme: S,
}

/// A key that a request carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyAuth {
    /// The key, as text or as [`KeyDigest`]; without one it lets nobody in.
    #[serde(default)]
    pub key: Option<Secret>,
    /// When it ends, in seconds since the epoch; `None`: never.
    #[serde(default)]
    pub expires_at: Option<i64>,
    /// Always null: answers say here how many seconds are left.
    #[serde(default)]
    pub ttl: (),
}

/// A name and a password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BasicAuth {
    /// Unique name.
    pub username: String,
    /// The password's hash; as text only where a file declares it.
    pub password: Secret,
}

/// Whose tokens are accepted, and how they are signed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Jwt {
    /// What tokens name it by; unique.
    #[serde(default)]
    pub key: Option<String>,
    /// The shared secret of HMAC algorithms.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// The public key of all others, in PEM.
    #[serde(default)]
    pub rsa_public_key: Option<String>,
    /// The one algorithm of its tokens.
    pub algorithm: String,
}

/// A name, and a secret that requests are signed with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HmacAuth {
    /// Unique name.
    pub username: String,
    /// The secret; without one it lets nobody in.
    #[serde(default)]
    pub secret: Option<Secret>,
}

/// An application that gets access tokens for whoever it acts for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OAuth2 {
    /// What people call it.
    pub name: String,
    /// Unique name; without one it gets no token.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The secret, as text or as [`KeyDigest`]; without one it gets no token, unless
    /// it is public.
    #[serde(default)]
    pub client_secret: Option<Secret>,
    /// Without effect: secrets are kept as hashes anyway.
    #[serde(default)]
    pub hash_secret: bool,
    /// Where browsers are led back to.
    #[serde(default)]
    pub redirect_uris: Option<Vec<String>>,
    /// `confidential` or `public`: whether it can keep a secret.
    pub client_type: String,
}

impl OAuth2 {
    /// Puts the hash of the secret in its place.
    pub fn conceal(&mut self) {
        let digest = self.client_secret.as_ref();
        let digest = digest.map(|secret| KeyDigest::of(secret.expose()));
        self.client_secret = digest.map(|digest| Secret::new(digest.to_string()));
    }
}

/// The membership in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acl {
    /// The group; unique within its consumer.
    pub group: String,
}

impl KeyAuth {
    /// What it is looked up by.
    pub fn digest(&self) -> Option<KeyDigest> {
        self.key.as_ref().map(|key| KeyDigest::of(key.expose()))
    }

    /// Puts the hash of the key in its place.
    pub fn conceal(&mut self) {
        let digest = self.digest();
        self.key = digest.map(|digest| Secret::new(digest.to_string()));
    }
}

/// The hash of a key. Keys are looked up by it, and so compared in a time that
/// says nothing of them.
///
/// Generated keys have 190 random bits: nobody finds one by its hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; SHA256_OUTPUT_LEN]);

/// What the text of a hash begins with.
const PREFIX: &str = "$sha256$";

impl KeyDigest {
    /// The hash of a key that a request carries, whatever it looks like.
    pub fn of_sent(key: &[u8]) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(hash)
    }

    /// The hash of a key as records have it: a text that is a hash already stays
    /// what it is.
    pub fn of(key: &str) -> Self {
        let hash = key.strip_prefix(PREFIX);
        let hash = hash.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        match hash.and_then(|hash| hash.try_into().ok()) {
            Some(hash) => Self(hash),
            None => Self::of_sent(key.as_bytes()),
        }
    }

    /// The bytes of the hash.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// As records have it.
impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest")
    }
}

/// Whether a key is in truth the hash of one.
pub fn is_key_digest(key: &str) -> bool {
    key == KeyDigest::of(key).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_in_the_place_of_a_key_is_the_same_credential() {
        let digest = KeyDigest::of("open sesame");
        assert_eq!(KeyDigest::of(&digest.to_string()), digest);
        assert!(is_key_digest(&digest.to_string()));
        assert!(!is_key_digest("open sesame") && !is_key_digest("$sha256$short"));
    }

    #[test]
    fn who_has_read_a_hash_has_no_key() {
        let digest = KeyDigest::of("open sesame");
        assert_ne!(KeyDigest::of_sent(digest.to_string().as_bytes()), digest);
    }
}
