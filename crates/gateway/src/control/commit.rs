//! Group commit: changes of entities that wait for the disk together.
//!
//! A change is made of what the one before it left, also while that one is on its
//! way to the disk. All that have come meanwhile share the next commit. Each is
//! durable and in force before its caller is answered.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::Control;
use crate::entities::Entities;
use crate::snapshot::Snapshot;
use doorward_store::{EntityChange, StoreError};

/// Most changes in one commit: the first of them must not wait for long.
const BATCH_MAX: usize = 64;

/// Entities and what was compiled from them.
#[derive(Clone)]
pub(super) struct State {
    pub(super) entities: Arc<Entities>,
    pub(super) snapshot: Arc<Snapshot>,
}

/// What a change is made of.
pub(super) struct Base {
    pub(super) state: State,
    /// Whether it is durable, and what requests meet.
    pub(super) is_in_force: bool,
    /// [`Uncommitted::failures`] when it was looked at.
    failures: u64,
}

/// Changes that are on their way to the disk.
#[derive(Default)]
pub(super) struct Uncommitted {
    queue: Vec<QueuedChange>,
    /// What the last of them makes, unless all are in force.
    head: Option<State>,
    /// How often changes were lost: what was made of them is lost as well.
    failures: u64,
    /// Whether a task commits them: one at a time does.
    pub(super) committing: bool,
}

pub(super) struct QueuedChange {
    change: EntityChange,
    /// What it makes.
    state: State,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

/// The answer of the commit that a change is in.
pub(super) struct Commit(oneshot::Receiver<Result<(), StoreError>>);

impl Commit {
    /// Waits until the change is durable and in force.
    ///
    /// # Errors
    /// Why it is neither.
    pub(super) async fn done(self) -> Result<(), StoreError> {
        let broken = |_| StoreError::Unavailable("changes are stored no longer".to_owned(), None);
        self.0.await.map_err(broken)?
    }
}

impl Control {
    /// What the next change is made of; for who has the writer's lock. Where
    /// another process may change the same store, all changes of this one have to
    /// be in force first, and what the other has changed is taken in.
    pub(super) async fn base(&self) -> Result<Base, StoreError> {
        if self.store.is_exclusive()
            && let Some(base) = self.uncommitted.lock().base()
        {
            return Ok(base);
        }
        self.settle().await;
        self.catch_up().await?;
        let state = State {
            entities: self.entities.load_full(),
            snapshot: self.live.load_full(),
        };
        let failures = self.uncommitted.lock().failures;
        Ok(Base {
            state,
            is_in_force: true,
            failures,
        })
    }

    /// Waits until all changes are in force, or lost; for who has the writer's
    /// lock. Whoever made a lost one is told.
    pub(super) async fn settle(&self) {
        let mut committed = self.committed.subscribe();
        while self.uncommitted.lock().committing {
            // The sender lives as long as `self`.
            let _ = committed.changed().await;
        }
    }

    /// Hands in a change that was made of `base`. A caller that goes away
    /// meanwhile does not undo it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if what it was made of was lost.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        base: &Base,
        change: EntityChange,
        state: State,
    ) -> Result<Commit, StoreError> {
        let mut uncommitted = self.uncommitted.lock();
        if uncommitted.failures != base.failures {
            let why = "a change before it could not be stored".to_owned();
            return Err(StoreError::Unavailable(why, None));
        }
        let (reply, answer) = oneshot::channel();
        let idle = !mem::replace(&mut uncommitted.committing, true);
        uncommitted.head = Some(state.clone());
        uncommitted.queue.push(QueuedChange {
            change,
            state,
            reply,
        });
        if idle {
            tokio::spawn(Turn::of(self).commit_all());
        }
        Ok(Commit(answer))
    }

    async fn commit(&self, mut batch: Vec<QueuedChange>) {
        let mut error = match self.store_all(&batch).await {
            Ok(()) => return self.put_in_force(batch),
            Err(error) => error,
        };
        // One of them may be at fault: those before it don't suffer.
        if batch.len() > 1 && !error.passes() {
            while !batch.is_empty() {
                let behind = batch.split_off(1);
                if let Err(refused) = self.store_all(&batch).await {
                    error = refused;
                    batch.extend(behind);
                    break;
                }
                self.put_in_force(mem::replace(&mut batch, behind));
            }
            if batch.is_empty() {
                return;
            }
        }
        self.refuse(batch, error);
    }

    async fn store_all(&self, batch: &[QueuedChange]) -> Result<(), StoreError> {
        let changes = batch.iter().map(|queued| queued.change.clone());
        let changes: Vec<_> = changes.filter(|change| !change.is_empty()).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let seen = self.revision.load(Ordering::Acquire);
        let written = self.store.write_entity_changes(&changes, Some(seen));
        self.revision.store(written.await?, Ordering::Release);
        Ok(())
    }

    fn put_in_force(&self, batch: Vec<QueuedChange>) {
        for queued in batch {
            self.swap(queued.state.entities, queued.state.snapshot);
            // Whoever asked may be gone.
            let _ = queued.reply.send(Ok(()));
        }
    }

    /// Tells the makers of `batch`, of which the first may be at fault, and all who
    /// built on it.
    fn refuse(&self, batch: Vec<QueuedChange>, error: StoreError) {
        let behind = self.uncommitted.lock().lose();
        let mut refused = batch.into_iter().chain(behind);
        let first = refused.next();
        for queued in refused {
            let why = format!("a change before it could not be stored: {error}");
            let _ = queued.reply.send(Err(StoreError::Unavailable(why, None)));
        }
        if let Some(queued) = first {
            let _ = queued.reply.send(Err(error));
        }
    }
}

/// The turn to commit. However the task ends that has it, nobody waits for ever.
pub(super) struct Turn {
    control: Arc<Control>,
    is_over: bool,
}

impl Turn {
    pub(super) fn of(control: &Arc<Control>) -> Self {
        Self {
            control: Arc::clone(control),
            is_over: false,
        }
    }

    /// Commits what there is until there is nothing more.
    pub(super) async fn commit_all(mut self) {
        loop {
            let batch = self.control.uncommitted.lock().next_batch();
            let Some(batch) = batch else {
                break;
            };
            self.control.commit(batch).await;
        }
        self.is_over = true;
        self.control.compact_later();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            let mut uncommitted = self.control.uncommitted.lock();
            uncommitted.committing = false;
            // Who made them learns it from the sender that goes.
            drop(uncommitted.lose());
        }
        self.control.committed.send_replace(());
    }
}

impl Uncommitted {
    /// What the next change is made of, while others are on their way.
    fn base(&self) -> Option<Base> {
        Some(Base {
            state: self.head.clone()?,
            is_in_force: false,
            failures: self.failures,
        })
    }

    /// What the next commit takes. With nothing left, all is in force.
    fn next_batch(&mut self) -> Option<Vec<QueuedChange>> {
        if self.queue.is_empty() {
            self.head = None;
            self.committing = false;
            return None;
        }
        let count = self.queue.len().min(BATCH_MAX);
        Some(self.queue.drain(..count).collect())
    }

    /// Those that were made of a change that is lost.
    pub(super) fn lose(&mut self) -> Vec<QueuedChange> {
        self.failures += 1;
        self.head = None;
        mem::take(&mut self.queue)
    }
}
