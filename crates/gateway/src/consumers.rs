//! The consumers in force, as plugins look them up.

use std::collections::HashMap;
use std::sync::OnceLock;

use ahash::RandomState;
use uuid::Uuid;

use super::entities::{Table, Unique};
use doorward_core::model::consumer::Consumer;
use doorward_core::model::credential::{Acl, Credential};
use doorward_core::model::user::fold;
use doorward_plugin_api::consumers::{By, Caller, Directory};

/// Tables of consumers and of their groups; a clone of one costs nothing.
pub(super) struct ConsumerIndex {
    table: Table<Consumer>,
    groups: Table<Credential<Acl>>,
    /// By name without case; made when it is first asked for.
    folded: OnceLock<HashMap<String, Uuid, RandomState>>,
}

impl ConsumerIndex {
    pub(super) fn new(table: Table<Consumer>, groups: Table<Credential<Acl>>) -> Self {
        Self {
            table,
            groups,
            folded: OnceLock::new(),
        }
    }

    fn unique(&self, field: &'static str, value: &str) -> Option<Caller> {
        let unique = Unique::text(field, Some(value)).next()?;
        Some(self.caller(&self.table.find(&unique)?.value))
    }

    /// The consumer of this identifier.
    pub(super) fn by_id(&self, id: Uuid) -> Option<Caller> {
        Some(self.caller(&self.table.get(id)?.value))
    }

    fn caller(&self, consumer: &Consumer) -> Caller {
        let groups = self.groups.referring("consumer", consumer.id, None);
        let mut groups: Vec<Box<str>> = groups
            .map(|record| record.value.scheme.group.as_str().into())
            .collect();
        groups.sort_unstable();
        Caller::new(consumer.clone(), groups)
    }

    fn by_folded(&self, name: &str) -> Option<Caller> {
        let folded = self.folded.get_or_init(|| {
            let mut folded = HashMap::default();
            for record in self.table.iter() {
                if let Some(name) = &record.value.username {
                    // Of two names that differ in case, always the same one.
                    folded.entry(fold(name)).or_insert(record.value.id);
                }
            }
            folded
        });
        self.by_id(*folded.get(&fold(name))?)
    }
}

impl Directory for ConsumerIndex {
    fn find(&self, by: By, value: &str) -> Option<Caller> {
        match by {
            By::Id => self.by_id(value.parse().ok()?),
            By::Username => self.unique("username", value),
            By::UsernameIgnoringCase => self
                .unique("username", value)
                .or_else(|| self.by_folded(value)),
            By::CustomId => self.unique("custom_id", value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::entities::{Origin, Record};

    #[test]
    fn consumers_are_found_by_each_of_their_names() {
        let mut table = Table::default();
        for (id, username, custom_id) in [(1, "Anna", "7"), (2, "anna", "8"), (3, "7", "x")] {
            let id = Uuid::from_u128(id);
            let consumer =
                json!({"id": id, "username": username, "custom_id": custom_id, "created_at": 0});
            let consumer = serde_json::from_value(consumer).expect("a consumer");
            table.put(Arc::new(Record::of(consumer, Origin::Store)));
        }
        let directory = ConsumerIndex::new(table, Table::default());
        let find = |by, value: &str| Some(directory.find(by, value)?.id.as_u128());
        assert_eq!(find(By::Username, "anna"), Some(2));
        assert_eq!(find(By::Username, "ANNA"), None);
        assert_eq!(find(By::UsernameIgnoringCase, "anna"), Some(2));
        assert_eq!(find(By::UsernameIgnoringCase, "ANNA"), Some(1));
        assert_eq!(find(By::CustomId, "7"), Some(1));
        assert_eq!(find(By::Username, "7"), Some(3));
        let id = Uuid::from_u128(3).to_string();
        assert_eq!(find(By::Id, &id), Some(3));
        assert_eq!(find(By::Id, "anna"), None);
    }
}
