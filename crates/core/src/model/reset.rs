//! Links by which people who forgot their passwords choose new ones.

use uuid::Uuid;

use super::grant::TokenHash;
use super::secret::Secret;

/// How long a link is good, in milliseconds.
pub const RESET_LIFE_MS: i64 = 30 * 60 * 1000;

/// A link that was sent, and not yet used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReset {
    /// Digest of its token.
    pub hash: TokenHash,
    /// The realm of its user.
    pub realm: String,
    /// Its user.
    pub user_id: Uuid,
    /// Digest of the password hash in force when it was made: with another
    /// password it is good no more.
    pub bound: TokenHash,
    /// Until when it is good.
    pub expires_ms: i64,
}

impl StoredReset {
    /// What a link is bound to.
    pub fn bound_to(hash: Option<&Secret>) -> TokenHash {
        TokenHash::of(hash.map_or("", Secret::expose))
    }
}
