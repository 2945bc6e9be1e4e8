//! Secrets of the provider that are no signing keys.

use sqlx::SqlitePool;

use super::unavailable;
use crate::model::secret::Secret;
use crate::store::StoreError;

/// Two processes that come with a new one at once are told the same.
pub(super) async fn kept(
    writer: &SqlitePool,
    name: &str,
    made: &Secret,
) -> Result<Secret, StoreError> {
    let known = "SELECT value FROM secrets WHERE name = ?";
    let known = || sqlx::query_scalar::<_, String>(known).bind(name);
    if let Some(value) = known().fetch_optional(writer).await.map_err(unavailable)? {
        return Ok(Secret::new(value));
    }
    sqlx::query("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING")
        .bind(name)
        .bind(made.expose())
        .execute(writer)
        .await
        .map_err(unavailable)?;
    let value = known().fetch_one(writer).await.map_err(unavailable)?;
    Ok(Secret::new(value))
}

pub(super) async fn replace(
    writer: &SqlitePool,
    name: &str,
    old: &Secret,
    new: &Secret,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE secrets SET value = ? WHERE name = ? AND value = ?")
        .bind(new.expose())
        .bind(name)
        .bind(old.expose())
        .execute(writer)
        .await
        .map_err(unavailable)
        .map(drop)
}
