#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Map, Value, json};

use super::*;
use crate::testing::parts;
use doorward_core::model::schema::{Field, Schema, Source};

/// Notes batches, after it has failed so many times.
#[derive(Clone, Default)]
struct Notes {
    failures: Arc<AtomicUsize>,
    batches: Arc<Mutex<Vec<Vec<String>>>>,
    /// Nothing is sent before this is open.
    gate: Arc<tokio::sync::Mutex<()>>,
}

#[async_trait]
impl Sender for Notes {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let _open = self.gate.lock().await;
        let left = self.failures.load(Ordering::SeqCst);
        if left > 0 {
            self.failures.store(left - 1, Ordering::SeqCst);
            return Err("not now".to_owned());
        }
        let texts = batch
            .iter()
            .map(|entry| String::from_utf8(entry.clone()).unwrap());
        self.batches.lock().push(texts.collect());
        Ok(())
    }
}

fn limits(queue: Value) -> Limits {
    let schema = Schema::new(vec![queue_field()]);
    let config = json!({ "queue": queue }).as_object().unwrap().clone();
    let config = schema.read(config, Source::Json).unwrap();
    let config = schema.complete(config).unwrap();
    read(&config)
}

fn queue_field() -> Field {
    Field::new("queue", queue_type(1)).required()
}

/// The limits of a `config` with these fields.
fn read(config: &Map<String, Value>) -> Limits {
    let queue = QueueConfig::read(config["queue"].as_object().unwrap()).unwrap();
    queue.limits(OlderQueueConfig::read(config).unwrap().older())
}

fn queue(parts: &Parts, limits: Limits, sender: Notes) -> Queue {
    Queue::new("http-log", parts, limits, sender)
}

fn count(parts: &Parts, outcome: &'static str) -> u64 {
    parts.metrics.deliveries("http-log", outcome).get()
}

async fn flush(parts: &Parts) {
    let deliveries = parts.slots.get_or_default::<Deliveries>();
    assert!(deliveries.flush(Duration::from_secs(60)).await);
    assert_eq!(parts.metrics.deliveries_waiting("http-log").get(), 0);
}

#[test]
fn the_defaults_are_those_of_the_imitated_gateway() {
    let defaults = limits(json!({}));
    assert_eq!(
        (defaults.batch, defaults.entries, defaults.tasks),
        (1, 10_000, 1)
    );
    assert_eq!(defaults.coalescing, Duration::from_secs(1));
    assert_eq!(defaults.retry_time, Some(Duration::from_secs(60)));
    assert_eq!(defaults.first_pause, Duration::from_millis(10));
    assert_eq!(defaults.longest_pause, Duration::from_secs(60));
    assert_eq!(limits(json!({"max_retry_time": -1})).retry_time, None);
    let parallel = limits(json!({"concurrency_limit": -1, "max_batch_size": 9}));
    assert_eq!((parallel.batch, parallel.tasks), (1, TASKS_OF_PARALLEL));
}

const TASKS_OF_PARALLEL: usize = 64;

#[test]
fn bounds_are_those_of_the_imitated_gateway() {
    let schema = Schema::new(vec![queue_field()]);
    let refused = |queue: Value| {
        let config = json!({ "queue": queue }).as_object().unwrap().clone();
        schema.complete(config).unwrap_err().message()
    };
    for (field, value, words) in [
        (
            "max_batch_size",
            json!(0),
            "value should be between 1 and 1000000",
        ),
        (
            "max_coalescing_delay",
            json!(3601),
            "value should be between 0 and 3600",
        ),
        (
            "max_entries",
            json!(1_000_001),
            "value should be between 1 and 1000000",
        ),
        (
            "initial_retry_delay",
            json!(0),
            "value should be between 0.001 and 1000000",
        ),
        (
            "max_retry_delay",
            json!(1e7),
            "value should be between 0.001 and 1000000",
        ),
        ("concurrency_limit", json!(2), "expected one of: -1, 1"),
    ] {
        let message = refused(json!({ field: value }));
        assert!(message.contains(words), "{field}: {message}");
    }
}

#[test]
fn older_fields_count_where_they_say_something_else_than_they_did_by_default() {
    let read = |config: Value| {
        let limits = super::tests::read(config.as_object().unwrap());
        (limits.batch, limits.coalescing.as_secs())
    };
    let record = json!({"max_batch_size": 7, "max_coalescing_delay": 5});
    assert_eq!(
        read(json!({"queue": record, "queue_size": 1, "flush_timeout": 2})),
        (7, 5)
    );
    assert_eq!(
        read(json!({"queue": record, "queue_size": 3, "flush_timeout": 9})),
        (3, 9)
    );
}

