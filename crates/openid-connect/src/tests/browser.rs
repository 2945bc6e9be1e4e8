//! A provider that signs users in, and a browser, for tests of logins.

use std::collections::{BTreeMap, HashMap};

use aws_lc_rs::digest::{SHA256, digest};
use axum::Form;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{LOCATION, SET_COOKIE};

use super::*;
use doorward_core::jose::testing::hs256;

/// A provider that gives tokens for the code `NONCE.CHALLENGE`, and counts.
#[derive(Clone)]
pub(super) struct Provider {
    pub(super) key: TestKey,
    pub(super) clock: Clock,
    pub(super) asked: Arc<Mutex<Vec<HashMap<String, String>>>>,
    /// Claims of ID tokens that are other than they should be.
    pub(super) twist: Arc<Mutex<Value>>,
    pub(super) answers: Arc<AtomicUsize>,
    /// At the end of refresh tokens.
    pub(super) padding: Arc<Mutex<String>>,
    /// The status of refused refreshes; 0: none are.
    pub(super) refuses: Arc<AtomicUsize>,
    /// What is said to them.
    pub(super) refusal: Arc<Mutex<Value>>,
    /// Whether access tokens say nothing.
    pub(super) opaque: Arc<AtomicBool>,
    /// The secret that ID tokens are signed with in place of the key.
    pub(super) secret: Arc<Mutex<Option<&'static str>>>,
}

async fn give(
    State(provider): State<Provider>,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    provider.asked.lock().unwrap().push(form.clone());
    let invalid = (
        StatusCode::BAD_REQUEST,
        Json(json!({"error": "invalid_grant"})),
    );
    let now = provider.clock.now_secs();
    let mut id = json!({"iss": ISSUER, "sub": "anna", "aud": "gateway", "iat": now,
        "exp": now + 600, "email": "anna@b.c"});
    if let Some(code) = form.get("code") {
        let (nonce, challenge) = code.split_once('.').unwrap();
        let proof = digest(&SHA256, form["code_verifier"].as_bytes());
        if challenge != URL_SAFE_NO_PAD.encode(proof) {
            return invalid.into_response();
        }
        id["nonce"] = json!(nonce);
    } else if provider.refuses.load(Ordering::SeqCst) > 0 {
        let status = provider.refuses.load(Ordering::SeqCst) as u16;
        let status = StatusCode::from_u16(status).unwrap();
        let refusal = provider.refusal.lock().unwrap().clone();
        return (status, Json(refusal)).into_response();
    }
    for (name, value) in provider.twist.lock().unwrap().as_object().unwrap() {
        match value {
            Value::Null => drop(id.as_object_mut().unwrap().remove(name)),
            value => id[name] = value.clone(),
        }
    }
    let answers = provider.answers.fetch_add(1, Ordering::SeqCst);
    let access = provider
        .key
        .token(&json!({"iss": ISSUER, "sub": "anna", "iat": now,
        "exp": now + 300, "scope": "openid read", "jti": answers}));
    let access = if provider.opaque.load(Ordering::SeqCst) {
        format!("opaque-{answers}")
    } else {
        access
    };
    Json(json!({
        "access_token": access, "token_type": "Bearer", "expires_in": 300,
        "id_token": provider.sign(&id), "refresh_token": format!("r{answers}{}", provider.padding.lock().unwrap()),
    }))
    .into_response()
}

async fn take(
    State(provider): State<Provider>,
    Form(form): Form<HashMap<String, String>>,
) -> StatusCode {
    provider.asked.lock().unwrap().push(form);
    StatusCode::OK
}

