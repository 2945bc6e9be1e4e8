//! The one timer of a connection, for all of its waits, one after another.
//!
//! A timer for each wait is set up and taken down with a lock twice a request, and nearly
//! none ever fires. This one stays set: a new wait moves its deadline, which
//! is looked at when the timer fires for an earlier one.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A wait took longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expired;

/// Says when a wait has taken too long.
#[derive(Default)]
pub(super) struct Timer {
    deadline: Option<Instant>,
    /// Fires at the deadline, or before it.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    /// Begins a wait of at most `limit`; without one it may last for ever.
    pub(super) fn start(&mut self, limit: Option<Duration>) {
        self.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    }

    /// Whether the wait has taken too long. If not, the task is woken once it has.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(Expired);
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    /// What `future` comes to, if it does so within the wait.
    pub(super) async fn bound<F: Future>(&mut self, future: F) -> Result<F::Output, Expired> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            self.poll_expired(cx).map(Err)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::sleep;

    use super::*;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_millis(50);
    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_wait_lasts_until_its_own_deadline_whatever_was_set_before() {
        let mut timer = Timer::default();
        for limit in [LONG, SHORT, LONG] {
            let begun = Instant::now();
            timer.start(Some(limit));
            assert_eq!(timer.bound(ready(1)).await, Ok(1));
            assert_eq!(timer.bound(pending::<()>()).await, Err(Expired));
            assert!(begun.elapsed() >= limit);
        }
        timer.start(Some(HOUR));
        assert_eq!(timer.bound(sleep(SHORT)).await, Ok(()));
        timer.start(Some(SHORT));
        assert_eq!(timer.bound(pending::<()>()).await, Err(Expired));
    }

    #[tokio::test]
    async fn an_earlier_deadline_does_not_end_a_later_wait() {
        let mut timer = Timer::default();
        timer.start(Some(SHORT));
        assert_eq!(timer.bound(sleep(Duration::ZERO)).await, Ok(()));
        for limit in [Some(HOUR), None, Some(Duration::MAX)] {
            timer.start(limit);
            assert_eq!(timer.bound(sleep(LONG)).await, Ok(()));
        }
    }
}
