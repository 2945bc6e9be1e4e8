//! Signing keys.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqlitePool, Transaction};

use super::{damaged, unavailable};
use crate::model::client::SignAlg;
use crate::model::grant::StoredKey;
use crate::model::secret::Secret;
use crate::store::StoreError;

fn read(row: &SqliteRow) -> Result<StoredKey, StoreError> {
    let alg: String = row.try_get("alg").map_err(unavailable)?;
    Ok(StoredKey {
        kid: row.try_get("kid").map_err(unavailable)?,
        alg: SignAlg::parse(&alg).ok_or_else(|| damaged(format!("algorithm `{alg}`")))?,
        pkcs8: Secret::new(row.try_get::<String, _>("pkcs8").map_err(unavailable)?),
        created_ms: row.try_get("created_ms").map_err(unavailable)?,
        active_from_ms: row.try_get("active_from_ms").map_err(unavailable)?,
        expires_ms: row.try_get("expires_ms").map_err(unavailable)?,
    })
}

pub(super) async fn all(readers: &SqlitePool) -> Result<Vec<StoredKey>, StoreError> {
    let rows = sqlx::query("SELECT * FROM signing_keys ORDER BY active_from_ms, kid")
        .fetch_all(readers)
        .await
        .map_err(unavailable)?;
    rows.iter().map(read).collect()
}

/// The check for a newer key makes two processes that rotate at once agree on
/// one successor. With `displaces` those to come are withdrawn instead: they
/// never signed.
pub(super) async fn add(
    mut tx: Transaction<'static, Sqlite>,
    key: &StoredKey,
    others_expire_ms: i64,
    displaces: bool,
) -> Result<bool, StoreError> {
    if displaces {
        withdraw_later(&mut tx, key).await?;
    }
    let newer: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM signing_keys
         WHERE alg = ? AND active_from_ms >= ? AND (expires_ms IS NULL OR expires_ms > ?)",
    )
    .bind(key.alg.as_str())
    .bind(key.active_from_ms)
    .bind(key.created_ms)
    .fetch_one(&mut *tx)
    .await
    .map_err(unavailable)?;
    if newer > 0 {
        return Ok(false);
    }
    sqlx::query(
        "UPDATE signing_keys SET expires_ms = ?
         WHERE alg = ? AND (expires_ms IS NULL OR expires_ms > ?)",
    )
    .bind(others_expire_ms)
    .bind(key.alg.as_str())
    .bind(others_expire_ms)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    sqlx::query(
        "INSERT INTO signing_keys (kid, alg, pkcs8, created_ms, active_from_ms, expires_ms)
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(&key.kid)
    .bind(key.alg.as_str())
    .bind(key.pkcs8.expose())
    .bind(key.created_ms)
    .bind(key.active_from_ms)
    .bind(key.expires_ms)
    .execute(&mut *tx)
    .await
    .map_err(unavailable)?;
    tx.commit().await.map_err(unavailable)?;
    Ok(true)
}

async fn withdraw_later(
    tx: &mut Transaction<'static, Sqlite>,
    key: &StoredKey,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE signing_keys SET expires_ms = ?
         WHERE alg = ? AND active_from_ms >= ? AND (expires_ms IS NULL OR expires_ms > ?)",
    )
    .bind(key.created_ms)
    .bind(key.alg.as_str())
    .bind(key.active_from_ms)
    .bind(key.created_ms)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)
    .map(drop)
}

pub(super) async fn replace(
    writer: &SqlitePool,
    kid: &str,
    old: &Secret,
    new: &Secret,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE signing_keys SET pkcs8 = ? WHERE kid = ? AND pkcs8 = ?")
        .bind(new.expose())
        .bind(kid)
        .bind(old.expose())
        .execute(writer)
        .await
        .map_err(unavailable)
        .map(drop)
}
