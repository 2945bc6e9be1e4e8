//! What the node says about itself (gateway-admin-api §7).

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::{State, WORKSPACE, endpoints, overview, reply, route_files};
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, fields, list_of, text};
use doorward_gateway::answer::prefers_html;
use doorward_plugins::REGISTRY;

/// The `Server` header.
pub(super) const SERVER: &str = concat!("doorward/", env!("CARGO_PKG_VERSION"));

/// The version of the imitated gateway whose interface this is: tools choose
/// their dialect by it.
pub(super) const INTERFACE_VERSION: &str = "3.9.1";

/// An address that the process listens on.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// Where.
    pub address: SocketAddr,
    /// Whether clients speak TLS there.
    pub tls: bool,
}

impl Listener {
    /// As the imitated gateway tells its own.
    fn shown(self) -> Value {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let tls = if self.tls { " ssl" } else { "" };
        json!({
            "ip": ip,
            "port": self.address.port(),
            "ssl": self.tls,
            "http2": true,
            "proxy_protocol": false,
            "deferred": false,
            "bind": false,
            "reuseport": true,
            "listener": format!("{}{tls} http2 reuseport", self.address),
        })
    }
}

/// The listeners of one section as a list.
fn listeners(of: &[Listener]) -> Value {
    of.iter().map(|listener| listener.shown()).collect()
}

/// `GET /`: a page for browsers, JSON for everybody else.
pub(super) fn root(call: Call) -> Answer {
    Box::pin(async move {
        Ok(if prefers_html(&call.headers) {
            overview::page(&call.state)
        } else {
            reply::json(StatusCode::OK, &about(&call.state))
        })
    })
}

fn about(state: &State) -> Value {
    let available: Map<String, Value> = REGISTRY
        .iter()
        .map(|kind| {
            let about = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "priority": kind.priority,
            });
            (kind.name.to_owned(), about)
        })
        .collect();
    let entities = state.control.entities();
    let in_use: BTreeSet<&str> = entities
        .plugins
        .iter()
        .map(|plugin| plugin.value.name.as_str())
        .collect();
    let names: Vec<&str> = REGISTRY.iter().map(|kind| kind.name).collect();
    json!({
        "tagline": "Welcome to Doorward",
        "version": INTERFACE_VERSION,
        "doorward_version": env!("CARGO_PKG_VERSION"),
        "edition": "community",
        "hostname": state.node.hostname(),
        "node_id": state.node.id(),
        "timers": {"running": 0, "pending": 0},
        "plugins": {"available_on_server": available, "enabled_in_cluster": in_use},
        "lua_version": "none",
        "configuration": {
            // The two words that clients know are this one, for a store that
            // takes writes, and `off`.
            "database": "postgres",
            "router_flavor": "traditional_compatible",
            "plugins": names,
            "proxy_listeners": listeners(&state.proxy_listeners),
            "admin_listeners": listeners(&state.admin_listeners),
        },
        "pids": {"master": std::process::id(), "workers": [std::process::id()]},
    })
}

/// `GET /acme`.
pub(super) fn acme(call: Call) -> Answer {
    Box::pin(async move {
        let report = call.state.acme.as_ref().ok_or(ApiError::NotFound)?;
        Ok(reply::json(StatusCode::OK, &report()))
    })
}

