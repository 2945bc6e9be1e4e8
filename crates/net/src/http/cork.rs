//! Streams of a connection of HTTP/2 that are ready together share a write.
//!
//! Each stream is a task, and each frame wakes the connection's task. A write for each
//! answer costs a system call, and a record where the connection is encrypted. A [`Cork`]
//! lets the tasks that are ready write first, and sends what came together.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Says when the frames of a connection are sent.
///
/// One task alone drives a connection, and the order of its own steps is all that counts:
/// the loads and stores are relaxed.
#[derive(Debug, Default)]
pub struct Cork {
    /// Streams that are being served.
    streams: AtomicUsize,
    /// Whether frames wait for those of other streams.
    holds: AtomicBool,
    /// Whether some do.
    waiting: AtomicBool,
}

impl Cork {
    /// Counts a stream until the guard is dropped.
    pub fn stream(self: &Arc<Self>) -> ServedStream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        ServedStream(self.clone())
    }

    /// Drives `connection`, whose transport holds back by this cork what is written.
    ///
    /// A connection that serves a single stream writes at once.
    pub async fn drive<F: Future + Unpin>(&self, mut connection: F) -> F::Output {
        let mut waited = false;
        std::future::poll_fn(|cx| self.turn(&mut connection, &mut waited, cx)).await
    }

    fn turn<F: Future + Unpin>(
        &self,
        connection: &mut F,
        waited: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let several = self.streams.load(Ordering::Relaxed) > 1;
        if several && !*waited {
            // The runtime puts a task that wakes itself behind all that are ready.
            *waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *waited = false;
        self.holds.store(several, Ordering::Relaxed);
        let polled = Pin::new(&mut *connection).poll(cx);
        self.holds.store(false, Ordering::Relaxed);
        if polled.is_pending() && self.waiting.load(Ordering::Relaxed) {
            // The transport sends what waits before it reads.
            return Pin::new(connection).poll(cx);
        }
        polled
    }

    /// Whether what is written now is held back.
    pub(super) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Notes whether something is held back.
    pub(super) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }
}

/// A stream that is being served.
#[derive(Debug)]
pub struct ServedStream(Arc<Cork>);

impl Drop for ServedStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
