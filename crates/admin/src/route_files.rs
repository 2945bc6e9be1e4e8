//! Route files, as they are in force.

use http::StatusCode;
use serde_json::{Value, json};

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, fields, list_of, text};
use doorward_gateway::route_files::{FileReport, Report, State};

/// `GET /route-files`: all of them, in the order in which they are asked.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move {
        let report = call.state.route_files.read();
        let data: Vec<Value> = report.files.iter().enumerate().map(shown).collect();
        Ok(reply::json(
            StatusCode::OK,
            &json!({"data": data, "next": null}),
        ))
    })
}

/// `GET /route-files/{id}`.
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move {
        let report = call.state.route_files.read();
        let id = call.param(0);
        let found = report.find(id).ok_or(ApiError::NotFound)?;
        let order = report.files.iter().position(|file| file == found);
        let body = shown((order.unwrap_or_default(), found));
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// How many files are in which state.
pub(super) fn counts(report: &Report) -> Value {
    let counts = State::ALL.map(|state| (state.as_str().to_owned(), report.count(state).into()));
    Value::Object(counts.into_iter().collect())
}

fn shown((order, file): (usize, &FileReport)) -> Value {
    json!({
        "id": file.id,
        "name": file.name,
        "file": file.file.display().to_string(),
        "state": file.state.as_str(),
        "router": file.router,
        "order": order,
        "errors": file.errors,
        "warnings": file.warnings,
    })
}

fn schema() -> Value {
    let texts = || json!({"type": "array", "items": text()});
    fields(
        [
            ("id", text()),
            ("name", text()),
            ("file", text()),
            (
                "state",
                json!({"type": "string", "enum": State::ALL.map(State::as_str)}),
            ),
            ("router", nullable(text())),
            ("order", json!({"type": "integer"})),
            ("errors", texts()),
            ("warnings", texts()),
        ],
        &[
            "id", "name", "file", "state", "router", "order", "errors", "warnings",
        ],
    )
}

/// What the description says of all of them.
pub(super) fn all_operation(_: &str) -> Operation {
    Operation::new("Lists the route files, in the order in which they are asked.").answers(
        200,
        "All of them.",
        &list_of(&schema()),
    )
}

/// What the description says of one.
pub(super) fn one_operation(_: &str) -> Operation {
    Operation::new("Shows a route file.")
        .names("id", "Its `id`, whose `/` are `%2F`.")
        .answers(200, "The file.", &schema())
}
