//! What lets clients register themselves.

use serde::{Deserialize, Serialize};

use super::grant::TokenHash;
use super::user::Owner;

/// Which clients of a realm to return, in ascending order of their identifier.
#[derive(Clone, Debug, Default)]
pub struct ClientQuery {
    /// Only those whose identifier is greater.
    pub after: Option<String>,
    /// Only those of this owner.
    pub owner: Option<Owner>,
    /// Only those in whose identifier or name this occurs, whatever the case
    /// of ASCII letters.
    pub text: Option<String>,
    /// Most clients to return.
    pub limit: u32,
}

/// Lets its holder register clients in a realm (RFC 7591 §1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialToken {
    /// Names it to operators; it is no secret.
    pub id: String,
    /// Path of the realm.
    pub realm: String,
    /// Hash of the token.
    pub hash: TokenHash,
    /// What it was made for.
    pub note: String,
    /// How many clients may be registered with it yet; `None`: any number.
    pub uses_left: Option<u32>,
    /// Creation, in milliseconds since the epoch.
    pub created_ms: i64,
    /// When it ends, in milliseconds since the epoch; `None`: when it is
    /// deleted.
    pub expires_ms: Option<i64>,
}

/// What came of the registration of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationOutcome {
    /// It is kept.
    Done,
    /// The realm has as many registered clients as it may.
    Full,
    /// The initial access token is not good, or no longer.
    TokenSpent,
}

/// What came of the removal of a realm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealmRemoval {
    /// It is gone.
    Done,
    /// There was none.
    Absent,
    /// Users, clients or realms below are in it, or it is `/`.
    Inhabited,
}

/// A realm as the store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRealm {
    /// `/` or `/a/b`.
    pub path: String,
    /// Whether the configuration file declares it.
    pub declared: bool,
    /// What it sets itself, if it was made in the store.
    pub settings: serde_json::Map<String, serde_json::Value>,
}
