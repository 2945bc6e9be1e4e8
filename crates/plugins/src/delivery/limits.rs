//! The `queue` record of plugins that deliver, and the older fields beside it.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::settings::with_default;
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_plugin_api::config;
use doorward_plugin_api::config::read_for_check;

/// Most bytes that wait in a queue without `max_bytes`.
const BYTES: usize = 64 << 20;
/// Tasks of a queue whose entries are sent at once.
const TASKS: usize = 64;
/// Longest pause that is kept, whatever the record says: a day.
const LONGEST: f64 = 86_400.0;

/// What a queue holds, and how it is emptied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Most entries that are sent together.
    pub(crate) batch: usize,
    /// How long an entry waits for others.
    pub(crate) coalescing: Duration,
    /// Most entries that wait.
    pub(crate) entries: usize,
    /// Most bytes that wait.
    pub(crate) bytes: usize,
    /// How long a batch is tried; `None`: once.
    pub(crate) retry_time: Option<Duration>,
    /// The first pause between two tries; each is twice the one before.
    pub(crate) first_pause: Duration,
    /// The longest pause.
    pub(crate) longest_pause: Duration,
    /// Batches that are sent at the same time.
    pub(crate) tasks: usize,
}

config! {
    /// The record `queue`.
    #[derive(Debug)]
    pub(crate) struct QueueConfig {
        /// Most entries that are sent together. An older field of this meaning counts first.
        #[field(kind(Type::Integer(1, 1_000_000)))]
        max_batch_size: Option<u32>,
        /// Seconds for which an entry waits for others.
        #[field(kind(Type::Between(0, 3600)), default(1))]
        max_coalescing_delay: Option<f64>,
        /// Most entries that wait. A full queue drops its oldest entries.
        #[field(kind(Type::Integer(1, 1_000_000)), default(10_000))]
        max_entries: Option<u32>,
        /// Most bytes that wait, and the longest entry. Null: 64 MiB, which is the most.
        max_bytes: Option<i64>,
        /// Seconds for which a batch is sent again and again. Below 0: it is sent once.
        #[field(default(60))]
        max_retry_time: Option<f64>,
        /// Seconds between the first two tries. The pause doubles with each further try.
        #[field(default(0.01))]
        initial_retry_delay: Option<f64>,
        /// Most seconds between two tries.
        #[field(default(60))]
        max_retry_delay: Option<f64>,
        /// 1: one batch at a time. -1: up to 64 entries at the same time, each by itself.
        #[field(kind(Type::Choice(&[-1, 1])), default(1))]
        concurrency_limit: Option<i64>,
    }
}

config! {
    /// The older fields of `http-log`, `statsd` and `datadog`.
    #[derive(Debug)]
    pub(crate) struct OlderQueueConfig {
        /// Has no effect: max_retry_time of the queue says how long a batch is tried.
        _retry_count as "retry_count": Option<i64>,
        /// Stands for max_batch_size of the queue, unless it is 1 or null.
        queue_size: Option<i64>,
        /// Stands for max_coalescing_delay of the queue, unless it is 2 or null.
        flush_timeout: Option<f64>,
    }
}

/// The type of the field `queue`, where a batch has so many entries by default.
pub(crate) fn queue_type(batch: u32) -> Type {
    let fields = with_default(QueueConfig::fields(), "max_batch_size", batch);
    Type::Record(Schema::new(fields).check(check_delays))
}

fn check_delays(record: &Map<String, Value>, violations: &mut Violations) {
    let Some(queue) = read_for_check::<QueueConfig>(record) else {
        return;
    };
    for (field, delay) in [
        ("initial_retry_delay", queue.initial_retry_delay),
        ("max_retry_delay", queue.max_retry_delay),
    ] {
        if delay.is_some_and(|delay| !(0.001..=1_000_000.0).contains(&delay)) {
            violations.put(field, "value should be between 0.001 and 1000000");
        }
    }
}

/// What older fields say in the place of those of the record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Older {
    batch: Option<f64>,
    coalescing: Option<f64>,
}

impl Older {
    /// Fields for the entries of a batch and for the wait for others, each with its
    /// former default. They count where they say something else.
    pub(crate) fn new(
        (batch, usual_batch): (Option<f64>, f64),
        (coalescing, usual_coalescing): (Option<f64>, f64),
    ) -> Self {
        let other = |value: Option<f64>, usual: f64| {
            value.filter(|value| (value - usual).abs() > f64::EPSILON)
        };
        Self {
            batch: other(batch, usual_batch),
            coalescing: other(coalescing, usual_coalescing),
        }
    }
}

impl OlderQueueConfig {
    /// What they say.
    pub(crate) fn older(&self) -> Older {
        #[expect(clippy::cast_precision_loss, reason = "beyond all bounds of a batch")]
        let batch = self.queue_size.map(|size| size as f64);
        Older::new((batch, 1.0), (self.flush_timeout, 2.0))
    }
}

impl QueueConfig {
    /// The limits of a queue, for which `older` counts first.
    pub(crate) fn limits(&self, older: Older) -> Limits {
        let seconds = |value: f64| Duration::from_secs_f64(value.clamp(0.0, LONGEST));
        let count = |value: f64| whole(value.clamp(1.0, 1_000_000.0));
        let batch = older.batch.or(self.max_batch_size.map(f64::from));
        let coalescing = older.coalescing.or(self.max_coalescing_delay);
        let retry_time = self.max_retry_time.unwrap_or(60.0);
        let is_parallel = self.concurrency_limit == Some(-1);
        Limits {
            batch: if is_parallel {
                1
            } else {
                count(batch.unwrap_or(1.0))
            },
            coalescing: seconds(coalescing.unwrap_or(1.0)),
            entries: count(self.max_entries.map_or(10_000.0, f64::from)),
            bytes: self.max_bytes.map_or(BYTES, |bytes| {
                usize::try_from(bytes).unwrap_or(0).min(BYTES)
            }),
            retry_time: (retry_time >= 0.0).then(|| seconds(retry_time)),
            first_pause: seconds(self.initial_retry_delay.unwrap_or(0.01)),
            longest_pause: seconds(self.max_retry_delay.unwrap_or(60.0)),
            tasks: if is_parallel { TASKS } else { 1 },
        }
    }
}

impl Limits {
    /// For a sender that takes what is there, and does not try again.
    pub(crate) fn streaming(batch: usize) -> Self {
        Self {
            batch,
            coalescing: Duration::ZERO,
            entries: 10_000,
            bytes: BYTES,
            retry_time: None,
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_secs(60),
            tasks: 1,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 1 and a million"
)]
fn whole(value: f64) -> usize {
    value as usize
}
