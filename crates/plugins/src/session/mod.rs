//! The `session` plugin: a browser that has proved who it is once need not again.
//!
//! A sealed cookie holds consumer and credential. Whoever has lost its consumer has no
//! session any more. Plugins that authenticate have to have `anonymous`, or else they
//! want their credential all the same.

mod config;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use http::header::SET_COOKIE;
use http::{HeaderName, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::settings::Settings;
use config::Config;
use doorward_core::clock::Clock;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session as Request;
use doorward_net::session::timers::Age;
use doorward_net::telemetry::Counter;
use doorward_openid_connect::Providers;
use doorward_plugin_api::consumers::{By, Consumers};
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, identity};
use state::SessionState;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "session",
    priority: 1900,
    of_consumers: false,
    schema: config::schema,
    codes: || vec![LOGOUT],
    build,
};

const LOGOUT: Code = Code::new("logout", 200, "the session is over, as the request asks");

/// A running filter.
struct SessionPlugin {
    config: Config,
    clock: Clock,
    consumers: Arc<Consumers>,
    passed: Counter,
    ended: Counter,
    begun: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(SessionPlugin {
        config: Config::read(Settings(config), Providers::of(parts).secret())?,
        clock: parts.clock.clone(),
        consumers: Arc::clone(&parts.consumers),
        passed: decision("pass"),
        ended: decision("logout"),
        begun: decision("login"),
    }))
}

/// What a cookie of a request comes to, for the answer.
struct CookieSession {
    /// The session, unless it is over.
    session: Option<SessionState>,
}

impl SessionPlugin {
    /// The session of a request. `Some(None)`: its cookie is worth nothing.
    fn present(&self, request: &RequestHeader) -> Option<Option<SessionState>> {
        let text = self.config.style.read(&request.headers)?;
        let opened = text.and_then(|text| {
            let state = SessionState::open(&self.config, &text)?;
            let age = self.age(&state);
            (age != Age::Over).then_some(state)
        });
        Some(opened)
    }

    fn age(&self, state: &SessionState) -> Age {
        let now_ms = self.clock.now_ms();
        self.config
            .timers
            .age(state.started_ms, state.renewed_ms, now_ms)
    }

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

    /// The cookies of an answer.
    fn write(&self, request: &RequestHeader, exchange: &Exchange, response: &mut ResponseHeader) {
        let presented = exchange.notes.iter().find_map(|note| {
            let presented: Option<&CookieSession> = note.downcast_ref();
            presented
        });
        let session = presented.and_then(|presented| presented.session.as_ref());
        let now_ms = self.clock.now_ms();
        let wanted = match (&exchange.consumer, &exchange.credential) {
            (Some(consumer), Some(credential)) => match session {
                // The credential is that of the session itself.
                Some(state) if state.matches(consumer.id, credential.id) => {
                    (self.age(state) == Age::Due).then(|| state.renewed(now_ms))
                }
                _ => {
                    self.begun.inc();
                    let groups = exchange.authenticated_groups.clone();
                    Some(SessionState::new(
                        consumer.id,
                        credential.id,
                        groups,
                        now_ms,
                    ))
                }
            },
            // Nobody, or somebody without a consumer.
            _ => None,
        };
        let style = &self.config.style;
        let cookies = match wanted.and_then(|state| state.seal(&self.config)) {
            Some(text) => style.keep(&text, &request.headers, exchange.secure),
            None if presented.is_some_and(|presented| presented.session.is_none()) => {
                Ok(style.forget(&request.headers, exchange.secure))
            }
            None => return,
        };
        match cookies {
            Ok(cookies) => {
                for cookie in cookies {
                    // A name and a value that are already those of a message.
                    let _ = response.append_header(SET_COOKIE, cookie);
                }
            }
            Err(error) => tracing::warn!(%error, "a session can't be kept in cookies"),
        }
    }
}

#[async_trait]
impl Filter for SessionPlugin {
    fn on_request(&self, session: &mut Request, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        let Some(presented) = self.present(request) else {
            return Verdict::Now(Flow::Continue);
        };
        let logout = presented.is_some() && self.is_logout(request, exchange);
        let entered = presented.filter(|state| !logout && self.enter(state, exchange));
        if logout {
            self.ended.inc();
            exchange.refusal = Some(LOGOUT.code.into());
            let mut reply = Reply::empty(StatusCode::OK);
            let cookies = self.config.style.forget(&request.headers, exchange.secure);
            for cookie in cookies {
                reply.headers.push((SET_COOKIE, cookie));
            }
            return Verdict::Now(Flow::Respond(reply));
        }
        if entered.is_some() {
            self.passed.inc();
        }
        exchange
            .notes
            .push(Box::new(CookieSession { session: entered }));
        Verdict::Now(Flow::Continue)
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        Some(match self.present(request).flatten() {
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

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut RequestHeader) {
        identity::write(exchange, request);
    }

    fn on_response_to(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        self.write(request, exchange, response);
    }

    fn on_own_response(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        if exchange.refusal.as_deref() != Some(LOGOUT.code) {
            self.write(request, exchange, response);
        }
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }

    fn gives_cookies(&self) -> bool {
        true
    }

    fn owns_cookie(&self, name: &str, value: &str) -> bool {
        let piece = |text: &str| self.config.sealer.is_own(text, 0);
        self.config.style.is_own(name.as_bytes())
            && (piece(value)
                || value.get(1..).is_some_and(piece)
                || name != self.config.style.name())
    }

    fn names_cookie(&self, name: &[u8]) -> bool {
        self.config.style.is_own(name)
    }
}
