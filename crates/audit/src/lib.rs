//! The audit log: who did what, when, from where, and what came of it.
//!
//! Its one invariant: what was acknowledged and is durable has its record, as
//! durable as itself. Three ways lead into the log:
//!
//! - [`Audit::with`]: the record goes into the transaction of the act itself;
//! - [`Audit::keep`]: the record is durable when it returns;
//! - [`Audit::note`]: nobody waits; for what leaves nothing else behind, such
//!   as signed tokens and refusals. Written at least once a second.
//!
//! There is no way to change or remove a record but its age.

mod config;
mod file;
mod queue;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard};

pub use config::AuditConfig;

use doorward_core::clock::{Clock, random_bytes};
use doorward_core::model::audit::{AuditRecord, Event, Occurrence, PendingAudit, Trace, audit_id};
use doorward_net::telemetry::{Counter, Metrics};
use doorward_store::Store;
use file::LinesFile;
use queue::{Queue, Span};

/// Longest time that an event waits to be written.
const FLUSH: Duration = Duration::from_secs(1);

/// Records written in one step: others wait for the writer meanwhile.
const BATCH_MAX: usize = 500;

/// Flushes between two looks for records that are too old: a minute.
const SWEEP_EVERY: u32 = 60;

/// Records removed in one step.
const SWEEP_MAX: u32 = 2_000;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Why there can be no audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file can't be appended to.
    #[error("audit.file: {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The queue could hold nothing.
    #[error("audit.queue: must be from 1 to 1000000")]
    Queue,
}

/// The audit log of this process.
#[derive(Clone)]
pub struct Audit(Arc<Log>);

struct Log {
    store: Arc<Store>,
    clock: Clock,
    rules: ArcSwap<AuditConfig>,
    queue: Queue,
    /// Records that the store has, for the file.
    for_file: Mutex<Vec<AuditRecord>>,
    /// Notified when many wait.
    many: Arc<Notify>,
    turn: AtomicU16,
    writer: tokio::sync::Mutex<Writer>,
    /// Apart from the writer: a file on a disk that does not answer keeps no
    /// record from the store.
    file: Option<Arc<tokio::sync::Mutex<FileWriter>>>,
    written: Counter,
    dropped: Counter,
    failures: Counter,
}

/// What only one flush at a time has.
struct Writer {
    /// What the store did not take yet.
    unwritten: Vec<AuditRecord>,
    healthy: bool,
    /// Dropped records that were complained of.
    complained: u64,
}

/// The file, and whether it took what it got the last time.
struct FileWriter {
    file: LinesFile,
    healthy: bool,
}

impl Audit {
    /// The log on `store`; see also [`Audit::start`].
    ///
    /// # Errors
    /// [`AuditError`] when the file can't be opened, or the queue has no size.
    pub fn open(
        config: AuditConfig,
        store: Arc<Store>,
        clock: Clock,
        metrics: &Metrics,
    ) -> Result<Self, AuditError> {
        let file = checked(&config, LinesFile::open)?.map(|file| {
            let healthy = true;
            Arc::new(tokio::sync::Mutex::new(FileWriter { file, healthy }))
        });
        let writer = Writer {
            unwritten: Vec::new(),
            healthy: true,
            complained: 0,
        };
        Ok(Self(Arc::new(Log {
            store,
            clock,
            queue: Queue::new(config.queue, config.fold),
            rules: ArcSwap::from_pointee(config),
            for_file: Mutex::default(),
            many: Arc::new(Notify::new()),
            turn: AtomicU16::new(0),
            writer: tokio::sync::Mutex::new(writer),
            file,
            written: metrics.audit_records(),
            dropped: metrics.audit_dropped(),
            failures: metrics.audit_failures(),
        })))
    }

    /// Whether [`Audit::open`] would accept `config`; makes nothing.
    ///
    /// # Errors
    /// Those of [`Audit::open`].
    pub fn check(config: &AuditConfig) -> Result<(), AuditError> {
        checked(config, LinesFile::check).map(drop)
    }

    /// Goes on with the file that is at the path of `audit.file` now.
    pub async fn reopen(&self) {
        let Some(writer) = self.0.file.clone() else {
            return;
        };
        let mut writer = writer.lock_owned().await;
        let reopened = tokio::task::spawn_blocking(move || writer.file.reopen());
        if let Ok(Err(error)) = reopened.await {
            tracing::error!(%error, "audit.file not opened again");
        }
    }

    /// Starts the task that writes what was noted and removes what is too old,
    /// on the runtime of the caller; it ends with the log.
    pub fn start(&self) {
        tokio::spawn(run(Arc::downgrade(&self.0)));
    }

