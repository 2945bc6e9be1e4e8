//! `POST /oauth2[/realms/…]/introspect` (RFC 7662): what a token means, told to
//! whom it concerns.
//!
//! A token concerns the client it was issued to, those that it names as its
//! audience, and clients with the scope [`ALL`]. Everybody else is told the
//! same as of a token that never was.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::bearer::{self, Issued, ValidToken};
use super::clients::LiveClient;
use super::context::NO_CLASS;
use super::error::{Fault, OAuthError};
use super::form;
use super::refresh::RefreshToken;
use super::{Call, client_auth, membership, respond};
use doorward_core::model::grant::StoredRefresh;

/// The scope of clients that may ask about every access token of the realm.
const ALL: &str = "am-introspect-all-tokens";

/// The claims that are told as they are.
const CLAIMS: [&str; 15] = [
    "realm",
    "exp",
    "iat",
    "nbf",
    "sub",
    "iss",
    "aud",
    "jti",
    "auth_level",
    "authGrantId",
    "auditTrackingId",
    "cts",
    "token_type",
    "cnf",
    "act",
];

/// Answers whether a token is active, and what it means.
pub(super) async fn post(call: &Call) -> Result<Response, OAuthError> {
    let form = form::read_body(call)?;
    let caller = client_auth::authenticate(call, &form).await?;
    if caller.client.is_public() {
        let text = "Client authentication failed";
        return Err(OAuthError::invalid_client(&call.realm.path, text));
    }
    let missing = || OAuthError::bad("invalid_request", "Missing parameter: token");
    let token = form.get("token").ok_or_else(missing)?;
    let refresh_first = form.get("token_type_hint") == Some("refresh_token");
    // The hint only orders the look-ups (RFC 7662 §2.1).
    let body = if refresh_first {
        match Box::pin(refresh(call, &caller, token)).await? {
            Some(body) => Some(body),
            None => access(call, &caller, token).await?,
        }
    } else {
        match access(call, &caller, token).await? {
            Some(body) => Some(body),
            None => Box::pin(refresh(call, &caller, token)).await?,
        }
    };
    let body = body.unwrap_or_else(|| r#"{"active":false}"#.to_owned());
    let mut response = respond::json_text(StatusCode::OK, body);
    respond::never_stored(&mut response);
    Ok(response)
}

async fn access(call: &Call, caller: &LiveClient, token: &str) -> Result<Option<String>, Fault> {
    let good = bearer::check(&call.state, token, call.now_ms).await?;
    let good = good.filter(|good| good.realm.path == call.realm.path && concerns(good, caller));
    let Some(ValidToken { issued, user, .. }) = good else {
        return Ok(None);
    };
    let open = issued.introspection.get_or_init(|| response_text(&issued));
    let mut text = bearer::ended(open, issued.seconds_left(call.now_ms));
    let user = user.map(|user| user.id);
    if let Some(groups) = membership::groups_claim(&call.state, user, issued.scopes()).await? {
        text.pop();
        text.push_str(&format!(",\"{}\":{}}}", membership::GROUPS, json!(groups)));
    }
    Ok(Some(text))
}

/// All that is said of a token, but for the time that it has left.
fn response_text(issued: &Issued) -> Box<str> {
    let told = CLAIMS.iter().filter_map(|name| {
        let value = issued.claims.get(*name)?;
        Some(((*name).to_owned(), value.clone()))
    });
    let mut body: Map<String, Value> = told.collect();
    let scopes: Vec<_> = issued.scopes().collect();
    let subject = || issued.claims.get("sub").cloned().unwrap_or_default();
    for (name, value) in [
        ("active", json!(true)),
        ("scope", json!(scopes.join(" "))),
        ("client_id", json!(issued.client_id())),
        ("user_id", subject()),
        ("username", subject()),
    ] {
        body.insert(name.to_owned(), value);
    }
    body.extend(issued.sign_in());
    bearer::open_ended(body)
}

fn concerns(token: &ValidToken, caller: &LiveClient) -> bool {
    token.issued.concerns(caller) || caller.scopes.iter().any(|scope| scope == ALL)
}

/// A refresh token concerns its own client only: nobody else must take one for
/// an access token.
async fn refresh(call: &Call, caller: &LiveClient, token: &str) -> Result<Option<String>, Fault> {
    let state = &call.state;
    let Some(presented) = RefreshToken::parse(token) else {
        return Ok(None);
    };
    let Some(stored) = state.store.refresh_tokens(presented.family()).await? else {
        return Ok(None);
    };
    let in_force = stored.current == presented.hash();
    let StoredRefresh {
        grant, expires_ms, ..
    } = stored;
    let over = !in_force || call.now_ms >= expires_ms.min(grant.ends_ms);
    if over || grant.client_id != caller.id() || grant.realm != call.realm.path {
        return Ok(None);
    }
    let user = state.store.user(&grant.realm, grant.user_id).await?;
    let Some(user) = user.filter(|user| user.active) else {
        return Ok(None);
    };
    let exp = expires_ms.min(grant.ends_ms).div_euclid(1000);
    let subject = caller.subject(&user);
    let mut body = json!({
        "active": true,
        "scope": grant.scopes.join(" "),
        "realm": grant.realm,
        "client_id": grant.client_id,
        "user_id": subject,
        "username": subject,
        "token_type": "refresh_token",
        "exp": exp,
        "sub": subject,
        "iss": call.realm.issuer,
        "auth_level": 0,
        "authGrantId": grant.id,
        "expires_in": exp - call.now_ms.div_euclid(1000),
        "auth_time": grant.auth_time,
        "acr": grant.acr.as_deref().unwrap_or(NO_CLASS),
    });
    if !grant.amr.is_empty() {
        body["amr"] = json!(grant.amr);
    }
    Ok(Some(body.to_string()))
}
