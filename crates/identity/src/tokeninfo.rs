//! `GET /oauth2[/realms/…]/tokeninfo` (interface 4.3): what a token says.
//!
//! The realm of the path is not looked at: a token names its own.

use axum::response::Response;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::bearer::Issued;
use super::error::OAuthError;
use super::form::Form;
use super::{Call, bearer, respond};

/// Answers with the claims of the token, the token, and its scopes as members.
pub(super) async fn get(call: &Call) -> Result<Response, OAuthError> {
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes())
        .map_err(|error| OAuthError::bad("invalid_request", error.to_string()))?;
    let token = match (
        query.get("access_token"),
        bearer::from_header(call.headers()),
    ) {
        (Some(_), Some(_)) => {
            let text = "Access Token cannot be provided in both query and header";
            return Err(OAuthError::bad("invalid_request", text));
        }
        (Some(token), None) | (None, Some(token)) => token,
        (None, None) => return Err(OAuthError::invalid_token()),
    };
    let good = bearer::check(&call.state, token, call.now_ms).await?;
    let good = good.ok_or_else(OAuthError::invalid_token)?;
    let issued = &good.issued;
    let open = issued.info.get_or_init(|| response_text(issued, token));
    let body = bearer::ended(open, issued.seconds_left(call.now_ms));
    let mut response = respond::json_text(StatusCode::OK, body);
    respond::never_stored(&mut response);
    let both = HeaderValue::from_static("no-cache, no-store");
    response.headers_mut().insert(CACHE_CONTROL, both);
    Ok(response)
}

/// All that is said of a token, but for the time that it has left.
fn response_text(issued: &Issued, token: &str) -> Box<str> {
    let mut body = issued.claims.clone();
    for scope in issued.scopes() {
        // A scope named like a claim must not hide it.
        body.entry(scope).or_insert_with(|| Value::from(""));
    }
    // A list, whatever the token has.
    let scopes: Vec<_> = issued.scopes().collect();
    body.insert("scope".to_owned(), json!(scopes));
    body.insert("access_token".to_owned(), json!(token));
    if issued.opaque {
        body.insert("client_id".to_owned(), json!(issued.client_id()));
    }
    bearer::open_ended(body)
}