    /// Goes on by other rules: what is recorded, and for how long. Queue, file
    /// and store stay those that it was opened with.
    pub fn reload(&self, config: &AuditConfig) {
        let old = self.0.rules.load();
        self.0.rules.store(Arc::new(AuditConfig {
            events: config.events.clone(),
            except: config.except.clone(),
            retention_days: config.retention_days,
            ..AuditConfig::clone(&old)
        }));
    }

    /// Notes what leaves nothing else behind. Does not wait; written within a
    /// second.
    pub fn note(&self, event: Event, trace: Trace, at_ms: i64) {
        let log = &self.0;
        if !log.rules.load().wants(event.kind) {
            return;
        }
        let span = Span::once(at_ms, trace);
        if !log.queue.push(event, span) {
            log.dropped.inc();
            log.many.notify_one();
        } else if log.queue.len() > BATCH_MAX {
            log.many.notify_one();
        }
    }

    /// Records something that has been done: the record is durable when it
    /// returns. Should the store refuse it, it is written when the store can.
    pub async fn keep(&self, event: Event, trace: Trace, at_ms: i64) {
        self.keep_all([(event, trace)], at_ms).await;
    }

    /// As [`Audit::keep`], of several things that were done at once.
    pub async fn keep_all(&self, events: impl IntoIterator<Item = (Event, Trace)>, at_ms: i64) {
        let log = &self.0;
        let rules = log.rules.load_full();
        let wanted = (events.into_iter()).filter(|(event, _)| rules.wants(event.kind));
        let records = wanted.map(|(event, trace)| log.record(event, Span::once(at_ms, trace)));
        log.append(records.collect(), rules.store).await;
    }

    /// Does `act`, which gets the record of `event` and passes it to its write: both
    /// go into the store together. An act that failed, or of whose outcome `did` says
    /// that nothing was done, leaves no record: note why. A record that no write took
    /// is appended behind the act. The act gets none where the store keeps none.
    ///
    /// # Errors
    /// Those of `act`.
    pub async fn with<T, E>(
        &self,
        (event, trace): (Event, Trace),
        at_ms: i64,
        act: impl AsyncFnOnce(Option<&PendingAudit>) -> Result<T, E>,
        did: impl FnOnce(&T) -> bool,
    ) -> Result<T, E> {
        let log = &self.0;
        let rules = log.rules.load_full();
        if !rules.wants(event.kind) {
            return act(None).await;
        }
        let record = log.record(event, Span::once(at_ms, trace));
        if !rules.store {
            let done = act(None).await?;
            if did(&done) {
                log.append(vec![record], false).await;
            }
            return Ok(done);
        }
        let pending = PendingAudit::new(record);
        let done = act(Some(&pending)).await?;
        if pending.is_committed() {
            log.written.inc();
            log.pass_to_file(pending.record());
        } else if did(&done) {
            log.append(vec![pending.record()], true).await;
        }
        Ok(done)
    }

    /// Writes all that was noted so far.
    pub async fn flush(&self) {
        self.0.flush().await;
        if let Some(writer) = &self.0.file {
            self.0.write_file(writer.clone().lock_owned().await).await;
        }
    }
}

/// What `with` makes of the file that `config` names, if it names one and has no
/// other fault.
fn checked<T>(
    config: &AuditConfig,
    with: impl FnOnce(&Path) -> std::io::Result<T>,
) -> Result<Option<T>, AuditError> {
    if !(1..=1_000_000).contains(&config.queue) {
        return Err(AuditError::Queue);
    }
    let opened = config.file.as_deref().map(|path| {
        with(path).map_err(|source| AuditError::File {
            path: path.to_owned(),
            source,
        })
    });
    opened.transpose()
}

impl Log {
    fn record(&self, event: Event, span: Span) -> AuditRecord {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        event.record(&Occurrence {
            id: audit_id(span.first_ms, turn, random_bytes()),
            at_ms: span.first_ms,
            last_ms: span.last_ms,
            count: span.count,
            trace: span.trace,
        })
    }

    async fn append(&self, records: Vec<AuditRecord>, in_store: bool) {
        if records.is_empty() {
            return;
        }
        if in_store && let Err(error) = self.store.append_audit(records.clone()).await {
            self.failures.inc();
            tracing::error!(%error, "an audit record waits for the store");
            return self.keep_unwritten(records).await;
        }
        self.written.add(records.len() as u64);
        records
            .into_iter()
            .for_each(|record| self.pass_to_file(record));
    }

    /// The store has the record; now the file gets it.
    fn pass_to_file(&self, record: AuditRecord) {
        if self.file.is_none() {
            return;
        }
        // As many as waited for the store, and as many that did not.
        let most = 2 * self.rules.load().queue;
        let mut lines = self.for_file.lock();
        if lines.len() < most {
            lines.push(record);
        } else {
            self.dropped.inc();
        }
    }

