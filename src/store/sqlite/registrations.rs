//! Clients that register themselves, and the tokens that let them.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqlitePool, Transaction};

use super::{clients, damaged, sweep, unavailable};
use crate::model::client::Client;
use crate::model::grant::TokenHash;
use crate::model::registration::{InitialToken, Registered};
use crate::store::StoreError;

type Tx = Transaction<'static, Sqlite>;

const GOOD: &str = "realm = ? AND hash = ? AND (uses_left IS NULL OR uses_left > 0)
                    AND (expires_ms IS NULL OR expires_ms > ?)";

/// Nothing is kept unless there is room and the token is good.
pub(super) async fn register(
    tx: &mut Tx,
    client: &Client,
    most: u32,
    token: Option<TokenHash>,
) -> Result<Registered, StoreError> {
    let known: i64 =
        sqlx::query_scalar("SELECT count(*) FROM clients WHERE realm = ? AND owner = 'client'")
            .bind(&client.realm)
            .fetch_one(&mut **tx)
            .await
            .map_err(unavailable)?;
    if known >= i64::from(most) {
        return Ok(Registered::Full);
    }
    if let Some(hash) = token {
        let spend = format!("UPDATE initial_tokens SET uses_left = uses_left - 1 WHERE {GOOD}");
        let spent = sqlx::query(sqlx::AssertSqlSafe(spend))
            .bind(&client.realm)
            .bind(hash.0.as_slice())
            .bind(client.created_ms)
            .execute(&mut **tx)
            .await
            .map_err(unavailable)?;
        if spent.rows_affected() == 0 {
            return Ok(Registered::TokenSpent);
        }
    }
    clients::insert(tx, client).await?;
    Ok(Registered::Done)
}

pub(super) async fn is_good(
    readers: &SqlitePool,
    realm: &str,
    hash: TokenHash,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let ask = format!("SELECT count(*) FROM initial_tokens WHERE {GOOD}");
    let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(ask))
        .bind(realm)
        .bind(hash.0.as_slice())
        .bind(now_ms)
        .fetch_one(readers)
        .await
        .map_err(unavailable)?;
    Ok(found > 0)
}

pub(super) async fn insert_token(tx: &mut Tx, token: &InitialToken) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO initial_tokens (hash, id, realm, note, uses_left, created_ms, expires_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(token.hash.0.as_slice())
    .bind(&token.id)
    .bind(&token.realm)
    .bind(&token.note)
    .bind(token.uses_left)
    .bind(token.created_ms)
    .bind(token.expires_ms)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)
    .map(drop)
}

pub(super) async fn tokens(
    readers: &SqlitePool,
    realm: &str,
) -> Result<Vec<InitialToken>, StoreError> {
    let rows = sqlx::query("SELECT * FROM initial_tokens WHERE realm = ? ORDER BY id")
        .bind(realm)
        .fetch_all(readers)
        .await
        .map_err(unavailable)?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<InitialToken, StoreError> {
    let hash: Vec<u8> = row.try_get("hash").map_err(unavailable)?;
    let hash = hash.try_into().map_err(|_| damaged("a hash"))?;
    Ok(InitialToken {
        id: row.try_get("id").map_err(unavailable)?,
        realm: row.try_get("realm").map_err(unavailable)?,
        hash: TokenHash(hash),
        note: row.try_get("note").map_err(unavailable)?,
        uses_left: row.try_get("uses_left").map_err(unavailable)?,
        created_ms: row.try_get("created_ms").map_err(unavailable)?,
        expires_ms: row.try_get("expires_ms").map_err(unavailable)?,
    })
}

pub(super) async fn delete_token(tx: &mut Tx, realm: &str, id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM initial_tokens WHERE realm = ? AND id = ?")
        .bind(realm)
        .bind(id)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    Ok(done.rows_affected() > 0)
}

/// A client that is gone meanwhile is none to be noted.
pub(super) async fn touch(
    tx: &mut Tx,
    used: &[(String, String)],
    now_ms: i64,
) -> Result<(), StoreError> {
    for (realm, client_id) in used {
        sqlx::query(
            "UPDATE clients SET used_ms = max(used_ms, ?) WHERE realm = ? AND client_id = ?",
        )
        .bind(now_ms)
        .bind(realm)
        .bind(client_id)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    }
    Ok(())
}

/// Removes registered clients that were not used since `before_ms`.
pub(super) async fn sweep_unused(
    tx: &mut Tx,
    realm: &str,
    before_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let idle: Vec<String> = sqlx::query_scalar(
        "SELECT client_id FROM clients
         WHERE realm = ? AND owner = 'client' AND used_ms < ? LIMIT ?",
    )
    .bind(realm)
    .bind(before_ms)
    .bind(limit)
    .fetch_all(&mut **tx)
    .await
    .map_err(unavailable)?;
    for client_id in &idle {
        clients::remove(tx, realm, client_id).await?;
    }
    Ok(idle.len() as u64)
}

/// Removes tokens that have ended or are used up.
pub(super) async fn sweep_tokens(tx: &mut Tx, now_ms: i64, limit: u32) -> Result<u64, StoreError> {
    let delete = "DELETE FROM initial_tokens WHERE hash IN
           (SELECT hash FROM initial_tokens
            WHERE expires_ms <= ? OR uses_left = 0 LIMIT ?)";
    sweep::expired(tx, delete, now_ms, limit).await
}
