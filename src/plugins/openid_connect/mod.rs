//! The `openid-connect` plugin (interface 2.7, 4.7): only requests with a
//! valid token of the configured issuer reach the upstream.
//!
//! Start at [`OpenIdConnect::on_request`]. The invariant: a request passes
//! only with an [`AccessToken`](crate::model::token::AccessToken) whose
//! signature, claims and permissions were checked with this plugin's own
//! settings and with keys that are still in force.

mod answers;
pub(super) mod bearer;
pub(super) mod cache;
mod consumer;
mod fields;
pub(super) mod provider;
pub(super) mod refusal;
pub(super) mod rules;
mod schema;
mod settings;
#[cfg(test)]
mod tests;
mod upstream;
pub(super) mod verifier;
pub(super) mod word;

pub use provider::Providers;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{CACHE_CONTROL, EXPECT};
use http::{HeaderName, HeaderValue, Method};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::Session;
use serde_json::{Map, Value};

use crate::filter::{Exchange, Filter, Flow, Verdict};
use crate::jose::claims::time;
use crate::jose::verify::{Unverified, VerifyError};
use crate::plugins::consumers::{Consumers, Directory};
use crate::plugins::{ConfigError, Kind, Parts};
use crate::telemetry::Counter;

use bearer::{Found, body};
use cache::Verified;
use provider::Known;
use refusal::Refusal;
use settings::Settings;
use verifier::{Check, Checked, Judgement, Verifier};

/// The plugin's line in the registry.
pub const KIND: Kind = Kind {
    name: "openid-connect",
    priority: 1050,
    of_consumers: false,
    schema: schema::schema,
    build,
};

/// Builds the filter of a complete, schema-valid `config`.
fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let settings = Settings::new(fields::Fields(config))?;
    Ok(Arc::new(OpenIdConnect::new(settings, parts)))
}

/// Lets requests pass that carry a valid token.
struct OpenIdConnect {
    verifier: Verifier<Settings>,
    consumers: Arc<Consumers>,
    passed: Counter,
    anonymous: Counter,
    /// By refusal.
    refused: Vec<Counter>,
}

impl OpenIdConnect {
    fn new(settings: Settings, parts: &Parts) -> Self {
        let config = settings.provider.clone();
        let decision = |code| parts.metrics.decision(KIND.name, code);
        Self {
            verifier: Verifier::new(settings, config, parts),
            consumers: Arc::clone(&parts.consumers),
            passed: decision("pass"),
            anonymous: decision("anonymous"),
            refused: Refusal::ALL
                .iter()
                .map(|refusal| decision(refusal.describe().0))
                .collect(),
        }
    }

    fn settings(&self) -> &Settings {
        &self.verifier.check
    }

    fn passes_as_preflight(&self, request: &RequestHeader) -> bool {
        !self.settings().run_on_preflight && request.method == Method::OPTIONS
    }

    /// Lets the request pass with its token.
    fn accept(
        &self,
        verified: &Verified,
        request: &RequestHeader,
        in_query: bool,
        exchange: &mut Exchange,
    ) -> Flow {
        let token = &verified.token;
        if let Some((name, claim)) = &self.settings().session_cookie {
            let session = token.claims.get(claim).and_then(Value::as_str);
            if session.is_none() || session != bearer::cookie(&request.headers, name) {
                return self.refuse(Refusal::WrongSession, exchange);
            }
        }
        if let Some(mapping) = &self.settings().mapping {
            let find = |directory: &dyn Directory| mapping.find(&token.claims, directory);
            let consumer = verified.consumer.consumer(&self.consumers, find);
            if consumer.is_none() && !mapping.optional {
                return self.refuse(Refusal::NoConsumer, exchange);
            }
            exchange.consumer = consumer;
        }
        exchange.token = Some(Arc::clone(token));
        exchange.token_in_query = in_query;
        self.passed.inc();
        Flow::Continue
    }

    /// Refuses the request, or lets it pass as that of the anonymous consumer.
    fn refuse(&self, mut refusal: Refusal, exchange: &mut Exchange) -> Flow {
        if let Some(anonymous) = &self.settings().anonymous
            && refusal.is_of_client()
        {
            exchange.consumer = anonymous.consumer(&self.consumers);
            if exchange.consumer.is_some() {
                self.anonymous.inc();
                return Flow::Continue;
            }
            refusal = Refusal::NoAnonymous;
        }
        exchange.refusal = Some(Cow::Borrowed(refusal.describe().0));
        self.refused[refusal as usize].inc();
        Flow::Respond(self.settings().answers.to(refusal))
    }

