//! Authorization requests that a client pushes ahead of its user (RFC 9126).

use std::sync::Arc;

use super::authorization_response::RequestError;
use super::params::Params;
use super::resolve::ResolvedRequest;
use super::{request, request_object, stored_request};
use crate::Call;
use crate::clients::LiveClient;
use crate::error::OAuthError;
use crate::form::Form;

/// What proves who the client is, and is no part of its request.
const PROOF: [&str; 4] = [
    "client_secret",
    "client_assertion",
    "client_assertion_type",
    "request",
];

/// Checks the whole request in `form` as the authorization endpoint will, and
/// keeps it: gives its address, and how many seconds a browser may begin with
/// it. `proven` is the key that the client proved; its code will demand it.
///
/// # Errors
/// As those of the authorization endpoint, told to the client.
pub(crate) async fn push(
    call: &Call,
    client: &Arc<LiveClient>,
    form: &Form<'_>,
    proven: Option<String>,
) -> Result<(String, u32), OAuthError> {
    if form.get("request_uri").is_some() {
        let text = "A pushed request can't refer to another one";
        return Err(OAuthError::bad("invalid_request", text));
    }
    let (mut parameters, object) = match form.get("request") {
        None => (sent(form), false),
        Some(text) => {
            let object = request_object::open(call, client, text, call.now_ms).await;
            let object = object.map_err(|error| OAuthError::bad(error.error, error.description))?;
            // Nothing beside the object counts (RFC 9126 §3).
            (object.parameters, true)
        }
    };
    parameters.retain(|(name, _)| name != "client_id");
    parameters.push(("client_id".to_owned(), client.id().to_owned()));
    bind(&mut parameters, proven)?;
    if client.needs_signed_requests() && !object {
        let text = "The client must send a signed request object";
        return Err(OAuthError::bad("invalid_request", text));
    }
    let resolved = ResolvedRequest {
        client: Arc::clone(client),
        params: Params::pushed(parameters.clone()),
        kept: None,
        object,
    };
    let checked = request::read(call, resolved).await;
    checked.map_err(as_answer)?;
    stored_request::push(call, client, parameters, object).await
}

fn sent(form: &Form<'_>) -> Vec<(String, String)> {
    let part = |(name, value): &(&str, &str)| !value.is_empty() && !PROOF.contains(name);
    let pairs = form.pairs().filter(part);
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Binds the code to the key that was proven (RFC 9449 §10.1).
fn bind(parameters: &mut Vec<(String, String)>, proven: Option<String>) -> Result<(), OAuthError> {
    let Some(key) = proven else { return Ok(()) };
    let named = parameters.iter().find(|(name, _)| name == "dpop_jkt");
    match named {
        Some((_, named)) if *named != key => {
            let text = "The DPoP proof is of another key than dpop_jkt";
            Err(OAuthError::bad("invalid_dpop_proof", text))
        }
        Some(_) => Ok(()),
        None => {
            parameters.push(("dpop_jkt".to_owned(), key));
            Ok(())
        }
    }
}

/// The client is told, wherever its user would have been led.
fn as_answer(refused: RequestError) -> OAuthError {
    match refused {
        RequestError::Redirect(_, error) => OAuthError::bad(error.error, error.description),
        RequestError::Local(error) if error.error == "redirect_uri_mismatch" => {
            OAuthError::bad("invalid_request", error.description)
        }
        RequestError::Local(error) => error,
    }
}
