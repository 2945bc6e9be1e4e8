//! The audit events of the broker's tokens.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderValue;
use uuid::Uuid;

use super::broker::Broker;
use super::fault::Fault;
use doorward_core::model::audit::{Actor, Detail, Event, Kind, PendingAudit, Trace};
use doorward_core::model::broker::TokenFacts;
use doorward_plugin_api::filter::Exchange;

/// The audit events of one request, and what is known of its sender.
pub(super) struct RequestAudit<'a> {
    broker: &'a Broker,
    proxy: &'a str,
    address: IpAddr,
    request_id: Option<HeaderValue>,
    /// The application, once it is known that there is one of this key.
    client_id: Option<String>,
    /// A refusal is known better than the client may.
    reason: Option<&'static str>,
}

impl<'a> RequestAudit<'a> {
    pub(super) fn of(broker: &'a Broker, proxy: &'a str, exchange: &Exchange) -> Self {
        Self {
            broker,
            proxy,
            address: exchange.client.ip(),
            request_id: exchange.transaction.clone(),
            client_id: None,
            reason: None,
        }
    }

    /// The request concerns the application of this key.
    pub(super) fn of_client(&mut self, client_id: &str) {
        self.client_id = Some(client_id.to_owned());
    }

    /// Why the request will be refused, as a code.
    pub(super) fn because(&mut self, reason: &'static str) {
        self.reason = Some(reason);
    }

    fn event(&self, kind: Kind, actor: Actor) -> Event {
        let mut event = Event::new(kind, actor).address(Some(self.address));
        if let Some(client_id) = &self.client_id {
            event = event.client(client_id);
        }
        event.with("proxy", self.proxy)
    }

    fn trace(&self) -> Trace {
        let id = self.request_id.as_ref().and_then(|id| id.to_str().ok());
        Trace {
            request_id: id.map(str::to_owned),
            tracking_id: None,
        }
    }

    /// The application itself, if it is known.
    fn client(&self) -> Actor {
        match &self.client_id {
            Some(client_id) => Actor::Client(client_id.clone()),
            None => Actor::Anonymous,
        }
    }

    /// That tokens are issued to the application: for the record that goes into
    /// the store with them.
    pub(super) fn issue(&self, about: &TokenFacts, user: Option<Uuid>) -> Event {
        let event = self.event(Kind::TokenIssue, self.client());
        let scopes = about.scopes.iter().map(String::as_str);
        let event = event
            .with("grant_type", about.grant_type.as_str())
            .with("scope", scopes.collect::<Detail>());
        // Somebody was let in by this name: it is no password that slipped.
        match user {
            _ if about.end_user.is_empty() => event,
            Some(id) => event.user(id, &about.end_user),
            None => event.with("end_user", about.end_user.as_str()),
        }
    }

    /// That the application, or whoever held it, ended a token.
    pub(super) fn revoke(&self, kind: Kind, cause: &'static str) -> Event {
        self.event(kind, Actor::Anonymous).with("cause", cause)
    }

    /// Does `act`, a write to the store, together with the record of `event`, which it
    /// gets for the write.
    ///
    /// # Errors
    /// Those of `act`.
    pub(super) async fn with<T, E>(
        &self,
        event: Event,
        act: impl AsyncFnOnce(Option<&PendingAudit>) -> Result<T, E>,
        did: impl FnOnce(&T) -> bool,
    ) -> Result<T, E> {
        let now_ms = self.broker.now_ms();
        let told = (event, self.trace());
        self.broker.audit().with(told, now_ms, act, did).await
    }

    /// Notes what leaves nothing in the store.
    pub(super) fn note(&self, event: Event) {
        let now_ms = self.broker.now_ms();
        self.broker.audit().note(event, self.trace(), now_ms);
    }

    /// Notes that this is refused.
    pub(super) fn refuse(&self, kind: Kind, fault: &Fault) {
        let reason = self.reason.unwrap_or(fault.label);
        let event = self.event(kind, Actor::Anonymous);
        self.note(event.failed(Cow::Borrowed(reason)));
    }
}
