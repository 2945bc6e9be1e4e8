//! The removal of rows whose time is over.

use sqlx::{Sqlite, Transaction};

use super::unavailable;
use crate::store::StoreError;

/// Runs a DELETE whose parameters are the instant up to which rows are over, and
/// the most of them to remove; gives how many it removed.
pub(super) async fn expired(
    tx: &mut Transaction<'static, Sqlite>,
    delete: &'static str,
    before_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let done = sqlx::query(delete)
        .bind(before_ms)
        .bind(limit)
        .execute(&mut **tx)
        .await
        .map_err(unavailable)?;
    Ok(done.rows_affected())
}
