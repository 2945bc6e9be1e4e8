//! Whom requests can come from, as plugins look them up.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use uuid::Uuid;

use doorward_core::model::consumer::Consumer;

/// A consumer as requests carry it: with its groups, and with what upstreams are
/// told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    consumer: Consumer,
    groups: Box<[Box<str>]>,
    consumer_groups: Box<[Uuid]>,
    pub(crate) headers: CallerHeaders,
}

/// The values of headers about a consumer; what can't be said in one is missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallerHeaders {
    pub(crate) id: Option<HeaderValue>,
    pub(crate) custom_id: Option<HeaderValue>,
    pub(crate) username: Option<HeaderValue>,
    pub(crate) groups: Option<HeaderValue>,
}

impl Caller {
    /// A consumer that belongs to these groups.
    pub fn new(consumer: Consumer, groups: Vec<Box<str>>) -> Self {
        let of = |text: &Option<String>| text.as_deref().and_then(header_value);
        let headers = CallerHeaders {
            id: header_value(&consumer.id.to_string()),
            custom_id: of(&consumer.custom_id),
            username: of(&consumer.username),
            groups: Some(&groups)
                .filter(|groups| !groups.is_empty())
                .and_then(|groups| header_value(&groups.join(", "))),
        };
        Self {
            consumer,
            groups: groups.into(),
            consumer_groups: Box::default(),
            headers,
        }
    }

    /// The same in these consumer groups, those first whose plugins come first.
    pub fn in_consumer_groups(self, consumer_groups: Vec<Uuid>) -> Self {
        let consumer_groups = consumer_groups.into();
        Self {
            consumer_groups,
            ..self
        }
    }

    /// The consumer groups that it belongs to, those first whose plugins come first.
    pub fn consumer_groups(&self) -> &[Uuid] {
        &self.consumer_groups
    }

    /// The groups that its records name.
    pub fn groups(&self) -> &[Box<str>] {
        &self.groups
    }

    /// The same as a header.
    pub fn groups_header(&self) -> Option<&HeaderValue> {
        self.headers.groups.as_ref()
    }
}

impl Deref for Caller {
    type Target = Consumer;

    fn deref(&self) -> &Consumer {
        &self.consumer
    }
}

/// Of no groups.
impl From<Consumer> for Caller {
    fn from(consumer: Consumer) -> Self {
        Self::new(consumer, Vec::new())
    }
}

/// A text as a header's value. `None` for what would break the header (control
/// characters), and for nothing.
pub fn header_value(text: &str) -> Option<HeaderValue> {
    let value = HeaderValue::from_bytes(text.trim().as_bytes());
    value.ok().filter(|value| !value.is_empty())
}

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
    fn find(&self, by: By, value: &str) -> Option<Caller>;
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
    fn find(&self, _: By, _: &str) -> Option<Caller> {
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

    /// The consumer of this name or identifier.
    pub fn find(&self, by: By, value: &str) -> Option<Caller> {
        self.0.load().directory.find(by, value)
    }
}

/// A consumer that was looked up, until the consumers change.
#[derive(Debug, Default)]
pub struct ConsumerMemo(ArcSwapOption<Answer>);

#[derive(Debug)]
struct Answer {
    generation: u64,
    consumer: Option<Arc<Caller>>,
}

impl ConsumerMemo {
    /// The consumer that `find` finds, which runs again only when the
    /// consumers have changed since.
    pub fn consumer(
        &self,
        consumers: &Consumers,
        find: impl FnOnce(&dyn Directory) -> Option<Caller>,
    ) -> Option<Arc<Caller>> {
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

/// The consumer whom requests without a good credential count as.
#[derive(Debug)]
pub struct Anonymous {
    name: String,
    remembered: ConsumerMemo,
    /// Whether there was none the last time: it is said once.
    missing: AtomicBool,
}

impl Anonymous {
    /// The consumer with this id or username; `None` without one: such requests
    /// are refused.
    pub fn new(name: Option<&str>) -> Option<Self> {
        let name = name.filter(|name| !name.is_empty())?;
        Some(Self {
            name: name.to_owned(),
            remembered: ConsumerMemo::default(),
            missing: AtomicBool::new(false),
        })
    }

    /// The consumer; without one requests are refused, and the log says why.
    pub fn consumer(&self, consumers: &Consumers) -> Option<Arc<Caller>> {
        let found = self.remembered.consumer(consumers, |directory| {
            let by_id = self.name.parse::<Uuid>().ok();
            let by_id = by_id.and_then(|_| directory.find(By::Id, &self.name));
            by_id.or_else(|| directory.find(By::Username, &self.name))
        });
        // Consumers come and go while the plugin runs, so it can't be said earlier.
        let missing = found.is_none();
        // Read first: a shared write with every request would be a cost.
        if self.missing.load(Ordering::Relaxed) != missing
            && self.missing.swap(missing, Ordering::Relaxed) != missing
            && missing
        {
            let anonymous = self.name.as_str();
            tracing::warn!(
                anonymous,
                "there is no such consumer: nobody is let in as it"
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct One(Consumer);

    impl Directory for One {
        fn find(&self, _: By, value: &str) -> Option<Caller> {
            let named = self.0.username.as_deref() == Some(value);
            named.then(|| self.0.clone().into())
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
        let anna = Caller::from(anna);
        assert_eq!(found.as_deref(), Some(&anna));
        let again = remembered.consumer(&consumers, |_| panic!("it is remembered"));
        assert_eq!(again.as_deref(), Some(&anna));
        consumers.publish(Box::new(Nobody));
        assert_eq!(remembered.consumer(&consumers, find), None);
    }
}
