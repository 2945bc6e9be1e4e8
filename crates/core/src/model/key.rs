//! The Key and KeySet records: keys for signatures and encryption, by set.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::route::Reference;
use super::secret::Secret;

/// A named set of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySet {
    /// Assigned identifier.
    pub id: Uuid,
    /// Unique name.
    #[serde(default)]
    pub name: Option<String>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}

/// A key, as a JWK or in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Assigned identifier.
    pub id: Uuid,
    /// Unique name.
    #[serde(default)]
    pub name: Option<String>,
    /// What tokens call it; unique within its set.
    pub kid: String,
    /// The set that it belongs to.
    #[serde(default)]
    pub set: Option<Reference>,
    /// The key as the text of a JWK.
    #[serde(default)]
    pub jwk: Option<Secret>,
    /// The key in PEM.
    #[serde(default)]
    pub pem: Option<KeyPem>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}

/// A key in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPem {
    /// The private half.
    #[serde(default)]
    pub private_key: Option<Secret>,
    /// The public half.
    #[serde(default)]
    pub public_key: Option<String>,
}

/// Members of a JWK that only its owner may know (RFC 7518 §6).
pub const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
