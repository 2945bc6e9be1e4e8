//! What only consumers have: the look-up by `custom_id`.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::Call;
use super::entity::{self, Answer};
use super::error::ApiError;
use super::list::Scope;
use super::openapi::entities::collection;
use super::reply;
use doorward_core::model::consumer::Consumer;
use doorward_core::openapi::{Operation, Parameter};
use doorward_gateway::entities::Unique;

/// `/consumers`. A GET with `custom_id` lists the one consumer that has it.
pub(super) fn all(call: Call) -> Answer {
    let wanted = call.query.iter().find(|(name, _)| name == "custom_id");
    let Some((_, id)) = wanted.filter(|_| call.method == Method::GET) else {
        return entity::collection::<Consumer>(call);
    };
    let id = id.clone();
    Box::pin(async move {
        if id.is_empty() {
            return Err(ApiError::Unique {
                field: "custom_id",
                message: "length must be at least 1".into(),
            });
        }
        let entities = call.state.control.entities();
        let scope = Scope::of(&call.query)?;
        let found: Vec<Value> = Unique::text("custom_id", Some(&id))
            .filter_map(|unique| entities.consumers.find(&unique))
            .map(|record| Value::Object(scope.show(record, &entities, call.disclosure())))
            .collect();
        let body = json!({"data": found, "next": null});
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// What the description says of them: as of other records, and one parameter more.
pub(super) fn all_operation(method: &str) -> Operation {
    let operation = collection::<Consumer>(method);
    if method != "GET" {
        return operation;
    }
    let description = "Lists the one consumer that has this `custom_id`.";
    let schema = json!({"type": "string", "minLength": 1});
    operation.takes([Parameter::query("custom_id", schema, description)])
}
