//! The `queue` record of plugins that deliver, and the older fields beside it.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::settings::Settings;
use doorward_core::model::schema::{Field, Schema, Type, Violations};

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

/// The field `queue`, where a batch has so many entries by default.
pub(crate) fn queue_field(batch: i64) -> Field {
    let number = |name, default: f64| Field::new(name, Type::Number).default(default);
    let record = Schema::new(vec![
        Field::new("max_batch_size", Type::Integer(1, 1_000_000)).default(batch),
        Field::new("max_coalescing_delay", Type::Between(0, 3600)).default(1),
        Field::new("max_entries", Type::Integer(1, 1_000_000)).default(10_000),
        Field::new("max_bytes", Type::Integer(i64::MIN, i64::MAX)),
        Field::new("max_retry_time", Type::Number).default(60),
        number("initial_retry_delay", 0.01),
        Field::new("max_retry_delay", Type::Number).default(60),
        Field::new("concurrency_limit", Type::Choice(&[-1, 1])).default(1),
    ]);
    let record = record.check(check_delays);
    Field::new("queue", Type::Record(record)).required()
}

fn check_delays(record: &Map<String, Value>, violations: &mut Violations) {
    for field in ["initial_retry_delay", "max_retry_delay"] {
        let delay = Settings(record).number(field);
        if delay.is_some_and(|delay| !(0.001..=1_000_000.0).contains(&delay)) {
            violations.put(field, "value should be between 0.001 and 1000000");
        }
    }
}

/// Names and former defaults of older fields, and the fields of the record that
/// they stand for.
pub(crate) struct Legacy(&'static [(&'static str, f64, &'static str)]);

/// Those of `http-log`, `statsd` and `datadog`.
pub(crate) const LEGACY: Legacy = Legacy(&[
    ("queue_size", 1.0, "max_batch_size"),
    ("flush_timeout", 2.0, "max_coalescing_delay"),
]);

/// Those of `opentelemetry`.
pub(crate) const LEGACY_SPANS: Legacy = Legacy(&[
    ("batch_span_count", 200.0, "max_batch_size"),
    ("batch_flush_delay", 3.0, "max_coalescing_delay"),
]);

/// No older fields.
pub(crate) const NO_LEGACY: Legacy = Legacy(&[]);

/// The older fields of `http-log`, `statsd` and `datadog`.
pub(crate) fn legacy_fields() -> [Field; 3] {
    [
        Field::new("retry_count", Type::Integer(i64::MIN, i64::MAX)),
        Field::new("queue_size", Type::Integer(i64::MIN, i64::MAX)),
        Field::new("flush_timeout", Type::Number),
    ]
}

impl Limits {
    /// The limits of a complete `config`. Older fields count where they are set and
    /// say something else than they did by default.
    pub(crate) fn read(config: Settings<'_>, legacy: &Legacy) -> Self {
        let record = config.record("queue");
        let number = |field: &str, default: f64| {
            let old = legacy.0.iter().find(|(_, _, name)| *name == field);
            let old = old.and_then(|(old, usual, _)| {
                let value = config.number(old)?;
                ((value - usual).abs() > f64::EPSILON).then_some(value)
            });
            old.or_else(|| record.number(field)).unwrap_or(default)
        };
        let seconds = |value: f64| Duration::from_secs_f64(value.clamp(0.0, LONGEST));
        let count = |value: f64| whole(value.clamp(1.0, 1_000_000.0));
        let retry_time = number("max_retry_time", 60.0);
        let max_bytes = record.integer("max_bytes");
        let is_parallel = record.integer("concurrency_limit") == Some(-1);
        Self {
            batch: if is_parallel {
                1
            } else {
                count(number("max_batch_size", 1.0))
            },
            coalescing: seconds(number("max_coalescing_delay", 1.0)),
            entries: count(number("max_entries", 10_000.0)),
            bytes: max_bytes.map_or(BYTES, |bytes| {
                usize::try_from(bytes).unwrap_or(0).min(BYTES)
            }),
            retry_time: (retry_time >= 0.0).then(|| seconds(retry_time)),
            first_pause: seconds(number("initial_retry_delay", 0.01)),
            longest_pause: seconds(number("max_retry_delay", 60.0)),
            tasks: if is_parallel { TASKS } else { 1 },
        }
    }

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
