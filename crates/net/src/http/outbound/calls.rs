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

/// A request that is under way: noted at its end, where somebody wants to know.
pub(super) struct Note(Option<(Arc<Notes>, Instant)>);

impl Note {
    pub(super) fn begin() -> Self {
        Self(current().map(|notes| (notes, Instant::now())))
    }

    pub(super) fn end(self, method: Method, url: &Url, answer: &Result<Answer, OutboundError>) {
        let Some((notes, sent)) = self.0 else { return };
        let mut calls = notes.calls.lock();
        if calls.len() < MOST {
            let origin = url.origin().ascii_serialization();
            calls.push(Call {
                method,
                url: origin + url.path(),
                after: sent - notes.began,
                took: sent.elapsed(),
                status: answer.as_ref().ok().map(|answer| answer.status.as_u16()),
            });
        }
    }
}
