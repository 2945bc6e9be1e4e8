//! The Admin API called without a socket, on a store of its own.

mod certificates;
mod entities;
mod inputs;
mod kinds;
mod lists;
mod migration;
mod nodes;
mod sessions;
mod throttling;
mod transport;
mod versions;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use doorward_audit::AuditConfig;
use doorward_gateway::control::{Control, DeclaredEntities};
use doorward_gateway::declarative;
use doorward_gateway::resolve::{DnsConfig, Resolver};
use doorward_gateway::snapshot::CompileContext;
use doorward_net::http::outbound::Outbound;
use doorward_plugin_api::Parts;

const NOW_MS: i64 = 1_700_000_000_123;
const NOW_SECS: i64 = 1_700_000_000;

/// An Admin API with its store, gone when dropped.
struct Api {
    router: Router,
    gate: Gate,
    clock: Clock,
    control: Arc<Control>,
    node: ThisNode,
    store: Arc<Store>,
    _directory: tempfile::TempDir,
}

#[derive(Debug)]
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Reply {
    /// The body. What a request is called stands in a header alone: scripts compare
    /// whole bodies of refusals.
    fn json(&self) -> Value {
        let body: Value = serde_json::from_str(&self.text).unwrap_or(Value::Null);
        if self.status.as_u16() >= 400 {
            let id = &self.headers["x-kong-admin-request-id"];
            assert_eq!(id.len(), 32, "{id:?}");
            assert!(body.get("request_id").is_none(), "{}", self.text);
        }
        body
    }

    /// Status and message of a refusal.
    fn refusal(&self) -> (u16, String) {
        let body = self.json();
        let message = body["message"].as_str().unwrap_or_default().to_owned();
        (self.status.as_u16(), message)
    }

    fn id(&self) -> String {
        self.json()["id"].as_str().expect("an id").to_owned()
    }

    fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }
}

impl Api {
    async fn new() -> Self {
        Self::with("", None).await
    }

    async fn with(file: &str, token: Option<&str>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}", directory.path().join("x.db").display());
        let store = doorward_store::open(&url).await.expect("a store");
        let telemetry = Telemetry::default();
        let clock = Clock::manual(NOW_MS);
        let outbound = Arc::new(Outbound::new());
        let context = CompileContext {
            parts: Parts::new(clock.clone(), outbound, telemetry.metrics.clone()),
            internals: HashMap::from([("echo", Router::new())]),
            traffic: telemetry.traffic.clone(),
            resolver: Resolver::new(&DnsConfig::default(), Default::default()),
            upstream_verify: true,
            mount: None,
        };
        let declared = match file {
            "" => DeclaredEntities::default(),
            text => {
                let files = [(PathBuf::from("conf/routes.yaml"), text.to_owned())];
                declarative::load(&files, NOW_MS).expect("is fine").entities
            }
        };
        let control = Control::open(context, store.clone(), declared)
            .await
            .expect("opens");
        let audit = Audit::open(
            AuditConfig::default(),
            store.clone(),
            clock.clone(),
            &telemetry.metrics,
        );
        let node = ThisNode::new(
            control.clone(),
            store.clone(),
            telemetry.clone(),
            clock.clone(),
        );
        let others = store.clone();
        let state = AdminState {
            node: node.clone(),
            version_secret: b"a secret of the store".to_vec(),
            audit: audit.expect("an audit log"),
            control: control.clone(),
            store,
            telemetry,
            clock: clock.clone(),
            token: token.map(Secret::new),
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            latency: true,
            show_credentials: false,
            metrics: true,
            listeners: Default::default(),
            proxy_listeners: vec![
                Listener {
                    address: ([127, 0, 0, 1], 8000).into(),
                    tls: false,
                },
                Listener {
                    address: (std::net::Ipv6Addr::UNSPECIFIED, 8443).into(),
                    tls: true,
                },
            ],
            admin_listeners: Vec::new(),
            route_files: Default::default(),
            broker: None,
            acme: None,
            identity: None,
        };
        Self {
            gate: gate(&state),
            router: router(state),
            clock,
            control,
            node,
            store: others,
            _directory: directory,
        }
    }

    async fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Body::from(body.to_owned()))
            .expect("a request");
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX)
            .await
            .expect("a body");
        Reply {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).expect("text"),
        }
    }

    async fn get(&self, path: &str) -> Reply {
        self.raw("GET", path, &[("host", "localhost:8001")], "")
            .await
    }

    async fn delete(&self, path: &str) -> Reply {
        self.raw("DELETE", path, &[("host", "localhost:8001")], "")
            .await
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Reply {
        let headers = [
            ("host", "localhost:8001"),
            ("content-type", "application/json"),
        ];
        self.raw(method, path, &headers, &body.to_string()).await
    }

    async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, body).await
    }

    async fn form(&self, method: &str, path: &str, body: &str) -> Reply {
        let headers = [
            ("host", "localhost:8001"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.raw(method, path, &headers, body).await
    }

    /// A service called `s` with a route called `r`.
    async fn with_route() -> Self {
        let api = Self::new().await;
        api.post("/services", json!({"name":"s","host":"h"}))
            .await
            .expect(201);
        api.post("/services/s/routes", json!({"name":"r","hosts":["h"]}))
            .await
            .expect(201);
        api
    }
}
