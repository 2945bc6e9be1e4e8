//! What users prove besides, or instead of, the password.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::secret::Secret;

/// Most factors that a user can have.
pub const FACTORS_MAX: u32 = 20;

/// What kind of factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Codes by the clock (RFC 6238), of an app or a token.
    Totp,
    /// A key pair of an authenticator (Web Authentication).
    Passkey,
}

impl Kind {
    /// The word that the store keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Totp => "totp",
            Self::Passkey => "passkey",
        }
    }

    /// The kind that `word` names, if any.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "totp" => Some(Self::Totp),
            "passkey" => Some(Self::Passkey),
            _ => None,
        }
    }
}

/// A factor of a user as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFactor {
    /// Its identifier: random, never reused.
    pub id: Uuid,
    /// Path of the realm.
    pub realm: String,
    /// Whose it is.
    pub user_id: Uuid,
    /// What kind.
    pub kind: Kind,
    /// What its user calls it.
    pub name: String,
    /// Of a passkey, the identifier of the credential (base64url), unique in the
    /// realm.
    pub credential: Option<String>,
    /// What verifies it: the shared secret of codes, sealed if there is a master
    /// key; the public key of a passkey, as JSON.
    pub secret: Secret,
    /// The last step whose code was used, or the last count of signatures. It
    /// only grows.
    pub counter: i64,
    /// When it was enrolled, in milliseconds since the epoch.
    pub created_ms: i64,
    /// When it was last used, if ever.
    pub used_ms: Option<i64>,
}

/// What became of a new factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enrolment {
    /// It is kept.
    Kept {
        /// Whether the recovery codes are, too: the user had none.
        with_codes: bool,
    },
    /// Its user has as many as there can be.
    Full,
}
