//! The gateway's entities.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::execute::ReadSource;
use super::{Tx, audit, sql, write_doc};
use crate::{EntityChange, EntityWrite, Store, StoreError, StoredEntity};
use doorward_core::model::audit::PendingAudit;

impl Store {
    /// All gateway entities.
    pub async fn entities(&self) -> Result<Vec<(String, Uuid, Map<String, Value>)>, StoreError> {
        let rows = sql("SELECT kind, id, doc FROM entities ORDER BY kind, id")
            .all(&self.database)
            .await?;
        rows.iter()
            .map(|row| Ok((row.text("kind")?, row.id("id")?, row.doc("doc")?)))
            .collect()
    }

    /// Applies all of `writes` in one transaction, or none; returns the new
    /// revision. Who names the one that was `seen` writes if it is still that.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when two records of a kind would share a name, and
    /// [`StoreError::Conflict`] for another revision.
    pub async fn write_entities(
        &self,
        writes: Vec<EntityWrite>,
        seen: Option<i64>,
    ) -> Result<i64, StoreError> {
        let change = EntityChange::new(writes, None)?;
        self.write_entity_changes(&[change], seen).await
    }

    /// As [`Store::write_entities`], for changes of which each was made of what
    /// the one before it left. The records of their acts go with them.
    ///
    /// # Errors
    /// Those of [`Store::write_entities`]; none of the changes is stored then.
    pub async fn write_entity_changes(
        &self,
        changes: &[EntityChange],
        seen: Option<i64>,
    ) -> Result<i64, StoreError> {
        let mut tx = self.begin().await?;
        let revision = next_revision(&mut tx, seen).await?;
        for change in changes {
            write(&mut tx, &change.writes).await?;
        }
        let acts = || changes.iter().filter_map(|change| change.pending.as_ref());
        let records: Vec<_> = acts().map(PendingAudit::record).collect();
        audit::append_all(&mut tx, &records).await?;
        tx.commit().await?;
        acts().for_each(PendingAudit::mark_committed);
        Ok(revision)
    }

    /// Whether nobody else serves this database: what this process has not
    /// changed is as it was.
    pub fn is_exclusive(&self) -> bool {
        self.lock.is_some()
    }

    /// A number that each write of entities changes, by whatever process.
    pub async fn entities_revision(&self) -> Result<i64, StoreError> {
        revision(&self.database).await
    }
}

/// How often entities were written.
async fn revision(on: impl Into<ReadSource<'_>>) -> Result<i64, StoreError> {
    let row = sql("SELECT revision FROM entity_revision").one(on).await?;
    row.map_or(Ok(0), |row| row.int("revision"))
}

/// Counts a write of what was made of the revision that was `seen`, or of
/// whatever there is; the new revision.
async fn next_revision(tx: &mut Tx, seen: Option<i64>) -> Result<i64, StoreError> {
    let revision = revision(&mut *tx).await?;
    if seen.is_some_and(|seen| seen != revision) {
        return Err(StoreError::Conflict("entities".to_owned()));
    }
    sql("INSERT INTO entity_revision (id, revision) VALUES (1, $1)
         ON CONFLICT (id) DO UPDATE SET revision = excluded.revision")
    .bind(revision + 1)
    .run(tx)
    .await?;
    Ok(revision + 1)
}

/// First all old records go, then the new ones come: two records may trade
/// their names in one change. A record that comes alone trades with none.
async fn write(tx: &mut Tx, writes: &[EntityWrite]) -> Result<(), StoreError> {
    if let [EntityWrite::Put(entity)] = writes {
        return put(tx, entity).await;
    }
    for write in writes {
        let (kind, id) = match write {
            EntityWrite::Put(entity) => (entity.kind, entity.id),
            EntityWrite::Delete(kind, id) => (*kind, *id),
        };
        sql("DELETE FROM entities WHERE kind = $1 AND id = $2")
            .bind(kind)
            .bind(id.to_string())
            .run(tx)
            .await?;
    }
    for write in writes {
        if let EntityWrite::Put(entity) = write {
            put(tx, entity).await?;
        }
    }
    Ok(())
}

async fn put(tx: &mut Tx, entity: &StoredEntity) -> Result<(), StoreError> {
    sql(
        "INSERT INTO entities (kind, id, key, doc) VALUES ($1, $2, $3, $4)
         ON CONFLICT (kind, id) DO UPDATE SET key = excluded.key, doc = excluded.doc",
    )
    .bind(entity.kind)
    .bind(entity.id.to_string())
    .bind(entity.key.as_deref())
    .bind(write_doc(&entity.doc)?)
    .run_unless_taken(tx, entity.key.as_deref().unwrap_or("the id"))
    .await?;
    Ok(())
}
