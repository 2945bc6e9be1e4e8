//! The Plugin record (interface 2.7): a configured filter.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::route::Reference;

/// The field of `config` that names a certificate.
pub const CERTIFICATE_FIELD: &str = "tls_client_auth_cert_id";
/// The same, as seen from the record.
pub const CERTIFICATE: &str = "config.tls_client_auth_cert_id";

/// The field of `config` that names authorities.
pub const AUTHORITIES_FIELD: &str = "ca_certificates";
/// The same, as seen from the record.
pub const AUTHORITIES: &str = "config.ca_certificates";

/// A plugin, as stored. `config` is complete: every field of the plugin's
/// schema is present, defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plugin {
    /// Assigned identifier.
    pub id: Uuid,
    /// Name in the plugin registry.
    pub name: String,
    /// Unique name of this instance, if any.
    #[serde(default)]
    pub instance_name: Option<String>,
    /// The service it applies to; none of `service`, `route`, `consumer` and
    /// `consumer_group`: all requests.
    #[serde(default)]
    pub service: Option<Reference>,
    /// The route it applies to.
    #[serde(default)]
    pub route: Option<Reference>,
    /// The consumer it applies to.
    #[serde(default)]
    pub consumer: Option<Reference>,
    /// The group of consumers it applies to.
    #[serde(default)]
    pub consumer_group: Option<Reference>,
    /// `false`: ignored, the next less specific one applies.
    pub enabled: bool,
    /// The protocols it applies to.
    #[serde(default)]
    pub protocols: Option<Vec<String>>,
    /// The validated configuration.
    pub config: Map<String, Value>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in **milliseconds** since the epoch (interface 2.7).
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}

impl Plugin {
    /// Whether it is for requests of some consumers alone.
    pub fn is_of_callers(&self) -> bool {
        self.consumer.is_some() || self.consumer_group.is_some()
    }

    /// The certificate that its configuration names.
    pub fn certificate(&self) -> Option<Uuid> {
        let id = self.config.get(CERTIFICATE_FIELD)?.as_str()?;
        Uuid::parse_str(id).ok()
    }

    /// The authorities that its configuration names.
    pub fn authorities(&self) -> impl Iterator<Item = Uuid> {
        let ids = self.config.get(AUTHORITIES_FIELD).and_then(Value::as_array);
        let ids = ids.into_iter().flatten();
        ids.filter_map(|id| Uuid::parse_str(id.as_str()?).ok())
    }
}
