//! `/json[/realms/…]/sessions`: looking at a session and ending it.

use axum::response::Response;
use chrono::{DateTime, SecondsFormat};
use http::StatusCode;
use serde_json::{Value, json};

use super::{find, note_use, take_back, token_of_caller};
use crate::identity::api_version::{self, Version, version};
use crate::identity::error::JsonError;
use crate::identity::form::Form;
use crate::identity::{Call, respond};
use crate::model::session::Ending;

const VERSIONS: &[Version] = &[version(1, 2), version(2, 1), version(3, 1)];

/// Answers an action on a session.
pub(in crate::identity) async fn post(call: &Call) -> Response {
    let chosen = match api_version::choose(call.headers(), VERSIONS) {
        Ok(chosen) => chosen,
        Err(error) => return error.response(),
    };
    let answer = act(call).await;
    let mut response = answer.unwrap_or_else(JsonError::response);
    respond::never_stored(&mut response);
    chosen.stamp(&mut response, "CREST");
    response
}

async fn act(call: &Call) -> Result<Response, JsonError> {
    let bad = |text: String| JsonError::new(StatusCode::BAD_REQUEST, text);
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes()).map_err(|error| bad(error.to_string()))?;
    let named = token_of_body(call).or_else(|| query.get("tokenId").map(str::to_owned));
    let own = token_of_caller(call);
    match query.get("_action") {
        Some("validate") => {
            let token = named.or(own).ok_or_else(denied)?;
            validate(call, &token).await
        }
        Some("logout") => logout(call, &own.ok_or_else(denied)?, named.as_deref()).await,
        Some("getSessionInfo") => {
            let own = own.ok_or_else(denied)?;
            info(call, &named.unwrap_or(own)).await
        }
        Some(other) => Err(bad(format!("Unsupported action: {other}"))),
        None => Err(bad("Missing parameter: _action".to_owned())),
    }
}

fn denied() -> JsonError {
    JsonError::new(StatusCode::UNAUTHORIZED, "Access Denied")
}

fn token_of_body(call: &Call) -> Option<String> {
    let body: Value = serde_json::from_slice(&call.body).ok()?;
    body["tokenId"].as_str().map(str::to_owned)
}

fn not_valid() -> Response {
    respond::json(StatusCode::OK, &json!({"valid": false}))
}

async fn validate(call: &Call, token: &str) -> Result<Response, JsonError> {
    let Some((session, user)) = find(call, token).await? else {
        return Ok(not_valid());
    };
    note_use(call, &session).await?;
    let body = json!({"valid": true, "uid": user.user_name, "realm": session.realm});
    Ok(respond::json(StatusCode::OK, &body))
}

async fn info(call: &Call, token: &str) -> Result<Response, JsonError> {
    let Some((session, user)) = find(call, token).await? else {
        return Ok(not_valid());
    };
    let instant = |ms: i64| {
        let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
        time.to_rfc3339_opts(SecondsFormat::Secs, true)
    };
    let idle_ms = call.state.idle_ms();
    let body = json!({
        "username": user.user_name,
        "universalId": format!("id={},ou=user", user.user_name),
        "realm": session.realm,
        "latestAccessTime": instant(session.used_ms),
        "maxIdleExpirationTime": instant(session.used_ms + idle_ms),
        "maxSessionExpirationTime": instant(session.ends_ms),
        "properties": {},
    });
    Ok(respond::json(StatusCode::OK, &body))
}

/// Who holds a session may end it, and no other one than its own user's.
async fn logout(call: &Call, own: &str, named: Option<&str>) -> Result<Response, JsonError> {
    let (session, _) = find(call, own).await?.ok_or_else(denied)?;
    let token = named.unwrap_or(own);
    let mut text = "Successfully logged out";
    match find(call, token).await? {
        None => text = "Token has expired",
        Some((other, _)) if other.user_id != session.user_id => {
            return Err(JsonError::new(StatusCode::FORBIDDEN, "Forbidden"));
        }
        Some((other, _)) => {
            let which = Ending::Token(other.hash);
            call.state.end_sessions(&which, call.now_ms).await?;
        }
    }
    let mut response = respond::json(StatusCode::OK, &json!({"result": text}));
    take_back(call, &mut response).await?;
    Ok(response)
}
