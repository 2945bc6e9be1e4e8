//! Refresh tokens, opaque access tokens and revocations.

use sqlx::{Sqlite, SqlitePool, Transaction};

use super::{parse_doc, unavailable, write_doc};
use crate::model::grant::{
    MAX_TOKEN_LIFE_MS, Revocation, Rotation, StoredAccess, StoredRefresh, TokenHash,
};
use crate::store::StoreError;

pub(super) async fn insert(
    tx: &mut Transaction<'static, Sqlite>,
    refresh: Option<&StoredRefresh>,
    access: Option<&StoredAccess>,
) -> Result<(), StoreError> {
    if let Some(token) = refresh {
        sqlx::query(
            "INSERT INTO refresh_tokens
               (hash, grant_id, realm, client_id, user_id, used, expires_ms, doc)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(token.hash.0.as_slice())
        .bind(&token.grant.id)
        .bind(&token.grant.realm)
        .bind(&token.grant.client_id)
        .bind(token.grant.user_id.to_string())
        .bind(token.used)
        .bind(token.expires_ms)
        .bind(write_doc(&token.grant)?)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    }
    if let Some(token) = access {
        sqlx::query(
            "INSERT INTO access_tokens (hash, grant_id, expires_ms, doc) VALUES (?, ?, ?, ?)",
        )
        .bind(token.hash.0.as_slice())
        .bind(&token.grant_id)
        .bind(token.expires_ms)
        .bind(write_doc(&token.claims)?)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    }
    Ok(())
}

pub(super) async fn refresh(
    readers: &SqlitePool,
    hash: TokenHash,
) -> Result<Option<StoredRefresh>, StoreError> {
    let row: Option<(bool, i64, String)> =
        sqlx::query_as("SELECT used, expires_ms, doc FROM refresh_tokens WHERE hash = ?")
            .bind(hash.0.as_slice())
            .fetch_optional(readers)
            .await
            .map_err(unavailable)?;
    let Some((used, expires_ms, doc)) = row else {
        return Ok(None);
    };
    Ok(Some(StoredRefresh {
        hash,
        grant: parse_doc(&doc)?,
        expires_ms,
        used,
    }))
}

/// The conditional update decides: of two exchanges at once, exactly one finds
/// the token unused.
pub(super) async fn rotate(
    mut tx: Transaction<'static, Sqlite>,
    old: TokenHash,
    new: &StoredRefresh,
    access: Option<&StoredAccess>,
) -> Result<Rotation, StoreError> {
    let taken = sqlx::query("UPDATE refresh_tokens SET used = 1 WHERE hash = ? AND used = 0")
        .bind(old.0.as_slice())
        .execute(&mut *tx)
        .await
        .map_err(unavailable)?;
    let outcome = if taken.rows_affected() == 1 {
        insert(&mut tx, Some(new), access).await?;
        Rotation::Done
    } else {
        let known: i64 = sqlx::query_scalar("SELECT count(*) FROM refresh_tokens WHERE hash = ?")
            .bind(old.0.as_slice())
            .fetch_one(&mut *tx)
            .await
            .map_err(unavailable)?;
        if known == 0 {
            return Ok(Rotation::Gone);
        }
        let until_ms = new.grant.ends_ms.saturating_add(MAX_TOKEN_LIFE_MS);
        revoke(&mut tx, &new.grant.id, until_ms).await?;
        Rotation::Reused
    };
    tx.commit().await.map_err(unavailable)?;
    Ok(outcome)
}

pub(super) async fn revoke(
    tx: &mut Transaction<'static, Sqlite>,
    grant_id: &str,
    until_ms: i64,
) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM refresh_tokens WHERE grant_id = ?",
        "DELETE FROM access_tokens WHERE grant_id = ?",
    ] {
        sqlx::query(statement)
            .bind(grant_id)
            .execute(&mut **tx)
            .await
            .map_err(unavailable)?;
    }
    sqlx::query(
        "INSERT INTO revoked_grants (grant_id, expires_ms) VALUES (?, ?)
         ON CONFLICT (grant_id) DO UPDATE SET expires_ms = max(expires_ms, excluded.expires_ms)",
    )
    .bind(grant_id)
    .bind(until_ms)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)
    .map(drop)
}

