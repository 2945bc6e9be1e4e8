//! Tables of records: cheap to clone, changed by copying what is touched.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use uuid::Uuid;

use super::index::Index;
use super::{Entity, Record, Unique};
use crate::copy_on_write_map::differing;

/// Parts that a table is cut into; a change copies one of them.
const PARTS: usize = 256;

type Records<T> = BTreeMap<Uuid, Arc<Record<T>>>;

/// All records of one kind, by id, by what is unique about them, and by what
/// they refer to.
///
/// A clone shares everything. A change copies one part of the records and one
/// of the index for each entry, so its cost is that of a 256th of the table.
#[derive(Debug)]
pub struct Table<T> {
    parts: Arc<Parts<T>>,
}

#[derive(Debug)]
struct Parts<T> {
    /// By the first byte of the id, so in ascending order.
    records: [Arc<Records<T>>; PARTS],
    /// By the first byte of the hash.
    index: [Arc<Index>; PARTS],
    len: usize,
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self {
            parts: self.parts.clone(),
        }
    }
}

impl<T> Clone for Parts<T> {
    fn clone(&self) -> Self {
        Self {
            records: self.records.clone(),
            index: self.index.clone(),
            len: self.len,
        }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let records = Arc::new(Records::new());
        let index = Arc::new(Index::default());
        Self {
            parts: Arc::new(Parts {
                records: std::array::from_fn(|_| records.clone()),
                index: std::array::from_fn(|_| index.clone()),
                len: 0,
            }),
        }
    }
}

impl<T: Entity> Table<T> {
    /// The record with this id.
    pub fn get(&self, id: Uuid) -> Option<&Arc<Record<T>>> {
        self.parts.records[part_of_id(id)].get(&id)
    }

    /// The record with this unique name, if the kind has names.
    pub fn by_key(&self, name: &str) -> Option<&Arc<Record<T>>> {
        self.find(&T::named(name)?)
    }

    /// The record of which this is true.
    pub fn find(&self, unique: &Unique<'_>) -> Option<&Arc<Record<T>>> {
        self.indexed(hash_of(unique))
            .filter_map(|id| self.get(id))
            .find(|record| record.value.unique().contains(unique))
    }

    /// The records whose `field` refers to `to`, by ascending id, those up to
    /// `after` left out.
    pub fn referring(
        &self,
        field: &'static str,
        to: Uuid,
        after: Option<Uuid>,
    ) -> impl Iterator<Item = &Arc<Record<T>>> {
        let hash = hash_of(&(field, to));
        let from = (hash, after.unwrap_or_default());
        self.parts.index[part_of_hash(hash)]
            .range(from..=(hash, Uuid::max()))
            .filter(move |(_, id)| Some(*id) != after)
            .filter_map(|(_, id)| self.get(id))
            .filter(move |record| record.value.references().contains(&(field, to)))
    }