/// `GET /status`.
pub(super) fn status(call: Call) -> Answer {
    Box::pin(async move {
        let telemetry = &call.state.telemetry;
        let served: u64 = telemetry
            .traffic
            .sums()
            .iter()
            .map(|(_, sum)| sum.classes.iter().sum::<u64>())
            .sum();
        let total = telemetry.connections.total();
        let files = call.state.route_files.read();
        let mut errors = telemetry.config_errors.lock().clone();
        errors.extend(files.errors().cloned());
        let body = json!({
            "memory": {"resident": resident_memory()},
            "server": {
                "connections_accepted": total,
                "connections_active": telemetry.connections.open(),
                "connections_handled": total,
                "connections_reading": 0,
                "connections_waiting": 0,
                "connections_writing": telemetry.connections.open(),
                "total_requests": served,
            },
            "database": call.state.about_store().await,
            "configuration": {
                // The files are told a moment before the whole is.
                "current": telemetry.config_current.get() == 1 && errors.is_empty(),
                "reloads_done": telemetry.reloads_done.get(),
                "reloads_failed": telemetry.reloads_failed.get(),
                "errors": errors,
                "warnings": telemetry.warnings(call.state.clock.now_secs()),
                "route_files": route_files::counts(&files),
            },
        });
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// `GET /status/ready`: whether this node should be given requests. Its
/// configuration is in force since before it listened; what may be away is the
/// store.
pub(super) fn ready(call: Call) -> Answer {
    Box::pin(async move {
        Ok(match call.state.store.answers().await {
            Ok(()) => reply::message(StatusCode::OK, "ready"),
            Err(_) => reply::unavailable("the store does not answer"),
        })
    })
}

/// Resident memory in bytes, null where the system does not tell.
fn resident_memory() -> Value {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok());
    kib.map_or(Value::Null, |kib| (kib * 1024).into())
}

/// `GET /metrics`.
pub(super) fn metrics(call: Call) -> Answer {
    Box::pin(async move {
        if !call.state.metrics {
            return Err(ApiError::NotFound);
        }
        let reachable = call.state.store.answers().await.is_ok();
        let kong = &call.state.telemetry.metrics.kong;
        kong.datastore_reachable.set(i64::from(reachable));
        let mut response = Response::new(Body::from(call.state.telemetry.render()));
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; version=0.0.4"),
        );
        Ok(response)
    })
}

/// `GET /endpoints`.
pub(super) fn endpoints(_: Call) -> Answer {
    Box::pin(async move {
        let mut paths: Vec<&str> = endpoints::all().map(|endpoint| endpoint.path).collect();
        paths.sort_unstable();
        Ok(reply::json(StatusCode::OK, &json!({"data": paths})))
    })
}

/// `GET /workspaces`.
pub(super) fn workspaces(_: Call) -> Answer {
    Box::pin(async move {
        let body = json!({"data": [the_workspace()], "next": null});
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// `GET /workspaces/{name}`.
pub(super) fn workspace(call: Call) -> Answer {
    Box::pin(async move {
        let workspace = the_workspace();
        if call.param(0) != WORKSPACE && workspace["id"] != *call.param(0) {
            return Err(ApiError::NotFound);
        }
        Ok(reply::json(StatusCode::OK, &workspace))
    })
}

fn the_workspace() -> Value {
    let id = Uuid::new_v5(&Uuid::NAMESPACE_URL, b"doorward:workspace:default");
    json!({
        "id": id,
        "name": WORKSPACE,
        "comment": null,
        "config": {},
        "meta": {},
        "created_at": 0,
    })
}

impl State {
    /// Whether the store answers, and what is wrong with it.
    async fn about_store(&self) -> Value {
        match self.store.answers().await {
            Err(error) => json!({"reachable": false, "error": error.to_string()}),
            Ok(()) => match self.store.failing_writes() {
                Some(why) => json!({"reachable": true, "error": format!("writes fail: {why}")}),
                None => json!({"reachable": true}),
            },
        }
    }
}

/// What the description says of `/`.
pub(super) fn root_operation(_: &str) -> Operation {
    let object = || json!({"type": "object"});
    let members = [
        ("tagline", text()),
        ("version", text()),
        ("doorward_version", text()),
        ("edition", text()),
        ("hostname", text()),
        ("node_id", json!({"type": "string", "format": "uuid"})),
        ("timers", object()),
        ("plugins", object()),
        ("lua_version", text()),
        ("configuration", object()),
        ("pids", object()),
    ];
    let names = members.each_ref().map(|(name, _)| *name);
    let about = fields(members, &names);
    Operation::new("Tells what this node is, and which plugins it has.")
        .answers(200, "This node.", &about)
        .answers_as(200, "", "text/html", &text())
}

/// What the description says of `/status`.
pub(super) fn status_operation(_: &str) -> Operation {
    let database = fields(
        [("reachable", json!({"type": "boolean"})), ("error", text())],
        &["reachable"],
    );
    let count = || json!({"type": "integer", "minimum": 0});
    let configuration = fields(
        [
            ("current", json!({"type": "boolean"})),
            ("reloads_done", count()),
            ("reloads_failed", count()),
            ("errors", json!({"type": "array", "items": text()})),
            ("warnings", json!({"type": "array", "items": text()})),
            (
                "route_files",
                json!({"type": "object", "additionalProperties": count()}),
            ),
        ],
        &[
            "current",
            "reloads_done",
            "reloads_failed",
            "errors",
            "warnings",
            "route_files",
        ],
    );
    let body = fields(
        [
            ("memory", json!({"type": "object"})),
            (
                "server",
                json!({"type": "object", "additionalProperties": count()}),
            ),
            ("database", database),
            ("configuration", configuration),
        ],
        &["memory", "server", "database", "configuration"],
    );
    Operation::new("Tells how this node is doing.").answers(200, "Its numbers.", &body)
}

/// What the description says of `/status/ready`.
pub(super) fn ready_operation(_: &str) -> Operation {
    let body = fields([("message", text())], &["message"]);
    Operation::new("Tells whether this node should be given requests.")
        .answers(200, "It should.", &body)
        .refuses(&["503"])
}

/// What the description says of `/acme`.
pub(super) fn acme_operation(_: &str) -> Operation {
    let body = json!({"type": "object"});
    Operation::new("Tells of certificates that an authority issues by ACME.")
        .answers(200, "What is known of them.", &body)
        .refuses(&["404"])
}

/// What the description says of `/metrics`.
pub(super) fn metrics_operation(_: &str) -> Operation {
    Operation::new("Tells every number of this node, as Prometheus reads it.")
        .answers_as(200, "The numbers.", "text/plain", &text())
        .refuses(&["404"])
}

/// What the description says of `/endpoints`.
pub(super) fn endpoints_operation(_: &str) -> Operation {
    let body = fields(
        [("data", json!({"type": "array", "items": text()}))],
        &["data"],
    );
    Operation::new("Lists the paths of this interface.").answers(200, "All of them.", &body)
}

fn workspace_schema() -> Value {
    let members = [
        ("id", json!({"type": "string", "format": "uuid"})),
        ("name", text()),
        ("comment", nullable(text())),
        ("config", json!({"type": "object"})),
        ("meta", json!({"type": "object"})),
        ("created_at", json!({"type": "integer"})),
    ];
    let names = members.each_ref().map(|(name, _)| *name);
    fields(members, &names)
}

/// What the description says of `/workspaces`.
pub(super) fn workspaces_operation(_: &str) -> Operation {
    let page = list_of(&workspace_schema());
    Operation::new("Lists workspaces, of which there is one.").answers(200, "All of them.", &page)
}

/// What the description says of `/workspaces/{name}`.
pub(super) fn workspace_operation(_: &str) -> Operation {
    Operation::new("Shows the workspace.")
        .names("workspaces", "`default`, or its `id`.")
        .answers(200, "The workspace.", &workspace_schema())
}
