//! A provider for tests: the real router on a real database.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::config::IdentityConfig;
use super::{Call, Identity, RealmSource};
use doorward_audit::{Audit, AuditConfig};
use doorward_core::clock::Clock;
use doorward_core::jose::verify::Unverified;
use doorward_net::telemetry::Metrics;
use doorward_store::{self as store, Store};

/// A Tuesday, at half a second.
pub(super) const START_MS: i64 = 1_800_000_000_500;

pub(super) struct Provider {
    pub(super) identity: Identity,
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    directory: tempfile::TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    /// Status, error code and text of an OAuth error.
    pub(super) fn oauth_error(&self) -> (u16, String, String) {
        let body = self.json();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        (
            self.status.as_u16(),
            text("error"),
            text("error_description"),
        )
    }

    async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Self {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).expect("UTF-8"),
        }
    }
}

pub(super) fn config() -> Value {
    json!({
        "base_url": "http://localhost:8000",
        "hashing": {"memory_kib": 8, "passes": 1},
        "realms": {
            "/": {
                "users": [
                    {"userName": "demo", "password": "correct horse", "title": "Boss",
                     "emails": [{"value": "demo@example.com", "type": "work", "primary": true}]},
                    {"userName": "other", "password": "correct horse"},
                    {"userName": "gone", "password": "correct horse",
                     "accountStatus": "Deactivated"},
                ],
                "clients": [
                    {"client_id": "app", "client_secret": "app-secret",
                     "grant_types": ["client_credentials", "password", "refresh_token"],
                     "scope": "openid profile email"},
                    {"client_id": "machine", "client_secret": "se:cr et%+",
                     "grant_types": ["client_credentials"], "scope": "a b", "default_scope": "b"},
                    {"client_id": "public", "token_endpoint_auth_method": "none",
                     "grant_types": ["client_credentials", "password"], "scope": "a"},
                    {"client_id": "opaque", "client_secret": "app-secret",
                     "grant_types": ["client_credentials", "password"], "scope": "openid a",
                     "access_token_format": "opaque"},
                    {"client_id": "hmac", "client_secret": "0123456789abcdef0123456789abcdef",
                     "grant_types": ["client_credentials"], "scope": "openid",
                     "id_token_signed_response_alg": "HS256"},
                    {"client_id": "basic", "client_secret": "app-secret",
                     "token_endpoint_auth_method": "client_secret_basic",
                     "grant_types": ["client_credentials"], "scope": "a"},
                ],
            },
            "/alpha": {
                "users": [{"userName": "demo", "password": "alpha pass"}],
                "clients": [{"client_id": "app", "client_secret": "alpha-secret",
                    "grant_types": ["client_credentials", "password"], "scope": "openid"}],
            },
        },
    })
}

fn audit(store: &Arc<Store>, clock: &Clock) -> Audit {
    let config = AuditConfig::default();
    let audit = Audit::open(
        config,
        Arc::clone(store),
        clock.clone(),
        &Metrics::default(),
    );
    audit.expect("an audit log")
}

impl Provider {
    pub(super) async fn new() -> Self {
        Self::with(config()).await
    }