    /// The token of a request whose body may have to be read for it.
    async fn find_anywhere(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Found<'static>, Refusal> {
        let places = &self.settings().places;
        if let Some(found) = places.find(session.req_header())? {
            return Ok(found.into_owned());
        }
        if exchange.body.is_none() && places.may_be_in_body(session.req_header()) {
            exchange.body = Some(body::read(session).await?);
        }
        places
            .find_in_read_body(session.req_header(), exchange.body.as_deref())?
            .ok_or(Refusal::NoToken)
    }
}

impl Check for Settings {
    fn check(
        &self,
        parsed: &Unverified<'_>,
        known: Option<&Known>,
        now_ms: i64,
    ) -> Result<Option<Checked>, Refusal> {
        let hmac = parsed.algorithm().is_symmetric();
        if hmac && self.verify_signature && self.hs_secret.is_none() {
            return Err(Refusal::UnsupportedAlg);
        }
        let Some(known) = known else {
            return Ok(None);
        };
        let claims = match (&self.hs_secret, self.verify_signature) {
            (_, false) => parsed.claims_of_anyone(),
            (Some(secret), true) if hmac => parsed.verify_hmac(secret.expose().as_bytes()),
            _ => parsed.verify(&known.keys),
        };
        let claims = match claims {
            Err(VerifyError::UnknownKey) => return Ok(None),
            other => other?,
        };
        let (typ, now) = (parsed.typ(), now_ms.div_euclid(1000));
        let end = self
            .rules
            .check(typ.as_deref(), &claims, &known.issuer, now)?;
        Ok(Some(Checked {
            ends_at: match end {
                Some(end) => end.saturating_mul(1000),
                None => now_ms.saturating_add(self.cache_ttl_ms),
            },
            ends_for_good: end.is_some(),
            scopes: self.rules.scopes(&claims),
            expires_at: time(&claims, "exp").ok().flatten(),
            claims,
        }))
    }

    fn remembers(&self) -> bool {
        self.verify_signature
    }
}

#[async_trait]
impl Filter for OpenIdConnect {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        if self.passes_as_preflight(request) {
            return Verdict::Now(Flow::Continue);
        }
        if !self.settings().bearer {
            return Verdict::Now(self.refuse(Refusal::NoToken, exchange));
        }
        let places = &self.settings().places;
        let found = match places.find(request) {
            Ok(Some(found)) => found,
            Ok(None) if places.may_be_in_body(request) => return Verdict::Wait,
            Ok(None) => return Verdict::Now(self.refuse(Refusal::NoToken, exchange)),
            Err(refusal) => return Verdict::Now(self.refuse(refusal, exchange)),
        };
        Verdict::Now(match self.verifier.judge(&found.token) {
            Judgement::Pass(held) => self.accept(&held, request, found.in_query, exchange),
            Judgement::Refuse(refusal) => self.refuse(refusal, exchange),
            Judgement::Wait => return Verdict::Wait,
        })
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let found = match self.find_anywhere(session, exchange).await {
            Ok(found) => found,
            Err(refusal) => return self.refuse(refusal, exchange),
        };
        match self.verifier.judge_patiently(&found.token).await {
            Ok(verified) => self.accept(&verified, session.req_header(), found.in_query, exchange),
            Err(refusal) => self.refuse(refusal, exchange),
        }
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut RequestHeader) {
        if exchange.body.is_some() {
            // The body is here: no upstream has to be asked whether to send it.
            request.remove_header(&EXPECT);
        }
        if exchange.token.is_none() && exchange.consumer.is_none() {
            return;
        }
        if self.settings().hide_credentials {
            self.settings().places.hide(request);
        }
        if let Some(consumer) = &exchange.consumer {
            let anonymous = exchange.token.is_none();
            upstream::write_consumer(consumer, anonymous, request);
        }
        if let Some(token) = &exchange.token {
            let headers = &self.settings().headers;
            headers.write_upstream(token, exchange.consumer.is_some(), request);
        }
    }

    fn on_response(&self, exchange: &Exchange, response: &mut ResponseHeader) {
        if exchange.token_in_query && !is_private(response) {
            let private = HeaderValue::from_static("private");
            let _ = response.insert_header(CACHE_CONTROL, private);
        }
        if let Some(token) = &exchange.token {
            self.settings().headers.write_downstream(token, response);
        }
    }

    fn owned_headers(&self) -> &[HeaderName] {
        self.settings().headers.owned()
    }

    fn warnings(&self) -> Vec<String> {
        self.settings().warnings.clone()
    }
}

/// Whether the upstream keeps its answer out of shared caches itself.
fn is_private(response: &ResponseHeader) -> bool {
    let directives = response.headers.get_all(CACHE_CONTROL);
    directives
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("private") || value.contains("no-store"))
}