pub(super) async fn revoke_access(
    mut tx: Transaction<'static, Sqlite>,
    hash: TokenHash,
    token_id: &str,
    until_ms: i64,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM access_tokens WHERE hash = ?")
        .bind(hash.0.as_slice())
        .execute(&mut *tx)
        .await
        .map_err(unavailable)?;
    sqlx::query(
        "INSERT INTO revoked_tokens (token_id, expires_ms) VALUES (?, ?)
         ON CONFLICT (token_id) DO NOTHING",
    )
    .bind(token_id)
    .bind(until_ms)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    tx.commit().await.map_err(unavailable)
}

pub(super) async fn revocations(
    readers: &SqlitePool,
) -> Result<Vec<(Revocation, i64)>, StoreError> {
    let grants: Vec<(String, i64)> =
        sqlx::query_as("SELECT grant_id, expires_ms FROM revoked_grants")
            .fetch_all(readers)
            .await
            .map_err(unavailable)?;
    let tokens: Vec<(String, i64)> =
        sqlx::query_as("SELECT token_id, expires_ms FROM revoked_tokens")
            .fetch_all(readers)
            .await
            .map_err(unavailable)?;
    let grants = grants
        .into_iter()
        .map(|(id, until)| (Revocation::Grant(id), until));
    let tokens = tokens
        .into_iter()
        .map(|(id, until)| (Revocation::Token(id), until));
    Ok(grants.chain(tokens).collect())
}

/// What has expired and was not yet swept counts as new.
pub(super) async fn remember(
    writer: &SqlitePool,
    what: TokenHash,
    until_ms: i64,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO seen (hash, expires_ms) VALUES (?, ?)
         ON CONFLICT (hash) DO UPDATE SET expires_ms = excluded.expires_ms
         WHERE expires_ms <= ?",
    )
    .bind(what.0.as_slice())
    .bind(until_ms)
    .bind(now_ms)
    .execute(writer)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected() == 1)
}

pub(super) async fn access(
    readers: &SqlitePool,
    hash: TokenHash,
) -> Result<Option<StoredAccess>, StoreError> {
    let row: Option<(String, i64, String)> =
        sqlx::query_as("SELECT grant_id, expires_ms, doc FROM access_tokens WHERE hash = ?")
            .bind(hash.0.as_slice())
            .fetch_optional(readers)
            .await
            .map_err(unavailable)?;
    let Some((grant_id, expires_ms, doc)) = row else {
        return Ok(None);
    };
    Ok(Some(StoredAccess {
        hash,
        grant_id,
        claims: parse_doc(&doc)?,
        expires_ms,
    }))
}

/// Spent refresh tokens stay until their own expiry, so that their reuse is
/// noticed as long as they could have been used.
pub(super) async fn sweep(
    mut tx: Transaction<'static, Sqlite>,
    now_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let mut gone = 0;
    for statement in [
        "DELETE FROM refresh_tokens WHERE hash IN
           (SELECT hash FROM refresh_tokens WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM access_tokens WHERE hash IN
           (SELECT hash FROM access_tokens WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM revoked_grants WHERE grant_id IN
           (SELECT grant_id FROM revoked_grants WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM revoked_tokens WHERE token_id IN
           (SELECT token_id FROM revoked_tokens WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM seen WHERE hash IN
           (SELECT hash FROM seen WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM sessions WHERE hash IN
           (SELECT hash FROM sessions WHERE ends_ms <= ? LIMIT ?)",
        "DELETE FROM signing_keys WHERE kid IN
           (SELECT kid FROM signing_keys WHERE expires_ms <= ? LIMIT ?)",
    ] {
        let done = sqlx::query(statement)
            .bind(now_ms)
            .bind(limit)
            .execute(&mut *tx)
            .await
            .map_err(unavailable)?;
        gone += done.rows_affected();
    }
    tx.commit().await.map_err(unavailable)?;
    Ok(gone)
}
