//! `POST /oauth2[/realms/…]/access_token` (interface 4.2, RFC 6749 §3.2).

use std::borrow::Cow;
use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;

use super::clients::LiveClient;
use super::config::UnknownScope;
use super::error::OAuthError;
use super::form::{self, Form};
use super::issue::TokenResponse;
use super::{Call, client_auth, device, grant, respond};
use doorward_net::http::bridge::ForUser;

/// Answers a token request.
pub(super) async fn post(call: &Call) -> Result<Response, OAuthError> {
    let form = form::read_body(call)?;
    let grant_type = form
        .get("grant_type")
        .ok_or_else(|| OAuthError::bad("invalid_request", "Grant type is not set"))?;
    let tokens = match grant_type {
        "authorization_code" => grant::authorization_code::issue(call, &form).await?,
        "client_credentials" => grant::client_credentials::issue(call, &form).await?,
        "password" => grant::password::issue(call, &form).await?,
        "refresh_token" => grant::refresh_token::issue(call, &form).await?,
        "urn:ietf:params:oauth:grant-type:jwt-bearer" => {
            grant::jwt_bearer::issue(call, &form).await?
        }
        "urn:ietf:params:oauth:grant-type:token-exchange" => {
            grant::token_exchange::issue(call, &form).await?
        }
        device::GRANT | device::EARLIER_GRANT => grant::device_code::issue(call, &form).await?,
        _ => {
            let text = "Grant type is not supported";
            return Err(OAuthError::bad("unsupported_grant_type", text));
        }
    };
    Ok(success(&tokens))
}

fn success(tokens: &TokenResponse) -> Response {
    let mut response = respond::json(StatusCode::OK, tokens);
    respond::never_stored(&mut response);
    if let Some(id) = tokens.user {
        response.extensions_mut().insert(ForUser(id));
    }
    response
}

/// The client that sent the request, if it may use this grant.
pub(super) async fn client_for(
    call: &Call,
    form: &Form<'_>,
    grant_type: &str,
) -> Result<Arc<LiveClient>, OAuthError> {
    let client = client_auth::authenticate(call, form).await?;
    if !client.may(grant_type) {
        return Err(OAuthError::bad(
            "unauthorized_client",
            "The authenticated client is not authorized to use this authorization grant type.",
        ));
    }
    Ok(client)
}

/// The parameter, which the grant can't do without.
pub(super) fn required<'f>(form: &'f Form<'_>, name: &str) -> Result<&'f str, OAuthError> {
    let missing = || OAuthError::bad("invalid_request", format!("Missing parameter, '{name}'"));
    form.get(name).ok_or_else(missing)
}

/// The scopes to grant to a client: those that it asked for, or its defaults.
/// The realm says what becomes of scopes that the client does not have, or else
/// `by_default`.
pub(super) fn scopes_for(
    call: &Call,
    client: &LiveClient,
    requested: Option<&str>,
    by_default: UnknownScope,
) -> Result<Vec<String>, OAuthError> {
    let unknown = call.realm.settings.unknown_scope.unwrap_or(by_default);
    let known;
    let requested = match (unknown, requested) {
        (UnknownScope::Ignore, Some(requested)) => {
            let has = |scope: &&str| client.scopes.iter().any(|one| one == scope);
            known = requested
                .split(' ')
                .filter(has)
                .collect::<Vec<_>>()
                .join(" ");
            // The defaults are for who asks for nothing.
            let nothing_left = known.is_empty() && !requested.trim_matches(' ').is_empty();
            Some(if nothing_left { requested } else { &known })
        }
        (_, requested) => requested,
    };
    granted(requested, &client.scopes, &client.default_scopes)
}

/// What a user is asked for, without lasting access where the client may not have it and
/// the realm does not refuse such scopes by its settings. Clients of the Model Context
/// Protocol ask for it wherever the metadata list it, and it is to be ignored where it
/// can't be given (OpenID Connect Core §11).
pub(super) fn without_offline<'a>(
    call: &Call,
    client: &LiveClient,
    asked: &'a str,
) -> Cow<'a, str> {
    let is_offline = |scope: &str| scope == "offline_access";
    let refused = call.realm.settings.unknown_scope == Some(UnknownScope::Refuse);
    if refused || client.scopes.iter().any(|scope| is_offline(scope)) {
        return Cow::Borrowed(asked);
    }
    let others = asked.split(' ').filter(|scope| !scope.is_empty());
    let others: Vec<_> = others.filter(|scope| !is_offline(scope)).collect();
    if others.is_empty() {
        // There is nothing else: the client is told so.
        return Cow::Borrowed(asked);
    }
    Cow::Owned(others.join(" "))
}

/// The scopes but that of lasting access, where it can't be given; `None`: it was the
/// only one.
pub(super) fn others_than_offline(mut scopes: Vec<String>) -> Option<Vec<String>> {
    scopes.retain(|scope| scope != "offline_access");
    (!scopes.is_empty()).then_some(scopes)
}

/// The scopes to grant: those asked for, each once and in their order, or the
/// defaults. `allowed` are all that may be asked for.
pub(super) fn granted(
    requested: Option<&str>,
    allowed: &[String],
    defaults: &[String],
) -> Result<Vec<String>, OAuthError> {
    let mut scopes: Vec<String> = Vec::new();
    for scope in requested
        .unwrap_or_default()
        .split(' ')
        .filter(|scope| !scope.is_empty())
    {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
        if scopes.len() > 100 {
            return Err(OAuthError::bad("invalid_scope", "Too many scopes"));
        }
    }
    let unknown: Vec<_> = scopes
        .iter()
        .filter(|scope| !allowed.contains(scope))
        .collect();
    if !unknown.is_empty() {
        let names: Vec<_> = unknown.iter().map(|scope| scope.as_str()).collect();
        let text = format!("Unknown/invalid scope(s): [{}]", names.join(", "));
        return Err(OAuthError::bad("invalid_scope", text));
    }
    if scopes.is_empty() {
        scopes = defaults
            .iter()
            .filter(|scope| allowed.contains(scope))
            .cloned()
            .collect();
    }
    if scopes.is_empty() {
        let text = "No scope requested and no default scope configured";
        return Err(OAuthError::bad("invalid_scope", text));
    }
    Ok(scopes)
}
