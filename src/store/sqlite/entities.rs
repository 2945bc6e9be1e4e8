//! The gateway's entities.

use serde_json::{Map, Value};
use sqlx::{Sqlite, SqlitePool, Transaction};
use uuid::Uuid;

use super::{parse_doc, parse_id, taken, unavailable, write_doc};
use crate::store::{EntityWrite, StoreError};

pub(super) async fn all(
    readers: &SqlitePool,
) -> Result<Vec<(String, Uuid, Map<String, Value>)>, StoreError> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("SELECT kind, id, doc FROM entities ORDER BY kind, id")
            .fetch_all(readers)
            .await
            .map_err(unavailable)?;
    rows.into_iter()
        .map(|(kind, id, doc)| Ok((kind, parse_id(&id)?, parse_doc(&doc)?)))
        .collect()
}

/// First all old records go, then the new ones come: two records may trade
/// their names in one change.
pub(super) async fn write(
    mut tx: Transaction<'static, Sqlite>,
    writes: Vec<EntityWrite>,
) -> Result<(), StoreError> {
    for write in &writes {
        let (kind, id) = match write {
            EntityWrite::Put(entity) => (entity.kind, entity.id),
            EntityWrite::Delete(kind, id) => (*kind, *id),
        };
        sqlx::query("DELETE FROM entities WHERE kind = ? AND id = ?")
            .bind(kind)
            .bind(id.to_string())
            .execute(&mut *tx)
            .await
            .map_err(unavailable)?;
    }
    for write in &writes {
        let EntityWrite::Put(entity) = write else {
            continue;
        };
        sqlx::query("INSERT INTO entities (kind, id, key, doc) VALUES (?, ?, ?, ?)")
            .bind(entity.kind)
            .bind(entity.id.to_string())
            .bind(entity.key.as_deref())
            .bind(write_doc(&entity.doc)?)
            .execute(&mut *tx)
            .await
            .map_err(|error| taken(error, entity.key.as_deref().unwrap_or("the id")))?;
    }
    tx.commit().await.map_err(unavailable)
}
