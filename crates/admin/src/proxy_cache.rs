//! `/proxy-cache`: answers that plugins have stored on this node.

use std::sync::Arc;

use http::{Method, StatusCode};
use uuid::Uuid;

use super::call::Call;
use super::endpoint::{Endpoint, endpoint};
use super::entity::Answer;
use super::reply;
use doorward_core::openapi::Operation;
use doorward_plugin_api::filter::{Filter, ResponseCache};
use serde_json::json;

/// Its endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    endpoint("/proxy-cache", &["DELETE"], all, all_operation),
    endpoint("/proxy-cache/{key}", &["DELETE", "GET"], key, key_operation),
    endpoint(
        "/proxy-cache/{plugins}/caches/{key}",
        &["DELETE", "GET"],
        of_plugin,
        of_plugin_operation,
    ),
];

/// The running filters that store answers, and whose they are.
fn caches(call: &Call) -> Vec<(Uuid, Arc<dyn Filter>)> {
    let snapshot = call.state.control.live().load_full();
    let entities = call.state.control.entities();
    let running = entities.plugins.iter().filter_map(|record| {
        let filter = snapshot.filter(record.value.id)?;
        filter.response_cache()?;
        Some((record.value.id, filter.clone()))
    });
    running.collect()
}

/// `DELETE /proxy-cache`: forgets everything.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move {
        for (_, filter) in caches(&call) {
            if let Some(cache) = filter.response_cache() {
                cache.clear();
            }
        }
        Ok(reply::empty(StatusCode::NO_CONTENT))
    })
}

/// `/proxy-cache/{key}`: what any plugin has stored under a key.
pub(super) fn key(call: Call) -> Answer {
    Box::pin(async move {
        let caches = caches(&call);
        let caches = caches.iter().map(|(_, filter)| filter);
        Ok(one(&call, caches, call.param(0)))
    })
}

/// `/proxy-cache/{plugin}/caches/{key}`: what one plugin has stored under a key.
pub(super) fn of_plugin(call: Call) -> Answer {
    Box::pin(async move {
        let caches = caches(&call);
        let plugin = Uuid::try_parse(call.param(0)).ok();
        let caches = caches.iter().filter(|(id, _)| Some(*id) == plugin);
        let caches = caches.map(|(_, filter)| filter);
        Ok(one(&call, caches, call.param(1)))
    })
}

fn one<'a>(
    call: &Call,
    filters: impl Iterator<Item = &'a Arc<dyn Filter>>,
    key: &str,
) -> axum::response::Response {
    let mut caches = filters.filter_map(|filter| filter.response_cache());
    if call.method == Method::DELETE {
        let mut removed = false;
        for cache in caches {
            removed |= cache.remove(key);
        }
        let status = if removed {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::NOT_FOUND
        };
        return reply::empty(status);
    }
    let entry = |cache: &dyn ResponseCache| cache.entry(key);
    match caches.find_map(entry) {
        Some(entry) => reply::json(StatusCode::OK, &entry),
        None => reply::empty(StatusCode::NOT_FOUND),
    }
}

/// What the description says of everything.
fn all_operation(_: &str) -> Operation {
    Operation::new("Forgets every stored answer of this node.").ends(204, "They are forgotten.")
}

/// What the description says of one answer. A refusal has no body.
fn key_operation(method: &str) -> Operation {
    let entry = json!({"type": "object"});
    let operation = match method {
        "DELETE" => Operation::new("Forgets a stored answer.").ends(204, "It is forgotten."),
        _ => Operation::new("Shows a stored answer.").answers(200, "The answer.", &entry),
    };
    operation
        .names("key", "The key of the answer: `X-Cache-Key`.")
        .ends(404, "There is no such answer.")
}

/// What the description says of one answer of a plugin.
fn of_plugin_operation(method: &str) -> Operation {
    key_operation(method).names("plugins", "The `id` of the plugin.")
}
