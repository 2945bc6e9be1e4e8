//! `/tags`: who carries which tag.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::list::Scope;
use super::openapi::entities::declared;
use super::reply;
use doorward_core::model::schema::View;
use doorward_core::openapi::{Operation, list_of};
use doorward_gateway::schemas;
use serde_json::Value;

/// `GET /tags`.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move { answer(&call, None) })
}

/// `GET /tags/{tag}`.
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move { answer(&call, Some(call.param(0))) })
}

fn answer(call: &Call, wanted: Option<&str>) -> Result<Response, ApiError> {
    let scope = Scope::of(&call.query)?;
    let entities = call.state.control.entities();
    let listed = entities.items().filter(|item| scope.admits(item.origin()));
    let mut rows = Vec::new();
    for item in listed {
        for tag in item.tags() {
            if wanted.is_none_or(|wanted| tag == wanted) {
                rows.push(json!({
                    "tag": tag,
                    "entity_name": item.kind().plural(),
                    "entity_id": item.id(),
                }));
            }
        }
    }
    let body = json!({"data": rows, "next": null});
    Ok(reply::json(StatusCode::OK, &body))
}

fn page() -> Value {
    list_of(&schemas::tag().to_json_schema(View::Answer))
}

/// What the description says of all of them.
pub(super) fn all_operation(_: &str) -> Operation {
    Operation::new("Lists which records carry which tags.")
        .takes([declared()])
        .answers(200, "All of them.", &page())
}

/// What the description says of one.
pub(super) fn one_operation(_: &str) -> Operation {
    Operation::new("Lists which records carry a tag.")
        .names("tags", "The tag.")
        .takes([declared()])
        .answers(200, "All of them.", &page())
}
