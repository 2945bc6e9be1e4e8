//! Locks after wrong passwords.

use super::{Tx, damaged, sql};
use crate::{Store, StoreError};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::lockout::{LOCK_KEPT_MS, LockKind, StoredLock};

impl Store {
    /// Keeps a lock after wrong passwords, or its end, unless a later word of it
    /// is known.
    pub async fn put_lock(
        &self,
        lock: &StoredLock,
        audit: Option<&PendingAudit>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin_audited(audit).await?;
        put(&mut tx, lock).await?;
        tx.commit().await
    }

    /// The locks that were set or lifted since `since_ms`, and still matter.
    pub async fn locks(&self, since_ms: i64, now_ms: i64) -> Result<Vec<StoredLock>, StoreError> {
        // The locks that were set or lifted since `since_ms`, and still matter.
        let rows = sql("SELECT * FROM lockouts WHERE set_ms >= $1 AND expires_ms > $2")
            .bind(since_ms)
            .bind(now_ms)
            .all(&self.database)
            .await?;
        let read = |row: &super::Row| {
            let kind = row.text("kind")?;
            Ok(StoredLock {
                id: row.hash("id")?,
                kind: LockKind::parse(&kind).ok_or_else(|| damaged(format!("lock of `{kind}`")))?,
                realm: row.text("realm")?,
                subject: row.opt_text("subject")?,
                until_ms: row.int("until_ms")?,
                locks: row.count("locks")?,
                set_ms: row.int("set_ms")?,
            })
        };
        rows.iter().map(read).collect()
    }
}

/// Keeps a lock, unless a later word of it is known.
async fn put(tx: &mut Tx, lock: &StoredLock) -> Result<(), StoreError> {
    let over_ms = lock.until_ms.max(lock.set_ms);
    sql(
        "INSERT INTO lockouts (id, kind, realm, subject, until_ms, locks, set_ms, expires_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (id) DO UPDATE SET
            subject = excluded.subject, until_ms = excluded.until_ms, locks = excluded.locks,
            set_ms = excluded.set_ms, expires_ms = excluded.expires_ms
          WHERE lockouts.set_ms < excluded.set_ms",
    )
    .bind(lock.id)
    .bind(lock.kind.as_str())
    .bind(&lock.realm)
    .bind(lock.subject.as_deref())
    .bind(lock.until_ms)
    .bind(lock.locks)
    .bind(lock.set_ms)
    .bind(over_ms.saturating_add(LOCK_KEPT_MS))
    .run(tx)
    .await
    .map(drop)
}
