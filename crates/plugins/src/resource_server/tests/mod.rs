//! The filter as configured, against a provider in the process.
#![expect(clippy::unwrap_used, reason = "tests")]

mod attacks;
mod configs;
mod endpoints;
mod tokens;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{RawQuery, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use url::Url;

use crate::testing::{chain_filter, decide, session};
use doorward_core::clock::Clock;
use doorward_core::jose::testing::{TestKey, jwks};
use doorward_net::http::outbound::Outbound;
use doorward_net::http::reply::Reply;
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::filter::{Exchange, Filter};
use doorward_plugin_api::{ConfigError, Parts};

/// Seconds since the epoch at which tests begin.
const NOW: i64 = 1_700_000_000;
const ISSUER: &str = "http://id.test/oauth2";

/// A provider with a key set, `/introspect` and `/tokeninfo`.
#[derive(Clone)]
struct Provider(Arc<ProviderState>);

struct ProviderState {
    key: TestKey,
    /// What the next questions are answered with.
    answer: Mutex<(StatusCode, Value)>,
    /// What was asked: the `Authorization` field and the form or query.
    asked: Mutex<Vec<(Option<String>, String)>>,
    /// A question waits for one of these.
    gate: Semaphore,
    waiting: AtomicUsize,
}

impl Provider {
    fn new(key: &TestKey) -> Self {
        Self(Arc::new(ProviderState {
            key: key.clone(),
            answer: Mutex::new((StatusCode::OK, json!({}))),
            asked: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            waiting: AtomicUsize::new(0),
        }))
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/oauth2/.well-known/openid-configuration", get(discovery))
            .route("/oauth2/keys", get(keys))
            .route("/oauth2/introspect", post(introspect))
            .route(
                "/oauth2/realms/root/realms/a/realms/b/introspect",
                post(introspect),
            )
            .route("/oauth2/tokeninfo", get(token_info))
            .with_state(self.clone())
    }

    fn says(&self, status: u16, body: Value) {
        *self.0.answer.lock().unwrap() = (StatusCode::from_u16(status).unwrap(), body);
    }

    fn asked(&self) -> usize {
        self.0.asked.lock().unwrap().len()
    }

    fn last_question(&self) -> (Option<String>, String) {
        self.0.asked.lock().unwrap().last().cloned().unwrap()
    }

