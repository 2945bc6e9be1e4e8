//! Where the parameters of a request are: in the address or the body, in a
//! request object that came with it or lies elsewhere, or with us, where its
//! client pushed them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::authorization_response::{AuthorizationError, RequestError};
use super::browser::Browser;
use super::params::{Params, SINCE};
use super::request::{self, Request};
use super::request_object::{self, RequestObject};
use super::{request_uri, stored_request};
use crate::Call;
use crate::clients::LiveClient;
use crate::error::OAuthError;
use doorward_core::model::authorization::StoredRequest;

/// A request whose parameters have been found.
#[derive(Debug)]
pub(super) struct ResolvedRequest {
    pub(super) client: Arc<LiveClient>,
    pub(super) params: Params,
    /// The record with the parameters, if we keep them.
    pub(super) kept: Option<StoredRequest>,
    /// Whether they came in a request object.
    pub(super) object: bool,
}

/// Finds and checks the request.
pub(super) async fn read(call: &Call, params: &Params) -> Result<Request, RequestError> {
    let client = client(call, params).await?;
    let resolved = resolve(call, params, client).await?;
    if let Err(error) = is_sent_as_demanded(call, &resolved) {
        return Err(request::refused(
            call,
            &resolved.client,
            &resolved.params,
            error,
        ));
    }
    request::read(call, resolved).await
}

async fn client(call: &Call, params: &Params) -> Result<Arc<LiveClient>, RequestError> {
    let here = |error, text: &str| RequestError::Local(OAuthError::bad(error, text));
    let id = params.get("client_id");
    let id = id.ok_or_else(|| here("invalid_request", "Missing parameter, 'client_id'"))?;
    let known = match id.len() {
        0..=255 => call.client(id).await.map_err(RequestError::Local)?,
        _ => None,
    };
    known.ok_or_else(|| here("invalid_client", "The client is unknown"))
}

async fn resolve(
    call: &Call,
    params: &Params,
    client: Arc<LiveClient>,
) -> Result<ResolvedRequest, RequestError> {
    let first_ms = Browser::of(call).first_shown(params.carried(), params.own(SINCE), call.now_ms);
    let (by_value, uri) = (params.get("request"), params.get("request_uri"));
    let object = match (by_value, uri) {
        (None, None) => None,
        (None, Some(uri)) if stored_request::is_ours(uri) => {
            return stored_request::resolve(call, params, client, uri).await;
        }
        (Some(_), Some(_)) => Some(Err(AuthorizationError::new(
            "invalid_request",
            "The parameters request and request_uri exclude each other",
        ))),
        (Some(text), None) => {
            let at_ms = first_ms.unwrap_or(call.now_ms);
            Some(request_object::open(call, &client, text, at_ms).await)
        }
        (None, Some(uri)) => {
            let at_ms = first_ms.unwrap_or(call.now_ms);
            Some(request_uri::open(call, &client, uri, at_ms).await)
        }
    };
    let merged = match object {
        None => Ok((params.clone(), false)),
        Some(Ok(object)) => merged(&client, params, object).map(|params| (params, true)),
        Some(Err(error)) => Err(error),
    };
    match merged {
        Ok((params, object)) => Ok(ResolvedRequest {
            client,
            params,
            kept: None,
            object,
        }),
        // What an object says that is not the client's counts for nothing.
        Err(error) => Err(request::refused(call, &client, params, error)),
    }
}

/// The parameters of the object, and those beside it that it does not have.
/// Where the client demands signed objects, nothing else counts (RFC 9101
/// §6.3); OpenID Connect has both count, and agree (Core §6.1).
fn merged(
    client: &LiveClient,
    outer: &Params,
    object: RequestObject,
) -> Result<Params, AuthorizationError> {
    let mut all = object.parameters;
    all.retain(|(name, _)| name != "client_id");
    all.push(("client_id".to_owned(), client.id().to_owned()));
    if client.needs_signed_requests() {
        return Ok(outer.with_request(all));
    }
    let inner = outer.with_request(all.clone());
    // A set, whose words come in any order.
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    if let (Some(one), Some(other)) = (outer.get("response_type"), inner.get("response_type"))
        && words(one) != words(other)
    {
        let text = "The response_type is not that of the request object";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    let is_openid = |params: &Params| {
        let scope = params.get("scope");
        scope.map(|scope| scope.split(' ').any(|scope| scope == "openid"))
    };
    if let (Some(one), Some(other)) = (is_openid(outer), is_openid(&inner))
        && one != other
    {
        let text = "The scope is not that of the request object";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    for (name, value) in outer.request() {
        let known = inner.get(name).is_some();
        if !known && name != "request" && name != "request_uri" {
            all.push((name.clone(), value.clone()));
        }
    }
    Ok(outer.with_request(all))
}

/// Whether the request came in the way that its client, or the realm, insists on.
fn is_sent_as_demanded(call: &Call, resolved: &ResolvedRequest) -> Result<(), AuthorizationError> {
    let client = &resolved.client;
    let pushed = resolved.kept.as_ref().is_some_and(|kept| kept.kept.pushed);
    if client.must_push(&call.realm) && !pushed {
        let text = "Authorization requests of this client must be pushed";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    let signed = match &resolved.kept {
        Some(kept) => kept.kept.object,
        None => resolved.object,
    };
    if client.needs_signed_requests() && !signed {
        let text = "The client must send a signed request object";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    Ok(())
}
