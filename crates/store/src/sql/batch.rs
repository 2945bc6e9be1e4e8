//! Group commit: small writes that wait for the disk together.
//!
//! A commit costs a flush of the disk, whatever is in it. While one is under
//! way, the writes that arrive are collected; the next commit takes them all.
//! Each of them is still atomic and durable when its caller is answered.

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::operation::{self, Origin};
use super::{Database, Tx, audit, tokens};
use crate::StoreError;
use doorward_core::model::audit::{AuditRecord, PendingAudit};
use doorward_core::model::grant::{StoredAccess, StoredRefresh};

/// Most writes in one commit: the first of them must not wait for long.
const BATCH_MAX: usize = 256;

/// Writes that wait; whoever comes later waits to be let in.
const QUEUE_MAX: usize = 1024;

/// A write that can share its commit with others. It may be made twice: what the
/// first time left is gone before the second.
pub(super) type Write<A, T> = for<'a> fn(&'a mut Tx, &'a A) -> BoxFuture<'a, Result<T, StoreError>>;

/// A write that waits for its turn.
trait QueuedWrite: Send {
    /// Makes the write, and keeps what came of it.
    fn apply<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The tokens that are all it keeps. It shares statements with its
    /// neighbours of the kind, and is not applied by itself.
    fn issued(&self) -> Option<&IssuedTokens> {
        None
    }

    /// The record that goes with it, once it is made.
    fn record(&self) -> Option<AuditRecord>;

    /// Tells whoever asked; without an error, what came of it.
    fn answer(self: Box<Self>, error: Option<StoreError>);
}

/// An act whose record goes into the audit log with its write.
struct AuditedAct<T> {
    pending: PendingAudit,
    /// Whether the act was done, by the outcome of the write.
    is_done: fn(&T) -> bool,
}

struct Job<A, T> {
    of: A,
    write: Write<A, T>,
    /// The act that it is done for.
    act: Option<AuditedAct<T>>,
    outcome: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<A: Send + Sync, T: Send> QueuedWrite for Job<A, T> {
    fn apply<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async {
            let outcome = (self.write)(tx, &self.of).await?;
            if let Some(act) = &self.act {
                act.pending.void_unless((act.is_done)(&outcome));
            }
            self.outcome = Some(outcome);
            Ok(())
        })
    }

    fn record(&self) -> Option<AuditRecord> {
        record_of(self.act.as_ref().map(|act| &act.pending))
    }

    fn answer(self: Box<Self>, error: Option<StoreError>) {
        let outcome = match (error, self.outcome) {
            (None, Some(outcome)) => {
                mark_committed(self.act.map(|act| act.pending));
                Ok(outcome)
            }
            (error, _) => Err(error.unwrap_or_else(closing)),
        };
        // Whoever asked may be gone.
        let _ = self.reply.send(outcome);
    }
}

/// Tokens that were issued together.
pub(super) struct IssuedTokens {
    pub(super) refresh: Option<StoredRefresh>,
    pub(super) access: Option<StoredAccess>,
}

/// Keeps new tokens: most of what a busy provider writes.
struct IssuedTokensJob {
    tokens: IssuedTokens,
    pending: Option<PendingAudit>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl QueuedWrite for IssuedTokensJob {
    fn apply<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async { tokens::insert_issued(tx, &[&self.tokens]).await })
    }

    fn issued(&self) -> Option<&IssuedTokens> {
        Some(&self.tokens)
    }

    fn record(&self) -> Option<AuditRecord> {
        record_of(self.pending.as_ref())
    }

    fn answer(self: Box<Self>, error: Option<StoreError>) {
        let outcome = match error {
            None => {
                mark_committed(self.pending);
                Ok(())
            }
            Some(error) => Err(error),
        };
        // Whoever asked may be gone.
        let _ = self.reply.send(outcome);
    }
}

fn record_of(pending: Option<&PendingAudit>) -> Option<AuditRecord> {
    pending
        .filter(|pending| pending.is_pending())
        .map(PendingAudit::record)
}

fn mark_committed(pending: Option<PendingAudit>) {
    if let Some(pending) = pending.filter(PendingAudit::is_pending) {
        pending.mark_committed();
    }
}

fn closing() -> StoreError {
    StoreError::Unavailable("the store is closing".to_owned(), None)
}

/// Where writes are handed in.
#[derive(Clone)]
pub(super) struct Batch {
    sender: mpsc::Sender<Box<dyn QueuedWrite>>,
    /// The database's name in traces.
    system: &'static str,
}

impl Batch {
    /// Starts the task that writes, on the runtime of the caller; it ends with
    /// the last sender.
    pub(super) fn start(database: Database) -> Self {
        let (sender, jobs) = mpsc::channel(QUEUE_MAX);
        let system = database.system();
        tokio::spawn(run(database, jobs));
        Self { sender, system }
    }

    /// Makes the write of `of`; durable when it returns. A caller that goes away
    /// meanwhile does not undo it.
    #[track_caller]
    pub(super) fn write<A, T>(
        &self,
        of: A,
        write: Write<A, T>,
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.enqueue((of, write, None), Origin::here())
    }

