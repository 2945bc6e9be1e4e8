//! `POST /oauth2[/realms/…]/token/revoke` (RFC 7009): a client gives a token
//! back.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::clients::LiveClient;
use super::error::OAuthError;
use super::form;
use super::refresh::RefreshToken;
use super::{Call, audit, bearer, client_auth, respond};
use doorward_core::model::audit::{Event, Kind, PendingAudit};
use doorward_core::model::grant::{Revocation, TokenHash};

/// Revokes an access token, or with a refresh token its whole grant. What is
/// no token (or no longer) was revoked successfully (RFC 7009 §2.2).
pub(super) async fn post(call: &Call) -> Result<Response, OAuthError> {
    let form = form::read_body(call)?;
    let client = client_auth::authenticate(call, &form).await?;
    let missing = || OAuthError::bad("invalid_request", "Missing parameter: token");
    let token = form.get("token").ok_or_else(missing)?;
    if !revoke_refresh(call, &client, token).await? {
        revoke_access(call, &client, token).await?;
    }
    let mut response = respond::json(StatusCode::OK, &json!({}));
    respond::never_stored(&mut response);
    Ok(response)
}

/// Whether it was a refresh token.
async fn revoke_refresh(call: &Call, client: &LiveClient, token: &str) -> Result<bool, OAuthError> {
    let state = &call.state;
    let Some(presented) = RefreshToken::parse(token) else {
        return Ok(false);
    };
    // Also a spent one is a handle of its grant.
    let Some(stored) = state.store.refresh_tokens(presented.family()).await? else {
        return Ok(false);
    };
    if stored.grant.realm != call.realm.path {
        return Ok(true);
    }
    if stored.grant.client_id != client.id() {
        return Err(OAuthError::invalid_grant());
    }
    let told = |event: Event| {
        let event = event.with("grant", stored.grant.id.as_str());
        event.with("cause", "client")
    };
    let write = async |audit: Option<&PendingAudit>| {
        let grant_id = &stored.grant.id;
        state.revoke_grant(grant_id, call.now_ms, audit).await
    };
    audit::with(state, Kind::GrantRevoke, told, write).await?;
    Ok(true)
}

async fn revoke_access(call: &Call, client: &LiveClient, token: &str) -> Result<(), OAuthError> {
    let state = &call.state;
    let good = bearer::check(state, token, call.now_ms).await?;
    let Some(good) = good.filter(|good| good.realm.path == call.realm.path) else {
        return Ok(());
    };
    let issued = good.issued;
    if issued.client_id() != client.id() {
        return Err(OAuthError::invalid_grant());
    }
    let until_ms = issued.ends_s().saturating_mul(1000);
    let hash = TokenHash::of(token);
    let write = async |audit: Option<&PendingAudit>| {
        let store = &state.store;
        store
            .revoke_access_token(hash, issued.id(), until_ms, audit)
            .await
    };
    let told = |event: Event| event.with("token", issued.id());
    audit::with(state, Kind::TokenRevoke, told, write).await?;
    let what = Revocation::Token(issued.id().to_owned());
    state.revocations.add(&what, until_ms);
    Ok(())
}
