//! Whether a worker has been told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether a worker has been told to stop: its connections take no further request.
#[derive(Clone, Debug, Default)]
pub struct Stopping(Arc<State>);

#[derive(Debug, Default)]
struct State {
    begun: AtomicBool,
    waiting: Notify,
}

impl Stopping {
    /// Whether it has.
    pub fn has_begun(&self) -> bool {
        self.0.begun.load(Ordering::Acquire)
    }

    /// Tells it.
    pub(super) fn begin(&self) {
        self.0.begun.store(true, Ordering::Release);
        self.0.waiting.notify_waiters();
    }

    /// Ends when it has been told.
    pub(super) async fn begun(&self) {
        let begun = self.0.waiting.notified();
        tokio::pin!(begun);
        // Whoever waits before the look misses nothing.
        begun.as_mut().enable();
        if !self.has_begun() {
            begun.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn whoever_waits_is_told_before_and_after_the_beginning() {
        let stopping = Stopping::default();
        let mut waits = Box::pin(stopping.begun());
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(!stopping.has_begun());
        stopping.begin();
        waits.await;
        stopping.begun().await;
        assert!(stopping.has_begun());
    }
}
