//! The removal of rows whose time is over.

use super::{Tx, sql};
use crate::{Store, StoreError};
use doorward_core::model::authorization::CODE_KEPT_MS;
use doorward_core::model::device::DEVICE_KEPT_MS;

/// The statements that remove what is over, and for how many milliseconds longer
/// it is kept. Each finds its rows along an index, and is told the instant up to
/// which rows are over, and the most of them to remove.
const EXPIRED: &[(&str, i64)] = &[
    (
        "DELETE FROM refresh_tokens WHERE family IN
           (SELECT family FROM refresh_tokens WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM access_tokens WHERE hash IN
           (SELECT hash FROM access_tokens WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM revoked_grants WHERE grant_id IN
           (SELECT grant_id FROM revoked_grants WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM revoked_tokens WHERE token_id IN
           (SELECT token_id FROM revoked_tokens WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM seen WHERE hash IN
           (SELECT hash FROM seen WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM session_grants WHERE grant_id IN
           (SELECT grant_id FROM session_grants WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM signing_keys WHERE kid IN
           (SELECT kid FROM signing_keys WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    // One that was used stays for a while: its second use is noticed.
    (
        "DELETE FROM codes WHERE hash IN
           (SELECT hash FROM codes WHERE expires_ms <= $1 LIMIT $2)",
        CODE_KEPT_MS,
    ),
    // A device is told for a while that it came too late.
    (
        "DELETE FROM devices WHERE hash IN
           (SELECT hash FROM devices WHERE expires_ms <= $1 LIMIT $2)",
        DEVICE_KEPT_MS,
    ),
    (
        "DELETE FROM initial_tokens WHERE hash IN
           (SELECT hash FROM initial_tokens WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM initial_tokens WHERE hash IN
           (SELECT hash FROM initial_tokens WHERE uses_left = 0 AND created_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM requests WHERE hash IN
           (SELECT hash FROM requests WHERE ends_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM broker_tokens WHERE access IN
           (SELECT access FROM broker_tokens WHERE swept_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM broker_ends WHERE person IN
           (SELECT person FROM broker_ends WHERE until_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM oauth2_tokens WHERE id IN
           (SELECT id FROM oauth2_tokens WHERE ends_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM oauth2_codes WHERE hash IN
           (SELECT hash FROM oauth2_codes WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM acme_challenges WHERE key IN
           (SELECT key FROM acme_challenges WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM undos WHERE id IN
           (SELECT id FROM undos WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM lockouts WHERE id IN
           (SELECT id FROM lockouts WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM password_resets WHERE hash IN
           (SELECT hash FROM password_resets WHERE expires_ms <= $1 LIMIT $2)",
        0,
    ),
    (
        "DELETE FROM logins WHERE key IN
           (SELECT key FROM logins WHERE ends_ms <= $1 LIMIT $2)",
        0,
    ),
    // The last one stays: its number must not be given again.
    (
        "DELETE FROM login_ends WHERE id IN
           (SELECT id FROM login_ends WHERE until_ms <= $1
              AND id < (SELECT max(id) FROM login_ends) LIMIT $2)",
        0,
    ),
];

impl Store {
    /// Removes what has expired, at most `limit` records of each kind; says
    /// how many went.
    pub async fn sweep(&self, now_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let mut gone = 0;
        // Each kind is a write of its own: others come in between.
        for (delete, kept_ms) in EXPIRED {
            let of = (*delete, now_ms - kept_ms, limit);
            let write = self.batch.write(of, |tx, (delete, before_ms, limit)| {
                Box::pin(expired(tx, delete, *before_ms, *limit))
            });
            gone += write.await?;
        }
        Ok(gone)
    }
}

/// Runs one of them; how many rows it removed.
async fn expired(
    tx: &mut Tx,
    delete: &'static str,
    before_ms: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    sql(delete).bind(before_ms).bind(limit).run(tx).await
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row};

    use super::*;
    use crate::Store;
    use crate::sql::Database;

    #[tokio::test]
    async fn what_is_swept_is_found_along_an_index() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open_sqlite(&directory.path().join("db")).await;
        let Database::Sqlite(file) = &store.expect("a store").database else {
            panic!("another database");
        };
        for (delete, _) in EXPIRED {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {delete}"));
            let plan = sqlx::query(explain)
                .bind(0)
                .bind(1)
                .fetch_all(&file.readers);
            for step in plan.await.expect("a plan") {
                let step: String = step.get("detail");
                let found = !step.starts_with("SCAN");
                assert!(found, "{delete}: {step}");
            }
        }
    }
}
