//! The consumers in force, as plugins look them up.

use std::collections::HashMap;
use std::sync::OnceLock;

use ahash::RandomState;
use uuid::Uuid;

use super::entities::{Entities, Table, Unique};
use doorward_core::model::consumer::Consumer;
use doorward_core::model::consumer_group::{ConsumerGroup, GroupMembership};
use doorward_core::model::credential::{Acl, Credential};
use doorward_core::model::user::fold;
use doorward_plugin_api::consumers::{By, Caller, Directory};

/// Tables of consumers and of their groups; a clone of one costs nothing.
pub(super) struct ConsumerIndex {
    table: Table<Consumer>,
    groups: Table<Credential<Acl>>,
    consumer_groups: Table<ConsumerGroup>,
    memberships: Table<GroupMembership>,
    /// By name without case; made when it is first asked for.
    folded: OnceLock<HashMap<String, Uuid, RandomState>>,
}

impl ConsumerIndex {
    pub(super) fn new(entities: &Entities) -> Self {
        Self {
            table: entities.consumers.clone(),
            groups: entities.credentials.groups.clone(),
            consumer_groups: entities.consumer_groups.clone(),
            memberships: entities.group_memberships.clone(),
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
        let consumer_groups = in_order(&self.memberships, &self.consumer_groups, consumer.id);
        Caller::new(consumer.clone(), groups).in_consumer_groups(consumer_groups)
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

/// The groups of a consumer, by their names: of two whose plugins would run in the same
/// place, that of the first one does.
pub(super) fn in_order(
    memberships: &Table<GroupMembership>,
    groups: &Table<ConsumerGroup>,
    consumer: Uuid,
) -> Vec<Uuid> {
    let own = memberships.referring("consumer", consumer, None);
    let own = own.filter_map(|record| groups.get(record.value.consumer_group.id));
    let mut own: Vec<&ConsumerGroup> = own.map(|group| &group.value).collect();
    own.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    own.into_iter().map(|group| group.id).collect()
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
        let mut entities = Entities::default();
        for (id, username, custom_id) in [(1, "Anna", "7"), (2, "anna", "8"), (3, "7", "x")] {
            let id = Uuid::from_u128(id);
            let consumer =
                json!({"id": id, "username": username, "custom_id": custom_id, "created_at": 0});
            let consumer = serde_json::from_value(consumer).expect("a consumer");
            let consumers = &mut entities.consumers;
            consumers.put(Arc::new(Record::of(consumer, Origin::Store)));
        }
        let directory = ConsumerIndex::new(&entities);
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
