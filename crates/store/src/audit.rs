//! Records of the audit log that go into the transaction of the act they tell
//! of: both are there after a `kill -9`, or neither.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use doorward_core::model::audit::AuditRecord;

tokio::task_local! {
    static BESIDE: Beside;
}

/// A record that waits for a transaction of the task to go into.
#[derive(Clone, Debug)]
pub struct Beside(Arc<Waiting>);

#[derive(Debug)]
struct Waiting {
    record: Mutex<AuditRecord>,
    taken: AtomicBool,
    void: AtomicBool,
}

impl Beside {
    /// The record of the running task's act, if there is one.
    pub fn current() -> Option<Self> {
        BESIDE.try_with(Clone::clone).ok()
    }

    /// Does `act`, whose writes belong to this record; for what an act hands to
    /// a task of its own.
    pub async fn carried<T>(this: Option<Self>, act: impl Future<Output = T>) -> T {
        match this {
            Some(beside) => BESIDE.scope(beside, act).await,
            None => act.await,
        }
    }

    /// The record as it is now.
    pub(super) fn record(&self) -> AuditRecord {
        self.0.record.lock().clone()
    }

    /// The record that a transaction of the running task has to take in.
    pub(super) fn waiting() -> Option<Self> {
        Self::current().filter(Self::waits)
    }

    /// Whether it is in no transaction yet, and the act was not in vain.
    pub(super) fn waits(&self) -> bool {
        !self.0.taken.load(Ordering::Acquire) && !self.0.void.load(Ordering::Acquire)
    }

    /// Unless `did`, the running task's act was not done after all, whatever it
    /// writes: its record is not kept.
    pub(super) fn only_if(did: bool) {
        if let Some(Self(waiting)) = Self::current() {
            waiting.void.store(!did, Ordering::Release);
        }
    }

    /// The record is in a transaction that was committed.
    pub(super) fn taken(&self) {
        self.0.taken.store(true, Ordering::Release);
    }
}

/// Completes the record of the running task's act, if there is one, by what
/// turns out only now: before the act is in the store.
pub fn complete(change: impl FnOnce(&mut AuditRecord)) {
    if let Some(Beside(waiting)) = Beside::current() {
        change(&mut waiting.record.lock());
    }
}

/// Does `act`; what it writes goes into the store together with `record`. Gives
/// also the record as it was completed, and whether the store has it. If `act`
/// failed, it has gone with the act.
pub async fn beside<T>(
    record: AuditRecord,
    act: impl Future<Output = T>,
) -> (T, AuditRecord, bool) {
    let waiting = Arc::new(Waiting {
        record: Mutex::new(record),
        taken: AtomicBool::new(false),
        void: AtomicBool::new(false),
    });
    let beside = Beside(Arc::clone(&waiting));
    let done = BESIDE.scope(beside.clone(), act).await;
    (done, beside.record(), waiting.taken.load(Ordering::Acquire))
}
