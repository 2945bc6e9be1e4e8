//! Users of other identity providers, and whose accounts they are here.

use uuid::Uuid;

/// A link between a user and somebody at another provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FederatedIdentity {
    /// Its identifier: what operators and pages call it.
    pub id: Uuid,
    /// Path of the realm.
    pub realm: String,
    /// The user whose account it leads to.
    pub user_id: Uuid,
    /// The issuer of the other provider.
    pub issuer: String,
    /// The provider's name for the user: unique at that issuer, and never
    /// given to somebody else.
    pub subject: String,
    /// The provider's name in the settings, when the link was used last.
    pub provider: String,
    /// The address that the provider said last.
    pub email: Option<String>,
    /// When the link was made, in milliseconds since the epoch.
    pub created_ms: i64,
    /// When it was used last, in milliseconds since the epoch.
    pub used_ms: i64,
}
