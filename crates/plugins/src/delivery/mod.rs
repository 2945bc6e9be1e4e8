//! Delivery of what filters have observed: bounded queues that never stand in the
//! way of a request, and one thread that empties them.
//!
//! A request appends to a queue. A task takes batches out of it and has a
//! [`Sender`] send them, again and again with growing pauses while that fails. A
//! full queue drops its oldest entry. The task ends when the queue is empty, so a
//! queue whose filter is gone is still emptied.

mod limits;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use doorward_net::telemetry::{Counter, Gauge};
use doorward_plugin_api::Parts;

pub(crate) use limits::{Limits, Older, OlderQueueConfig, QueueConfig, queue_type};

/// How long a queue goes on whose filter is gone.
const AFTERLIFE: Duration = Duration::from_secs(60);

/// Sends batches somewhere.
#[async_trait]
pub(crate) trait Sender: Send + Sync + 'static {
    /// Sends a batch. It ends within a limit of time of its own.
    ///
    /// # Errors
    /// Why it could not be sent, for the log: no secret, nothing of a client.
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String>;
}

/// Where the queues of all plugins are emptied: a thread of its own.
pub struct Deliveries {
    runtime: OnceLock<Option<Handle>>,
    /// Entries that are neither delivered nor lost.
    pending: AtomicUsize,
    closing: watch::Sender<bool>,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            runtime: OnceLock::new(),
            pending: AtomicUsize::new(0),
            closing: watch::Sender::new(false),
        }
    }
}

impl Deliveries {
    /// Waits until all queues are empty, at most for `limit`; whether they are. From
    /// now on no batch waits for more entries.
    pub async fn flush(&self, limit: Duration) -> bool {
        self.closing.send_replace(true);
        let emptied = async {
            while self.pending.load(Ordering::Acquire) > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(limit, emptied).await.is_ok()
    }

    /// The thread's runtime, which starts with the first entry.
    fn runtime(&self) -> Option<&Handle> {
        self.runtime.get_or_init(start).as_ref()
    }
}

fn start() -> Option<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.inspect_err(|error| tracing::error!(%error, "no runtime for deliveries"));
    let runtime = runtime.ok()?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("delivery".to_owned());
    let started = thread.spawn(move || runtime.block_on(std::future::pending::<()>()));
    match started {
        Ok(_) => Some(handle),
        Err(error) => {
            tracing::error!(%error, "no thread for deliveries");
            None
        }
    }
}

/// The queue of one filter. When it is dropped, what it holds is sent at once.
pub(crate) struct Queue(Arc<Core>);

struct Core {
    plugin: &'static str,
    id: Arc<str>,
    limits: Limits,
    sender: Box<dyn Sender>,
    state: Mutex<State>,
    /// A batch is full, or there will be no more entries.
    nudge: Notify,
    deliveries: Arc<Deliveries>,
    delivered: Counter,
    dropped: Counter,
    failed: Counter,
    waiting: Gauge,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Tasks that take entries out.
    tasks: usize,
    /// Since when the filter is gone.
    closed: Option<Instant>,
    /// Whether it was said that the queue is nearly full.
    warned: bool,
}

impl State {
    /// Whether the filter is gone for so long that nothing is sent any more.
    fn is_over(&self) -> bool {
        self.closed.is_some_and(|at| at.elapsed() > AFTERLIFE)
    }
}

impl Queue {
    /// A queue of `plugin` whose batches `sender` sends.
    pub(crate) fn new(
        plugin: &'static str,
        parts: &Parts,
        limits: Limits,
        sender: impl Sender,
    ) -> Self {
        let counter = |outcome| parts.metrics.deliveries(plugin, outcome);
        Self(Arc::new(Core {
            plugin,
            id: parts.scope.clone(),
            limits,
            sender: Box::new(sender),
            state: Mutex::default(),
            nudge: Notify::new(),
            deliveries: parts.slots.get_or_default(),
            delivered: counter("delivered"),
            dropped: counter("dropped"),
            failed: counter("failed"),
            waiting: parts.metrics.deliveries_waiting(plugin),
        }))
    }

