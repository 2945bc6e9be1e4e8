//! The `session` plugin: a browser that has proved who it is once need not again.
//!
//! A sealed cookie holds consumer and credential, or a handle of what the store has of
//! them. Whoever has lost its consumer has no session any more. Plugins that authenticate
//! have to have `anonymous`, or else they want their credential all the same.

mod answer;
mod config;
mod cookies;
mod state;
mod storage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use http::header::SET_COOKIE;
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::settings::UNEXPECTED;
use config::{Config, CookieKind, Items};
use cookies::{NeedsStore, Presented, Unavailable, presented};
use doorward_core::clock::Clock;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::{Session as Request, is_interim};
use doorward_net::session::cookie::Style;
use doorward_net::session::headers::SessionFacts;
use doorward_net::telemetry::Counter;
use doorward_openid_connect::Providers;
use doorward_plugin_api::consumers::{By, Consumers};
use doorward_plugin_api::filter::{
    Code, Exchange, Filter, FilterExplanation, Flow, ResponseFlow, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts, identity};
use state::SessionState;
pub use storage::{ISSUER, SessionStore};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "session",
    priority: 1900,
    of_consumers: false,
    schema: config::schema,
    codes: || vec![LOGOUT, UNAVAILABLE],
    build,
};

const LOGOUT: Code = Code::new("logout", 200, "the session is over, as the request asks");

const UNAVAILABLE: Code = Code::new(
    "session_store_unavailable",
    500,
    "the store does not answer, and the session is not ended",
);

/// A running filter.
struct SessionPlugin {
    config: Config,
    clock: Clock,
    consumers: Arc<Consumers>,
    /// Where sessions are that do not travel in cookies.
    store: Option<Arc<SessionStore>>,
    passed: Counter,
    ended: Counter,
    begun: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    let config = Config::read(config, Providers::of(parts).secret())?;
    Ok(Arc::new(SessionPlugin {
        store: parts.slots.get().filter(|_| config.is_stored),
        config,
        clock: parts.clock.clone(),
        consumers: Arc::clone(&parts.consumers),
        passed: decision("pass"),
        ended: decision("logout"),
        begun: decision("login"),
    }))
}

impl SessionPlugin {
    /// Makes the request one of the session's consumer, if there still is one.
    fn enter(&self, state: &SessionState, exchange: &mut Exchange) -> bool {
        let id = state.consumer.to_string();
        let Some(caller) = self.consumers.find(By::Id, &id) else {
            return false;
        };
        let credential = state.credential;
        let credential = identity::Credential::new(credential, &credential.to_string());
        exchange.consumer = Some(Arc::new(caller));
        exchange.credential = Some(Arc::new(credential));
        exchange.authenticated_groups.clone_from(&state.groups);
        true
    }

    fn styles(&self) -> impl Iterator<Item = &Style> {
        self.kinds().map(|kind| &kind.style)
    }

    fn is_logout(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        if !self.config.logout_methods.contains(&request.method) {
            return false;
        }
        let has = |form: &[u8], name: &str| {
            let mut pairs = form_urlencoded::parse(form);
            pairs.any(|(key, _)| key == name)
        };
        let query = request.uri.query().unwrap_or_default();
        let body = exchange.body.as_deref().unwrap_or_default();
        has(query.as_bytes(), &self.config.logout_query)
            || (self.config.reads_body && has(body, &self.config.logout_body))
    }

    /// What is told of a session.
    fn told<'a>(
        &self,
        items: &'a Items,
        kind: &CookieKind,
        state: &SessionState,
    ) -> impl Iterator<Item = (&'a HeaderName, HeaderValue)> {
        let subject = (!items.is_empty()).then(|| state.consumer.to_string());
        let facts = SessionFacts {
            id: state.id.as_deref(),
            audience: &self.config.audience,
            subject: subject.as_deref(),
            started_ms: state.started_ms,
            renewed_ms: state.renewed_ms,
            timers: kind.timers,
        };
        let now_ms = self.clock.now_ms();
        let told = items.iter().filter_map(|(name, item)| {
            let value = HeaderValue::try_from(item.text(&facts, now_ms)?).ok()?;
            Some((name, value))
        });
        told.collect::<Vec<_>>().into_iter()
    }

    /// What becomes of a request with these cookies.
    fn admit(&self, presented: Presented, exchange: &mut Exchange) {
        let state = presented.state();
        let entered = state.filter(|state| self.enter(state, exchange));
        let kind = match &self.config.remember {
            Some(kind) if presented.is_remembered() => kind,
            _ => &self.config.session,
        };
        exchange.notes.push(Box::new(if let Some(state) = entered {
            self.passed.inc();
            for (name, value) in self.told(&self.config.request_headers, kind, state) {
                exchange.vouched.push((name.clone(), value));
            }
            presented
        } else {
            Presented::default()
        }));
    }

    /// The answer to who signs out.
    fn sign_out(&self, request: &RequestHeader, exchange: &mut Exchange) -> Flow {
        self.ended.inc();
        exchange.refusal = Some(LOGOUT.code.into());
        let mut reply = Reply::empty(StatusCode::OK);
        for cookie in self.forget(request, exchange) {
            reply.headers.push((SET_COOKIE, cookie));
        }
        Flow::Respond(reply)
    }

    /// Ends sessions that the store has. Whether it has done so.
    async fn end_stored(&self, presented: &Presented) -> bool {
        let Some(store) = &self.store else {
            return true;
        };
        let mut ended = true;
        for held in presented.both() {
            let (Some(handle), Some(id)) = (&held.handle, &held.state.id) else {
                continue;
            };
            if let Err(error) = store.end(handle.key(), id, self.clock.now_ms()).await {
                tracing::warn!(%error, "a session is not ended");
                ended = false;
            }
        }
        ended
    }
}

