//! What users let clients have.

use uuid::Uuid;

use super::{Database, On, Tx, sql};
use crate::store::StoreError;

pub(super) async fn scopes(
    readers: &Database,
    user_id: Uuid,
    client_id: &str,
) -> Result<Vec<String>, StoreError> {
    agreed(readers, user_id, client_id).await
}

async fn agreed(
    on: impl Into<On<'_>>,
    user_id: Uuid,
    client_id: &str,
) -> Result<Vec<String>, StoreError> {
    let row = sql("SELECT scopes FROM consents WHERE user_id = $1 AND client_id = $2")
        .bind(user_id)
        .bind(client_id)
        .one(on)
        .await?;
    let scopes = row.map_or(Ok(String::new()), |row| row.text("scopes"))?;
    let scopes = scopes.split(' ').filter(|scope| !scope.is_empty());
    Ok(scopes.map(str::to_owned).collect())
}

/// What was agreed to before stays agreed to.
pub(super) async fn add(
    tx: &mut Tx,
    realm: &str,
    user_id: Uuid,
    client_id: &str,
    scopes: &[String],
    now_ms: i64,
) -> Result<(), StoreError> {
    let mut all = agreed(&mut *tx, user_id, client_id).await?;
    all.extend(scopes.iter().cloned());
    all.sort_unstable();
    all.dedup();
    sql(
        "INSERT INTO consents (user_id, realm, client_id, scopes, given_ms)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (user_id, client_id)
         DO UPDATE SET scopes = excluded.scopes, given_ms = excluded.given_ms",
    )
    .bind(user_id)
    .bind(realm)
    .bind(client_id)
    .bind(all.join(" "))
    .bind(now_ms)
    .run(tx)
    .await
    .map(drop)
}
