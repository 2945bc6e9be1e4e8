//! `POST /explain`: what happens to a request, and why.

use http::StatusCode;
use serde_json::json;

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::model::schema::Violations;
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, fields, text};
use doorward_gateway::explain::{self, Question, QuestionError, Witness};

/// `GET /explain/refusals`: every refusal and what it means.
pub(super) fn codes(_call: Call) -> Answer {
    Box::pin(async {
        let body = json!({"data": explain::codes()});
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// `POST /explain`.
pub(super) fn explain(call: Call) -> Answer {
    Box::pin(async move {
        let question: Question = serde_json::from_slice(&call.body).map_err(|error| {
            // A body of another shape says which field; one that is no JSON, nothing.
            match error.classify() {
                serde_json::error::Category::Data => {
                    ApiError::Schema(Violations::of("@entity", error.to_string()))
                }
                _ => ApiError::Json,
            }
        })?;
        let snapshot = call.state.control.live().load_full();
        let state = call.state.clone();
        // It looks at every route, and reads files.
        let answer = tokio::task::spawn_blocking(move || {
            let witness = Witness {
                snapshot: &snapshot,
                listeners: &state.listeners,
            };
            explain::explain(&witness, &question)
        });
        let explained = answer.await.map_err(|_| ApiError::Json)?.map_err(
            |QuestionError::Field { field, message }| {
                ApiError::Schema(Violations::of(field, message))
            },
        )?;
        let explanation = explained.explain().await;
        let body = serde_json::to_value(&explanation).map_err(|_| ApiError::Json)?;
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// What the description says of the question.
pub(super) fn explain_operation(_: &str) -> Operation {
    let or_null = || nullable(text());
    let mut question = fields(
        [
            ("method", text()),
            (
                "url",
                json!({"type": "string", "description": "An address, or a path."}),
            ),
            ("headers", json!({"type": ["object", "array", "null"]})),
            (
                "client",
                json!({"type": ["string", "null"], "description": "An IP address."}),
            ),
            ("sni", or_null()),
            (
                "http_version",
                json!({"type": ["string", "null"], "enum": ["1.1", "2", null]}),
            ),
            ("consumer", or_null()),
            ("limit", json!({"type": ["integer", "null"], "minimum": 0})),
        ],
        &[],
    );
    question["additionalProperties"] = false.into();
    let object = || json!({"type": "object"});
    let object_or_null = || json!({"type": ["object", "null"]});
    let list = || json!({"type": "array", "items": {"type": "object"}});
    let answer = fields(
        [
            ("request", object()),
            ("refusal", object_or_null()),
            ("answered", object()),
            ("route", object_or_null()),
            ("near_misses", list()),
            ("filters", list()),
            ("shadowed", list()),
            ("upstream", object_or_null()),
            ("file_route", object()),
        ],
        &[
            "request",
            "refusal",
            "route",
            "near_misses",
            "filters",
            "shadowed",
            "upstream",
        ],
    );
    Operation::new("Explains what would happen to a request, and why. Nothing is sent.")
        .body(&question)
        .answers(200, "The explanation.", &answer)
}

/// What the description says of the list of refusals.
pub(super) fn codes_operation(_: &str) -> Operation {
    let code = fields(
        [
            ("filter", text()),
            ("code", text()),
            ("status", json!({"type": "integer"})),
            ("meaning", text()),
        ],
        &["filter", "code", "status", "meaning"],
    );
    let body = fields(
        [("data", json!({"type": "array", "items": code}))],
        &["data"],
    );
    Operation::new("Lists every code that requests are refused with.").answers(
        200,
        "All of them.",
        &body,
    )
}
