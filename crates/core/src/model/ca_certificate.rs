//! The CA certificate record (gateway-admin-api §5): who vouches for peers.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A certificate of an authority that peers' certificates are verified by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaCertificate {
    /// Assigned identifier.
    pub id: Uuid,
    /// One certificate in PEM.
    pub cert: String,
    /// SHA-256 of the certificate (DER), in lower-case hexadecimal; unique.
    pub cert_digest: String,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}
