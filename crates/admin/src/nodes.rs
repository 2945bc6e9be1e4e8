//! The processes that serve the store: each tells the others that it is there.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::clock::{self, Clock};
use doorward_core::openapi::{Operation, fields, list_of, text};
use doorward_gateway::control::{ChangeError, Control};
use doorward_net::host;
use doorward_net::telemetry::Telemetry;
use doorward_store::{Node, Store, StoreError};

/// How often a node tells that it is there.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long after its last heartbeat a node counts as one that answers, in milliseconds.
const ANSWERS_MS: i64 = 30_000;
/// How long after its last heartbeat a node is listed, in milliseconds.
const LISTED_MS: i64 = 600_000;

/// This process among those that serve the store.
#[derive(Clone)]
pub struct ThisNode {
    control: Arc<Control>,
    store: Arc<Store>,
    telemetry: Telemetry,
    clock: Clock,
    id: Uuid,
    hostname: String,
    started_ms: i64,
}

impl ThisNode {
    /// This process.
    pub fn new(
        control: Arc<Control>,
        store: Arc<Store>,
        telemetry: Telemetry,
        clock: Clock,
    ) -> Self {
        Self {
            control,
            store,
            telemetry,
            id: clock::random_uuid(),
            hostname: host::name(),
            started_ms: clock.now_ms(),
            clock,
        }
    }

    /// The machine's name, as it knows it.
    pub(super) fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Identifies this run of the process.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    /// Tells other nodes that this one is there, until `stopped` is true. A store that
    /// does not answer is told of elsewhere.
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            self.beat().await;
        }
        if let Err(error) = self.store.delete_node(self.id.to_string()).await {
            tracing::debug!(%error, "other nodes list this one until it is forgotten");
        }
    }

    /// One heartbeat.
    pub(super) async fn beat(&self) {
        if let Err(error) = self.tell().await {
            tracing::debug!(%error, "other nodes do not hear of this one");
        }
    }

    async fn tell(&self) -> Result<(), StoreError> {
        let node = self.now().await?;
        let before_ms = node.seen_ms - LISTED_MS;
        self.store.put_node(node, before_ms).await
    }

    /// What there is to tell now. The time is that of all nodes: one whose clock is wrong
    /// is no dead one.
    async fn now(&self) -> Result<Node, StoreError> {
        let seen_ms = self.store.shared_time_ms(self.clock.now_ms()).await?;
        Ok(Node {
            id: self.id.to_string(),
            hostname: self.hostname.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_ms: self.started_ms,
            seen_ms,
            revision: self.control.revision(),
            is_current: self.telemetry.config_current.get() == 1,
        })
    }
}

/// `GET /clustering/nodes`.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move {
        let this = &call.state.node;
        let unread = |error| ApiError::Change(ChangeError::Store(error));
        let own = this.now().await.map_err(unread)?;
        let now_ms = own.seen_ms;
        let listed = call.state.store.nodes(now_ms - LISTED_MS).await;
        let mut nodes = listed.map_err(unread)?;
        // What it knows of itself needs no heartbeat.
        nodes.retain(|node| node.id != own.id);
        nodes.push(own);
        let data = nodes.iter().map(|node| shown(node, this, now_ms));
        let data: Vec<Value> = data.collect();
        let body = json!({"data": data, "next": null});
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// Whether other nodes that answer share the store.
pub(super) async fn has_others(call: &Call) -> Result<bool, ApiError> {
    let own = call.state.node.id.to_string();
    let store = &call.state.store;
    let unread = |error| ApiError::Change(ChangeError::Store(error));
    // Heartbeats are by the clock that all nodes share.
    let now_ms = store.shared_time_ms(call.state.clock.now_ms()).await;
    let listed = store.nodes(now_ms.map_err(unread)? - ANSWERS_MS).await;
    let nodes = listed.map_err(unread)?;
    Ok(nodes.iter().any(|node| node.id != own))
}

fn shown(node: &Node, this: &ThisNode, now_ms: i64) -> Value {
    json!({
        "id": node.id,
        "hostname": node.hostname,
        "version": node.version,
        "started_at": node.started_ms.div_euclid(1000),
        "last_seen": node.seen_ms.div_euclid(1000),
        "answers": now_ms - node.seen_ms <= ANSWERS_MS,
        "is_this": node.id == this.id.to_string(),
        "revision": node.revision,
        "configuration_current": node.is_current,
    })
}

/// What the description says of `/clustering/nodes`.
pub(super) fn all_operation(_: &str) -> Operation {
    let flag = |about: &str| json!({"type": "boolean", "description": about});
    let number = |about: &str| json!({"type": "integer", "description": about});
    let members = [
        ("id", json!({"type": "string", "format": "uuid"})),
        ("hostname", text()),
        ("version", text()),
        ("started_at", number("Seconds since the epoch.")),
        (
            "last_seen",
            number("Its last heartbeat, in seconds since the epoch."),
        ),
        (
            "answers",
            flag("Whether its last heartbeat is at most 30 seconds old."),
        ),
        ("is_this", flag("Whether it is the node that answers.")),
        (
            "revision",
            number("The write of entities to the store that it has in force."),
        ),
        (
            "configuration_current",
            flag("Whether its own files are in force."),
        ),
    ];
    let names = members.each_ref().map(|(name, _)| *name);
    let page = list_of(&fields(members, &names));
    Operation::new("Lists the nodes that share the store.").answers(
        200,
        "Those that were seen in the last ten minutes.",
        &page,
    )
}
