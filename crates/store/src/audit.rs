//! The record of the running task's act, for writes that do not name theirs.

use std::future::Future;

use doorward_core::model::audit::{AuditRecord, PendingAudit};

tokio::task_local! {
    static PENDING: PendingAudit;
}

/// The record of the running task's act, if there is one.
pub(super) fn current() -> Option<PendingAudit> {
    PENDING.try_with(Clone::clone).ok()
}

/// Does `act`, whose writes belong to this record though they do not name it.
pub async fn scope<T>(pending: &PendingAudit, act: impl Future<Output = T>) -> T {
    PENDING.scope(pending.clone(), act).await
}

/// Completes the record of the running task's act, if there is one, by what
/// turns out only now: before the act is in the store.
pub fn complete(change: impl FnOnce(&mut AuditRecord)) {
    if let Some(pending) = current() {
        pending.complete(change);
    }
}
