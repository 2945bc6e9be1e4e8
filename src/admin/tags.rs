//! `/tags`: who carries which tag.

use http::StatusCode;
use serde_json::{Value, json};

use super::call::Call;
use super::entity::Answer;
use super::reply;
use crate::gateway::entities::{Entities, Entity, Table};

/// `GET /tags`.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move { Ok(answer(&call.state.control.entities(), None)) })
}

/// `GET /tags/{tag}`.
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move { Ok(answer(&call.state.control.entities(), Some(call.param(0)))) })
}

fn answer(entities: &Entities, tag: Option<&str>) -> axum::response::Response {
    let mut rows = Vec::new();
    collect(&entities.services, tag, &mut rows);
    collect(&entities.routes, tag, &mut rows);
    collect(&entities.plugins, tag, &mut rows);
    reply::json(StatusCode::OK, &json!({"data": rows, "next": null}))
}

fn collect<T: Entity>(table: &Table<T>, wanted: Option<&str>, rows: &mut Vec<Value>) {
    for record in table.iter() {
        let tags = record.doc.get("tags").and_then(Value::as_array);
        for tag in tags.into_iter().flatten() {
            if wanted.is_none_or(|wanted| *tag == wanted) {
                rows.push(json!({
                    "tag": tag,
                    "entity_name": T::KIND,
                    "entity_id": record.value.id(),
                }));
            }
        }
    }
}
