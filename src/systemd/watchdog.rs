//! The watchdog: the service manager hears from the process as long as all workers
//! turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use super::tell;

/// Messages within the time after which the manager would end the process: one may be
/// late.
const MESSAGES: u32 = 3;
/// Signs of life of a worker between two messages.
const BEATS: u32 = 2;

/// Signs of life of all workers.
#[derive(Clone)]
pub struct Watchdog {
    period: Duration,
    workers: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Watchdog {
    /// The watchdog that the service manager asks for, if it does.
    pub fn from_environment() -> Option<Self> {
        sd_notify::watchdog_enabled().map(|limit| Self::new(limit / MESSAGES))
    }

    fn new(period: Duration) -> Self {
        Self {
            period: period.max(Duration::from_millis(1)),
            workers: Arc::default(),
        }
    }

    /// Gives signs of life of the thread that this runs on, as long as it turns.
    pub async fn beat(self) {
        let alive = Arc::new(AtomicBool::new(true));
        self.workers.lock().push(alive.clone());
        let mut beats = interval(self.period / BEATS);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            alive.store(true, Ordering::Relaxed);
        }
    }

    /// Tells the service manager, as long as all workers turn.
    pub async fn run(self) {
        let mut messages = interval(self.period);
        messages.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            messages.tick().await;
            if self.all_turn() {
                tell(&[NotifyState::Watchdog]);
            } else {
                tracing::warn!("a worker does not turn: the watchdog is not told");
            }
        }
    }

    /// Whether each worker has given a sign of life since this was asked the last time.
    fn all_turn(&self) -> bool {
        let workers = self.workers.lock();
        let silent = workers
            .iter()
            .filter(|alive| !alive.swap(false, Ordering::Relaxed));
        silent.count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_stuck_silences_the_watchdog() {
        let watchdog = Watchdog::new(Duration::from_secs(1));
        assert!(watchdog.all_turn(), "no worker yet");
        let worker = tokio::spawn(watchdog.clone().beat());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(watchdog.all_turn());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(watchdog.all_turn());
        worker.abort();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _last_sign = watchdog.all_turn();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!watchdog.all_turn());
    }
}
