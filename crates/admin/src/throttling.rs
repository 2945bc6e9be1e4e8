//! `/throttling`: what throttling filters count, and how to start anew.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::Call;
use super::draft::Key;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, Parameter, fields, list_of, text};
use doorward_gateway::entities::Record;
use doorward_gateway::handler::Counting;
use doorward_plugin_api::filter::{Filter, HotPartition, PartitionReport, Partitioned};

/// `GET /throttling`: the running filters that count by partition, of plugins
/// and of route files.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move {
        let snapshot = call.state.control.live().load_full();
        let entities = call.state.control.entities();
        let running = entities.plugins.iter().filter_map(|record| {
            let filter = snapshot.filter(record.value.id)?;
            Some(summary(of_plugin(record), &filter.partitioned()?.report()))
        });
        let mut data: Vec<Value> = running.collect();
        data.extend(snapshot.files.counting().iter().filter_map(|counting| {
            let report = counting.filter.partitioned()?.report();
            Some(summary(of_route_file(counting), &report))
        }));
        Ok(reply::json(
            StatusCode::OK,
            &json!({"data": data, "next": null}),
        ))
    })
}

/// `GET /throttling/{plugin}`: the hottest partitions of a filter, the plugin
/// named by id or `instance_name`, a filter of a route file by the id that
/// `GET /throttling` shows (its `/` is `%2F`). Their texts may be names of people: they
/// are shown with `?reveal=1` only.
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move {
        let (shown_as, filter) = running(&call)?;
        let report = partitioned(&filter)?.report();
        let reveal = call
            .query
            .iter()
            .any(|(name, value)| name == "reveal" && matches!(value.as_str(), "1" | "true"));
        let hottest: Vec<Value> = report
            .hottest
            .iter()
            .map(|partition| shown(partition, reveal))
            .collect();
        let mut body = summary(shown_as, &report);
        body["hottest"] = hottest.into();
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// `DELETE /throttling/{plugin}/{partition}`: fills the buckets of a
/// partition, named by its id or its text.
pub(super) fn partition(call: Call) -> Answer {
    Box::pin(async move {
        debug_assert_eq!(call.method, Method::DELETE);
        let (_, filter) = running(&call)?;
        if partitioned(&filter)?.reset(call.param(1)).await {
            return Ok(reply::empty(StatusCode::NO_CONTENT));
        }
        let message = "nothing is counted of this partition";
        Err(ApiError::Missing(message.to_owned()))
    })
}

/// How the filter that the path names is shown, and the filter.
fn running(call: &Call) -> Result<(Value, Arc<dyn Filter>), ApiError> {
    let entities = call.state.control.entities();
    let snapshot = call.state.control.live().load_full();
    let record = match call.key(0) {
        Key::Id(id) => entities.plugins.get(id),
        Key::Name(name) => entities.plugins.by_key(&name),
    };
    let Some(record) = record else {
        let mut all = snapshot.files.counting().into_iter();
        let found = all.find(|counting| counting.key == call.param(0));
        let found = found.ok_or(ApiError::NotFound)?;
        return Ok((of_route_file(&found), found.filter));
    };
    let filter = snapshot.filter(record.value.id).cloned();
    let missing = || ApiError::Missing("the plugin is not enabled".to_owned());
    Ok((of_plugin(record), filter.ok_or_else(missing)?))
}

fn partitioned(filter: &Arc<dyn Filter>) -> Result<&dyn Partitioned, ApiError> {
    let missing = || ApiError::Missing("the plugin does not count by partition".to_owned());
    filter.partitioned().ok_or_else(missing)
}

fn of_plugin(record: &Record<Plugin>) -> Value {
    let plugin = &record.value;
    json!({"plugin": {
        "id": plugin.id,
        "name": plugin.name,
        "instance_name": plugin.instance_name,
    }})
}

fn of_route_file(counting: &Counting) -> Value {
    json!({
        "plugin": {
            "id": counting.key,
            "name": counting.type_name,
            "instance_name": counting.name,
        },
        "route_file": {"id": counting.route.id(), "name": counting.route.name()},
    })
}

/// What a filter holds, beside how it is shown.
fn summary(mut shown_as: Value, report: &PartitionReport) -> Value {
    shown_as["buckets"] = report.held.into();
    shown_as["maximum"] = report.maximum.into();
    shown_as["shadow"] = report.shadow.into();
    shown_as["counters"] = if report.shared { "shared" } else { "local" }.into();
    shown_as
}

fn shown(partition: &HotPartition, reveal: bool) -> Value {
    let buckets: Vec<Value> = partition
        .buckets
        .iter()
        .map(|bucket| {
            json!({
                "rate": bucket.rate,
                "capacity": bucket.capacity,
                "remaining": bucket.remaining,
                "full_in_ms": bucket.full_in_ms,
            })
        })
        .collect();
    let mut shown = json!({
        "id": partition.id,
        "passed": partition.passed,
        "refused": partition.refused,
        "buckets": buckets,
    });
    if reveal {
        shown["partition"] = (*partition.text).into();
    }
    shown
}

fn schema(has_partitions: bool) -> Value {
    let plugin = fields(
        [
            ("id", text()),
            ("name", text()),
            ("instance_name", nullable(text())),
        ],
        &["id", "name", "instance_name"],
    );
    let count = || json!({"type": "integer", "minimum": 0});
    let mut schema = fields(
        [
            ("plugin", plugin),
            ("route_file", json!({"type": "object"})),
            ("buckets", count()),
            ("maximum", count()),
            ("shadow", json!({"type": "boolean"})),
            (
                "counters",
                json!({"type": "string", "enum": ["shared", "local"]}),
            ),
        ],
        &["plugin", "buckets", "maximum", "shadow", "counters"],
    );
    if has_partitions {
        schema["properties"]["hottest"] = json!({"type": "array", "items": {"type": "object"}});
    }
    schema
}

/// What the description says of all filters.
pub(super) fn all_operation(_: &str) -> Operation {
    Operation::new("Lists the running filters that count by partition.").answers(
        200,
        "All of them.",
        &list_of(&schema(false)),
    )
}

/// What the description says of one.
pub(super) fn one_operation(_: &str) -> Operation {
    let reveal = json!({"type": "boolean", "default": false});
    Operation::new("Shows the hottest partitions of a filter.")
        .names("plugins", FILTER)
        .takes([Parameter::query(
            "reveal",
            reveal,
            "Whether texts of partitions are told.",
        )])
        .answers(200, "The filter.", &schema(true))
}

const FILTER: &str = "The plugin's `id` or `instance_name`, or the id of a route file's filter.";

/// What the description says of a partition.
pub(super) fn partition_operation(_: &str) -> Operation {
    Operation::new("Fills the buckets of a partition.")
        .names("plugins", FILTER)
        .names("partition", "Its id, or its text.")
        .ends(204, "They are full.")
}