    async fn keep_unwritten(&self, records: Vec<AuditRecord>) {
        let most = self.rules.load().queue;
        let mut writer = self.writer.lock().await;
        let room = most.saturating_sub(writer.unwritten.len());
        let lost = records.len().saturating_sub(room);
        self.dropped.add(lost as u64);
        writer.unwritten.extend(records.into_iter().take(room));
    }

    async fn flush(&self) {
        let mut writer = self.writer.lock().await;
        let rules = self.rules.load_full();
        let mut records = std::mem::take(&mut writer.unwritten);
        let noted = self.queue.take();
        records.extend(
            noted
                .into_iter()
                .map(|(event, span)| self.record(event, span)),
        );
        let mut failed = None;
        while !records.is_empty() {
            let rest = records.split_off(records.len().min(BATCH_MAX));
            if rules.store
                && let Err(error) = self.store.append_audit(records.clone()).await
            {
                failed = Some(error);
                records.extend(rest);
                break;
            }
            self.written.add(records.len() as u64);
            records
                .into_iter()
                .for_each(|record| self.pass_to_file(record));
            records = rest;
        }
        self.report(&mut writer, failed.as_ref());
        let lost = records.len().saturating_sub(rules.queue);
        self.dropped.add(lost as u64);
        writer.unwritten = records.split_off(lost);
        self.complain(&mut writer);
    }

    fn report(&self, writer: &mut Writer, failed: Option<&doorward_store::StoreError>) {
        if failed.is_some() {
            self.failures.inc();
        }
        if writer.healthy == failed.is_none() {
            return;
        }
        writer.healthy = failed.is_none();
        match failed {
            Some(error) => tracing::error!(%error, "audit records wait for the store"),
            None => tracing::info!("audit records are written again"),
        }
    }

    /// One line however many were lost since the last one.
    fn complain(&self, writer: &mut Writer) {
        let dropped = self.dropped.get();
        if dropped > writer.complained {
            let lost = dropped - writer.complained;
            tracing::error!(
                lost,
                "audit records were lost: more than audit.queue waited"
            );
            writer.complained = dropped;
        }
    }

    /// Gives the file what the store has; on a thread that may wait for a disk.
    async fn write_file(&self, mut writer: OwnedMutexGuard<FileWriter>) {
        let records = std::mem::take(&mut *self.for_file.lock());
        if records.is_empty() && !writer.file.is_behind() {
            return;
        }
        let most = self.rules.load().queue;
        let written = tokio::task::spawn_blocking(move || {
            let (lost, outcome) = writer.file.write(&records, most);
            (writer, lost, outcome)
        });
        let Ok((mut writer, lost, outcome)) = written.await else {
            return tracing::error!("audit.file is not written any more");
        };
        self.dropped.add(lost);
        if outcome.is_err() {
            self.failures.inc();
        }
        if writer.healthy == outcome.is_ok() {
            return;
        }
        writer.healthy = outcome.is_ok();
        match outcome {
            Ok(()) => tracing::info!("audit.file is written again"),
            Err(error) => tracing::error!(%error, "audit records wait for audit.file"),
        }
    }

    /// Removes records that are too old, some of them; says whether there may
    /// be more.
    async fn sweep(&self) -> bool {
        let days = i64::from(self.rules.load().retention_days);
        if days == 0 {
            return false;
        }
        let before_ms = self.clock.now_ms() - days * DAY_MS;
        match self.store.sweep_audit(before_ms, SWEEP_MAX).await {
            Ok(gone) => gone >= u64::from(SWEEP_MAX),
            Err(error) => {
                tracing::warn!(%error, "old audit records stay for now");
                false
            }
        }
    }
}

async fn run(weak: Weak<Log>) {
    let mut tick = 0_u32;
    let mut more = false;
    loop {
        // Its own: a log that is held here meanwhile would never end.
        let Some(many) = weak.upgrade().map(|log| Arc::clone(&log.many)) else {
            return;
        };
        // Either is a reason to write.
        let _ = tokio::time::timeout(FLUSH, many.notified()).await;
        let Some(log) = weak.upgrade() else { return };
        log.flush().await;
        // A write that is still under way is not waited for.
        let idle = log.file.clone().and_then(|file| file.try_lock_owned().ok());
        if let Some(writer) = idle {
            let log = Arc::clone(&log);
            tokio::spawn(async move { log.write_file(writer).await });
        }
        if tick.is_multiple_of(SWEEP_EVERY) || more {
            more = log.sweep().await;
        }
        tick = tick.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
