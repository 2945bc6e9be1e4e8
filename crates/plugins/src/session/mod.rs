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
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::settings::Settings;
use config::{Config, CookieKind};
use doorward_core::clock::{Clock, http_date_text};
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session as Request;
use doorward_net::session::cookie::Style;
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

/// What the cookies of a request come to.
#[derive(Default)]
struct Presented {
    /// The session, unless it is over.
    session: Option<SessionState>,
    /// The one that outlives the browser, unless it is over.
    remembered: Option<SessionState>,
}

impl Presented {
    /// The session that counts.
    fn state(&self) -> Option<&SessionState> {
        self.session.as_ref().or(self.remembered.as_ref())
    }
}

impl SessionPlugin {
    /// The session of a request; `None`: it shows none of the cookies.
    fn present(&self, request: &RequestHeader) -> Option<Presented> {
        let open = |kind: &CookieKind| {
            let text = kind.style.read(&request.headers)?;
            Some(text.and_then(|text| {
                let state = SessionState::open(&self.config.sealer, kind, &text)?;
                (self.age(kind, &state) != Age::Over).then_some(state)
            }))
        };
        let session = open(&self.config.session);
        let remembered = self.config.remember.as_ref().and_then(open);
        (session.is_some() || remembered.is_some()).then(|| Presented {
            session: session.flatten(),
            remembered: remembered.flatten(),
        })
    }

    fn age(&self, kind: &CookieKind, state: &SessionState) -> Age {
        let now_ms = self.clock.now_ms();
        kind.timers.age(state.started_ms, state.renewed_ms, now_ms)
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

    fn styles(&self) -> impl Iterator<Item = &Style> {
        let kinds = [Some(&self.config.session), self.config.remember.as_ref()];
        kinds.into_iter().flatten().map(|kind| &kind.style)
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
            let presented: Option<&Presented> = note.downcast_ref();
            presented
        });
        // Nobody, or somebody without a consumer.
        let caller = exchange.consumer.as_ref().zip(exchange.credential.as_ref());
        let Some((consumer, credential)) = caller else {
            if presented.is_some_and(|presented| presented.state().is_none()) {
                append(response, self.forget(request, exchange));
            }
            return;
        };
        let now_ms = self.clock.now_ms();
        let new = || {
            let groups = exchange.authenticated_groups.clone();
            SessionState::new(consumer.id, credential.id, groups, now_ms)
        };
        // The credential is that of the session itself.
        let own = |state: &Option<SessionState>| {
            let state = state.clone()?;
            state.matches(consumer.id, credential.id).then_some(state)
        };
        let presented_session = presented.and_then(|presented| own(&presented.session));
        let remembered = presented.and_then(|presented| own(&presented.remembered));
        let begins = presented_session.is_none();
        let session = match presented_session {
            Some(state) => {
                let due = self.age(&self.config.session, &state) == Age::Due;
                due.then(|| state.renewed(now_ms))
            }
            None => {
                self.begun.inc();
                Some(new())
            }
        };
        let mut keep = |kind: &CookieKind, state: Option<SessionState>| {
            let text = state.and_then(|state| state.seal(&self.config.sealer, kind));
            if let Some(text) = text {
                append(response, self.cookies(kind, &text, request, exchange));
            }
        };
        keep(&self.config.session, session);
        if let Some(kind) = &self.config.remember {
            let state = match remembered {
                Some(state) => {
                    let due = begins || self.age(kind, &state) == Age::Due;
                    due.then(|| state.renewed(now_ms))
                }
                None => begins.then(new),
            };
            keep(kind, state);
        }
    }

    /// The fields that set a cookie. Its attributes have the order of the imitated
    /// gateway, and its end is a date, too: clients compare and old ones need it.
    fn cookies(
        &self,
        kind: &CookieKind,
        text: &str,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> Vec<HeaderValue> {
        let cookies = kind.style.keep(text, &request.headers, exchange.secure);
        let cookies = cookies.unwrap_or_else(|error| {
            tracing::warn!(%error, "a session can't be kept in cookies");
            Vec::new()
        });
        let end = kind.kept.map(|kept| self.clock.now_secs() + kept);
        let end = end.and_then(http_date_text);
        let ordered = |cookie: &HeaderValue| {
            let mut text = cookie.to_str().ok()?.to_owned();
            if text.contains("; HttpOnly; Secure") {
                text = text.replacen("; HttpOnly; Secure", "; Secure; HttpOnly", 1);
            }
            if let Some(end) = &end
                && !text.ends_with("; Max-Age=0")
            {
                text = text.replacen("; Max-Age=", &format!("; Expires={end}; Max-Age="), 1);
            }
            HeaderValue::try_from(text).ok()
        };
        let both = cookies
            .iter()
            .map(|one| ordered(one).unwrap_or_else(|| one.clone()));
        both.collect()
    }

    /// The fields that have browsers forget the cookies that the request shows.
    fn forget(&self, request: &RequestHeader, exchange: &Exchange) -> Vec<HeaderValue> {
        let kinds = [Some(&self.config.session), self.config.remember.as_ref()];
        let fields = kinds.into_iter().flatten();
        let fields = fields.flat_map(|kind| kind.style.forget(&request.headers, exchange.secure));
        fields.collect()
    }
}

fn append(response: &mut ResponseHeader, cookies: Vec<HeaderValue>) {
    for cookie in cookies {
        // A name and a value that are already those of a message.
        let _ = response.append_header(SET_COOKIE, cookie);
    }
}

#[async_trait]
impl Filter for SessionPlugin {
    fn on_request(&self, session: &mut Request, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        let Some(presented) = self.present(request) else {
            return Verdict::Now(Flow::Continue);
        };
        let logout = presented.state().is_some() && self.is_logout(request, exchange);
        if logout {
            self.ended.inc();
            exchange.refusal = Some(LOGOUT.code.into());
            let mut reply = Reply::empty(StatusCode::OK);
            for cookie in self.forget(request, exchange) {
                reply.headers.push((SET_COOKIE, cookie));
            }
            return Verdict::Now(Flow::Respond(reply));
        }
        let state = presented.state().cloned();
        let entered = state.is_some_and(|state| self.enter(&state, exchange));
        let presented = if entered {
            self.passed.inc();
            presented
        } else {
            Presented::default()
        };
        exchange.notes.push(Box::new(presented));
        Verdict::Now(Flow::Continue)
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        let presented = self.present(request).unwrap_or_default();
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
        self.styles().any(|style| {
            style.is_own(name.as_bytes())
                && (piece(value) || value.get(1..).is_some_and(piece) || name != style.name())
        })
    }

    fn names_cookie(&self, name: &[u8]) -> bool {
        self.styles().any(|style| style.is_own(name))
    }
}