    /// As [`Batch::write`]. The record of the act that it is for goes with it, unless
    /// `is_done` says of the outcome that the act was not done.
    #[track_caller]
    pub(super) fn write_audited<A, T>(
        &self,
        of: A,
        write: Write<A, T>,
        (audit, is_done): (Option<&PendingAudit>, fn(&T) -> bool),
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let origin = Origin::here();
        let pending = audit.cloned();
        async move {
            let act = pending.filter(PendingAudit::is_pending);
            let act = act.map(|pending| AuditedAct { pending, is_done });
            self.enqueue((of, write, act), origin).await
        }
    }

    /// As [`Batch::write_audited`], for tokens that were issued: those that come
    /// together go into the database together.
    #[track_caller]
    pub(super) fn keep_issued(
        &self,
        tokens: IssuedTokens,
        audit: Option<&PendingAudit>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let origin = Origin::here();
        let pending = audit.cloned();
        async move {
            let (reply, answer) = oneshot::channel();
            let job = IssuedTokensJob {
                tokens,
                pending: pending.filter(PendingAudit::is_pending),
                reply,
            };
            self.hand_in(Box::new(job), answer, origin).await
        }
    }

    async fn enqueue<A, T>(
        &self,
        (of, write, act): (A, Write<A, T>, Option<AuditedAct<T>>),
        origin: Origin,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            of,
            write,
            act,
            outcome: None,
            reply,
        };
        self.hand_in(Box::new(job), answer, origin).await
    }

    async fn hand_in<T>(
        &self,
        job: Box<dyn QueuedWrite>,
        answer: oneshot::Receiver<Result<T, StoreError>>,
        origin: Origin,
    ) -> Result<T, StoreError> {
        let mut note = operation::begin(self.system, origin, true);
        self.sender.send(job).await.map_err(|_| closing())?;
        let outcome = answer.await.map_err(|_| closing())?;
        operation::settle(&mut note, &outcome);
        outcome
    }
}

async fn run(database: Database, mut jobs: mpsc::Receiver<Box<dyn QueuedWrite>>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while jobs.recv_many(&mut batch, BATCH_MAX).await > 0 {
        match write(&database, &mut batch).await {
            Ok(()) => batch.drain(..).for_each(|job| job.answer(None)),
            // One of them may be at fault: nobody else suffers from it.
            Err(BatchError::Write(_)) => one_by_one(&database, batch.drain(..)).await,
            // To try each alone would only make them wait, one behind the other.
            // Those that came meanwhile have waited already.
            Err(BatchError::Database(error)) => {
                refuse(batch.drain(..), &error);
                refuse(std::iter::from_fn(|| jobs.try_recv().ok()), &error);
            }
        }
    }
}

/// Why a batch was not written.
enum BatchError {
    /// The database did not let it begin or end, or broke off.
    Database(StoreError),
    /// One of its writes could not be made.
    Write(StoreError),
}

/// Makes all of `batch` in one transaction, or none.
async fn write(database: &Database, batch: &mut [Box<dyn QueuedWrite>]) -> Result<(), BatchError> {
    let mut tx = database.begin().await.map_err(BatchError::Database)?;
    let mut records = Vec::new();
    let mut rest = batch;
    while !rest.is_empty() {
        let (made, applied) = apply_next(&mut tx, rest).await;
        applied.map_err(|error| BatchError::within(&tx, error))?;
        let (done, behind) = rest.split_at_mut(made);
        records.extend(done.iter().filter_map(|job| job.record()));
        rest = behind;
    }
    let told = audit::append_all(&mut tx, &records).await;
    told.map_err(|error| BatchError::within(&tx, error))?;
    tx.commit().await.map_err(BatchError::Database)
}

/// Makes the first of `jobs`, and those behind it that share its statements;
/// says how many these were.
async fn apply_next(
    tx: &mut Tx,
    jobs: &mut [Box<dyn QueuedWrite>],
) -> (usize, Result<(), StoreError>) {
    let issued: Vec<_> = jobs.iter().map_while(|job| job.issued()).collect();
    if !issued.is_empty() {
        return (issued.len(), tokens::insert_issued(tx, &issued).await);
    }
    match jobs.first_mut() {
        Some(job) => (1, job.apply(tx).await),
        None => (0, Ok(())),
    }
}

impl BatchError {
    /// Of a transaction that was begun.
    fn within(tx: &Tx, error: StoreError) -> Self {
        if tx.is_database_fault() {
            Self::Database(error)
        } else {
            Self::Write(error)
        }
    }
}

async fn one_by_one(database: &Database, mut jobs: impl Iterator<Item = Box<dyn QueuedWrite>>) {
    while let Some(job) = jobs.next() {
        let mut alone = [job];
        let written = write(database, &mut alone).await;
        let [job] = alone;
        match written {
            Ok(()) => job.answer(None),
            Err(BatchError::Write(error)) => job.answer(Some(error)),
            Err(BatchError::Database(error)) => {
                return refuse(std::iter::once(job).chain(jobs), &error);
            }
        }
    }
}

fn refuse(jobs: impl Iterator<Item = Box<dyn QueuedWrite>>, error: &StoreError) {
    for job in jobs {
        let error = match error {
            StoreError::Unavailable(why, cause) => {
                StoreError::Unavailable(why.clone(), cause.clone())
            }
            error => StoreError::Unavailable(error.to_string(), None),
        };
        job.answer(Some(error));
    }
}