    /// The records whose `field` is this text, by ascending id; of the fields that
    /// `Entity::texts` names.
    pub fn with_text<'t>(
        &'t self,
        field: &'static str,
        text: &'t str,
    ) -> impl Iterator<Item = &'t Arc<Record<T>>> {
        self.indexed(hash_of(&(field, text)))
            .filter_map(|id| self.get(id))
            .filter(move |record| record.value.texts().contains(&(field, text)))
    }

    /// All records, by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Record<T>>> {
        self.after(None)
    }

    /// The records whose id is greater than `after`, by ascending id.
    pub fn after(&self, after: Option<Uuid>) -> impl Iterator<Item = &Arc<Record<T>>> {
        let first = after.map_or(0, part_of_id);
        let from = after.map_or(Unbounded, Excluded);
        self.parts.records[first..]
            .iter()
            .filter(|part| !part.is_empty())
            .flat_map(move |part| part.range((from, Unbounded)))
            .map(|(_, record)| record)
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.parts.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing was changed since one was cloned from the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts, &other.parts)
    }

    /// The identifiers of the records that have come, gone or changed since `old`:
    /// parts that one was cloned from are not looked at.
    pub fn changed_since(&self, old: &Self) -> Vec<Uuid> {
        let mut changed = Vec::new();
        if self.is_same(old) {
            return changed;
        }
        let parts = self.parts.records.iter().zip(&old.parts.records);
        for (new, old) in parts.filter(|(new, old)| !Arc::ptr_eq(new, old)) {
            let new = new.iter().map(|(id, record)| (*id, record));
            let old = old.iter().map(|(id, record)| (*id, record));
            differing(new, old, &Arc::ptr_eq, &mut changed);
        }
        changed
    }

    /// Creates or replaces; the caller has checked what must be unique.
    pub fn put(&mut self, record: Arc<Record<T>>) {
        let id = record.value.id();
        self.remove(id);
        let parts = Arc::make_mut(&mut self.parts);
        for hash in hashes(&record.value) {
            Arc::make_mut(&mut parts.index[part_of_hash(hash)]).insert((hash, id));
        }
        Arc::make_mut(&mut parts.records[part_of_id(id)]).insert(id, record);
        parts.len += 1;
    }

    /// Removes and returns the record.
    pub fn remove(&mut self, id: Uuid) -> Option<Arc<Record<T>>> {
        self.get(id)?;
        let parts = Arc::make_mut(&mut self.parts);
        let old = Arc::make_mut(&mut parts.records[part_of_id(id)]).remove(&id)?;
        for hash in hashes(&old.value) {
            Arc::make_mut(&mut parts.index[part_of_hash(hash)]).remove(&(hash, id));
        }
        parts.len -= 1;
        Some(old)
    }

    fn indexed(&self, hash: u64) -> impl Iterator<Item = Uuid> {
        self.parts.index[part_of_hash(hash)]
            .range((hash, Uuid::nil())..=(hash, Uuid::max()))
            .map(|(_, id)| id)
    }
}

/// The index entries of a record. Two of the same hash are one: who looks up
/// asks the record itself.
fn hashes<T: Entity>(value: &T) -> impl Iterator<Item = u64> {
    let unique = value.unique().into_iter().map(|unique| hash_of(&unique));
    let references = value.references();
    let texts: Vec<u64> = value.texts().iter().map(hash_of).collect();
    unique
        .collect::<Vec<_>>()
        .into_iter()
        .chain(references.into_iter().map(|reference| hash_of(&reference)))
        .chain(texts)
}

fn hash_of(entry: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    entry.hash(&mut hasher);
    hasher.finish()
}

fn part_of_id(id: Uuid) -> usize {
    usize::from(id.as_bytes()[0])
}