    pub(super) async fn with(config: Value) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store::open(&url(&directory)).await.expect("a store");
        let clock = Clock::manual(START_MS);
        let config: IdentityConfig = serde_json::from_value(config).expect("a configuration");
        let audit = audit(&store, &clock);
        let identity = Identity::open(config, Arc::clone(&store), clock.clone(), audit)
            .await
            .expect("a provider");
        Self {
            identity,
            store,
            clock,
            directory,
        }
    }

    /// The provider after a restart, with this configuration.
    pub(super) async fn restarted(self, config: Value) -> Self {
        let config: IdentityConfig = serde_json::from_value(config).expect("a configuration");
        let audit = audit(&self.store, &self.clock);
        let identity = Identity::open(config, Arc::clone(&self.store), self.clock.clone(), audit)
            .await
            .expect("a provider");
        Self { identity, ..self }
    }

    /// Another node on the same database, whose clock stands at `now_ms`.
    pub(super) async fn node(&self, now_ms: i64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = self.other_process().await;
        let clock = Clock::manual(now_ms);
        let config = serde_json::from_value(config()).expect("a configuration");
        let audit = audit(&store, &clock);
        let identity = Identity::open(config, Arc::clone(&store), clock.clone(), audit)
            .await
            .expect("a node");
        Self {
            identity,
            store,
            clock,
            directory,
        }
    }

    /// Puts another configuration in force.
    pub(super) async fn reload(&self, config: Value) {
        let config = serde_json::from_value(config).expect("a configuration");
        self.identity.reload(config).await.expect("reloaded");
    }

    /// The same database, as another process opens it.
    pub(super) async fn other_process(&self) -> Arc<Store> {
        store::open(&url(&self.directory)).await.expect("a store")
    }

    /// Has the very database do this to itself.
    pub(super) async fn damage(&self, statement: &'static str) {
        let url = url(&self.directory);
        if store::testing::is_postgres() {
            let database = sqlx::PgPool::connect(&url).await.expect("a database");
            sqlx::query(statement).execute(&database).await.map(drop)
        } else {
            let database = sqlx::SqlitePool::connect(&url).await.expect("a database");
            sqlx::query(statement).execute(&database).await.map(drop)
        }
        .expect("done");
    }

    /// A request to the administration, with a JSON body if there is one.
    pub(super) async fn manage(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let json = [("content-type", "application/json")];
        let request = request(method, path, &json, &body);
        let response = self.identity.admin_router().oneshot(request).await;
        Answer::read(response.expect("the router always answers")).await
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.identity.router().oneshot(request).await;
        Answer::read(response.expect("the router always answers")).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, &[], "")).await
    }

    pub(super) async fn get_with(&self, path: &str, token: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        self.send(request("GET", path, &[("authorization", &bearer)], ""))
            .await
    }

    pub(super) async fn form(&self, path: &str, body: &str) -> Answer {
        self.send(request("POST", path, &[FORM], body)).await
    }

    /// A token request at the top-level realm.
    pub(super) async fn token(&self, body: &str) -> Answer {
        self.form("/oauth2/access_token", body).await
    }

    /// The access token of a client that acts for itself.
    pub(super) async fn client_token(&self) -> String {
        let body =
            "grant_type=client_credentials&client_id=app&client_secret=app-secret&scope=profile";
        let answer = self.token(body).await.json();
        answer["access_token"].as_str().expect("a token").to_owned()
    }

    /// The token response for the user `demo`.
    pub(super) async fn user_tokens(&self, scope: &str) -> Value {
        let answer = self.token(&format!("{PASSWORD_GRANT}&scope={scope}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.json()
    }

    /// The claims of a token of this provider, verified.
    pub(super) fn claims(&self, token: &str) -> Value {
        let keys = self.identity.state.keys.current();
        let unverified = Unverified::parse(token).expect("a JWT");
        Value::Object(
            unverified
                .verify(&keys.verifiers)
                .expect("a good signature"),
        )
    }
}

pub(super) const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

pub(super) const PASSWORD_GRANT: &str = "grant_type=password&client_id=app\
    &client_secret=app-secret&username=demo&password=correct+horse";

pub(super) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
        .body(Body::from(body.to_owned()))
        .expect("a request")
}

fn url(directory: &tempfile::TempDir) -> String {
    store::testing::url(directory.path())
}

/// A call without anything that a browser or client would send.
pub(super) fn call(provider: &Provider) -> Call {
    let state = Arc::clone(&provider.identity.state);
    let realm = state.live().realm("/").cloned().expect("the realm");
    let (parts, _) = request("POST", "/json/authenticate", &[], "").into_parts();
    Call {
        now_ms: state.clock.now_ms(),
        live: state.live.load_full(),
        state,
        realm,
        parts,
        body: Bytes::new(),
        realm_source: RealmSource::Path,
    }
}
