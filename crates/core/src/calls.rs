//! What a piece of work has asked of other servers and of the store: noted where
//! somebody wants to know, such as a plugin that traces.
//!
//! Work that nobody notes pays for a look at the task's own variable.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use http::Method;

/// Most calls that are noted of one piece of work.
const MOST: usize = 64;

tokio::task_local! {
    /// Where the current work is noted, if it is.
    static NOTES: Option<Arc<Notes>>;
}

struct Notes {
    began: Instant,
    /// Taken by whoever waited for the work; what comes later is nobody's.
    calls: Mutex<Vec<Call>>,
}

fn current() -> Option<Arc<Notes>> {
    NOTES.try_with(Clone::clone).ok().flatten()
}

/// Something that was asked of somebody else, and waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was asked of whom.
    pub what: Callee,
    /// How long after the beginning of the work it was asked.
    pub after: Duration,
    /// How long it took.
    pub took: Duration,
}

/// Who was asked, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// Another server, by a request.
    Server {
        /// The method.
        method: Method,
        /// What was asked, without query and credentials.
        url: String,
        /// The status of the answer, if there was one.
        status: Option<u16>,
    },
    /// The durable store, by one of its operations. No value that it was given is here.
    Store {
        /// The database, as OpenTelemetry names it.
        system: &'static str,
        /// The resource that the operation is about, such as `sessions`.
        resource: &'static str,
        /// Whether it writes.
        writes: bool,
        /// Whether it was done.
        done: bool,
    },
}

impl Callee {
    /// Whether there was no answer, or one that says that it failed.
    pub fn failed(&self) -> bool {
        match self {
            Self::Server { status, .. } => status.is_none(),
            Self::Store { done, .. } => !done,
        }
    }
}

/// Does `work`, and notes what it asks of others: by itself, and in tasks that
/// [`carried`] work is given to.
pub async fn noted<F: Future>(work: F) -> (F::Output, Vec<Call>) {
    let notes = Arc::new(Notes {
        began: Instant::now(),
        calls: Mutex::default(),
    });
    let output = NOTES.scope(Some(notes.clone()), work).await;
    let calls = std::mem::take(&mut *notes.calls.lock().unwrap_or_else(PoisonError::into_inner));
    (output, calls)
}

/// Work for a task of its own whose calls are those of the current work.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    NOTES.scope(current(), work)
}

/// A call that is under way: noted at its end, also where whoever made it gives it up.
#[derive(Debug, Default)]
pub struct Note(Option<Box<Pending>>);

struct Pending {
    notes: Arc<Notes>,
    began: Instant,
    what: Callee,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.what.fmt(out)
    }
}

impl Note {
    /// Begins a call, which `what` tells where the current work is noted.
    pub fn begin(what: impl FnOnce() -> Callee) -> Self {
        Self(current().map(|notes| {
            Box::new(Pending {
                notes,
                began: Instant::now(),
                what: what(),
            })
        }))
    }

    /// Says what became of it.
    pub fn settle(&mut self, change: impl FnOnce(&mut Callee)) {
        if let Some(pending) = &mut self.0 {
            change(&mut pending.what);
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let Some(pending) = self.0.take() else { return };
        let Pending { notes, began, what } = *pending;
        let mut calls = notes.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < MOST {
            calls.push(Call {
                what,
                after: began - notes.began,
                took: began.elapsed(),
            });
        }
    }
}