    async fn answer(&self, headers: &HeaderMap, question: String) -> (StatusCode, Json<Value>) {
        let authorization = headers.get("authorization");
        let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
        self.0.asked.lock().unwrap().push((authorization, question));
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        self.0.gate.acquire().await.unwrap().forget();
        let (status, body) = self.0.answer.lock().unwrap().clone();
        (status, Json(body))
    }
}

async fn discovery() -> Json<Value> {
    Json(json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys")}))
}

async fn keys(State(provider): State<Provider>) -> Json<Value> {
    Json(jwks(&[&provider.0.key]))
}

async fn introspect(
    State(provider): State<Provider>,
    headers: HeaderMap,
    form: String,
) -> (StatusCode, Json<Value>) {
    provider.answer(&headers, form).await
}

async fn token_info(
    State(provider): State<Provider>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> (StatusCode, Json<Value>) {
    provider.answer(&headers, query.unwrap_or_default()).await
}

/// A provider, a clock, and a filter in front of nothing.
struct World {
    provider: Provider,
    key: TestKey,
    clock: Clock,
    parts: Parts,
    filter: Arc<dyn Filter>,
}

fn process() -> (TestKey, Provider, Clock, Parts) {
    let key = TestKey::es256("key-1");
    let provider = Provider::new(&key);
    let outbound = Arc::new(Outbound::new());
    outbound.register_local(&Url::parse("http://id.test").unwrap(), provider.router());
    let clock = Clock::manual(NOW * 1000);
    let parts = Parts::new(clock.clone(), outbound, Arc::new(Metrics::default()));
    (key, provider, clock, parts)
}

impl World {
    fn new(config: Value) -> Self {
        Self::with_heap(config, json!({}))
    }

    /// `heap` has objects by name.
    fn with_heap(config: Value, heap: Value) -> Self {
        let (key, provider, clock, parts) = process();
        let filter = filter(&parts, config, &heap).unwrap();
        Self {
            provider,
            key,
            clock,
            parts,
            filter,
        }
    }

    /// One that verifies tokens itself.
    fn of_tokens(more: Value) -> Self {
        let resolver = json!({"type": "StatelessAccessTokenResolver", "config": {
            "issuer": ISSUER, "verificationSecretId": "any",
            "secretsProvider": {"type": "JwkSetSecretStore",
                "config": {"jwkUrl": format!("{ISSUER}/keys")}}}});
        Self::new(with(
            json!({"scopes": [], "accessTokenResolver": resolver}),
            more,
        ))
    }

    /// One that asks an endpoint, which says that every token is good.
    fn of_endpoint(more: Value) -> Self {
        let resolver = json!({"type": "TokenIntrospectionAccessTokenResolver", "config": {
            "endpoint": format!("{ISSUER}/introspect"), "clientId": "gateway",
            "clientSecret": "s3cret"}});
        let world = Self::new(with(
            json!({"scopes": [], "accessTokenResolver": resolver}),
            more,
        ));
        let good = json!({"active": true, "scope": "a b", "sub": "anna", "exp": NOW + 3600});
        world.provider.says(200, good);
        world
    }

    /// A good token with `more` claims.
    fn token(&self, more: Value) -> String {
        self.key.token(&claims(more))
    }

    fn metric(&self, decision: &'static str) -> u64 {
        self.parts.metrics.decision(super::NAME, decision).get()
    }

    async fn ask_bearer(&self, token: &str) -> Outcome {
        self.ask(&format!("Authorization: Bearer {token}")).await
    }

    /// Sends a request with a header field, by https.
    async fn ask(&self, field: &str) -> Outcome {
        self.ask_with(
            &format!("GET /a HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n"),
            true,
        )
        .await
    }

    async fn ask_with(&self, request: &str, secure: bool) -> Outcome {
        ask(&*self.filter, request, secure).await
    }
}

async fn ask(filter: &dyn Filter, request: &str, secure: bool) -> Outcome {
    let (mut session, _client) = session(request).await;
    let mut exchange = Exchange {
        secure,
        ..Exchange::default()
    };
    let reply = decide(filter, &mut session, &mut exchange).await;
    Outcome { reply, exchange }
}

fn filter(parts: &Parts, config: Value, heap: &Value) -> Result<Arc<dyn Filter>, ConfigError> {
    let named = |name: &str| heap.get(name).cloned();
    chain_filter(parts, "OAuth2ResourceServerFilter", &config, &named)
}

/// What became of a request.
#[derive(Debug)]
struct Outcome {
    reply: Option<Reply>,
    exchange: Exchange,
}

impl Outcome {
    /// The status, 200 for a request that passes, and the refusal's code.
    fn code(&self) -> (u16, &str) {
        let refusal = self.exchange.refusal.as_deref();
        match &self.reply {
            None => (200, refusal.unwrap_or("pass")),
            Some(reply) => (reply.status.as_u16(), refusal.unwrap_or("none")),
        }
    }

    fn challenge(&self) -> Option<&str> {
        let headers = &self.reply.as_ref()?.headers;
        let found = headers.iter().find(|(name, _)| *name == WWW_AUTHENTICATE);
        found.map(|(_, value)| value.to_str().unwrap())
    }
}

fn with(mut config: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

fn claims(more: Value) -> Value {
    let claims = json!({
        "iss": ISSUER, "sub": "anna", "aud": "orders", "iat": NOW, "nbf": NOW,
        "exp": NOW + 3600, "scope": ["a", "b"], "tokenName": "access_token",
    });
    with(claims, more)
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}
