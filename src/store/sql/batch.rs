//! Group commit: small writes that wait for the disk together.
//!
//! A commit costs a flush of the disk, whatever is in it. While one is under
//! way, the writes that arrive are collected; the next commit takes them all.
//! Each of them is still atomic and durable when its caller is answered.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{Database, Tx, audit, requests, tokens};
use crate::model::audit::AuditRecord;
use crate::model::authorization::StoredRequest;
use crate::model::grant::{Exchange, Rotation, StoredAccess, StoredRefresh, TokenHash};
use crate::store::{Beside, StoreError};

/// Most writes in one commit: the first of them must not wait for long.
const TOGETHER: usize = 256;

/// Writes that wait; whoever comes later waits to be let in.
const WAITING: usize = 1024;

/// A write that can share its commit with others.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Record(Option<Box<StoredRefresh>>, Option<StoredAccess>),
    Exchange(Exchange, Option<StoredAccess>),
    Remember {
        what: TokenHash,
        until_ms: i64,
        now_ms: i64,
    },
    RevokeAccess {
        hash: TokenHash,
        token_id: String,
        until_ms: i64,
    },
    RevokeGrant {
        grant_id: String,
        until_ms: i64,
    },
    KeepRequest {
        request: Box<StoredRequest>,
        most_bytes: u32,
    },
    ProlongRequest {
        hash: TokenHash,
        ends_ms: i64,
    },
    TakeRequest(TokenHash),
    Audit(Arc<[AuditRecord]>),
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Written,
    Exchanged(Rotation),
    Remembered(bool),
    /// Whether a request was kept, or was there to be taken.
    Request(bool),
}

impl Done {
    /// Whether anything was done that the audit log is to be told.
    fn is_done(self) -> bool {
        match self {
            Self::Written => true,
            Self::Exchanged(rotation) => {
                matches!(rotation, Rotation::Done | Rotation::Again(_))
            }
            // Of what happens on the way nobody tells.
            Self::Remembered(_) | Self::Request(_) => false,
        }
    }
}

struct Job {
    work: Work,
    beside: Option<Beside>,
    reply: oneshot::Sender<Result<Done, StoreError>>,
}

/// Where writes are handed in.
#[derive(Clone, Debug)]
pub(super) struct Batch(mpsc::Sender<Job>);

impl Batch {
    /// Starts the task that writes, on the runtime of the caller; it ends with
    /// the last sender.
    pub(super) fn start(database: Database) -> Self {
        let (sender, jobs) = mpsc::channel(WAITING);
        tokio::spawn(run(database, jobs));
        Self(sender)
    }

    /// Does `work`; durable when it returns. A caller that goes away meanwhile
    /// does not undo it.
    pub(super) async fn write(&self, work: Work) -> Result<Done, StoreError> {
        let closed = || StoreError::Unavailable("the store is closing".to_owned());
        let (reply, answer) = oneshot::channel();
        let beside = Beside::waiting();
        let handed_in = self.0.send(Job {
            work,
            beside,
            reply,
        });
        let handed_in = handed_in.await;
        handed_in.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

async fn run(database: Database, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(TOGETHER);
    while jobs.recv_many(&mut batch, TOGETHER).await > 0 {
        match together(&database, &batch).await {
            Ok(outcomes) => {
                for (job, done) in batch.drain(..).zip(outcomes) {
                    // Whoever asked may be gone.
                    let _ = job.reply.send(Ok(done));
                }
            }
            // One of them may be at fault: nobody else suffers from it.
            Err(Failed::Work) => {
                let mut jobs = batch.drain(..);
                while let Some(job) = jobs.next() {
                    match alone(&database, &job).await {
                        Ok(outcome) => {
                            let _ = job.reply.send(outcome);
                        }
                        Err(error) => refuse(std::iter::once(job).chain(jobs.by_ref()), &error),
                    }
                }
            }
            // To try each alone would only make them wait, one behind the other.
            Err(Failed::Database(error)) => refuse(batch.drain(..), &error),
        }
    }
}

/// Why a batch was not written.
#[derive(Debug)]
enum Failed {
    /// The database did not let it begin or end.
    Database(StoreError),
    /// One of its works could not be done.
    Work,
}

fn refuse(jobs: impl Iterator<Item = Job>, error: &StoreError) {
    for job in jobs {
        let error = StoreError::Unavailable(error.to_string());
        let _ = job.reply.send(Err(error));
    }
}

async fn together(database: &Database, batch: &[Job]) -> Result<Vec<Done>, Failed> {
    let mut tx = database.begin().await.map_err(Failed::Database)?;
    let mut outcomes = Vec::with_capacity(batch.len());
    for job in batch {
        let done = apply_told(&mut tx, job).await;
        outcomes.push(done.map_err(|_| Failed::Work)?);
    }
    let committed = tx.commit().await;
    committed.map_err(Failed::Database)?;
    for (job, done) in batch.iter().zip(&outcomes) {
        job.written(*done);
    }
    Ok(outcomes)
}

/// What came of one work; an error if the database does not let any begin or
/// end.
async fn alone(database: &Database, job: &Job) -> Result<Result<Done, StoreError>, StoreError> {
    let mut tx = database.begin().await?;
    let done = match apply_told(&mut tx, job).await {
        Ok(done) => done,
        Err(error) => return Ok(Err(error)),
    };
    tx.commit().await?;
    job.written(done);
    Ok(Ok(done))
}

impl Job {
    /// Its commit is over.
    fn written(&self, done: Done) {
        if let Some(beside) = self.beside.as_ref().filter(|_| done.is_done()) {
            beside.taken();
        }
    }
}

/// Does the work, and tells the audit log in the same breath.
async fn apply_told(tx: &mut Tx, job: &Job) -> Result<Done, StoreError> {
    let done = apply(tx, &job.work).await?;
    if let Some(beside) = job.beside.as_ref().filter(|_| done.is_done()) {
        audit::append(tx, &beside.record()).await?;
    }
    Ok(done)
}

async fn apply(tx: &mut Tx, work: &Work) -> Result<Done, StoreError> {
    match work {
        Work::Record(refresh, access) => {
            tokens::insert(tx, refresh.as_deref(), access.as_ref()).await?;
        }
        Work::Exchange(exchange, access) => {
            let outcome = tokens::exchange(tx, exchange, access.as_ref()).await?;
            return Ok(Done::Exchanged(outcome));
        }
        Work::Remember {
            what,
            until_ms,
            now_ms,
        } => {
            let new = tokens::remember(tx, *what, *until_ms, *now_ms).await?;
            return Ok(Done::Remembered(new));
        }
        Work::RevokeAccess {
            hash,
            token_id,
            until_ms,
        } => tokens::revoke_access(tx, *hash, token_id, *until_ms).await?,
        Work::RevokeGrant { grant_id, until_ms } => {
            tokens::revoke(tx, grant_id, *until_ms).await?;
        }
        Work::KeepRequest {
            request,
            most_bytes,
        } => {
            let kept = requests::keep(tx, request, *most_bytes).await?;
            return Ok(Done::Request(kept));
        }
        Work::ProlongRequest { hash, ends_ms } => requests::prolong(tx, *hash, *ends_ms).await?,
        Work::Audit(records) => {
            for record in records.iter() {
                audit::append(tx, record).await?;
            }
        }
        Work::TakeRequest(hash) => {
            let taken = requests::take(tx, *hash).await?;
            return Ok(Done::Request(taken));
        }
    }
    Ok(Done::Written)
}
