//! Sessions of `authenticate`.

use sqlx::{Row, Sqlite, SqlitePool, Transaction};

use super::{parse_id, tokens, unavailable};
use crate::model::grant::{StoredSession, TokenHash};
use crate::store::StoreError;

/// The new session takes the place of `old`, if there is one.
pub(super) async fn insert(
    mut tx: Transaction<'static, Sqlite>,
    old: Option<TokenHash>,
    session: &StoredSession,
    quota: u32,
) -> Result<(), StoreError> {
    if let Some(old) = old {
        sqlx::query("DELETE FROM sessions WHERE hash = ?")
            .bind(old.0.as_slice())
            .execute(&mut *tx)
            .await
            .map_err(unavailable)?;
    }
    let user_id = session.user_id.to_string();
    sqlx::query(
        "INSERT INTO sessions (hash, realm, user_id, created_ms, used_ms, ends_ms, sid, auth_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(session.hash.0.as_slice())
    .bind(&session.realm)
    .bind(&user_id)
    .bind(session.created_ms)
    .bind(session.used_ms)
    .bind(session.ends_ms)
    .bind(&session.sid)
    .bind(session.auth_ms)
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
        sid: row.try_get("sid").map_err(unavailable)?,
        auth_ms: row.try_get("auth_ms").map_err(unavailable)?,
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

/// Ends the session and the grants that were to live only as long; names
/// those. `None`: there is no such session.
pub(super) async fn end(
    tx: &mut Transaction<'static, Sqlite>,
    hash: TokenHash,
    revoked_until_ms: i64,
) -> Result<Option<Vec<String>>, StoreError> {
    let row = sqlx::query("DELETE FROM sessions WHERE hash = ? RETURNING user_id, sid")
        .bind(hash.0.as_slice())
        .fetch_optional(&mut **tx)
        .await
        .map_err(unavailable)?;
    let Some(row) = row else { return Ok(None) };
    let user_id: String = row.try_get("user_id").map_err(unavailable)?;
    let sid: String = row.try_get("sid").map_err(unavailable)?;
    sqlx::query("DELETE FROM codes WHERE user_id = ? AND doc ->> '$.grant.sid' = ? AND used = 0")
        .bind(&user_id)
        .bind(&sid)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    let grants: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT grant_id FROM refresh_tokens
         WHERE user_id = ? AND doc ->> '$.sid' = ? AND NOT EXISTS
           (SELECT 1 FROM json_each(doc, '$.scopes') WHERE value = 'offline_access')",
    )
    .bind(&user_id)
    .bind(&sid)
    .fetch_all(&mut **tx)
    .await
    .map_err(unavailable)?;
    for grant_id in &grants {
        tokens::revoke(tx, grant_id, revoked_until_ms).await?;
    }
    Ok(Some(grants))
}
