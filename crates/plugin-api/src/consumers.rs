//! Whom requests can come from, as plugins look them up.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};

use doorward_core::model::consumer::Consumer;

/// What a consumer is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its identifier.
    Id,
    /// Its name, exactly.
    Username,
    /// Its name, whatever its case; an exact one first.
    UsernameIgnoringCase,
    /// Its identifier elsewhere.
    CustomId,
}

/// A set of consumers.
pub trait Directory: Send + Sync {
    /// The consumer of this name or identifier.
    fn find(&self, by: By, value: &str) -> Option<Consumer>;
}

/// The consumers in force. The gateway publishes them; plugins look them up
/// for each request.
pub struct Consumers(ArcSwap<Published>);

struct Published {
    /// Differs from that of all consumers published before.
    generation: u64,
    directory: Box<dyn Directory>,
}

struct Nobody;

impl Directory for Nobody {
    fn find(&self, _: By, _: &str) -> Option<Consumer> {
        None
    }
}

impl Default for Consumers {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(Published {
            generation: 0,
            directory: Box::new(Nobody),
        }))
    }
}

impl Consumers {
    /// Puts `directory` in the place of the one in force. There is one
    /// publisher: calls must not overlap.
    pub fn publish(&self, directory: Box<dyn Directory>) {
        let generation = self.0.load().generation + 1;
        let published = Published {
            generation,
            directory,
        };
        self.0.store(Arc::new(published));
    }
}

/// A consumer that was looked up, until the consumers change.
#[derive(Debug, Default)]
pub struct ConsumerMemo(ArcSwapOption<Answer>);

#[derive(Debug)]
struct Answer {
    generation: u64,
    consumer: Option<Arc<Consumer>>,
}

impl ConsumerMemo {
    /// The consumer that `find` finds, which runs again only when the
    /// consumers have changed since.
    pub fn consumer(
        &self,
        consumers: &Consumers,
        find: impl FnOnce(&dyn Directory) -> Option<Consumer>,
    ) -> Option<Arc<Consumer>> {
        let published = consumers.0.load();
        let answer = self.0.load();
        if let Some(answer) = answer.as_ref()
            && answer.generation == published.generation
        {
            return answer.consumer.clone();
        }
        let consumer = find(&*published.directory).map(Arc::new);
        self.0.store(Some(Arc::new(Answer {
            generation: published.generation,
            consumer: consumer.clone(),
        })));
        consumer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct One(Consumer);

    impl Directory for One {
        fn find(&self, _: By, value: &str) -> Option<Consumer> {
            (self.0.username.as_deref() == Some(value)).then(|| self.0.clone())
        }
    }

    #[test]
    fn what_was_found_is_looked_up_again_only_after_a_change() {
        let consumers = Consumers::default();
        let remembered = ConsumerMemo::default();
        let find = |directory: &dyn Directory| directory.find(By::Username, "anna");
        assert_eq!(remembered.consumer(&consumers, find), None);
        let anna = json!({"id": uuid::Uuid::nil(), "username": "anna", "created_at": 0});
        let anna: Consumer = serde_json::from_value(anna).expect("a consumer");
        consumers.publish(Box::new(One(anna.clone())));
        let found = remembered.consumer(&consumers, find);
        assert_eq!(found.as_deref(), Some(&anna));
        let again = remembered.consumer(&consumers, |_| panic!("it is remembered"));
        assert_eq!(again.as_deref(), Some(&anna));
        consumers.publish(Box::new(Nobody));
        assert_eq!(remembered.consumer(&consumers, find), None);
    }
}
