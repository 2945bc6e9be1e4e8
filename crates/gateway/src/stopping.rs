//! Whether a worker has been told to stop, and how long idle connections outlive that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// How long idle connections linger unless something else is said: whoever sends
/// requests one after the other sends the next one meanwhile.
const USUAL_MS: u64 = 1000;

/// How long idle connections wait for one more request when their worker stops. The
/// answer to it tells the client that the connection ends, so that no request is lost
/// on a connection that is cut while it is sent.
#[derive(Clone, Debug)]
pub struct Linger(Arc<AtomicU64>);

impl Default for Linger {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(USUAL_MS)))
    }
}

impl Linger {
    /// Changes it for workers that stop from now on.
    pub fn set(&self, limit: Duration) {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.0.store(limit, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Whether a worker has been told to stop: its connections take one more request at
/// most.
#[derive(Clone, Debug, Default)]
pub struct Stopping(Arc<State>);

#[derive(Debug, Default)]
struct State {
    begun: AtomicBool,
    waiting: Notify,
    linger: Linger,
}

impl Stopping {
    /// Of a worker whose idle connections wait as long as `linger` says.
    pub fn new(linger: Linger) -> Self {
        Self(Arc::new(State {
            linger,
            ..State::default()
        }))
    }

    /// How long connections wait for their last request.
    pub fn linger_limit(&self) -> Duration {
        self.0.linger.get()
    }

    /// What `next` yields, if it does so in time: the last request of a connection.
    pub(super) async fn linger<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        timeout(self.linger_limit(), next).await.ok()
    }

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

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_its_last_request_as_long_as_is_said() {
        let linger = Linger::default();
        let stopping = Stopping::new(linger.clone());
        linger.set(Duration::from_secs(7));
        let late = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(stopping.linger(late(6)).await, Some(()));
        assert_eq!(stopping.linger(late(8)).await, None);
    }

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
