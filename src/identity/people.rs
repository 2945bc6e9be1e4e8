//! `/json[/realms/…]/users`: what clients ask about the user of their session.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::api_version::{Version, version};
use super::error::JsonError;
use super::{Call, goto, respond, rest, sessions};

const VERSIONS: &[Version] = &[version(1, 2), version(2, 1), version(3, 1), version(4, 1)];

/// Answers an action.
pub(super) async fn post(call: &Call) -> Response {
    match rest::version(call, VERSIONS) {
        Ok(chosen) => rest::finish(chosen, act(call).await),
        Err(refused) => refused.response(),
    }
}

async fn act(call: &Call) -> Result<Response, JsonError> {
    let query = rest::query(call)?;
    let body = rest::body(call)?;
    let body = match rest::action(&query)? {
        "validateGoto" => {
            sessions::of_caller(call, None)
                .await?
                .ok_or_else(rest::denied)?;
            let asked = body.as_ref().and_then(|body| body.get("goto"));
            let asked = asked.and_then(Value::as_str);
            let good = asked.filter(|address| goto::allowed(call, address));
            json!({"successURL": good.unwrap_or(&call.realm.settings.success_url)})
        }
        "idFromSession" => sessions::id_from_session(call).await?,
        other => return Err(rest::no_such_action(other)),
    };
    Ok(respond::json(StatusCode::OK, &body))
}
