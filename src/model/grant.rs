//! What was granted to whom: keys, tokens and sessions as the store keeps them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::client::SignAlg;
use super::secret::Secret;

/// SHA-256 of a token: what the store keeps instead of the token.
///
/// Tokens are random, so a fast hash is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// The hash of `token`.
    pub fn of(token: &str) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
        let mut hash = [0; 32];
        hash.copy_from_slice(digest.as_ref());
        Self(hash)
    }
}

/// A signing key as the store keeps it.
#[derive(Clone, Debug)]
pub struct StoredKey {
    /// Its identifier in token headers and key sets.
    pub kid: String,
    /// The algorithm it is for.
    pub alg: SignAlg,
    /// The private key: base64 of its PKCS#8 DER.
    pub pkcs8: Secret,
    /// Creation, in milliseconds since the epoch.
    pub created_ms: i64,
    /// From when on it signs.
    pub active_from_ms: i64,
    /// When it leaves the published set; `None`: no successor yet.
    pub expires_ms: Option<i64>,
}

/// What a refresh token stands for. It is the same through all rotations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Handle of all tokens of the grant: the claim `authGrantId`.
    pub id: String,
    /// Path of the realm.
    pub realm: String,
    /// The client it was given to.
    pub client_id: String,
    /// The user who gave it.
    pub user_id: Uuid,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// The grant type that began it.
    pub grant_type: String,
    /// When the user authenticated, in seconds since the epoch.
    pub auth_time: i64,
    /// When it ends whatever is refreshed, in milliseconds since the epoch.
    pub ends_ms: i64,
}

/// A refresh token as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRefresh {
    /// Hash of the token.
    pub hash: TokenHash,
    /// What it stands for.
    pub grant: Grant,
    /// When it dies unused, in milliseconds since the epoch.
    pub expires_ms: i64,
    /// Whether it has been exchanged for a successor already.
    pub used: bool,
}

/// An opaque access token as the store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAccess {
    /// Hash of the token.
    pub hash: TokenHash,
    /// The grant it belongs to.
    pub grant_id: String,
    /// Its claims.
    pub claims: Map<String, Value>,
    /// When it dies, in milliseconds since the epoch.
    pub expires_ms: i64,
}

/// What was revoked before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// Every token of the grant of this handle.
    Grant(String),
    /// The access token of this identifier (`jti`).
    Token(String),
}

/// How the exchange of a refresh token ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The successor is in force, the old token is spent.
    Done,
    /// It was spent before: every token of the grant is now revoked.
    Reused,
    /// There is no such token, or no longer.
    Gone,
}

/// A session made by `authenticate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// Hash of the session token.
    pub hash: TokenHash,
    /// Path of the realm.
    pub realm: String,
    /// Whose session it is.
    pub user_id: Uuid,
    /// When it began, in milliseconds since the epoch.
    pub created_ms: i64,
    /// When it was last used.
    pub used_ms: i64,
    /// When it ends at the latest.
    pub ends_ms: i64,
}

/// The longest life of an access or ID token, in milliseconds: 30 days. Keys
/// and revocations are kept that long after their last use.
pub const MAX_TOKEN_LIFE_MS: i64 = 30 * 24 * 3600 * 1000;