fn part_of_hash(hash: u64) -> usize {
    usize::from(hash.to_be_bytes()[0])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::entities::Origin;
    use doorward_core::model::consumer::Consumer;
    use doorward_core::model::service::Service;
    use doorward_core::model::target::Target;

    fn consumer(id: u128, name: &str) -> Arc<Record<Consumer>> {
        let value = json!({"id": Uuid::from_u128(id), "username": name, "created_at": 1});
        let value: Consumer = serde_json::from_value(value).expect("a consumer");
        Arc::new(Record::of(value, Origin::Store))
    }

    fn target(id: u128, upstream: u128, target: &str) -> Arc<Record<Target>> {
        let value = json!({
            "id": Uuid::from_u128(id), "target": target, "created_at": 1.5,
            "upstream": {"id": Uuid::from_u128(upstream)},
        });
        let value: Target = serde_json::from_value(value).expect("a target");
        Arc::new(Record::of(value, Origin::Store))
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut table = Table::default();
        table.put(consumer(1, "a"));
        let before = table.clone();
        assert!(before.is_same(&table));
        table.put(consumer(2, "b"));
        table.remove(Uuid::from_u128(1));
        assert!(!before.is_same(&table));
        assert_eq!((before.len(), table.len()), (1, 1));
        assert!(before.by_key("a").is_some() && before.by_key("b").is_none());
        assert!(table.by_key("a").is_none() && table.by_key("b").is_some());
    }

    #[test]
    fn what_changed_is_told_by_identifier() {
        let mut table = Table::default();
        for id in 1..=4 {
            table.put(consumer(id, &id.to_string()));
        }
        let before = table.clone();
        assert!(table.changed_since(&before).is_empty());
        table.put(consumer(2, "other"));
        table.put(consumer(5, "new"));
        table.put(consumer(1 << 120, "elsewhere"));
        table.remove(Uuid::from_u128(3));
        let changed = table.changed_since(&before);
        let changed: Vec<u128> = changed.iter().map(Uuid::as_u128).collect();
        assert_eq!(changed, [2, 3, 5, 1 << 120]);
    }

    #[test]
    fn a_replaced_record_is_found_by_its_new_name_only() {
        let mut table = Table::default();
        table.put(consumer(1, "a"));
        table.put(consumer(1, "b"));
        assert_eq!(table.len(), 1);
        assert!(table.by_key("a").is_none());
        assert!(table.by_key("b").is_some());
    }

    #[test]
    fn records_come_by_ascending_id_from_any_point() {
        let mut table = Table::default();
        let ids = [u128::MAX, 3, 1 << 120, 2, 1 << 127];
        for id in ids {
            table.put(consumer(id, &id.to_string()));
        }
        let mut sorted = ids;
        sorted.sort_unstable();
        let listed = |after: Option<u128>| -> Vec<u128> {
            let after = after.map(Uuid::from_u128);
            table.after(after).map(|r| r.value.id.as_u128()).collect()
        };
        assert_eq!(listed(None), sorted);
        assert_eq!(listed(Some(3)), sorted[2..]);
        assert_eq!(listed(Some(4)), sorted[2..]);
        assert!(listed(Some(u128::MAX)).is_empty());
    }

    #[test]
    fn children_are_found_by_their_parent() {
        let mut table = Table::default();
        for (id, upstream) in [(5, 1), (3, 1), (4, 2), (9, 1)] {
            table.put(target(id, upstream, &format!("h{id}:80")));
        }
        let of = |upstream, after: Option<u128>| -> Vec<u128> {
            table
                .referring(
                    "upstream",
                    Uuid::from_u128(upstream),
                    after.map(Uuid::from_u128),
                )
                .map(|record| record.value.id.as_u128())
                .collect()
        };
        assert_eq!(of(1, None), [3, 5, 9]);
        assert_eq!(of(1, Some(3)), [5, 9]);
        assert_eq!(of(2, None), [4]);
        assert!(of(3, None).is_empty());
    }

    #[test]
    fn services_are_found_by_their_host() {
        let service = |id: u128, host: &str| {
            let value = json!({"id": Uuid::from_u128(id), "protocol": "http", "host": host,
                "port": 80, "retries": 5, "connect_timeout": 1, "write_timeout": 1,
                "read_timeout": 1, "enabled": true, "created_at": 1, "updated_at": 1});
            let value: Service = serde_json::from_value(value).expect("a service");
            Arc::new(Record::of(value, Origin::Store))
        };
        let mut table = Table::default();
        for (id, host) in [(1, "a"), (2, "b"), (3, "a")] {
            table.put(service(id, host));
        }
        let found = |table: &Table<Service>, host: &str| -> Vec<u128> {
            let found = table.with_text("host", host);
            found.map(|record| record.value.id.as_u128()).collect()
        };
        assert_eq!(found(&table, "a"), [1, 3]);
        table.put(service(3, "b"));
        assert_eq!(found(&table, "a"), [1]);
        assert_eq!(found(&table, "b"), [2, 3]);
        table.remove(Uuid::from_u128(2));
        assert_eq!(found(&table, "b"), [3]);
        assert!(found(&table, "c").is_empty());
    }

    #[test]
    fn a_target_is_unique_within_its_upstream() {
        let mut table = Table::default();
        table.put(target(1, 1, "a:80"));
        let same = target(2, 1, "a:80");
        let other = target(2, 2, "a:80");
        let taken = |record: &Record<Target>| table.find(&record.value.unique()[0]).is_some();
        assert!(taken(&same));
        assert!(!taken(&other));
    }
}
