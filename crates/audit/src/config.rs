//! The section `audit` of the configuration file.

use std::path::PathBuf;

use serde::Deserialize;

use doorward_core::model::audit::Kind;

/// What is recorded, where, and for how long.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// The kinds of events that are recorded; absent: all.
    pub events: Option<Vec<Kind>>,
    /// Kinds that are not.
    pub except: Vec<Kind>,
    /// Whether records go into the store.
    pub store: bool,
    /// Days after which the store forgets a record; 0: never.
    pub retention_days: u32,
    /// Records that wait to be written; what happens beyond that is counted and
    /// not told.
    pub queue: usize,
    /// Whether equal events within a second become one record that counts:
    /// only those that leave nothing else in the store.
    pub fold: bool,
    /// A file to which records are appended as JSON lines.
    pub file: Option<PathBuf>,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            events: None,
            except: Vec::new(),
            store: true,
            retention_days: 90,
            queue: 10_000,
            fold: true,
            file: None,
        }
    }
}

impl AuditConfig {
    /// Whether events of this kind are recorded anywhere.
    pub(super) fn wants(&self, kind: Kind) -> bool {
        let somewhere = self.store || self.file.is_some();
        let named = self.events.as_ref();
        somewhere && named.is_none_or(|kinds| kinds.contains(&kind)) && !self.except.contains(&kind)
    }
}
