//! From a token to the consumer whom it stands for.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::config::fields::{Fields, wrong};
use doorward_core::jose::claims::find;
use doorward_core::model::consumer::Consumer;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::consumers::{By, ConsumerMemo, Consumers, Directory};

/// How tokens name consumers.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Paths of claims; the first that leads to a consumer counts.
    claims: Vec<Vec<String>>,
    by: Vec<By>,
    /// Whether a token may pass that names none.
    pub(crate) optional: bool,
}

impl Mapping {
    /// `None`: tokens name no consumers.
    pub(crate) fn new(fields: Fields<'_>) -> Result<Option<Self>, ConfigError> {
        let mut claims = fields.paths("consumer_claims")?;
        claims.push(fields.texts("consumer_claim")?);
        claims.retain(|path| !path.is_empty());
        if claims.is_empty() {
            return Ok(None);
        }
        let ignores_case = fields.flag("by_username_ignore_case")?;
        let by = |name: &String| match name.as_str() {
            "id" => Ok(By::Id),
            "username" if ignores_case => Ok(By::UsernameIgnoringCase),
            "username" => Ok(By::Username),
            "custom_id" => Ok(By::CustomId),
            _ => Err(wrong("consumer_by", "expected id, username or custom_id")),
        };
        let mut by: Vec<By> = fields
            .texts("consumer_by")?
            .iter()
            .map(by)
            .collect::<Result<_, _>>()?;
        if by.is_empty() {
            by = vec![By::Username, By::CustomId];
        }
        Ok(Some(Self {
            claims,
            by,
            optional: fields.flag("consumer_optional")?,
        }))
    }

    /// The consumer that the claims of a verified token name.
    pub(crate) fn find(
        &self,
        claims: &Map<String, Value>,
        directory: &dyn Directory,
    ) -> Option<Consumer> {
        let values = self.claims.iter().filter_map(|path| named(claims, path));
        values
            .flat_map(|value| self.by.iter().map(move |by| (*by, value.clone())))
            .find_map(|(by, value)| directory.find(by, &value))
    }
}

/// A claim that can be a name: a text that is not empty, or a number.
fn named<'a>(claims: &'a Map<String, Value>, path: &[String]) -> Option<Cow<'a, str>> {
    match find(claims, path)? {
        Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// The consumer whom requests without a good token count as.
#[derive(Debug)]
pub(crate) struct Anonymous {
    name: String,
    remembered: ConsumerMemo,
    /// Whether there was none the last time: it is said once.
    missing: AtomicBool,
}

impl Anonymous {
    /// `None`: such requests are refused.
    pub(crate) fn new(fields: Fields<'_>) -> Result<Option<Self>, ConfigError> {
        let name = fields.text("anonymous")?.filter(|name| !name.is_empty());
        Ok(name.map(|name| Self {
            name: name.to_owned(),
            remembered: ConsumerMemo::default(),
            missing: AtomicBool::new(false),
        }))
    }

    /// The consumer; without one requests are refused, and the log says why.
    pub(crate) fn consumer(&self, consumers: &Consumers) -> Option<Arc<Consumer>> {
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
