//! What a piece of work has asked of others: noted where somebody wants to know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;
use url::Url;

use super::{Answer, OutboundError};

/// Most requests that are noted of one piece of work.
const MOST: usize = 32;

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

/// A request that was sent to somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// What was asked, without query and credentials.
    pub url: String,
    /// How long after the beginning of the work it was sent.
    pub after: Duration,
    /// How long it took.
    pub took: Duration,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
}

/// Does `work`, and notes which requests it sends: by itself, and in tasks that
/// [`carried`] work is given to.
pub async fn noted<F: Future>(work: F) -> (F::Output, Vec<Call>) {
    let notes = Arc::new(Notes {
        began: Instant::now(),
        calls: Mutex::default(),
    });
    let output = NOTES.scope(Some(notes.clone()), work).await;
    let calls = std::mem::take(&mut *notes.calls.lock());
    (output, calls)
}

/// Work for a task of its own whose requests are those of the current work.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    NOTES.scope(current(), work)
}

/// A request that is under way: noted at its end, also where whoever sent it gives it up.
pub(super) struct Note(Option<Pending>);

struct Pending {
    notes: Arc<Notes>,
    sent: Instant,
    method: Method,
    url: String,
    status: Option<u16>,
}

impl Note {
    pub(super) fn begin(method: &Method, url: &Url) -> Self {
        Self(current().map(|notes| Pending {
            notes,
            sent: Instant::now(),
            method: method.clone(),
            url: url.origin().ascii_serialization() + url.path(),
            status: None,
        }))
    }

    pub(super) fn end(mut self, answer: &Result<Answer, OutboundError>) {
        if let Some(pending) = &mut self.0 {
            pending.status = answer.as_ref().ok().map(|answer| answer.status.as_u16());
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let Some(pending) = self.0.take() else { return };
        let mut calls = pending.notes.calls.lock();
        if calls.len() < MOST {
            calls.push(Call {
                after: pending.sent - pending.notes.began,
                took: pending.sent.elapsed(),
                method: pending.method,
                url: pending.url,
                status: pending.status,
            });
        }
    }
}
