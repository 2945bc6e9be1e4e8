//! `/tags`: who carries which tag.

use http::StatusCode;
use serde_json::json;

use super::call::Call;
use super::entity::Answer;
use super::reply;
use crate::gateway::entities::Entities;

/// `GET /tags`.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move { Ok(answer(&call.state.control.entities(), None)) })
}

/// `GET /tags/{tag}`.
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move { Ok(answer(&call.state.control.entities(), Some(call.param(0)))) })
}

fn answer(entities: &Entities, wanted: Option<&str>) -> axum::response::Response {
    let mut rows = Vec::new();
    for item in entities.items() {
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
    reply::json(StatusCode::OK, &json!({"data": rows, "next": null}))
}
