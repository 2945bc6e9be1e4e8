//! Records that go into the transaction of the act they tell of: both are stored,
//! or neither. Where no transaction takes a record, whoever tells of the act appends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::AuditRecord;

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
        change(&mut self.lock());
    }

    /// The record as it is now.
    pub fn record(&self) -> AuditRecord {
        self.lock().clone()
    }

    /// Whether the store has the record.
    pub fn is_committed(&self) -> bool {
        self.0.committed.load(Ordering::Acquire)
    }

    /// Whether it is in no transaction yet, and the act was not in vain.
    pub fn is_pending(&self) -> bool {
        !self.is_committed() && !self.0.void.load(Ordering::Acquire)
    }

    /// Unless `done`, the act was not done after all, whatever it writes: no
    /// transaction takes the record. For the store.
    pub fn void_unless(&self, done: bool) {
        self.0.void.store(!done, Ordering::Release);
    }

    /// The record is in a transaction that was committed. For the store.
    pub fn mark_committed(&self) {
        self.0.committed.store(true, Ordering::Release);
    }

    /// What a panic left of the record is better than none.
    fn lock(&self) -> MutexGuard<'_, AuditRecord> {
        let record = self.0.record.lock();
        record.unwrap_or_else(PoisonError::into_inner)
    }
}
