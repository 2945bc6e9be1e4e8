//! The Admin API: the gateway's entities over REST, in both dialects of the
//! imitated gateway (gateway-admin-api §1 to §7).
//!
//! Every endpoint is in [`endpoints`]. A request passes [`access`], is matched
//! to its endpoint, and its handler either reads the entities in force or
//! changes them through [`Control::change`].

mod access;
mod audit;
mod audit_events;
mod body;
mod broker;
mod cache;
mod call;
mod certificates;
mod config;
mod consumer_groups;
mod consumers;
mod cors;
mod credentials;
mod debug;
mod draft;
mod endpoint;
mod endpoints;
mod entity;
mod error;
mod explain;
mod form;
mod health;
mod identity;
mod info;
mod issuers;
mod keys;
mod list;
mod login_sessions;
mod nodes;
mod oauth2_tokens;
mod openapi;
mod overview;
mod path;
mod plugin_sessions;
mod plugins;
mod proxy_cache;
mod refusal;
mod reply;
mod route_files;
mod schemas;
mod service;
mod tags;
mod targets;
mod throttling;
mod version;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};

use access::Access;
use call::Call;
use error::ApiError;
use version::Versions;

use doorward_audit::Audit;
use doorward_core::clock::{self, Clock};
use doorward_core::model::audit::{Actor, Operator};
use doorward_core::model::secret::Secret;
use doorward_core::openapi::Document;
use doorward_gateway::control::Control;
use doorward_gateway::explain::Listeners;
use doorward_gateway::route_files::Board;
use doorward_net::http::ClientInfo;
use doorward_net::http::listener::Gate;
use doorward_net::telemetry::Telemetry;
use doorward_plugins::token_broker::Broker;
use doorward_store::Store;

pub use info::Listener;
pub use nodes::ThisNode;
pub use refusal::refusal;
pub use service::AdminService;

/// Largest request body, in bytes.
pub const MAX_BODY: usize = 1 << 20;
/// Largest body of a `POST /config`, in bytes.
pub const MAX_CONFIG: usize = 32 << 20;

/// The one workspace there is.
const WORKSPACE: &str = "default";

