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
mod call;
mod certificates;
mod config;
mod consumers;
mod cors;
mod credentials;
mod draft;
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
mod oauth2_tokens;
mod overview;
mod path;
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

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderName, HeaderValue, Method, header};

use access::Access;
use call::Call;
use entity::{Answer, child, children, collection, item, parent};
use error::ApiError;

use doorward_audit::Audit;
use doorward_core::clock::{self, Clock};
use doorward_core::model::audit::{Actor, Operator};
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::secret::Secret;
use doorward_core::model::service::Service;
use doorward_core::model::sni::Sni;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_gateway::control::Control;
use doorward_gateway::explain::Listeners;
use doorward_gateway::route_files::Board;
use doorward_net::http::ClientInfo;
use doorward_net::http::listener::Gate;
use doorward_net::telemetry::Telemetry;
use doorward_plugins::token_broker::Broker;
use doorward_store::Store;

pub use info::Listener;
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
    /// What is served below `/identity`, if there is an identity provider. It
    /// gets the requests that may pass, with their path below that.
    pub identity: Option<Router>,
    /// The token broker, if there is one.
    pub broker: Option<Arc<Broker>>,
    /// Certificates of an authority, if any are ordered.
    pub acme: Option<Report>,
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
    identity: Option<Router>,
    broker: Option<Arc<Broker>>,
    acme: Option<Report>,
    node: info::Node,
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
        node: info::Node::of_this_process(),
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

/// One path of the Admin API.
struct Endpoint {
    /// Parts in braces are open.
    path: &'static str,
    /// Besides `OPTIONS`, and `HEAD` where there is `GET`.
    methods: &'static [&'static str],
    handler: fn(Call) -> Answer,
}

const READ: &[&str] = &["GET"];
const LIST: &[&str] = &["GET", "POST"];
const ITEM: &[&str] = &["DELETE", "GET", "PATCH", "PUT"];
/// The older dialect posts.
const SET: &[&str] = &["POST", "PUT"];
const PARENT: &[&str] = &["GET", "PATCH", "PUT"];

const fn endpoint(
    path: &'static str,
    methods: &'static [&'static str],
    handler: fn(Call) -> Answer,
) -> Endpoint {
    Endpoint {
        path,
        methods,
        handler,
    }
}

