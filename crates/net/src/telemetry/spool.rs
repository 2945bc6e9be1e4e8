//! Log lines on their way to a writer that may be slow, full or gone.
//!
//! A thread that logs appends to a buffer and never waits. One thread writes
//! the buffers out. A full buffer drops lines and counts them; so does a
//! failed write.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::line_sink::LineSink;
use super::metrics::{Counter, stripe};

/// Time between two writes of a spool that nobody wakes.
const INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between two lines about dropped lines.
const QUIET: Duration = Duration::from_secs(1);
/// Capacity that an emptied buffer keeps.
const SPARE: usize = 64 << 10;

/// What a spool may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Buffers: threads are spread over them.
    pub shards: usize,
    /// Most lines in one buffer.
    pub lines: u32,
    /// Most bytes in one buffer.
    pub bytes: usize,
    /// Whether the first line in an empty buffer wakes the writer. Without it,
    /// lines are written ten times a second, and appending is no system call.
    pub prompt: bool,
}

/// Lines that wait for their writer.
#[derive(Debug)]
pub struct Spool {
    /// The stream's name in messages and metrics.
    stream: &'static str,
    bounds: Bounds,
    shards: Box<[Shard]>,
    dropped: Counter,
    control: Mutex<Control>,
    to_writer: Condvar,
    from_writer: Condvar,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<Batch>);

#[derive(Debug, Default)]
struct Batch {
    text: String,
    lines: u32,
}

/// What the writer is asked to do.
#[derive(Debug, Default)]
struct Control {
    write: bool,
    reopen: bool,
    flushes: u64,
    flushed: u64,
}

impl Spool {
    /// A spool for `stream`, whose dropped lines are counted in `dropped`.
    pub fn new(stream: &'static str, bounds: Bounds, dropped: Counter) -> Self {
        Self {
            stream,
            bounds,
            shards: (0..bounds.shards.max(1))
                .map(|_| Shard::default())
                .collect(),
            dropped,
            control: Mutex::default(),
            to_writer: Condvar::new(),
            from_writer: Condvar::new(),
        }
    }

    /// Appends a line that ends with a line feed, if there is room for it.
    pub fn append(&self, line: &str) {
        self.append_with(line.len(), |text| text.push_str(line));
    }

    /// Lets `line` append a line, if there is room for `length` bytes.
    pub fn append_with(&self, length: usize, line: impl FnOnce(&mut String)) {
        let shard = &self.shards[stripe() % self.shards.len()].0;
        let mut batch = shard.lock();
        let Bounds { lines, bytes, .. } = self.bounds;
        if batch.lines >= lines || batch.text.len() + length > bytes {
            drop(batch);
            return self.dropped.inc();
        }
        let first = batch.lines == 0;
        batch.lines += 1;
        line(&mut batch.text);
        drop(batch);
        if first && self.bounds.prompt {
            self.control.lock().write = true;
            self.to_writer.notify_one();
        }
    }

    /// Lines that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    /// Asks the writer to open its file again.
    pub fn reopen(&self) {
        self.control.lock().reopen = true;
        self.to_writer.notify_one();
    }

    /// Waits until everything that was appended so far is written or dropped,
    /// at most for `limit`; whether it was.
    pub fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut control = self.control.lock();
        control.flushes += 1;
        let wanted = control.flushes;
        self.to_writer.notify_one();
        while control.flushed < wanted {
            let waited = self.from_writer.wait_until(&mut control, deadline);
            if waited.timed_out() {
                return control.flushed >= wanted;
            }
        }
        true
    }

    /// Writes to `outlet` until the process ends.
    pub fn run(&self, mut outlet: LineSink) {
        let mut reporter = Reporter::new();
        let mut spare = String::new();
        loop {
            let (reopen, flushes) = self.wait();
            if reopen && let Err(error) = outlet.reopen() {
                tracing::error!(stream = self.stream, %error, "log file not opened again");
            }
            let outcome = self.write_out(&mut outlet, &mut spare);
            reporter.report(self.stream, self.dropped.get(), outcome, Instant::now());
            self.control.lock().flushed = flushes;
            self.from_writer.notify_all();
        }
    }

    /// Waits for something to do.
    fn wait(&self) -> (bool, u64) {
        let mut control = self.control.lock();
        let idle = !control.write && !control.reopen && control.flushed == control.flushes;
        if idle {
            self.to_writer.wait_for(&mut control, INTERVAL);
        }
        control.write = false;
        (std::mem::take(&mut control.reopen), control.flushes)
    }

    /// Writes what waits. Lines that can't be written are dropped: a full disk
    /// or a closed pipe must not fill the memory.
    fn write_out(&self, outlet: &mut LineSink, spare: &mut String) -> io::Result<bool> {
        let mut outcome = Ok(false);
        for shard in &self.shards {
            {
                let mut batch = shard.0.lock();
                if batch.lines == 0 {
                    continue;
                }
                std::mem::swap(&mut batch.text, spare);
                batch.lines = 0;
            }
            match outlet.write(spare.as_bytes()) {
                Ok(()) if outcome.is_ok() => outcome = Ok(true),
                Ok(()) => {}
                Err((written, error)) => {
                    let rest = &spare.as_bytes()[written.min(spare.len())..];
                    let lost = rest.iter().filter(|&&byte| byte == b'\n').count();
                    self.dropped.add(lost as u64);
                    outcome = Err(error);
                }
            }
            spare.clear();
            spare.shrink_to(SPARE);
        }
        outcome
    }
}

/// Says once that a stream fails, and once how many lines it has lost.
struct Reporter {
    failing: bool,
    reported: u64,
    last: Option<Instant>,
}

impl Reporter {
    fn new() -> Self {
        Self {
            failing: false,
            reported: 0,
            last: None,
        }
    }

    /// After a look at the buffers, of which `outcome` says whether anything
    /// was written.
    fn report(
        &mut self,
        stream: &'static str,
        dropped: u64,
        outcome: io::Result<bool>,
        now: Instant,
    ) {
        match outcome {
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::error!(stream, %error, "log lines can't be written");
            }
            Ok(true) => {
                self.failing = false;
                let quiet = self.last.is_some_and(|last| now - last < QUIET);
                if dropped > self.reported && !quiet {
                    let lines = dropped - self.reported;
                    tracing::warn!(stream, lines, "log lines were dropped");
                    self.reported = dropped;
                    self.last = Some(now);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