/// Tells the state of a part of the process.
pub type Report = Box<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Adds to a description what is served elsewhere. Gets, besides it, what gives the
/// statuses of refusals by method, open parts of the path, and body.
pub type Describe = fn(&mut Document, fn(&str, bool, bool) -> Vec<&'static str>);

/// The administration of the identity provider.
pub struct IdentityApi {
    /// Gets the requests that may pass, with their path below `/identity`.
    pub router: Router,
    /// Adds its endpoints to the description of the Admin API.
    pub describe: Describe,
    /// Describes what the provider serves at its own address.
    pub provider: Report,
}

/// What the Admin API works on.
pub struct AdminState {
    /// The owner of the entities.
    pub control: Arc<Control>,
    /// The durable store, asked whether it is well.
    pub store: Arc<Store>,
    /// The audit log.
    pub audit: Audit,
    /// Every number of the process.
    pub telemetry: Telemetry,
    /// Wall time.
    pub clock: Clock,
    /// What requests must carry in `Kong-Admin-Token`; `None`: nothing, and
    /// the listener must be on loopback.
    pub token: Option<Secret>,
    /// Host names, besides addresses and `localhost`, under which the listener
    /// is reached.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use it, besides its own; `*`: all.
    pub cors_origins: Vec<String>,
    /// Whether answers say how long they took.
    pub latency: bool,
    /// Whether `/metrics` is served.
    pub metrics: bool,
    /// Whether keys are stored as text, and the secrets of credentials shown.
    pub show_credentials: bool,
    /// The listeners for clients, for `/explain`.
    pub listeners: Listeners,
    /// Where clients connect, for `/`.
    pub proxy_listeners: Vec<Listener>,
    /// Where operators connect, for `/`.
    pub admin_listeners: Vec<Listener>,
    /// What has become of the route files.
    pub route_files: Board,
    /// What is served below `/identity`, if there is an identity provider.
    pub identity: Option<IdentityApi>,
    /// The token broker, if there is one.
    pub broker: Option<Arc<Broker>>,
    /// Certificates of an authority, if any are ordered.
    pub acme: Option<Report>,
    /// This process.
    pub node: ThisNode,
    /// What versions of records are keyed with: the store's, so that they are the same at
    /// all nodes.
    pub version_secret: Vec<u8>,
}

struct State {
    control: Arc<Control>,
    store: Arc<Store>,
    audit: Audit,
    telemetry: Telemetry,
    clock: Clock,
    access: Access,
    latency: bool,
    metrics: bool,
    show_credentials: bool,
    listeners: Listeners,
    proxy_listeners: Vec<Listener>,
    admin_listeners: Vec<Listener>,
    route_files: Board,
    identity: Option<IdentityApi>,
    broker: Option<Arc<Broker>>,
    acme: Option<Report>,
    node: ThisNode,
    versions: Versions,
    /// The description of this interface, once it was asked for.
    openapi: OnceLock<Bytes>,
    /// That of what the identity provider serves.
    provider: OnceLock<Bytes>,
}

/// The Admin API as a `Router`.
pub fn router(state: AdminState) -> Router {
    service(state).router()
}

/// The Admin API for its listener and for other parts of the process.
pub fn service(state: AdminState) -> AdminService {
    let state = Arc::new(State {
        control: state.control,
        store: state.store,
        audit: state.audit,
        telemetry: state.telemetry,
        clock: state.clock,
        access: Access {
            token: state.token,
            hosts: state.hosts,
            origins: state.cors_origins,
        },
        latency: state.latency,
        metrics: state.metrics,
        show_credentials: state.show_credentials,
        listeners: state.listeners,
        proxy_listeners: state.proxy_listeners,
        admin_listeners: state.admin_listeners,
        route_files: state.route_files,
        identity: state.identity,
        broker: state.broker,
        acme: state.acme,
        node: state.node,
        versions: Versions::new(&state.version_secret),
        openapi: OnceLock::new(),
        provider: OnceLock::new(),
    });
    let id = state.node.id().to_string();
    let kong = &state.telemetry.metrics.kong;
    kong.identify(&id, info::INTERFACE_VERSION);
    AdminService::new(state)
}

/// Whether a request may use the Admin API, by its head alone: nobody else's
/// body need be read.
pub fn gate(state: &AdminState) -> Gate {
    let access = Access {
        token: state.token.clone(),
        hosts: state.hosts.clone(),
        origins: state.cors_origins.clone(),
    };
    Arc::new(move |head| access.admits_body(&head.method, &head.uri, &head.headers))
}

/// Answers a request of the listener, or one of an operator whom another part of
/// the process has let in.
async fn answer(state: Arc<State>, operator: Option<Operator>, request: Request) -> Response {
    let started = clock::monotonic_ns();
    let (head, body) = request.into_parts();
    let origin = head.headers.get(header::ORIGIN).cloned();
    let access = if operator.is_some() {
        Ok(())
    } else {
        state.access.check(&head.method, &head.uri, &head.headers)
    };
    let latency = state.latency;
    let is_head = head.method == Method::HEAD;
    let id = clock::random_uuid().simple().to_string();
    let mut response = match access {
        Err(error) => {
            let response = error.into_response();
            let client = head.extensions.get::<ClientInfo>().copied();
            let status = response.status();
            audit_events::refused(&state, (client, Actor::Anonymous), status, &id);
            response
        }
        Ok(()) => {
            let mut response = dispatch(state, operator, (head, body), &id)
                .await
                .unwrap_or_else(ApiError::into_response);
            cors::allow_origin(response.headers_mut(), origin);
            response
        }
    };
    cors::insert(response.headers_mut(), REQUEST_ID, &id);
    if is_head {
        let length = http_body::Body::size_hint(response.body()).exact();
        *response.body_mut() = axum::body::Body::empty();
        if let Some(length) = length {
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
    let millis = (clock::monotonic_ns() - started) / 1_000_000;
    let headers = response.headers_mut();
    if latency {
        headers.insert(LATENCY, HeaderValue::from(millis));
    }
    headers.insert(header::SERVER, HeaderValue::from_static(info::SERVER));
    response
}

const LATENCY: HeaderName = HeaderName::from_static("x-kong-admin-latency");
/// What the audit log calls the request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-kong-admin-request-id");

async fn dispatch(
    state: Arc<State>,
    operator: Option<Operator>,
    (head, body): (http::request::Parts, axum::body::Body),
    id: &str,
) -> Result<Response, ApiError> {
    if let Some(provider) = &state.identity
        && let Some(below) = path::of_identity(head.uri.path())
    {
        if head.method == Method::OPTIONS {
            return Ok(cors::options(identity::METHODS, &head.headers));
        }
        return identity::forward(&provider.router, operator, below, (head, body)).await;
    }
    let segments = path::segments(head.uri.path())?;
    let (endpoint, params) = endpoints::all()
        .find_map(|endpoint| Some((endpoint, endpoint.matches(&segments)?)))
        .ok_or(ApiError::NotFound)?;
    if head.method == Method::OPTIONS {
        return Ok(cors::options(&endpoint.allow(), &head.headers));
    }
    let method = match head.method {
        Method::HEAD => Method::GET,
        method => method,
    };
    if !endpoint.methods.contains(&method.as_str()) {
        let key = draft::Key::of(params.first().map_or("", String::as_str));
        if method == Method::DELETE && (endpoint.is_missing)(&state, &key) {
            return Err(ApiError::NotFound);
        }
        let mut response = ApiError::Method.into_response();
        cors::insert(response.headers_mut(), header::ALLOW, &endpoint.allow());
        return Ok(response);
    }
    let client = head.extensions.get::<ClientInfo>().copied();
    let query = body::pairs(head.uri.query().unwrap_or_default());
    let query = query.map_err(|error| match error {
        ApiError::Form(text) => ApiError::Query(text),
        other => other,
    })?;
    let limit = if endpoint.path == "/config" {
        MAX_CONFIG
    } else {
        MAX_BODY
    };
    let body = axum::body::to_bytes(body, limit)
        .await
        .map_err(|_| ApiError::TooLarge)?;
    let call = Call {
        state,
        method,
        path: format!("/{}", segments.join("/")),
        params,
        query,
        headers: head.headers,
        body,
        client,
        operator,
        pending: None,
    };
    audit_events::answer(endpoint, call, id).await
}