/// Every endpoint but those of [`credentials`], [`keys`], [`oauth2_tokens`] and
/// [`proxy_cache`]. Of two that match, the first one counts.
static ENDPOINTS: &[Endpoint] = &[
    endpoint("/", READ, info::root),
    endpoint("/config", LIST, config::config),
    endpoint("/audit", READ, audit::list),
    endpoint("/audit/export", READ, audit::export),
    endpoint("/status", READ, info::status),
    endpoint("/status/ready", READ, info::ready),
    endpoint("/acme", READ, info::acme),
    endpoint("/metrics", READ, info::metrics),
    endpoint("/endpoints", READ, info::endpoints),
    endpoint("/explain", &["POST"], explain::explain),
    endpoint("/explain/refusals", READ, explain::codes),
    endpoint("/openid-connect/issuers", &["DELETE", "GET"], issuers::all),
    endpoint(
        "/openid-connect/issuers/{issuer}",
        &["DELETE", "GET"],
        issuers::one,
    ),
    endpoint("/openid-connect/jwks", READ, issuers::jwks),
    endpoint("/route-files", READ, route_files::all),
    endpoint("/route-files/{id}", READ, route_files::one),
    endpoint("/workspaces", READ, info::workspaces),
    endpoint("/workspaces/{workspaces}", READ, info::workspace),
    endpoint("/services", LIST, collection::<Service>),
    endpoint("/services/{services}", ITEM, item::<Service>),
    endpoint(
        "/services/{services}/routes",
        LIST,
        children::<Service, Route>,
    ),
    endpoint(
        "/services/{services}/routes/{routes}",
        ITEM,
        child::<Service, Route>,
    ),
    endpoint(
        "/services/{services}/plugins",
        LIST,
        children::<Service, Plugin>,
    ),
    endpoint(
        "/services/{services}/plugins/{plugins}",
        ITEM,
        child::<Service, Plugin>,
    ),
    endpoint(
        "/services/{services}/client_certificate",
        PARENT,
        parent::<Service, Certificate>,
    ),
    endpoint("/routes", LIST, collection::<Route>),
    endpoint("/routes/{routes}", ITEM, item::<Route>),
    endpoint("/routes/{routes}/service", PARENT, parent::<Route, Service>),
    endpoint("/routes/{routes}/plugins", LIST, children::<Route, Plugin>),
    endpoint(
        "/routes/{routes}/plugins/{plugins}",
        ITEM,
        child::<Route, Plugin>,
    ),
    endpoint("/plugins", &["GET", "POST", "PUT"], plugins::all),
    endpoint("/plugins/enabled", READ, plugins::enabled),
    endpoint("/plugins/schema/{name}", READ, schemas::legacy),
    endpoint("/plugins/{plugins}", ITEM, item::<Plugin>),
    endpoint(
        "/plugins/{plugins}/service",
        PARENT,
        parent::<Plugin, Service>,
    ),
    endpoint("/plugins/{plugins}/route", PARENT, parent::<Plugin, Route>),
    endpoint("/upstreams/{upstreams}/health", READ, health::upstream),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/healthy",
        SET,
        health::healthy,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/unhealthy",
        SET,
        health::unhealthy,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/{address}/healthy",
        SET,
        health::healthy,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/{address}/unhealthy",
        SET,
        health::unhealthy,
    ),
    endpoint(
        "/plugins/{plugins}/consumer",
        PARENT,
        parent::<Plugin, Consumer>,
    ),
    endpoint("/consumers", LIST, consumers::all),
    endpoint("/consumers/{consumers}", ITEM, item::<Consumer>),
    endpoint(
        "/consumers/{consumers}/plugins",
        LIST,
        children::<Consumer, Plugin>,
    ),
    endpoint(
        "/consumers/{consumers}/plugins/{plugins}",
        ITEM,
        child::<Consumer, Plugin>,
    ),
    endpoint("/upstreams", LIST, collection::<Upstream>),
    endpoint("/upstreams/{upstreams}", ITEM, item::<Upstream>),
    endpoint(
        "/upstreams/{upstreams}/targets",
        LIST,
        children::<Upstream, Target>,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/all",
        READ,
        children::<Upstream, Target>,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}",
        ITEM,
        targets::item,
    ),
    endpoint(
        "/upstreams/{upstreams}/client_certificate",
        PARENT,
        parent::<Upstream, Certificate>,
    ),
    endpoint("/certificates", LIST, collection::<Certificate>),
    endpoint("/certificates/{certificates}", ITEM, item::<Certificate>),
    endpoint(
        "/certificates/{certificates}/snis",
        LIST,
        children::<Certificate, Sni>,
    ),
    endpoint(
        "/certificates/{certificates}/snis/{snis}",
        ITEM,
        child::<Certificate, Sni>,
    ),
    endpoint(
        "/certificates/{certificates}/services",
        LIST,
        children::<Certificate, Service>,
    ),
    endpoint(
        "/certificates/{certificates}/services/{services}",
        ITEM,
        child::<Certificate, Service>,
    ),
    endpoint(
        "/certificates/{certificates}/upstreams",
        LIST,
        children::<Certificate, Upstream>,
    ),
    endpoint(
        "/certificates/{certificates}/upstreams/{upstreams}",
        ITEM,
        child::<Certificate, Upstream>,
    ),
    endpoint("/snis", LIST, collection::<Sni>),
    endpoint("/snis/{snis}", ITEM, item::<Sni>),
    endpoint("/ca_certificates", LIST, collection::<CaCertificate>),
    endpoint(
        "/ca_certificates/{ca_certificates}",
        ITEM,
        item::<CaCertificate>,
    ),
    endpoint(
        "/schemas/plugins/validate",
        &["POST"],
        schemas::validate_plugin,
    ),
    endpoint("/schemas/plugins/{name}", READ, schemas::plugin),
    endpoint("/schemas/{entity}", READ, schemas::entity),
    endpoint("/schemas/{entity}/validate", &["POST"], schemas::validate),
    endpoint("/tags", READ, tags::all),
    endpoint("/tags/{tags}", READ, tags::one),
    endpoint("/broker/products", LIST, broker::collection),
    endpoint("/broker/products/{id}", ITEM, broker::item),
    endpoint("/broker/developers", LIST, broker::collection),
    endpoint("/broker/developers/{id}", ITEM, broker::item),
    endpoint("/broker/applications", LIST, broker::collection),
    endpoint("/broker/applications/{id}", ITEM, broker::item),
    endpoint(
        "/broker/applications/{id}/secret",
        &["POST"],
        broker::secret,
    ),
    endpoint(
        "/broker/applications/{id}/tokens",
        &["DELETE"],
        broker::tokens,
    ),
    endpoint("/broker/tokens/revoke", &["POST"], broker::revoke),
    endpoint(
        "/openid-connect/sessions",
        &["DELETE", "GET"],
        login_sessions::all,
    ),
    endpoint(
        "/openid-connect/sessions/{id}",
        &["DELETE", "GET"],
        login_sessions::one,
    ),
    endpoint("/throttling", READ, throttling::all),
    endpoint("/throttling/{plugins}", READ, throttling::one),
    endpoint(
        "/throttling/{plugins}/{partition}",
        &["DELETE"],
        throttling::partition,
    ),
];

/// Every endpoint.
fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
    ENDPOINTS
        .iter()
        .chain(credentials::ENDPOINTS)
        .chain(keys::ENDPOINTS)
        .chain(oauth2_tokens::ENDPOINTS)
        .chain(proxy_cache::ENDPOINTS)
}

impl Endpoint {
    /// The open parts of `segments`, if they are of this endpoint.
    fn matches(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut own = self.path.split('/').filter(|part| !part.is_empty());
        let mut params = Vec::new();
        for segment in segments {
            let part = own.next()?;
            if part.starts_with('{') {
                params.push(segment.clone());
            } else if part != segment {
                return None;
            }
        }
        own.next().is_none().then_some(params)
    }

    /// The methods as `Allow` lists them.
    fn allow(&self) -> String {
        let mut methods = self.methods.to_vec();
        methods.push("OPTIONS");
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        methods.sort_unstable();
        methods.join(", ")
    }
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
    let response = match access {
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
    let mut response = reply::identified(response, &id).await;
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
/// What the audit log and the bodies of refusals call the request.
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
        return identity::forward(provider, operator, below, (head, body)).await;
    }
    let segments = path::segments(head.uri.path())?;
    let (endpoint, params) = endpoints()
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
        let mut response = ApiError::Method.into_response();
        cors::insert(response.headers_mut(), header::ALLOW, &endpoint.allow());
        return Ok(response);
    }
    let client = head.extensions.get::<ClientInfo>().copied();
    let query = body::pairs(head.uri.query().unwrap_or_default())?;
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
    };
    audit_events::answer(endpoint, call, id).await
}
