//! Refresh tokens, opaque access tokens and revocations.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqlitePool, Transaction};

use super::{
    codes, damaged, devices, parse_doc, registrations, requests, sweep, unavailable, write_doc,
};
use crate::model::grant::{
    Exchange, Revocation, Rotation, SpentRefresh, StoredAccess, StoredRefresh, TokenHash,
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
               (family, grant_id, realm, client_id, user_id, current, expires_ms, doc)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(token.family.0.as_slice())
        .bind(&token.grant.id)
        .bind(&token.grant.realm)
        .bind(&token.grant.client_id)
        .bind(token.grant.user_id.to_string())
        .bind(token.current.0.as_slice())
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
    family: TokenHash,
) -> Result<Option<StoredRefresh>, StoreError> {
    let row = sqlx::query(
        "SELECT current, previous, salt, rotated_ms, expires_ms, doc
           FROM refresh_tokens WHERE family = ?",
    )
    .bind(family.0.as_slice())
    .fetch_optional(readers)
    .await
    .map_err(unavailable)?;
    let Some(row) = row else {
        return Ok(None);
    };
    let doc: String = row.try_get("doc").map_err(unavailable)?;
    let current: Vec<u8> = row.try_get("current").map_err(unavailable)?;
    Ok(Some(StoredRefresh {
        family,
        current: hash(&current)?,
        previous: spent(&row)?,
        grant: parse_doc(&doc)?,
        expires_ms: row.try_get("expires_ms").map_err(unavailable)?,
    }))
}

fn hash(bytes: &[u8]) -> Result<TokenHash, StoreError> {
    let bytes = bytes
        .try_into()
        .map_err(|_| damaged("a hash of another length"));
    bytes.map(TokenHash)
}

fn spent(row: &SqliteRow) -> Result<Option<SpentRefresh>, StoreError> {
    let previous: Option<Vec<u8>> = row.try_get("previous").map_err(unavailable)?;
    let salt: Option<Vec<u8>> = row.try_get("salt").map_err(unavailable)?;
    let rotated_ms: Option<i64> = row.try_get("rotated_ms").map_err(unavailable)?;
    let (Some(previous), Some(salt), Some(rotated_ms)) = (previous, salt, rotated_ms) else {
        return Ok(None);
    };
    Ok(Some(SpentRefresh {
        hash: hash(&previous)?,
        salt,
        rotated_ms,
    }))
}

/// The conditional update decides: of two exchanges at once, exactly one finds
/// the token in force.
pub(super) async fn exchange(
    tx: &mut Transaction<'static, Sqlite>,
    exchange: &Exchange,
    access: Option<&StoredAccess>,
) -> Result<Rotation, StoreError> {
    let taken = if exchange.successor == exchange.presented {
        sqlx::query("UPDATE refresh_tokens SET expires_ms = ? WHERE family = ? AND current = ?")
            .bind(exchange.expires_ms)
    } else {
        sqlx::query(
            "UPDATE refresh_tokens
                SET previous = current, current = ?, salt = ?, rotated_ms = ?, expires_ms = ?
              WHERE family = ? AND current = ?",
        )
        .bind(exchange.successor.0.as_slice())
        .bind(exchange.salt.as_slice())
        .bind(exchange.now_ms)
        .bind(exchange.expires_ms)
    };
    let taken = taken
        .bind(exchange.family.0.as_slice())
        .bind(exchange.presented.0.as_slice())
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    if taken.rows_affected() == 1 {
        insert(tx, None, access).await?;
        return Ok(Rotation::Done);
    }
    let row = sqlx::query(
        "SELECT grant_id, previous, salt, rotated_ms FROM refresh_tokens WHERE family = ?",
    )
    .bind(exchange.family.0.as_slice())
    .fetch_optional(&mut **tx)
    .await
    .map_err(unavailable)?;
    let Some(row) = row else {
        return Ok(Rotation::Gone);
    };
    // While it is the previous one, its successor has not been used.
    let again = spent(&row)?.filter(|spent| {
        spent.hash == exchange.presented && spent.is_in_grace(exchange.now_ms, exchange.grace_ms)
    });
    if let Some(spent) = again {
        insert(tx, None, access).await?;
        let TokenHash(salt) = hash(&spent.salt)?;
        return Ok(Rotation::Again(salt));
    }
    let grant_id: String = row.try_get("grant_id").map_err(unavailable)?;
    revoke(tx, &grant_id, exchange.revoked_until_ms).await?;
    Ok(Rotation::Reused)
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
    tx: &mut Transaction<'static, Sqlite>,
    hash: TokenHash,
    token_id: &str,
    until_ms: i64,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM access_tokens WHERE hash = ?")
        .bind(hash.0.as_slice())
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    sqlx::query(
        "INSERT INTO revoked_tokens (token_id, expires_ms) VALUES (?, ?)
         ON CONFLICT (token_id) DO NOTHING",
    )
    .bind(token_id)
    .bind(until_ms)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)
    .map(drop)
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
    tx: &mut Transaction<'static, Sqlite>,
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
    .execute(&mut **tx)
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

pub(super) async fn sweep(
    mut tx: Transaction<'static, Sqlite>,
    now_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let mut gone = 0;
    for statement in [
        "DELETE FROM refresh_tokens WHERE family IN
           (SELECT family FROM refresh_tokens WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM access_tokens WHERE hash IN
           (SELECT hash FROM access_tokens WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM revoked_grants WHERE grant_id IN
           (SELECT grant_id FROM revoked_grants WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM revoked_tokens WHERE token_id IN
           (SELECT token_id FROM revoked_tokens WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM seen WHERE hash IN
           (SELECT hash FROM seen WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM session_grants WHERE grant_id IN
           (SELECT grant_id FROM session_grants WHERE expires_ms <= ? LIMIT ?)",
        "DELETE FROM signing_keys WHERE kid IN
           (SELECT kid FROM signing_keys WHERE expires_ms <= ? LIMIT ?)",
    ] {
        gone += sweep::expired(&mut tx, statement, now_ms, limit).await?;
    }
    gone += codes::sweep(&mut tx, now_ms, limit).await?;
    gone += devices::sweep(&mut tx, now_ms, limit).await?;
    gone += registrations::sweep_tokens(&mut tx, now_ms, limit).await?;
    gone += requests::sweep(&mut tx, now_ms, limit).await?;
    tx.commit().await.map_err(unavailable)?;
    Ok(gone)
}
