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

/// A record that waits for a transaction of the task to go into.
#[derive(Clone, Debug)]
pub struct PendingAudit(Arc<State>);

#[derive(Debug)]
struct State {
    record: Mutex<AuditRecord>,
    committed: AtomicBool,
    void: AtomicBool,
}

impl PendingAudit {
    /// The record of the running task's act, if there is one.
    pub fn current() -> Option<Self> {
        PENDING.try_with(Clone::clone).ok()
    }

    /// Does `act`, whose writes belong to this record; for what an act hands to
    /// a task of its own.
    pub async fn propagate<T>(this: Option<Self>, act: impl Future<Output = T>) -> T {
        match this {
            Some(pending) => PENDING.scope(pending, act).await,
            None => act.await,
        }
    }

    /// The record as it is now.
    pub(super) fn record(&self) -> AuditRecord {
        self.0.record.lock().clone()
    }

    /// The record that a transaction of the running task has to take in.
    pub(super) fn to_commit() -> Option<Self> {
        Self::current().filter(Self::is_pending)
    }

    /// Whether it is in no transaction yet, and the act was not in vain.
    pub(super) fn is_pending(&self) -> bool {
        !self.0.committed.load(Ordering::Acquire) && !self.0.void.load(Ordering::Acquire)
    }

    /// Unless `done`, the running task's act was not done after all, whatever it
    /// writes: its record is not kept.
    pub(super) fn void_unless(done: bool) {
        if let Some(Self(state)) = Self::current() {
            state.void.store(!done, Ordering::Release);
        }
    }

    /// The record is in a transaction that was committed.
    pub(super) fn mark_committed(&self) {
        self.0.committed.store(true, Ordering::Release);
    }
}

/// Completes the record of the running task's act, if there is one, by what
/// turns out only now: before the act is in the store.
pub fn complete(change: impl FnOnce(&mut AuditRecord)) {
    if let Some(PendingAudit(state)) = PendingAudit::current() {
        change(&mut state.record.lock());
    }
}

/// Does `act`; what it writes goes into the store together with `record`. Gives
/// also the record as it was completed, and whether the store has it. If `act`
/// failed, it has gone with the act.
pub async fn with_audit<T>(
    record: AuditRecord,
    act: impl Future<Output = T>,
) -> (T, AuditRecord, bool) {
    let state = Arc::new(State {
        record: Mutex::new(record),
        committed: AtomicBool::new(false),
        void: AtomicBool::new(false),
    });
    let pending = PendingAudit(Arc::clone(&state));
    let done = PENDING.scope(pending.clone(), act).await;
    (
        done,
        pending.record(),
        state.committed.load(Ordering::Acquire),
    )
}
