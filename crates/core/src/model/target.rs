//! The Target record (gateway-admin-api §5): one peer of an upstream.

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use super::route::Reference;

/// A peer that an upstream's requests are balanced over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Assigned identifier.
    pub id: Uuid,
    /// `host:port`, unique within its upstream; an IPv6 address in brackets.
    pub target: String,
    /// Its share of the requests, 0 to 65535; 0: none.
    #[serde(default = "full_weight", deserialize_with = "weight")]
    pub weight: u16,
    /// The upstream it belongs to.
    pub upstream: Reference,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch, with milliseconds.
    #[serde(serialize_with = "super::number::plain")]
    pub created_at: f64,
    /// Last change, in seconds since the epoch, with milliseconds.
    #[serde(default, serialize_with = "super::number::plain")]
    pub updated_at: f64,
}

fn full_weight() -> u16 {
    100
}

/// A weight that was cleared is the default one.
fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(full_weight))
}
