//! The ConsumerGroup record, and the memberships of consumers in groups.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::route::Reference;

/// The most groups that a consumer belongs to: each costs a look with every request of
/// the consumer on routes that plugins of groups reach.
pub const MAX_GROUPS: usize = 100;

/// A group of consumers, which plugins can be for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerGroup {
    /// Assigned identifier.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}

/// The membership of a consumer in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMembership {
    /// Assigned identifier.
    pub id: Uuid,
    /// Who belongs to the group.
    pub consumer: Reference,
    /// The group.
    pub consumer_group: Reference,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}