#[tokio::test]
async fn what_comes_together_is_sent_together_and_in_its_order() {
    let (parts, notes) = (parts(), Notes::default());
    let limits = limits(json!({"max_batch_size": 3, "max_coalescing_delay": 3600}));
    let queue = queue(&parts, limits, notes.clone());
    for entry in ["a", "b", "c", "d"] {
        queue.push(entry.into());
    }
    // The rest does not wait for its hour: the filter is gone.
    drop(queue);
    flush(&parts).await;
    assert_eq!(notes.batches.lock().concat(), ["a", "b", "c", "d"]);
    assert!(notes.batches.lock().iter().all(|batch| batch.len() <= 3));
    assert_eq!(count(&parts, "delivered"), 4);
}

#[tokio::test]
async fn a_batch_is_sent_again_until_it_arrives() {
    let (parts, notes) = (parts(), Notes::default());
    notes.failures.store(3, Ordering::SeqCst);
    let queue = queue(
        &parts,
        limits(json!({"initial_retry_delay": 0.001})),
        notes.clone(),
    );
    queue.push("a".into());
    flush(&parts).await;
    assert_eq!(notes.batches.lock().concat(), ["a"]);
    assert_eq!(
        (count(&parts, "delivered"), count(&parts, "failed")),
        (1, 0)
    );
}

#[tokio::test]
async fn a_batch_that_is_tried_once_is_lost_and_counted() {
    let (parts, notes) = (parts(), Notes::default());
    notes.failures.store(1, Ordering::SeqCst);
    let queue = queue(&parts, limits(json!({"max_retry_time": -1})), notes.clone());
    queue.push("a".into());
    queue.push("b".into());
    flush(&parts).await;
    assert_eq!(notes.batches.lock().concat(), ["b"]);
    assert_eq!(
        (count(&parts, "delivered"), count(&parts, "failed")),
        (1, 1)
    );
}

#[tokio::test]
async fn a_full_queue_drops_its_oldest_entries_and_counts_them() {
    let (parts, notes) = (parts(), Notes::default());
    let closed = notes.gate.clone().lock_owned().await;
    let queue = queue(&parts, limits(json!({"max_entries": 2})), notes.clone());
    for entry in ["1", "2", "3", "4", "5", "6"] {
        queue.push(entry.into());
    }
    drop(closed);
    flush(&parts).await;
    let sent = notes.batches.lock().concat();
    assert!(
        sent.ends_with(&["5".to_owned(), "6".to_owned()]),
        "{sent:?}"
    );
    assert!(
        sent.len() <= 3,
        "two in the queue, and perhaps one on its way"
    );
    assert_eq!(count(&parts, "dropped") + count(&parts, "delivered"), 6);
}

#[tokio::test]
async fn bytes_are_bounded_and_what_is_longer_is_refused() {
    let (parts, notes) = (parts(), Notes::default());
    let closed = notes.gate.clone().lock_owned().await;
    let queue = queue(&parts, limits(json!({"max_bytes": 4})), notes.clone());
    queue.push("12345".into());
    assert_eq!(count(&parts, "dropped"), 1);
    for entry in ["aaa", "bbb", "ccc"] {
        queue.push(entry.into());
    }
    drop(closed);
    flush(&parts).await;
    assert_eq!(notes.batches.lock().concat().last().unwrap(), "ccc");
    assert!(count(&parts, "dropped") >= 2);
}

#[tokio::test]
async fn a_flush_ends_in_time_though_nothing_arrives() {
    let (parts, notes) = (parts(), Notes::default());
    notes.failures.store(usize::MAX, Ordering::SeqCst);
    let queue = queue(&parts, limits(json!({})), notes);
    queue.push("a".into());
    let deliveries = parts.slots.get_or_default::<Deliveries>();
    assert!(!deliveries.flush(Duration::from_millis(50)).await);
}

/// Fails once in a way that nobody foresees.
struct Panics(AtomicUsize);

#[async_trait]
impl Sender for Panics {
    async fn send(&self, _: &[Vec<u8>]) -> Result<(), String> {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
        Ok(())
    }
}

#[tokio::test]
async fn a_sender_that_panics_costs_its_batch_alone() {
    let parts = parts();
    let sender = Panics(AtomicUsize::new(0));
    let queue = Queue::new("http-log", &parts, limits(json!({})), sender);
    queue.push("a".into());
    flush(&parts).await;
    queue.push("b".into());
    flush(&parts).await;
    assert_eq!(
        (count(&parts, "delivered"), count(&parts, "failed")),
        (1, 1)
    );
}
