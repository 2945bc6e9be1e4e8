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
        Self::of_bytes(token.as_bytes())
    }

    /// The hash of these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
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
    /// The private key: base64 of its PKCS#8 DER, or that sealed with a master
    /// key.
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
    /// The session that it was given in ([`StoredSession::sid`]), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Claims that the userinfo endpoint tells besides those of the scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub userinfo_claims: Vec<String>,
    /// Claims about the user that its ID tokens hold besides their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub id_claims: Vec<String>,
    /// What its access tokens are for; none: for the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The key (RFC 7638 thumbprint) that its refresh tokens are bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<String>,
    /// The methods by which the user signed in (RFC 8176); none: the password,
    /// or nobody knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amr: Vec<String>,
    /// The class of that sign-in, as its client is told; absent: the lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acr: Option<String>,
}

/// The refresh tokens of a grant as the store keeps them: one is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRefresh {
    /// Hash of what all of them have in common.
    pub family: TokenHash,
    /// Hash of the one in force.
    pub current: TokenHash,
    /// The one before it.
    pub previous: Option<SpentRefresh>,
    /// What they stand for.
    pub grant: Grant,
    /// When the one in force dies unused, in milliseconds since the epoch.
    pub expires_ms: i64,
}

/// A refresh token that was exchanged for the one in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentRefresh {
    /// Hash of it.
    pub hash: TokenHash,
    /// What its successor was derived with from it.
    pub salt: Vec<u8>,
    /// When, in milliseconds since the epoch.
    pub rotated_ms: i64,
}

impl SpentRefresh {
    /// Whether a retry at `now_ms` still gets the successor, where spent tokens
    /// are let have it for `grace_ms`. Requests are not exchanged in the order
    /// of their times: one from before the exchange counts as at once, and
    /// without a grace nothing is in it.
    pub fn is_in_grace(&self, now_ms: i64, grace_ms: i64) -> bool {
        let age_ms = now_ms.saturating_sub(self.rotated_ms).max(0);
        grace_ms > 0 && age_ms < grace_ms
    }
}

/// The exchange of a refresh token for its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Hash of the family.
    pub family: TokenHash,
    /// Hash of the token that was presented.
    pub presented: TokenHash,
    /// Hash of the token that is in force from now on: that one itself where
    /// tokens do not rotate.
    pub successor: TokenHash,
    /// What the successor was derived with.
    pub salt: [u8; 32],
    /// When the successor dies unused, in milliseconds since the epoch.
    pub expires_ms: i64,
    /// The time of the exchange.
    pub now_ms: i64,
    /// For how long after an exchange the spent token gives the same successor
    /// again, in milliseconds; 0: not at all.
    pub grace_ms: i64,
    /// Until when a revocation matters, should this be a second use.
    pub revoked_until_ms: i64,
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
    /// It was spent a moment ago, and its successor is still unused: that one
    /// is to be given again, derived with the salt of then.
    Again([u8; 32]),
    /// It was spent before: every token of the grant is now revoked.
    Reused,
    /// There is no such token, or no longer.
    Gone,
}

/// A session, made by `authenticate` or at the authorization endpoint.
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
    /// What ID tokens call it: the same when its user signs in again in it,
    /// though the token becomes another one.
    pub sid: String,
    /// When its user last showed the password, in milliseconds since the epoch.
    pub auth_ms: i64,
    /// The methods by which its user signed in (RFC 8176).
    pub amr: Vec<String>,
    /// What its browser or program calls itself, as far as that is kept.
    pub agent: String,
    /// The address that it was begun from, if known.
    pub address: String,
}

impl StoredSession {
    /// When the session ends if it is not used any more, where one without use
    /// for `idle_ms` does; in milliseconds since the epoch.
    pub fn ends_at(&self, idle_ms: i64) -> i64 {
        self.ends_ms.min(self.used_ms.saturating_add(idle_ms))
    }
}

/// What a user let a client have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consent {
    /// The client.
    pub client_id: String,
    /// The scopes.
    pub scopes: Vec<String>,
    /// When the user last agreed, in milliseconds since the epoch.
    pub given_ms: i64,
}

/// The longest life of an access or ID token, in milliseconds: 30 days. Keys
/// and revocations are kept that long after their last use.
pub const MAX_TOKEN_LIFE_MS: i64 = 30 * 24 * 3600 * 1000;
