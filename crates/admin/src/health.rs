//! The health of upstreams' targets: shown, and set by hand. Nothing of it is
//! stored, so it works on what files declare as well.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::call::Call;
use super::draft::{self, Key};
use super::entity::Answer;
use super::error::ApiError;
use super::list::{self, DEFAULT_SIZE};
use super::openapi::entities::paging;
use super::reply;
use doorward_core::clock;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_core::openapi::{Operation, Parameter, fields, list_of, reference, text};
use doorward_gateway::balance::Balancer;
use doorward_gateway::entities::{Entities, Record, target_place};
use doorward_gateway::records::{Disclosure, Resource as _};
use doorward_gateway::schemas;

/// `GET /upstreams/{upstream}/health`: every target with its health and its
/// addresses; with `balancer_health=1` that of the upstream as a whole.
pub(super) fn upstream(call: Call) -> Answer {
    Box::pin(async move {
        let entities = call.state.control.entities();
        let upstream = draft::find::<Upstream>(&entities, &call.key(0));
        let id = upstream.ok_or(ApiError::NotFound)?.value.id;
        let balancer = balancer(&call, id)?;
        let argument = |name: &str| {
            let found = call.query.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        let mut body = json!({"next": null, "node_id": call.state.node.id()});
        if argument("balancer_health") == Some("1") {
            body["data"] = balancer.status();
            return Ok(reply::json(StatusCode::OK, &body));
        }
        let size = argument("size").map(list::size).transpose()?;
        let after = argument("offset").map(list::offset).transpose()?;
        let mut targets = newest_first(&entities, id, after);
        let mut last = None;
        let data: Vec<Value> = targets
            .by_ref()
            .take(size.unwrap_or(DEFAULT_SIZE))
            .map(|record| {
                last = Some(record.value.id);
                shown(record, &entities, call.disclosure(), &balancer)
            })
            .collect();
        body["data"] = data.into();
        if let Some(last) = last.filter(|_| targets.next().is_some()) {
            let offset = STANDARD.encode(format!("[\"{last}\"]"));
            let escaped: String = url::form_urlencoded::byte_serialize(offset.as_bytes()).collect();
            body["next"] = format!("{}?offset={escaped}", call.path).into();
            body["offset"] = offset.into();
        }
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// The targets of an upstream, the newest first; with `after`, those that
/// follow this one.
fn newest_first(
    entities: &Entities,
    upstream: Uuid,
    after: Option<Uuid>,
) -> impl Iterator<Item = &Arc<Record<Target>>> {
    let mut all: Vec<_> = entities
        .targets
        .referring("upstream", upstream, None)
        .collect();
    all.sort_by(|a, b| b.value.created_at.total_cmp(&a.value.created_at));
    let start = after.map_or(0, |after| {
        let place = all.iter().position(|record| record.value.id == after);
        place.map_or(all.len(), |place| place + 1)
    });
    all.into_iter().skip(start)
}

fn shown(
    record: &Record<Target>,
    entities: &Entities,
    disclosure: Disclosure,
    balancer: &Balancer,
) -> Value {
    let mut doc = Target::show(record, entities, disclosure);
    // A target that joins at this moment is not in the balancer yet.
    let (health, data) = balancer
        .target_status(record.value.id)
        .map_or(("HEALTHCHECKS_OFF", Value::Null), |(health, data)| {
            (health.as_str(), data)
        });
    doc.insert("health".to_owned(), health.into());
    doc.insert("data".to_owned(), data);
    Value::Object(doc)
}

/// `…/targets/{target}/healthy` and `…/targets/{target}/{address}/healthy`.
pub(super) fn healthy(call: Call) -> Answer {
    Box::pin(async move { set(&call, true) })
}

/// `…/targets/{target}/unhealthy` and `…/targets/{target}/{address}/unhealthy`.
pub(super) fn unhealthy(call: Call) -> Answer {
    Box::pin(async move { set(&call, false) })
}

fn set(call: &Call, healthy: bool) -> Result<axum::response::Response, ApiError> {
    let entities = call.state.control.entities();
    let upstream = draft::find::<Upstream>(&entities, &call.key(0));
    let upstream = upstream.ok_or(ApiError::NotFound)?.value.id;
    let target = target(&entities, upstream, &call.key(1)).ok_or(ApiError::NotFound)?;
    let address = (call.params.len() > 2).then(|| call.param(2));
    let balancer = balancer(call, upstream)?;
    let now_ns = clock::monotonic_ns();
    if balancer.set_health(target.value.id, address, healthy, now_ns) {
        Ok(reply::empty(StatusCode::NO_CONTENT))
    } else {
        Err(ApiError::NotFound)
    }
}

fn balancer(call: &Call, upstream: Uuid) -> Result<Arc<Balancer>, ApiError> {
    let live = call.state.control.live();
    let snapshot = live.load();
    let balancer = snapshot.balancers.get(upstream);
    balancer.cloned().ok_or(ApiError::NotFound)
}

/// A target of the upstream, by id or by `host:port`.
pub(super) fn target<'a>(
    entities: &'a Entities,
    upstream: Uuid,
    key: &Key,
) -> Option<&'a Arc<Record<Target>>> {
    let found = match key {
        Key::Id(id) => entities.targets.get(*id),
        Key::Name(name) => {
            let full = schemas::full_target(name).ok()?;
            entities.targets.find(&target_place(&full, upstream))
        }
    };
    found.filter(|record| record.value.upstream.id == upstream)
}

/// What the description says of an upstream's health.
pub(super) fn upstream_operation(_: &str) -> Operation {
    let mut target = reference("target");
    let health = fields([("health", text())], &["health"]);
    target = json!({"allOf": [target, health]});
    let mut page = list_of(&target);
    let whole = json!({"type": "object", "description": "With `balancer_health=1`."});
    page["properties"]["data"] = json!({"oneOf": [page["properties"]["data"], whole]});
    page["properties"]["node_id"] = json!({"type": "string", "format": "uuid"});
    let flag = json!({"type": "integer", "enum": [0, 1]});
    Operation::new("Tells the health of an upstream's targets.")
        .takes(paging())
        .takes([Parameter::query(
            "balancer_health",
            flag,
            "Whether only the upstream's is told.",
        )])
        .answers(200, "The targets, the newest first.", &page)
}

fn set_operation(word: &str) -> Operation {
    Operation::new(format!("Sets a target, or one of its addresses, {word}."))
        .names("targets", "Its `id`, or its `target`.")
        .names("address", "One of its addresses, `ip:port`.")
        .ends(204, "It is.")
}

/// What the description says of setting healthy.
pub(super) fn healthy_operation(_: &str) -> Operation {
    set_operation("healthy")
}

/// What the description says of setting unhealthy.
pub(super) fn unhealthy_operation(_: &str) -> Operation {
    set_operation("unhealthy")
}
