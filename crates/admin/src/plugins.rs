//! What only plugins have: the list of kinds, and the older dialect's
//! `PUT /plugins`.

use http::{Method, StatusCode};
use serde_json::json;

use super::body;
use super::call::Call;
use super::draft::Key;
use super::entity::{self, Answer};
use super::reply;
use doorward_core::model::plugin::Plugin;
use doorward_core::openapi::{Operation, fields, text};
use doorward_plugins::REGISTRY;

/// `/plugins`. A PUT replaces the plugin whose id the body gives, or creates
/// one when it gives none.
pub(super) fn all(call: Call) -> Answer {
    if call.method != Method::PUT {
        return entity::collection::<Plugin>(call);
    }
    Box::pin(async move {
        let (input, _) = body::arguments(&call.headers, &call.body)?;
        match input.get("id").and_then(|id| id.as_str()) {
            Some(id) => {
                let key = Key::of(id);
                entity::replace::<Plugin>(call, key).await
            }
            None => entity::create::<Plugin>(call, None).await,
        }
    })
}

/// `GET /plugins/enabled`.
pub(super) fn enabled(_: Call) -> Answer {
    Box::pin(async move {
        let mut names: Vec<&str> = REGISTRY.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        let body = json!({"enabled_plugins": names});
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// What the description says of the kinds of plugins.
pub(super) fn enabled_operation(_: &str) -> Operation {
    let names = json!({"type": "array", "items": text()});
    Operation::new("Lists the names of the plugins that there are.").answers(
        200,
        "All of them.",
        &fields([("enabled_plugins", names)], &["enabled_plugins"]),
    )
}
