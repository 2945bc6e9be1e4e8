//! The SNI record (gateway-admin-api §5): which server name a certificate is
//! for.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::route::Reference;

/// A server name of TLS handshakes and its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sni {
    /// Assigned identifier.
    pub id: Uuid,
    /// A host name, unique; a `*` may be its whole leftmost or rightmost label.
    pub name: String,
    /// The certificate shown for it.
    pub certificate: Reference,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}
