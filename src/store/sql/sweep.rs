//! The removal of rows whose time is over.

use super::{Tx, sql};
use crate::store::StoreError;

/// Runs a DELETE whose parameters are the instant up to which rows are over, and
/// the most of them to remove; gives how many it removed.
pub(super) async fn expired(
    tx: &mut Tx,
    delete: &'static str,
    before_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    sql(delete).bind(before_ms).bind(limit).run(tx).await
}
