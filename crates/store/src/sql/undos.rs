//! How changes of the console are undone: sealed texts, for an hour.

use super::sql;
use crate::{Store, StoreError};

/// Most changes that are kept. Beyond it those that end first are forgotten.
pub(crate) const UNDOS_MAX: u32 = 1000;

impl Store {
    /// Keeps how the change `id` is undone until `expires_ms`, and who may undo it.
    pub async fn put_undo(
        &self,
        id: &str,
        (role, sealed): (&str, &str),
        expires_ms: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sql("INSERT INTO undos (id, role, sealed, expires_ms) VALUES ($1, $2, $3, $4)")
            .bind(id)
            .bind(role)
            .bind(sealed)
            .bind(expires_ms)
            .run(&mut tx)
            .await?;
        sql("DELETE FROM undos WHERE expires_ms <
               (SELECT expires_ms FROM undos ORDER BY expires_ms DESC LIMIT 1 OFFSET $1)")
        .bind(UNDOS_MAX - 1)
        .run(&mut tx)
        .await?;
        tx.commit().await
    }

    /// How the change `id` is undone, if that is still known at `now_ms`.
    pub async fn undo(&self, id: &str, now_ms: i64) -> Result<Option<String>, StoreError> {
        let row = sql("SELECT sealed FROM undos WHERE id = $1 AND expires_ms > $2")
            .bind(id)
            .bind(now_ms)
            .one(&self.database)
            .await?;
        row.map(|row| row.text("sealed")).transpose()
    }

    /// The changes that can be undone at `now_ms`, each with who may undo it.
    pub async fn undos(&self, now_ms: i64) -> Result<Vec<(String, String)>, StoreError> {
        let rows = sql(
            "SELECT id, role FROM undos WHERE expires_ms > $1 ORDER BY expires_ms DESC LIMIT $2",
        )
        .bind(now_ms)
        .bind(UNDOS_MAX)
        .all(&self.database)
        .await?;
        rows.iter()
            .map(|row| Ok((row.text("id")?, row.text("role")?)))
            .collect()
    }

    /// The change `id` was undone. Says whether that was known.
    pub async fn delete_undo(&self, id: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let gone = sql("DELETE FROM undos WHERE id = $1")
            .bind(id)
            .run(&mut tx)
            .await?;
        tx.commit().await?;
        Ok(gone > 0)
    }
}
