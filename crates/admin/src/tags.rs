//! `/tags`: who carries which tag.

use std::collections::BTreeMap;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use url::form_urlencoded;
use uuid::Uuid;

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::list::{self, DEFAULT_SIZE, Scope};
use super::openapi::entities::{declared, paging};
use super::reply;
use doorward_core::model::schema::View;
use doorward_core::openapi::{Operation, list_of};
use doorward_gateway::schemas::{self, checks};

/// `GET /tags`.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move { answer(&call, None) })
}

/// `GET /tags/{tag}`.
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move { answer(&call, Some(call.param(0))) })
}

/// One page of the rows, by the ids of the records and then by tag.
fn answer(call: &Call, wanted: Option<&str>) -> Result<Response, ApiError> {
    if let Some(Err(message)) = wanted.map(checks::tag) {
        return Err(ApiError::Unique {
            field: "tag",
            message: message.into(),
        });
    }
    let argument = |name: &str| call.query.iter().find(|(key, _)| key == name);
    let size = argument("size").map(|(_, text)| list::size(text));
    let size = size.transpose()?.unwrap_or(DEFAULT_SIZE);
    let after = argument("offset").map(|(_, text)| offset(text));
    let after = after.transpose()?;
    let scope = Scope::of(&call.query)?;
    let entities = call.state.control.entities();
    let mut rows = BTreeMap::new();
    for item in entities.items().filter(|item| scope.admits(item.origin())) {
        for tag in item.tags() {
            let row = (item.id(), tag.clone());
            let follows = after.as_ref().is_none_or(|after| row > *after);
            if follows && wanted.is_none_or(|wanted| tag == wanted) {
                rows.insert(row, item.kind());
                if rows.len() > size + 1 {
                    rows.pop_last();
                }
            }
        }
    }
    let more = rows.len() > size;
    if more {
        rows.pop_last();
    }
    let shown = rows.iter().map(
        |((id, tag), kind)| json!({"tag": tag, "entity_name": kind.plural(), "entity_id": id}),
    );
    let mut body = json!({"data": shown.collect::<Vec<_>>(), "next": null});
    if more && let Some(((id, tag), _)) = rows.last_key_value() {
        let offset = STANDARD.encode(json!([id, tag]).to_string());
        let path = match wanted {
            Some(tag) => {
                let tag: String = form_urlencoded::byte_serialize(tag.as_bytes()).collect();
                format!("/tags/{}?", tag.replace('+', "%20"))
            }
            None => "/tags?".to_owned(),
        };
        let mut next = form_urlencoded::Serializer::for_suffix(path.clone(), path.len());
        next.append_pair("offset", &offset);
        for name in ["size", Scope::NAME] {
            if let Some((name, value)) = argument(name) {
                next.append_pair(name, value);
            }
        }
        body["next"] = next.finish().into();
        body["offset"] = offset.into();
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// The row that a page begins after.
fn offset(text: &str) -> Result<(Uuid, String), ApiError> {
    let bytes = STANDARD.decode(text).ok();
    let row = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    row.ok_or_else(|| ApiError::Offset(text.to_owned()))
}

fn page() -> Value {
    list_of(&schemas::tag().to_json_schema(View::Answer))
}

/// What the description says of all of them.
pub(super) fn all_operation(_: &str) -> Operation {
    Operation::new("Lists which records carry which tags.")
        .takes(paging())
        .takes([declared()])
        .answers(200, "A page of them.", &page())
}

/// What the description says of one.
pub(super) fn one_operation(_: &str) -> Operation {
    Operation::new("Lists which records carry a tag.")
        .names("tags", "The tag.")
        .takes(paging())
        .takes([declared()])
        .answers(200, "A page of them.", &page())
}
