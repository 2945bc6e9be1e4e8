//! Consumers and their credentials, for tests.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Credentials, Directory, Entry};
use crate::testing::{plugin_with, session};
use doorward_core::model::consumer::Consumer;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::consumers::{By, Caller, Directory as Consumers};
use doorward_plugin_api::filter::{Exchange, Filter};
use doorward_plugin_api::identity::Credential;
use doorward_plugin_api::testing::{decide, parts};
use doorward_plugin_api::{Kind, Parts};

/// The consumer of this name.
pub(crate) fn caller(name: &str, groups: &[&str]) -> Arc<Caller> {
    let consumer = json!({"id": Uuid::nil(), "username": name, "created_at": 0});
    let consumer: Consumer = serde_json::from_value(consumer).expect("a consumer");
    let groups = groups.iter().map(|group| (*group).into());
    Arc::new(Caller::new(consumer, groups.collect()))
}

/// A credential of anna's.
pub(crate) fn entry<M>(material: M) -> Entry<M> {
    Entry {
        credential: Arc::new(Credential::new(Uuid::from_u128(7), "seven")),
        caller: caller("anna", &[]),
        expires_at: None,
        material,
    }
}

struct Nobody;

impl Consumers for Nobody {
    fn find(&self, _: By, value: &str) -> Option<Caller> {
        (value == "nobody").then(|| Caller::clone(&caller("nobody", &[])))
    }
}

/// Parts with these credentials, and with the consumer `nobody`.
pub(crate) fn parts_with(fill: impl FnOnce(&mut Directory)) -> Parts {
    let parts = parts();
    let mut directory = Directory::default();
    fill(&mut directory);
    parts
        .slots
        .get_or_default::<Credentials>()
        .publish(directory);
    parts.consumers.publish(Box::new(Nobody));
    parts
}

/// What became of a request.
pub(crate) struct Outcome {
    pub(crate) reply: Option<Reply>,
    pub(crate) exchange: Exchange,
    /// The head as it goes on.
    pub(crate) head: pingora::http::RequestHeader,
}

impl Outcome {
    /// Whom the request counts as.
    pub(crate) fn consumer(&self) -> Option<&str> {
        self.exchange.consumer.as_ref()?.username.as_deref()
    }

    /// The message of a refusal, whatever its form.
    pub(crate) fn message(&self) -> Option<String> {
        match &self.reply.as_ref()?.body {
            ReplyBody::Message(text) => Some(text.to_string()),
            ReplyBody::Own(body) => Some(String::from_utf8_lossy(body).into_owned()),
            _ => None,
        }
    }

    /// The challenge of a refusal.
    pub(crate) fn challenge(&self) -> Option<&str> {
        let headers = &self.reply.as_ref()?.headers;
        let (_, value) = headers
            .iter()
            .find(|(name, _)| name == "www-authenticate")?;
        value.to_str().ok()
    }
}

/// The filter of a kind with this `config`.
pub(crate) fn filter(kind: &Kind, config: &Value, parts: &Parts) -> Arc<dyn Filter> {
    plugin_with(kind, config, parts).expect("a filter")
}

/// Sends a request (its lines, without the last one) through a filter.
pub(crate) async fn ask(filter: &dyn Filter, lines: &str) -> Outcome {
    ask_as(filter, lines, Exchange::default()).await
}

/// The same where something is known already.
pub(crate) async fn ask_as(filter: &dyn Filter, lines: &str, mut exchange: Exchange) -> Outcome {
    let request = format!("{}\r\nHost: a.test\r\n\r\n", lines.trim_end());
    let (mut session, _client) = session(&request).await;
    let reply = decide(filter, &mut session, &mut exchange).await;
    Outcome {
        reply,
        exchange,
        head: session.req_header().clone(),
    }
}
