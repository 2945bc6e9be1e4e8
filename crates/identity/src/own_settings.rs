//! The settings that a realm's own record holds.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a realm sets itself, as written.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnSettings(pub(super) Map<String, Value>);

impl fmt::Debug for OwnSettings {
    /// Names only: a value may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl From<Map<String, Value>> for OwnSettings {
    fn from(settings: Map<String, Value>) -> Self {
        Self(settings)
    }
}
