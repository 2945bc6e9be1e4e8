//! Cleaning in the background: one thread for all filters.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::partitions::Partitions;
use doorward_core::clock;

struct Job {
    /// Held weakly: a filter that is gone takes its buckets along.
    partitions: Weak<Partitions>,
    every: Duration,
    due: Instant,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    running: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    jobs: Vec::new(),
    running: false,
});
static ADDED: Condvar = Condvar::new();

/// Cleans `partitions` every so often until the last other holder is gone. The
/// thread starts with the first filter and ends after the last.
pub(super) fn schedule(partitions: &Arc<Partitions>, every: Duration) {
    let mut queue = lock();
    queue.jobs.push(Job {
        partitions: Arc::downgrade(partitions),
        every,
        due: Instant::now() + every,
    });
    if queue.running {
        ADDED.notify_one();
        return;
    }
    let thread = std::thread::Builder::new().name("throttle-sweeper".into());
    match thread.spawn(run) {
        Ok(_) => queue.running = true,
        // The next filter tries again; until then the limit bounds the memory.
        Err(error) => tracing::warn!(%error, "no thread to clean throttling partitions"),
    }
}

fn run() {
    let mut queue = lock();
    loop {
        queue.jobs.retain(|job| job.partitions.strong_count() > 0);
        let Some(next) = queue.jobs.iter_mut().min_by_key(|job| job.due) else {
            queue.running = false;
            return;
        };
        let now = Instant::now();
        if next.due > now {
            // Wakes now and then for filters that have gone.
            let wait = (next.due - now).min(Duration::from_secs(60));
            queue = ADDED
                .wait_timeout(queue, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            continue;
        }
        next.due = now + next.every;
        let partitions = next.partitions.upgrade();
        drop(queue);
        if let Some(partitions) = partitions {
            partitions.clean(clock::monotonic_ns());
        }
        queue = lock();
    }
}

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}