    /// Appends an entry. A full queue drops its oldest ones.
    pub(crate) fn push(&self, entry: Vec<u8>) {
        let core = &self.0;
        let limits = &core.limits;
        if entry.len() > limits.bytes {
            core.dropped.inc();
            return;
        }
        let Some(runtime) = core.deliveries.runtime() else {
            core.dropped.inc();
            return;
        };
        let mut dropped = 0;
        let starts = {
            // Held for these few steps, never while something is sent.
            let mut state = core.state.lock();
            while state.entries.len() >= limits.entries || state.bytes + entry.len() > limits.bytes
            {
                let Some(oldest) = state.entries.pop_front() else {
                    break;
                };
                state.bytes -= oldest.len();
                dropped += 1;
            }
            state.bytes += entry.len();
            state.entries.push_back(entry);
            core.note_length(&mut state);
            core.waiting.add(1);
            core.deliveries.pending.fetch_add(1, Ordering::AcqRel);
            let starts = state.tasks < limits.tasks;
            state.tasks += usize::from(starts);
            if state.entries.len() >= limits.batch {
                core.nudge.notify_one();
            }
            starts
        };
        if dropped > 0 {
            core.dropped.add(dropped as u64);
            core.settle(dropped);
            tracing::warn!(
                plugin = core.plugin,
                id = &*core.id,
                "the queue is full: its oldest entries are dropped"
            );
        }
        if starts {
            runtime.spawn(run(core.clone()));
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.state.lock().closed = Some(Instant::now());
        self.0.nudge.notify_one();
    }
}

/// Sends batches until the queue is empty.
async fn run(core: Arc<Core>) {
    loop {
        core.gather().await;
        let Some(batch) = core.take() else { return };
        let _settles = Settlement {
            core: &core,
            entries: batch.len(),
        };
        core.deliver(&batch).await;
    }
}

/// Settles a batch, also when its sender panics: the queue goes on with another task.
struct Settlement<'a> {
    core: &'a Core,
    entries: usize,
}

impl Drop for Settlement<'_> {
    fn drop(&mut self) {
        self.core.settle(self.entries);
        if std::thread::panicking() {
            self.core.failed.add(self.entries as u64);
            self.core.state.lock().tasks -= 1;
        }
    }
}

impl Core {
    /// Waits until a batch is full, or has waited long enough.
    async fn gather(&self) {
        let limits = &self.limits;
        if limits.batch == 1 || limits.coalescing.is_zero() {
            return;
        }
        let full = async {
            loop {
                {
                    let state = self.state.lock();
                    if state.closed.is_some() || state.entries.len() >= limits.batch {
                        return;
                    }
                }
                self.nudge.notified().await;
            }
        };
        let mut closing = self.deliveries.closing.subscribe();
        tokio::select! {
            () = full => {}
            () = sleep(limits.coalescing) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    /// The next batch; without one the task is over.
    fn take(&self) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state.lock();
        if state.is_over() {
            let rest = state.entries.len();
            state.entries.clear();
            state.bytes = 0;
            self.failed.add(rest as u64);
            self.settle(rest);
        }
        if state.entries.is_empty() {
            state.tasks -= 1;
            return None;
        }
        let length = state.entries.len().min(self.limits.batch);
        let batch: Vec<_> = state.entries.drain(..length).collect();
        state.bytes -= batch.iter().map(Vec::len).sum::<usize>();
        self.note_length(&mut state);
        Some(batch)
    }

    /// Sends a batch, if need be several times.
    async fn deliver(&self, batch: &[Vec<u8>]) {
        let began = Instant::now();
        let mut pause = self.limits.first_pause;
        loop {
            let Err(reason) = self.sender.send(batch).await else {
                return self.delivered.add(batch.len() as u64);
            };
            let (plugin, id) = (self.plugin, &*self.id);
            let patience = self.limits.retry_time.unwrap_or(Duration::ZERO);
            if began.elapsed() + pause > patience || self.state.lock().is_over() {
                self.failed.add(batch.len() as u64);
                let entries = batch.len();
                tracing::warn!(plugin, id, entries, reason, "entries are lost");
                return;
            }
            tracing::debug!(plugin, id, reason, "entries will be sent again");
            sleep(pause).await;
            pause = (pause * 2).min(self.limits.longest_pause);
        }
    }

    /// So many entries are delivered or lost.
    fn settle(&self, entries: usize) {
        self.waiting
            .add(-i64::try_from(entries).unwrap_or(i64::MAX));
        self.deliveries.pending.fetch_sub(entries, Ordering::AcqRel);
    }

    /// Says once that the queue is nearly full, and again after it was not.
    fn note_length(&self, state: &mut State) {
        let nearly = state.entries.len() >= self.limits.entries - self.limits.entries / 5;
        if nearly && !state.warned && self.limits.entries >= 5 {
            let (plugin, id) = (self.plugin, &*self.id);
            tracing::warn!(plugin, id, "the queue is filled to 80 percent");
        }
        state.warned = nearly;
    }
}
