//! The gateway's entities.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::execute::ReadSource;
use super::{Tx, sql, write_doc};
use crate::{EntityWrite, Store, StoreError};

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
        write(self.begin().await?, writes, seen).await
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

/// Writes what was made of the revision that was `seen`, or of whatever there
/// is; returns the new one.
///
/// First all old records go, then the new ones come: two records may trade
/// their names in one change.
async fn write(mut tx: Tx, writes: Vec<EntityWrite>, seen: Option<i64>) -> Result<i64, StoreError> {
    let revision = revision(&mut tx).await?;
    if seen.is_some_and(|seen| seen != revision) {
        return Err(StoreError::Conflict("entities".to_owned()));
    }
    sql("INSERT INTO entity_revision (id, revision) VALUES (1, $1)
         ON CONFLICT (id) DO UPDATE SET revision = excluded.revision")
    .bind(revision + 1)
    .run(&mut tx)
    .await?;
    for write in &writes {
        let (kind, id) = match write {
            EntityWrite::Put(entity) => (entity.kind, entity.id),
            EntityWrite::Delete(kind, id) => (*kind, *id),
        };
        sql("DELETE FROM entities WHERE kind = $1 AND id = $2")
            .bind(kind)
            .bind(id.to_string())
            .run(&mut tx)
            .await?;
    }
    for write in &writes {
        let EntityWrite::Put(entity) = write else {
            continue;
        };
        sql("INSERT INTO entities (kind, id, key, doc) VALUES ($1, $2, $3, $4)")
            .bind(entity.kind)
            .bind(entity.id.to_string())
            .bind(entity.key.as_deref())
            .bind(write_doc(&entity.doc)?)
            .run_unless_taken(&mut tx, entity.key.as_deref().unwrap_or("the id"))
            .await?;
    }
    tx.commit().await?;
    Ok(revision + 1)
}
