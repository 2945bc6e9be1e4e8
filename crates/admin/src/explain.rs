//! `POST /explain`: what happens to a request, and why.

use http::StatusCode;
use serde_json::json;

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::model::schema::Violations;
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
