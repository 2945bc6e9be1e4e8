//! `POST /oauth2[/realms/…]/par` (RFC 9126): authorization requests that travel
//! from client to provider, and not through a browser.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::error::OAuthError;
use super::{Call, authorize, client_auth, dpop, form, respond};

/// Keeps the request of the client, and answers with its address.
pub(super) async fn post(call: &Call) -> Result<Response, OAuthError> {
    let form = form::read_body(call)?;
    let client = client_auth::authenticate(call, &form).await?;
    let proven = dpop::proven_key(call, &client).await?;
    let (request_uri, expires_in) = authorize::push(call, &client, &form, proven).await?;
    let body = json!({"request_uri": request_uri, "expires_in": expires_in});
    let mut response = respond::json(StatusCode::CREATED, &body);
    respond::never_stored(&mut response);
    Ok(response)
}
