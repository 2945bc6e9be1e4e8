//! What the authorization endpoint keeps: codes and what users agreed to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::grant::{Grant, TokenHash};

/// How a code verifier proves itself (RFC 7636 §4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChallengeMethod {
    /// By its SHA-256 digest.
    S256,
    /// By itself.
    #[serde(rename = "plain")]
    Plain,
}

/// A code challenge (RFC 7636 §4.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// How it was made of the verifier.
    pub method: ChallengeMethod,
    /// The challenge.
    pub value: String,
}

/// What a code is bound to, and what its exchange gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorization {
    /// The grant that begins with it.
    pub grant: Grant,
    /// The redirect URI of the request, if it named one.
    pub redirect_uri: Option<String>,
    /// The challenge of the request, if it had one.
    pub challenge: Option<Challenge>,
    /// The nonce of the request, if it had one.
    pub nonce: Option<String>,
    /// Claims that the ID token shall hold beside its own.
    pub id_claims: Map<String, Value>,
    /// The key (RFC 7638 thumbprint) that must be proven to exchange the code
    /// (RFC 9449 §10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop_jkt: Option<String>,
}

/// An authorization code as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCode {
    /// Hash of the code.
    pub hash: TokenHash,
    /// What it stands for.
    pub authorization: Authorization,
    /// When it dies unused, in milliseconds since the epoch.
    pub expires_ms: i64,
    /// Whether it has been exchanged already.
    pub used: bool,
}

/// An authorization request that is kept for its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedRequest {
    /// Its parameters, by name.
    pub parameters: Vec<(String, String)>,
    /// Whether the client pushed it itself (RFC 9126), having authenticated.
    pub pushed: bool,
    /// Whether the parameters came in a request object (RFC 9101).
    pub object: bool,
}

/// An authorization request as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRequest {
    /// Hash of the random part of its address.
    pub hash: TokenHash,
    /// Path of the client's realm.
    pub realm: String,
    /// The client that it is of.
    pub client_id: String,
    /// From when on no browser may begin with it, in milliseconds since the
    /// epoch.
    pub begins_ms: i64,
    /// When it is over, in milliseconds since the epoch.
    pub ends_ms: i64,
    /// What it says.
    pub kept: SavedRequest,
}

/// How the exchange of an authorization code ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redemption {
    /// The code is spent, and what it gave is kept.
    Done,
    /// It was spent before: every token of this grant is now revoked.
    Replayed(String),
    /// There is no such code, or no longer.
    Gone,
}

/// How long a code is remembered after its use, in milliseconds: an hour.
pub const CODE_KEPT_MS: i64 = 3600 * 1000;
