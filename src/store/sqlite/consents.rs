//! What users let clients have.

use sqlx::{Sqlite, SqlitePool, Transaction};
use uuid::Uuid;

use super::unavailable;
use crate::store::StoreError;

const SELECT: &str = "SELECT scopes FROM consents WHERE user_id = ? AND client_id = ?";

pub(super) async fn scopes(
    readers: &SqlitePool,
    user_id: Uuid,
    client_id: &str,
) -> Result<Vec<String>, StoreError> {
    let scopes: Option<String> = sqlx::query_scalar(SELECT)
        .bind(user_id.to_string())
        .bind(client_id)
        .fetch_optional(readers)
        .await
        .map_err(unavailable)?;
    Ok(words(scopes))
}

fn words(scopes: Option<String>) -> Vec<String> {
    let scopes = scopes.unwrap_or_default();
    let scopes = scopes.split(' ').filter(|scope| !scope.is_empty());
    scopes.map(str::to_owned).collect()
}

/// What was agreed to before stays agreed to.
pub(super) async fn add(
    tx: &mut Transaction<'static, Sqlite>,
    realm: &str,
    user_id: Uuid,
    client_id: &str,
    scopes: &[String],
    now_ms: i64,
) -> Result<(), StoreError> {
    let user_id = user_id.to_string();
    let known: Option<String> = sqlx::query_scalar(SELECT)
        .bind(&user_id)
        .bind(client_id)
        .fetch_optional(&mut **tx)
        .await
        .map_err(unavailable)?;
    let mut all = words(known);
    all.extend(scopes.iter().cloned());
    all.sort_unstable();
    all.dedup();
    sqlx::query(
        "INSERT INTO consents (user_id, realm, client_id, scopes, given_ms)
         VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (user_id, client_id)
         DO UPDATE SET scopes = excluded.scopes, given_ms = excluded.given_ms",
    )
    .bind(&user_id)
    .bind(realm)
    .bind(client_id)
    .bind(all.join(" "))
    .bind(now_ms)
    .execute(&mut **tx)
    .await
    .map_err(unavailable)
    .map(drop)
}
