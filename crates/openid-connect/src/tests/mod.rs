//! The filter as configured, against an issuer in the process.
#![expect(clippy::unwrap_used, reason = "tests")]

mod algorithms;
mod attacks;
mod browser;
mod concurrency;
mod configuration;
mod consumers;
mod direct_grants;
mod distributed_claims;
mod every_field;
mod foreign_sessions;
mod forward_proxy;
mod further_fields;
mod introspection;
mod key_rotation;
mod keys;
mod login;
mod logout;
mod malformed_responses;
mod proof_of_possession;
mod refresh;
mod refusals;
mod remember_me;
mod request_recorder;
mod requests;
mod response_modes;
mod server_side_sessions;
mod session_creation;
mod sessions;
mod signature_exemptions;
mod token_exchange;
mod token_grants;
mod token_set;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use pingora::http::RequestHeader;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use url::Url;

use crate::*;
use doorward_core::clock::Clock;
use doorward_core::jose::testing::{TestKey, jwks};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::outbound::Outbound;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::filter::Exchange;
use doorward_plugin_api::testing::{decide, session};

/// Seconds since the epoch at which tests begin.
const NOW: i64 = 1_700_000_000;
const ISSUER: &str = "http://id.test/oauth2";

/// An OpenID provider.
#[derive(Clone)]
struct Issuer(Arc<IssuerState>);

struct IssuerState {
    name: Mutex<String>,
    keys: Mutex<Vec<TestKey>>,
    up: AtomicBool,
    discoveries: AtomicUsize,
    key_fetches: AtomicUsize,
}

impl Issuer {
    fn new(keys: &[&TestKey]) -> Self {
        Self(Arc::new(IssuerState {
            name: Mutex::new(ISSUER.into()),
            keys: Mutex::new(keys.iter().map(|key| (*key).clone()).collect()),
            up: AtomicBool::new(true),
            discoveries: AtomicUsize::new(0),
            key_fetches: AtomicUsize::new(0),
        }))
    }

    fn publish(&self, keys: &[&TestKey]) {
        *self.0.keys.lock().unwrap() = keys.iter().map(|key| (*key).clone()).collect();
    }

    fn set_up(&self, up: bool) {
        self.0.up.store(up, Ordering::SeqCst);
    }

    fn key_fetches(&self) -> usize {
        self.0.key_fetches.load(Ordering::SeqCst)
    }

    fn discoveries(&self) -> usize {
        self.0.discoveries.load(Ordering::SeqCst)
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/oauth2/.well-known/openid-configuration", get(discovery))
            .route("/oauth2/keys", get(key_set))
            .with_state(self.clone())
    }
}

async fn discovery(State(issuer): State<Issuer>) -> Result<Json<Value>, StatusCode> {
    issuer.0.discoveries.fetch_add(1, Ordering::SeqCst);
    issuer.answer(|name| json!({"issuer": name, "jwks_uri": format!("{name}/keys")}))
}

async fn key_set(State(issuer): State<Issuer>) -> Result<Json<Value>, StatusCode> {
    issuer.0.key_fetches.fetch_add(1, Ordering::SeqCst);
    let keys = issuer.0.keys.lock().unwrap().clone();
    issuer.answer(|_| jwks(&keys.iter().collect::<Vec<_>>()))
}

impl Issuer {
    fn answer(&self, answer: impl FnOnce(&str) -> Value) -> Result<Json<Value>, StatusCode> {
        if self.0.up.load(Ordering::SeqCst) {
            Ok(Json(answer(&self.0.name.lock().unwrap())))
        } else {
            Err(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

/// An issuer, a clock, and a filter in front of nothing.
struct World {
    issuer: Issuer,
    key: TestKey,
    clock: Clock,
    parts: Parts,
    filter: Arc<dyn Filter>,
}

impl World {
    fn new(config: Value) -> Self {
        let key = TestKey::es256("key-1");
        let issuer = Issuer::new(&[&key]);
        let outbound = Arc::new(Outbound::new());
        outbound.register_local(&Url::parse("http://id.test").unwrap(), issuer.router());
        let clock = Clock::manual(NOW * 1000);
        let parts = Parts::new(clock.clone(), outbound, Arc::new(Metrics::default()));
        let filter = filter(&parts, config).unwrap();
        Self {
            issuer,
            key,
            clock,
            parts,
            filter,
        }
    }

    fn metric(&self, decision: &'static str) -> u64 {
        self.parts.metrics.decision(KIND.name, decision).get()
    }

    /// A good token with `more` claims.
    fn token(&self, more: Value) -> String {
        self.key.token(&claims(more))
    }

    async fn ask_bearer(&self, token: &str) -> Outcome {
        self.ask(&get_with(&format!("Authorization: Bearer {token}")))
            .await
    }

    /// Sends a whole request to the filter.
    async fn ask(&self, request: &str) -> Outcome {
        let (mut session, _client) = session(request).await;
        let mut exchange = Exchange::default();
        let reply = decide(&*self.filter, &mut session, &mut exchange).await;
        let mut upstream = session.req_header().clone();
        if reply.is_none() {
            self.filter
                .on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
        }
        Outcome {
            reply,
            exchange,
            upstream,
        }
    }
}

fn filter(parts: &Parts, mut config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    if config.get("issuer").is_none() {
        config["issuer"] = ISSUER.into();
    }
    let mut config = config.as_object().cloned().unwrap();
    (KIND.schema)().fill(&mut config);
    (KIND.build)(&config, parts)
}

/// What became of a request.
#[derive(Debug)]
struct Outcome {
    reply: Option<Reply>,
    exchange: Exchange,
    upstream: RequestHeader,
}

impl Outcome {
    /// The status, 200 for a request that passes, and the refusal's code.
    fn code(&self) -> (u16, &str) {
        match &self.reply {
            None => (200, "pass"),
            Some(reply) => (
                reply.status.as_u16(),
                self.exchange.refusal.as_deref().unwrap_or("none"),
            ),
        }
    }

    fn message(&self) -> String {
        match self.reply.as_ref().map(|reply| &reply.body) {
            Some(ReplyBody::Message(message)) => message.to_string(),
            other => format!("{other:?}"),
        }
    }

    fn upstream(&self, name: &str) -> Option<&str> {
        self.upstream.headers.get(name)?.to_str().ok()
    }
}

fn claims(more: Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "sub": "anna", "aud": "orders", "iat": NOW, "nbf": NOW,
        "exp": NOW + 3600, "scope": ["openid"], "tokenName": "access_token",
    });
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn get_with(header: &str) -> String {
    format!("GET /orders HTTP/1.1\r\nHost: orders.test\r\n{header}\r\n\r\n")
}