impl Provider {
    fn sign(&self, claims: &Value) -> String {
        match *self.secret.lock().unwrap() {
            Some(secret) => hs256(secret.as_bytes(), r#"{"alg":"HS256"}"#, &claims.to_string()),
            None => self.key.token(claims),
        }
    }

    pub(super) fn router(&self) -> Router {
        Router::new()
            .route("/oauth2/token", post(give))
            .route("/oauth2/revoke", post(take))
            .with_state(self.clone())
    }

    pub(super) fn asked(&self, grant: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        let of = |form: &&HashMap<_, _>| form.get("grant_type").is_some_and(|one| one == grant);
        asked.iter().filter(of).count()
    }
}

/// A configuration with what signing in takes.
pub(super) fn complete(mut config: Value) -> Value {
    for (name, value) in [
        ("client_id", json!(["gateway"])),
        ("client_secret", json!(["g-secret"])),
        ("session_secret", json!("a secret of the nodes")),
        (
            "authorization_endpoint",
            json!("http://id.test/oauth2/authorize"),
        ),
        ("token_endpoint", json!("http://id.test/oauth2/token")),
        ("revocation_endpoint", json!("http://id.test/oauth2/revoke")),
    ] {
        if config.get(name).is_none() {
            config[name] = value;
        }
    }
    config
}

pub(super) fn world(config: Value) -> (World, Provider) {
    let world = World::new(complete(config));
    let provider = Provider {
        key: world.key.clone(),
        clock: world.clock.clone(),
        asked: Arc::default(),
        twist: Arc::new(Mutex::new(json!({}))),
        answers: Arc::default(),
        padding: Arc::default(),
        refuses: Arc::default(),
        refusal: Arc::new(Mutex::new(json!({"error": "invalid_grant"}))),
        opaque: Arc::default(),
        secret: Arc::default(),
    };
    let router = provider.router();
    let base = Url::parse("http://id.test").unwrap();
    let outbound = &world.parts.outbound;
    outbound.register_local(&base, world.issuer.router().merge(router));
    (world, provider)
}

/// A browser: keeps cookies.
#[derive(Clone, Default)]
pub(super) struct Browser(pub(super) BTreeMap<String, String>);

impl Browser {
    pub(super) fn request(&self, target: &str) -> String {
        let cookies: Vec<_> = self.0.iter().map(|(n, v)| format!("{n}={v}")).collect();
        get_with(&format!("Cookie: {}", cookies.join("; "))).replace("/orders", target)
    }

    pub(super) async fn get(&mut self, world: &World, target: &str) -> Outcome {
        let outcome = world.ask(&self.request(target)).await;
        self.take(&outcome);
        outcome
    }

    pub(super) fn take(&mut self, outcome: &Outcome) {
        for (name, value) in &outcome.exchange.response_headers {
            if name != SET_COOKIE {
                continue;
            }
            let value = value.to_str().unwrap();
            let (name, rest) = value.split_once('=').unwrap();
            let (kept, attributes) = rest.split_once(';').unwrap();
            if attributes.contains("Max-Age=0") {
                self.0.remove(name)
            } else {
                self.0.insert(name.to_owned(), kept.to_owned())
            };
        }
    }

    /// Begins a login; the target of the provider's answer.
    pub(super) async fn begin(&mut self, world: &World, target: &str) -> String {
        let outcome = self.get(world, target).await;
        answer_to(&outcome)
    }

    pub(super) async fn signed_in(world: &World) -> Self {
        let mut browser = Self::default();
        let back = browser.begin(world, "/orders").await;
        assert_eq!(browser.get(world, &back).await.code(), (200, "pass"));
        browser
    }
}

pub(super) fn location(outcome: &Outcome) -> String {
    let reply = outcome.reply.as_ref().expect("an answer");
    assert_eq!(reply.status, 302, "{:?}", outcome.exchange.refusal);
    let field = reply.headers.iter().find(|(name, _)| name == LOCATION);
    field.expect("a location").1.to_str().unwrap().to_owned()
}

/// The target to which the provider leads a browser that was sent to it.
pub(super) fn answer_to(outcome: &Outcome) -> String {
    let url = Url::parse(&location(outcome)).unwrap();
    assert_eq!(url.path(), "/oauth2/authorize");
    let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
    let back = Url::parse(&query["redirect_uri"]).unwrap();
    let code = format!("{}.{}", query["nonce"], query["code_challenge"]);
    format!("{}?code={code}&state={}", back.path(), query["state"])
}
