//! `/cache`: what the imitated gateway caches of its entities. Nothing of them is
//! cached here: what the Admin API changes is in force with its answer.

use http::{Method, StatusCode};
use serde_json::json;

use super::call::Call;
use super::endpoint::{Endpoint, endpoint};
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::openapi::Operation;

/// Its endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    endpoint("/cache", &["DELETE"], key, all_operation),
    endpoint("/cache/{key}", &["DELETE", "GET"], key, key_operation),
];

/// `/cache` and `/cache/{key}`: clients wait for a key to be gone, or have it forgotten.
fn key(call: Call) -> Answer {
    Box::pin(async move {
        if call.method == Method::DELETE {
            Ok(reply::empty(StatusCode::NO_CONTENT))
        } else {
            Err(ApiError::NotFound)
        }
    })
}

/// What the description says of everything.
fn all_operation(_: &str) -> Operation {
    Operation::new("Forgets what is cached of entities: nothing is.").ends(204, "It is forgotten.")
}

/// What the description says of a key.
fn key_operation(method: &str) -> Operation {
    let operation = match method {
        "DELETE" => Operation::new("Forgets a key: there is none.").ends(204, "It is forgotten."),
        _ => Operation::new("Shows what is cached under a key: nothing is.")
            .answers(
                200,
                "Never: there is no such key.",
                &json!({"type": "object"}),
            )
            .refuses(&["404"]),
    };
    operation.names("key", "The key, as the imitated gateway makes it.")
}
