//! Maps by identifier that are cheap to clone: a change copies what it touches.

use std::sync::Arc;

use uuid::Uuid;

/// Parts that a map is cut into, by the first byte of the identifier.
const PARTS: usize = 256;

/// Entries of one part, by ascending identifier.
type Part<V> = Vec<(Uuid, V)>;

/// A map by identifier. A clone shares everything; a change copies one part,
/// so its cost is that of a 256th of the map.
pub(super) struct CopyOnWriteMap<V> {
    parts: Arc<[Arc<Part<V>>; PARTS]>,
}

impl<V> Clone for CopyOnWriteMap<V> {
    fn clone(&self) -> Self {
        Self {
            parts: self.parts.clone(),
        }
    }
}

impl<V: std::fmt::Debug> std::fmt::Debug for CopyOnWriteMap<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.parts.iter().flat_map(|part| part.iter());
        f.debug_map()
            .entries(all.map(|(id, value)| (id, value)))
            .finish()
    }
}

impl<V> Default for CopyOnWriteMap<V> {
    fn default() -> Self {
        let empty = Arc::new(Part::new());
        Self {
            parts: Arc::new(std::array::from_fn(|_| empty.clone())),
        }
    }
}

impl<V: Clone> CopyOnWriteMap<V> {
    /// The value of this identifier.
    pub(super) fn get(&self, id: Uuid) -> Option<&V> {
        let part = &self.parts[part_of(id)];
        let at = part.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&part[at].1)
    }

    /// Sets the value of this identifier, and returns the one that it had.
    pub(super) fn put(&mut self, id: Uuid, value: V) -> Option<V> {
        let part = self.part_mut(id);
        match part.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Some(std::mem::replace(&mut part[at].1, value)),
            Err(at) => {
                part.insert(at, (id, value));
                None
            }
        }
    }

    /// Removes the value of this identifier.
    pub(super) fn remove(&mut self, id: Uuid) -> Option<V> {
        self.get(id)?;
        let part = self.part_mut(id);
        let at = part.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(part.remove(at).1)
    }

    /// All entries, by ascending identifier.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Uuid, &V)> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.iter().map(|(id, value)| (*id, value)))
    }

    /// Whether nothing was changed since one was cloned from the other.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts, &other.parts)
    }

    /// The identifiers that have come, gone, or have another value than in `old`,
    /// as `same` tells. Parts that one was cloned from are not looked at.
    pub(super) fn changed_since(&self, old: &Self, same: impl Fn(&V, &V) -> bool) -> Vec<Uuid> {
        let mut changed = Vec::new();
        if self.is_same(old) {
            return changed;
        }
        for (new, old) in self.parts.iter().zip(old.parts.iter()) {
            if Arc::ptr_eq(new, old) {
                continue;
            }
            let new = new.iter().map(|(id, value)| (*id, value));
            let old = old.iter().map(|(id, value)| (*id, value));
            differing(new, old, &same, &mut changed);
        }
        changed
    }

    fn part_mut(&mut self, id: Uuid) -> &mut Part<V> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[part_of(id)])
    }
}

/// The identifiers that two lists do not have in common, or with values that
/// are not the same; both ascend.
pub(super) fn differing<'a, V: 'a>(
    new: impl Iterator<Item = (Uuid, &'a V)>,
    old: impl Iterator<Item = (Uuid, &'a V)>,
    same: &impl Fn(&V, &V) -> bool,
    changed: &mut Vec<Uuid>,
) {
    let (mut new, mut old) = (new.peekable(), old.peekable());
    loop {
        match (new.peek(), old.peek()) {
            (None, None) => return,
            (Some((id, a)), Some((other, b))) if id == other => {
                if !same(a, b) {
                    changed.push(*id);
                }
                new.next();
                old.next();
            }
            (Some((id, _)), other) if other.is_none_or(|(other, _)| id < other) => {
                changed.push(*id);
                new.next();
            }
            (_, Some((id, _))) => {
                changed.push(*id);
                old.next();
            }
            (Some(_), None) => return, // matched above
        }
    }
}

fn part_of(id: Uuid) -> usize {
    usize::from(id.as_bytes()[0])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_map_in_parts_is_a_map_and_tells_what_changed(
            before in proptest::collection::vec((0..40_u8, 0..3_u8), 0..40),
            after in proptest::collection::vec((0..40_u8, proptest::option::of(0..3_u8)), 0..20),
        ) {
            // Few first bytes, so that parts have several entries.
            let id = |n: u8| Uuid::from_u128(u128::from(n % 4) << 120 | u128::from(n));
            let (mut parted, mut plain) = (CopyOnWriteMap::default(), BTreeMap::new());
            for (n, value) in before {
                prop_assert_eq!(parted.put(id(n), value), plain.insert(id(n), value));
            }
            let (old, old_plain) = (parted.clone(), plain.clone());
            prop_assert!(old.is_same(&parted));
            for (n, value) in after {
                match value {
                    Some(value) => prop_assert_eq!(parted.put(id(n), value), plain.insert(id(n), value)),
                    None => prop_assert_eq!(parted.remove(id(n)), plain.remove(&id(n))),
                }
            }
            let all: Vec<_> = parted.iter().map(|(id, value)| (id, *value)).collect();
            prop_assert_eq!(all, plain.clone().into_iter().collect::<Vec<_>>());
            let unlike = |id: &Uuid| plain.get(id) != old_plain.get(id);
            let ids = plain.keys().chain(old_plain.keys()).copied();
            let ids: std::collections::BTreeSet<Uuid> = ids.filter(unlike).collect();
            let changed = parted.changed_since(&old, |a, b| a == b);
            prop_assert_eq!(changed, ids.into_iter().collect::<Vec<_>>());
            for (id, value) in &old_plain {
                prop_assert_eq!(old.get(*id), Some(value));
            }
        }
    }
}