/// The answer to who signs out of a session that may go on.
fn unavailable(exchange: &mut Exchange) -> Flow {
    exchange.refusal = Some(UNAVAILABLE.code.into());
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Flow::Respond(Reply::message(status, UNEXPECTED))
}

/// Whether the answer to a request says that its session is over.
fn is_logout_answer(exchange: &Exchange) -> bool {
    exchange.refusal.as_deref() == Some(LOGOUT.code)
}

#[async_trait]
impl Filter for SessionPlugin {
    fn on_request(&self, session: &mut Request, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        let presented = match self.present(request, &[]) {
            Ok(Some(presented)) => presented,
            Ok(None) => return Verdict::Now(Flow::Continue),
            Err(NeedsStore) => return Verdict::Wait,
        };
        if presented.state().is_some() && self.is_logout(request, exchange) {
            if self.config.is_stored {
                return Verdict::Wait;
            }
            return Verdict::Now(self.sign_out(request, exchange));
        }
        self.admit(presented, exchange);
        Verdict::Now(Flow::Continue)
    }

    async fn on_request_slow(&self, session: &mut Request, exchange: &mut Exchange) -> Flow {
        let request = session.req_header();
        let presented = match self.present_stored(request).await {
            Ok(Some(presented)) => presented,
            Ok(None) => return Flow::Continue,
            // There may be a session, which goes on.
            Err(Unavailable) if self.is_logout(request, exchange) => {
                return unavailable(exchange);
            }
            // A session that can't be read is none, and its cookie stays.
            Err(Unavailable) => return Flow::Continue,
        };
        if presented.state().is_some() && self.is_logout(request, exchange) {
            if self.end_stored(&presented).await {
                return self.sign_out(request, exchange);
            }
            return unavailable(exchange);
        }
        self.admit(presented, exchange);
        Flow::Continue
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        let presented = self.present_stored(request).await.unwrap_or_default();
        let presented = presented.unwrap_or_default();
        Some(match presented.state().cloned() {
            None => FilterExplanation::passes("the request has no session"),
            Some(_) if self.is_logout(request, exchange) => FilterExplanation::answers(&LOGOUT),
            Some(state) if self.enter(&state, exchange) => {
                FilterExplanation::passes("by its session")
            }
            Some(_) => FilterExplanation::passes("the consumer of the session is gone"),
        })
    }

    fn needs_body(&self) -> bool {
        self.config.reads_body
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        identity::write(exchange, request);
        // Another credential may have been asked for since.
        let caller = exchange.consumer.as_ref().zip(exchange.credential.as_ref());
        let state = presented(exchange).and_then(Presented::state);
        let is_own = caller
            .zip(state)
            .is_some_and(|((consumer, credential), state)| {
                state.matches(consumer.id, credential.id)
            });
        if !is_own {
            return;
        }
        for (name, value) in &exchange.vouched {
            if self
                .config
                .request_headers
                .iter()
                .any(|(own, _)| own == name)
            {
                request.fields().insert(name.clone(), value.clone());
            }
        }
    }

    fn sees_responses(&self) -> bool {
        self.config.is_stored
    }

    async fn on_upstream_response(
        &self,
        _: &RequestHeader,
        exchange: &mut Exchange,
        _: &mut ResponseHeader,
    ) -> ResponseFlow {
        self.store_session(exchange, true).await;
        ResponseFlow::Continue
    }

    async fn before_own_response(
        &self,
        _: &RequestHeader,
        exchange: &mut Exchange,
        response: &ResponseHeader,
    ) {
        if !is_logout_answer(exchange) {
            // Refusals take nothing of the store: limits would not bound it.
            // To a client of gRPC a refusal has the status 200.
            let is_refusal = response.status.as_u16() >= 400 || exchange.refusal.is_some();
            let may_begin = !is_refusal;
            self.store_session(exchange, may_begin).await;
        }
    }

    fn on_response_to(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        // The answer itself follows what is on its way to it.
        if !is_interim(response.status) {
            self.write(request, exchange, response);
        }
    }

    fn on_own_response(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        if !is_logout_answer(exchange) {
            self.write(request, exchange, response);
        }
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &self.config.owned_headers
    }

    fn gives_cookies(&self) -> bool {
        true
    }

    fn owns_cookie(&self, name: &str, value: &str) -> bool {
        let piece = |text: &str| self.config.sealer.is_own(text, 0);
        self.styles().any(|style| {
            style.is_own(name.as_bytes())
                && (piece(value) || value.get(1..).is_some_and(piece) || name != style.name())
        })
    }

    fn names_cookie(&self, name: &[u8]) -> bool {
        self.styles().any(|style| style.is_own(name))
    }
}
