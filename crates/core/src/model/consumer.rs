//! The Consumer record (gateway-admin-api §5): whom requests come from.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A consumer; at least one of `username` and `custom_id` is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    /// Assigned identifier.
    pub id: Uuid,
    /// Unique name, if any.
    #[serde(default)]
    pub username: Option<String>,
    /// Unique identifier in somebody else's books, if any.
    #[serde(default)]
    pub custom_id: Option<String>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}

impl Consumer {
    /// What it is called in logs.
    pub fn label(&self) -> Option<&str> {
        self.username.as_deref().or(self.custom_id.as_deref())
    }
}
