//! `POST /oauth2[/realms/…]/idtokeninfo`: a client has an ID token checked, and
//! is told what it says.
//!
//! Only the client that the token was given to is told; everybody else learns
//! the same of it as of no token at all.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::error::OAuthError;
use super::{Call, client_auth, form, id_token_hint, respond};
use doorward_core::jose::claims::check_times;

/// Answers with the claims of a good ID token, or with those of `claims`
/// (separated by commas) that it has.
pub(super) async fn post(call: &Call) -> Result<Response, OAuthError> {
    let form = form::read_body(call)?;
    let caller = client_auth::authenticate(call, &form).await?;
    let missing = || OAuthError::bad("invalid_request", "Missing parameter: id_token");
    let token = form.get("id_token").ok_or_else(missing)?;
    let now = call.now_ms.div_euclid(1000);
    let mut claims = id_token_hint::claims(call, token)
        .await
        .filter(|claims| claims.get("aud").and_then(Value::as_str) == Some(caller.id()))
        .filter(|claims| is_in_time(claims, now))
        .ok_or_else(|| {
            let text = "The id_token is expired, malformed, or was not issued to this client";
            OAuthError::bad("bad_request", text)
        })?;
    if let Some(wanted) = form.get("claims") {
        claims.retain(|name, _| wanted.split(',').any(|one| one.trim() == name));
    }
    let mut response = respond::json(StatusCode::OK, &claims);
    respond::never_stored(&mut response);
    Ok(response)
}

fn is_in_time(claims: &Map<String, Value>, now: i64) -> bool {
    check_times(claims, now, 0).is_ok()
}
