//! Sessions of `authenticate`.

use sqlx::{Row, Sqlite, SqlitePool, Transaction};

use super::{parse_id, unavailable};
use crate::model::grant::{StoredSession, TokenHash};
use crate::store::StoreError;

pub(super) async fn insert(
    mut tx: Transaction<'static, Sqlite>,
    session: &StoredSession,
    quota: u32,
) -> Result<(), StoreError> {
    let user_id = session.user_id.to_string();
    sqlx::query(
        "INSERT INTO sessions (hash, realm, user_id, created_ms, used_ms, ends_ms)
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(session.hash.0.as_slice())
    .bind(&session.realm)
    .bind(&user_id)
    .bind(session.created_ms)
    .bind(session.used_ms)
    .bind(session.ends_ms)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    sqlx::query(
        "DELETE FROM sessions WHERE hash IN (
           SELECT hash FROM sessions WHERE user_id = ?
           ORDER BY created_ms DESC, hash LIMIT -1 OFFSET ?)",
    )
    .bind(&user_id)
    .bind(quota)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    tx.commit().await.map_err(unavailable)
}

pub(super) async fn by_hash(
    readers: &SqlitePool,
    hash: TokenHash,
) -> Result<Option<StoredSession>, StoreError> {
    let row = sqlx::query("SELECT * FROM sessions WHERE hash = ?")
        .bind(hash.0.as_slice())
        .fetch_optional(readers)
        .await
        .map_err(unavailable)?;
    let Some(row) = row else { return Ok(None) };
    let user_id: String = row.try_get("user_id").map_err(unavailable)?;
    Ok(Some(StoredSession {
        hash,
        realm: row.try_get("realm").map_err(unavailable)?,
        user_id: parse_id(&user_id)?,
        created_ms: row.try_get("created_ms").map_err(unavailable)?,
        used_ms: row.try_get("used_ms").map_err(unavailable)?,
        ends_ms: row.try_get("ends_ms").map_err(unavailable)?,
    }))
}

pub(super) async fn touch(
    writer: &SqlitePool,
    hash: TokenHash,
    now_ms: i64,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE sessions SET used_ms = max(used_ms, ?) WHERE hash = ?")
        .bind(now_ms)
        .bind(hash.0.as_slice())
        .execute(writer)
        .await
        .map_err(unavailable)
        .map(drop)
}

pub(super) async fn delete(writer: &SqlitePool, hash: TokenHash) -> Result<bool, StoreError> {
    let gone = sqlx::query("DELETE FROM sessions WHERE hash = ?")
        .bind(hash.0.as_slice())
        .execute(writer)
        .await
        .map_err(unavailable)?;
    Ok(gone.rows_affected() > 0)
}
