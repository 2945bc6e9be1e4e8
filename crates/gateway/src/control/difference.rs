//! What a whole new set of stored entities changes.

use std::sync::Arc;

use super::{ChangeError, DeclaredEntities, DeclaredError, all_references};
use crate::edit;
use crate::entities::{Entities, Item, Origin};
use doorward_store::{EntityWrite, StoredEntity};

/// What a set of entities has that another one has not.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Records that were not there.
    pub created: Vec<Arc<dyn Item>>,
    /// Records that were another one; as they become.
    pub updated: Vec<Arc<dyn Item>>,
    /// Records that are not there any more.
    pub deleted: Vec<Arc<dyn Item>>,
}

impl Difference {
    /// From `old` to `new`, as far as the store owns them.
    pub(super) fn between(old: &Entities, new: &Entities) -> Self {
        let mut difference = Self::default();
        for item in new.items().filter(|item| is_stored(&**item)) {
            match old.table(item.kind()).item(item.id()) {
                Some(before) if is_same(&before, &item) => {}
                Some(_) => difference.updated.push(item),
                None => difference.created.push(item),
            }
        }
        difference.deleted = old
            .items()
            .filter(|item| is_stored(&**item) && !new.table(item.kind()).contains(item.id()))
            .collect();
        difference
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.updated.is_empty() && self.deleted.is_empty()
    }

    /// What the store has to do for it.
    pub(super) fn writes(&self) -> Vec<EntityWrite> {
        let put = |item: &Arc<dyn Item>| {
            EntityWrite::Put(StoredEntity {
                kind: item.kind().plural(),
                id: item.id(),
                key: item.key().map(str::to_owned),
                doc: item.doc(),
            })
        };
        let delete = |item: &Arc<dyn Item>| EntityWrite::Delete(item.kind().plural(), item.id());
        let puts = self.created.iter().chain(&self.updated).map(put);
        self.deleted.iter().map(delete).chain(puts).collect()
    }
}

fn is_stored(item: &dyn Item) -> bool {
    *item.origin() == Origin::Store
}

fn is_same(a: &Arc<dyn Item>, b: &Arc<dyn Item>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// `current` with `wanted` in the place of all that is stored. What files own
/// stays as it is; `wanted` may repeat it, not change it.
pub(super) fn with_stored(
    current: &Entities,
    wanted: DeclaredEntities,
) -> Result<Entities, DeclaredError> {
    let mut candidate = Entities {
        lines: current.lines.clone(),
        ..Entities::default()
    };
    for item in current.items().filter(|item| !is_stored(&**item)) {
        item.put(&mut candidate);
    }
    for item in wanted.items {
        let item = item.same_or_self(current);
        let fail = |error| DeclaredError {
            kind: item.kind().plural(),
            id: item.id(),
            error,
        };
        match item.origin() {
            Origin::Store => edit::declare(&mut candidate, item.clone()).map_err(fail)?,
            Origin::File(file) => {
                let own = candidate.table(item.kind()).item(item.id());
                if !own.is_some_and(|own| is_same(&own, &item)) {
                    return Err(fail(ChangeError::FileOwned {
                        file: file.to_path_buf(),
                    }));
                }
            }
        }
    }
    all_references(&candidate)?;
    Ok(candidate)
}
