//! Authorization codes.

use sqlx::{Sqlite, SqlitePool, Transaction};

use super::{parse_doc, sweep, tokens, unavailable, write_doc};
use crate::model::authorization::{Authorization, CODE_KEPT_MS, Redemption, StoredCode};
use crate::model::grant::{StoredAccess, StoredRefresh, TokenHash};
use crate::store::StoreError;

pub(super) async fn insert(
    tx: &mut Transaction<'static, Sqlite>,
    code: &StoredCode,
) -> Result<(), StoreError> {
    let grant = &code.authorization.grant;
    sqlx::query(
        "INSERT INTO codes (hash, user_id, realm, client_id, used, expires_ms, doc)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(code.hash.0.as_slice())
    .bind(grant.user_id.to_string())
    .bind(&grant.realm)
    .bind(&grant.client_id)
    .bind(code.used)
    .bind(code.expires_ms)
    .bind(write_doc(&code.authorization)?)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)
    .map(drop)
}

pub(super) async fn by_hash(
    readers: &SqlitePool,
    hash: TokenHash,
) -> Result<Option<StoredCode>, StoreError> {
    let row: Option<(bool, i64, String)> =
        sqlx::query_as("SELECT used, expires_ms, doc FROM codes WHERE hash = ?")
            .bind(hash.0.as_slice())
            .fetch_optional(readers)
            .await
            .map_err(unavailable)?;
    let Some((used, expires_ms, doc)) = row else {
        return Ok(None);
    };
    Ok(Some(StoredCode {
        hash,
        authorization: parse_doc(&doc)?,
        expires_ms,
        used,
    }))
}

/// The conditional update decides: of two exchanges at once, exactly one finds
/// the code unused.
pub(super) async fn redeem(
    tx: &mut Transaction<'static, Sqlite>,
    hash: TokenHash,
    refresh: Option<&StoredRefresh>,
    access: Option<&StoredAccess>,
    revoked_until_ms: i64,
) -> Result<Redemption, StoreError> {
    let taken = sqlx::query("UPDATE codes SET used = 1 WHERE hash = ? AND used = 0")
        .bind(hash.0.as_slice())
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    if taken.rows_affected() == 1 {
        tokens::insert(tx, refresh, access).await?;
        return Ok(Redemption::Done);
    }
    let doc: Option<String> = sqlx::query_scalar("SELECT doc FROM codes WHERE hash = ?")
        .bind(hash.0.as_slice())
        .fetch_optional(&mut **tx)
        .await
        .map_err(unavailable)?;
    let Some(doc) = doc else {
        return Ok(Redemption::Gone);
    };
    let authorization: Authorization = parse_doc(&doc)?;
    let grant_id = authorization.grant.id;
    tokens::revoke(tx, &grant_id, revoked_until_ms).await?;
    Ok(Redemption::Replayed(grant_id))
}

/// Removes codes, at most `limit`, whose use need not be noticed any more.
pub(super) async fn sweep(
    tx: &mut Transaction<'static, Sqlite>,
    now_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let delete = "DELETE FROM codes WHERE hash IN
           (SELECT hash FROM codes WHERE expires_ms <= ? LIMIT ?)";
    sweep::expired(tx, delete, now_ms - CODE_KEPT_MS, limit).await
}
