//! The gateway's entities.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Database, Tx, sql, write_doc};
use crate::store::{EntityWrite, StoreError};

pub(super) async fn all(
    readers: &Database,
) -> Result<Vec<(String, Uuid, Map<String, Value>)>, StoreError> {
    let rows = sql("SELECT kind, id, doc FROM entities ORDER BY kind, id")
        .all(readers)
        .await?;
    rows.iter()
        .map(|row| Ok((row.text("kind")?, row.id("id")?, row.doc("doc")?)))
        .collect()
}

/// First all old records go, then the new ones come: two records may trade
/// their names in one change.
pub(super) async fn write(mut tx: Tx, writes: Vec<EntityWrite>) -> Result<(), StoreError> {
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
            .run_or_taken(&mut tx, entity.key.as_deref().unwrap_or("the id"))
            .await?;
    }
    tx.commit().await
}
