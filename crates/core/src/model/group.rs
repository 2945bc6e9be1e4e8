//! Groups of users.

use uuid::Uuid;

/// A group of a realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its identifier: never reused.
    pub id: Uuid,
    /// Path of its realm.
    pub realm: String,
    /// Its name, unique in the realm whatever its case: `displayName`, and what
    /// tokens tell.
    pub name: String,
    /// What the provisioning client calls it.
    pub external_id: Option<String>,
    /// Grows by one with each change, also of its members.
    pub version: i64,
    /// Creation, in milliseconds since the epoch.
    pub created_ms: i64,
    /// Last change, in milliseconds since the epoch.
    pub updated_ms: i64,
}

/// One side of a membership: a user as its group sees it, or the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Identifier of the user or group.
    pub id: Uuid,
    /// Its name.
    pub name: String,
}

/// What happens to the members of a group, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberChange {
    /// Whether all that there are go first.
    pub clear: bool,
    /// Who comes and who goes: `true` for coming.
    pub steps: Vec<(bool, Uuid)>,
}

impl MemberChange {
    /// Whether it leaves every group as it is.
    pub fn is_empty(&self) -> bool {
        !self.clear && self.steps.is_empty()
    }
}
