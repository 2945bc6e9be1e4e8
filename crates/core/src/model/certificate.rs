//! The Certificate record (gateway-admin-api §5): what the gateway shows
//! clients of its TLS listeners, and upstreams that ask for a certificate.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::secret::Secret;

/// A certificate chain with its private key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Assigned identifier.
    pub id: Uuid,
    /// The chain in PEM, the leaf first.
    pub cert: String,
    /// The leaf's private key in PEM.
    pub key: Secret,
    /// A chain for a key of another type, in PEM.
    #[serde(default)]
    pub cert_alt: Option<String>,
    /// The private key of `cert_alt`, in PEM.
    #[serde(default)]
    pub key_alt: Option<Secret>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}
