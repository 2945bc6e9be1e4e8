//! Authorization requests that are kept for clients.

use sqlx::{Sqlite, SqlitePool, Transaction};

use super::{parse_doc, sweep, unavailable, write_doc};
use crate::model::authorization::StoredRequest;
use crate::model::grant::TokenHash;
use crate::store::StoreError;

/// One statement, so that no two at once exceed the limit together.
pub(super) async fn keep(
    tx: &mut Transaction<'static, Sqlite>,
    request: &StoredRequest,
    most_bytes: u32,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO requests (hash, realm, client_id, begins_ms, ends_ms, doc)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS
           (SELECT 1 FROM request_bytes
             WHERE realm = ?2 AND client_id = ?3 AND bytes + length(?6) > ?7)
         ON CONFLICT (hash) DO UPDATE SET
           begins_ms = max(begins_ms, excluded.begins_ms),
           ends_ms = max(ends_ms, excluded.ends_ms)",
    )
    .bind(request.hash.0.as_slice())
    .bind(&request.realm)
    .bind(&request.client_id)
    .bind(request.begins_ms)
    .bind(request.ends_ms)
    .bind(write_doc(&request.kept)?)
    .bind(most_bytes)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected() == 1)
}

pub(super) async fn by_hash(
    readers: &SqlitePool,
    hash: TokenHash,
) -> Result<Option<StoredRequest>, StoreError> {
    let row: Option<(String, String, i64, i64, String)> = sqlx::query_as(
        "SELECT realm, client_id, begins_ms, ends_ms, doc FROM requests WHERE hash = ?",
    )
    .bind(hash.0.as_slice())
    .fetch_optional(readers)
    .await
    .map_err(unavailable)?;
    let Some((realm, client_id, begins_ms, ends_ms, doc)) = row else {
        return Ok(None);
    };
    Ok(Some(StoredRequest {
        hash,
        realm,
        client_id,
        begins_ms,
        ends_ms,
        kept: parse_doc(&doc)?,
    }))
}

pub(super) async fn prolong(
    tx: &mut Transaction<'static, Sqlite>,
    hash: TokenHash,
    ends_ms: i64,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE requests SET ends_ms = max(ends_ms, ?) WHERE hash = ?")
        .bind(ends_ms)
        .bind(hash.0.as_slice())
        .execute(&mut **tx)
        .await
        .map_err(unavailable)
        .map(drop)
}

/// Of two who take it at once, one finds it.
pub(super) async fn take(
    tx: &mut Transaction<'static, Sqlite>,
    hash: TokenHash,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM requests WHERE hash = ?")
        .bind(hash.0.as_slice())
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    Ok(done.rows_affected() == 1)
}

pub(super) async fn sweep(
    tx: &mut Transaction<'static, Sqlite>,
    now_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let delete = "DELETE FROM requests WHERE hash IN
           (SELECT hash FROM requests WHERE ends_ms <= ? LIMIT ?)";
    sweep::expired(tx, delete, now_ms, limit).await
}
