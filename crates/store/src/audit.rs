//! Records of the audit log that go into the transaction of the act they tell
//! of: both are there after a `kill -9`, or neither.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use doorward_core::model::audit::AuditRecord;

tokio::task_local! {
    static PENDING: PendingAudit;
}

/// A record that waits for the transaction of its act. Clones are the same record.
#[derive(Clone, Debug)]
pub struct PendingAudit(Arc<State>);

#[derive(Debug)]
struct State {
    record: Mutex<AuditRecord>,
    committed: AtomicBool,
    void: AtomicBool,
}

impl PendingAudit {
    /// A record that no transaction has yet.
    pub fn new(record: AuditRecord) -> Self {
        Self(Arc::new(State {
            record: Mutex::new(record),
            committed: AtomicBool::new(false),
            void: AtomicBool::new(false),
        }))
    }

    /// Completes the record by what turns out only during the act: before the act
    /// is in the store.
    pub fn complete(&self, change: impl FnOnce(&mut AuditRecord)) {
        change(&mut self.0.record.lock());
    }

    /// The record as it is now.
    pub fn record(&self) -> AuditRecord {
        self.0.record.lock().clone()
    }

    /// Whether the store has the record.
    pub fn is_committed(&self) -> bool {
        self.0.committed.load(Ordering::Acquire)
    }

    /// Whether it is in no transaction yet, and the act was not in vain.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_committed() && !self.0.void.load(Ordering::Acquire)
    }

    /// Unless `done`, the act was not done after all, whatever it writes: its record
    /// is not kept.
    pub(super) fn void_unless(&self, done: bool) {
        self.0.void.store(!done, Ordering::Release);
    }

    /// The record is in a transaction that was committed.
    pub(super) fn mark_committed(&self) {
        self.0.committed.store(true, Ordering::Release);
    }

    /// The record of the running task's act, if there is one.
    pub(super) fn current() -> Option<Self> {
        PENDING.try_with(Clone::clone).ok()
    }

    /// Does `act`, whose writes belong to this record though they do not name it.
    pub async fn scope<T>(&self, act: impl Future<Output = T>) -> T {
        PENDING.scope(self.clone(), act).await
    }
}

/// Completes the record of the running task's act, if there is one, by what
/// turns out only now: before the act is in the store.
pub fn complete(change: impl FnOnce(&mut AuditRecord)) {
    if let Some(pending) = PendingAudit::current() {
        pending.complete(change);
    }
}
