//! Requests that we keep for clients: what they pushed (RFC 9126), and what is
//! too long to be carried through the pages.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use url::form_urlencoded;

use super::authorization_response::RequestError;
use super::browser::{Browser, SHOWN_MS};
use super::params::{Params, SINCE};
use super::request::Request;
use super::resolve::ResolvedRequest;
use crate::Call;
use crate::clients::LiveClient;
use crate::error::OAuthError;
use doorward_core::clock::random_bytes;
use doorward_core::model::authorization::{SavedRequest, StoredRequest};
use doorward_core::model::grant::TokenHash;
use doorward_net::http::outbound::ChosenBy;

/// What the addresses of kept requests begin with (RFC 9126 §2.2).
const PREFIX: &str = "urn:ietf:params:oauth:request_uri:";

/// Most that is kept for a client at once, in bytes: of ordinary requests some
/// hundred thousand.
const MOST_BYTES: u32 = 64 * 1024 * 1024;

/// Most that is kept for a client that has not proven who it is: anybody can
/// fill this up, for that client. Nor is there more for one that registered
/// itself: a stranger can have many of them.
const UNPROVEN_MOST_BYTES: u32 = 8 * 1024 * 1024;

/// Longest request that is kept, in bytes.
const KEPT_MAX: usize = 32 * 1024;

/// How long a browser has to come back with the short address of a long
/// request, in milliseconds.
const FOLLOW_MS: i64 = 60 * 1000;

/// Whether a `request_uri` is the address of a request that we keep.
pub(super) fn is_ours(uri: &str) -> bool {
    uri.starts_with(PREFIX)
}

/// One answer to all of them: an address tells nothing about other clients.
fn gone() -> RequestError {
    let text = "The request_uri is unknown, expired, used or of another client";
    RequestError::Local(OAuthError::bad("invalid_request_uri", text))
}

/// The request at `uri`. Nothing beside the address counts (RFC 9126 §4). A
/// browser that was shown a page of it in time may take longer to finish.
pub(super) async fn resolve(
    call: &Call,
    outer: &Params,
    client: Arc<LiveClient>,
    uri: &str,
) -> Result<ResolvedRequest, RequestError> {
    let handle = uri.strip_prefix(PREFIX).filter(|rest| rest.len() <= 64);
    let hash = TokenHash::of(handle.ok_or_else(gone)?);
    let kept = call.state.store.authorization_request(hash).await?;
    let kept = kept.ok_or_else(gone)?;
    if kept.realm != call.realm.path || kept.client_id != client.id() {
        doorward_net::telemetry::warn_limited!(
            client_id = client.id(),
            "another client's pushed request"
        );
        return Err(gone());
    }
    let carried = carried(client.id(), uri);
    let browser = Browser::of(call);
    let shown_ms = browser.first_shown(&carried, outer.own(SINCE), call.now_ms);
    let came_ms = shown_ms.unwrap_or(call.now_ms);
    let late = kept.kept.pushed && came_ms >= kept.begins_ms;
    if late || call.now_ms >= kept.ends_ms {
        return Err(gone());
    }
    let params = outer.with_request(kept.kept.parameters.clone());
    Ok(ResolvedRequest {
        client,
        params: params.carried_as(carried),
        object: kept.kept.object,
        kept: Some(kept),
    })
}

/// What our pages carry of a kept request.
fn carried(client_id: &str, uri: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("client_id", client_id);
    query.append_pair("request_uri", uri);
    query.finish()
}

/// Keeps what a client pushed; gives the address, and its life in seconds.
///
/// # Errors
/// 413 for what is too long, 429 when the client has too many of them.
pub(super) async fn push(
    call: &Call,
    client: &LiveClient,
    parameters: Vec<(String, String)>,
    object: bool,
) -> Result<(String, u32), OAuthError> {
    let life_s = call.realm.settings.pushed_request_lifetime;
    let handle = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
    let ends_ms = call.now_ms + i64::from(life_s) * 1000;
    let kept = SavedRequest {
        parameters,
        pushed: true,
        object,
    };
    keep(call, client, &handle, kept, (ends_ms, ends_ms)).await?;
    Ok((format!("{PREFIX}{handle}"), life_s))
}

/// Keeps a request that is too long for addresses; gives what is carried in its
/// place. The same request is kept once, however often it comes.
pub(super) async fn shorten(call: &Call, request: &Request) -> Result<String, RequestError> {
    let client = &request.client;
    let parts = ["long request", &call.realm.path, client.id()];
    let whole = format!("{}\n{}", parts.join("\n"), request.query);
    let handle = URL_SAFE_NO_PAD.encode(TokenHash::of(&whole).0);
    let kept = SavedRequest {
        parameters: request.parameters.clone(),
        pushed: false,
        object: request.object,
    };
    let times = (call.now_ms + FOLLOW_MS, call.now_ms + FOLLOW_MS);
    let done = keep(call, client, &handle, kept, times).await;
    done.map_err(RequestError::Local)?;
    Ok(carried(client.id(), &format!("{PREFIX}{handle}")))
}

async fn keep(
    call: &Call,
    client: &LiveClient,
    handle: &str,
    kept: SavedRequest,
    (begins_ms, ends_ms): (i64, i64),
) -> Result<(), OAuthError> {
    let length = |(name, value): &(String, String)| name.len() + value.len();
    if kept.parameters.iter().map(length).sum::<usize>() > KEPT_MAX {
        return Err(OAuthError {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            ..OAuthError::bad("invalid_request", "The request is too long")
        });
    }
    let stored = StoredRequest {
        hash: TokenHash::of(handle),
        realm: call.realm.path.clone(),
        client_id: client.id().to_owned(),
        begins_ms,
        ends_ms,
        kept,
    };
    let known = !client.client.is_public() && client.chosen_by() == ChosenBy::Operator;
    let most = if stored.kept.pushed && known {
        MOST_BYTES
    } else {
        UNPROVEN_MOST_BYTES
    };
    if call.state.store.keep_request(&stored, most).await? {
        return Ok(());
    }
    doorward_net::telemetry::warn_limited!(client_id = client.id(), "too many pushed requests");
    let text = "Too many authorization requests of this client are waiting";
    Err(OAuthError {
        status: StatusCode::TOO_MANY_REQUESTS,
        headers: vec![(RETRY_AFTER, HeaderValue::from_static("10"))],
        ..OAuthError::bad("temporarily_unavailable", text)
    })
}

/// Makes a kept request last as long as the page that its user is shown now.
pub(super) async fn prolong(call: &Call, request: &Request) -> Result<(), RequestError> {
    let Some(kept) = &request.kept else {
        return Ok(());
    };
    // Not with every page: each is a write.
    if kept.ends_ms < call.now_ms + SHOWN_MS / 2 {
        let ends_ms = call.now_ms + SHOWN_MS;
        let store = &call.state.store;
        store.prolong_request(kept.hash, ends_ms).await?;
    }
    Ok(())
}

/// Uses a pushed request up: it is answered once (RFC 9126 §7.3).
pub(super) async fn spend(call: &Call, request: &Request) -> Result<(), RequestError> {
    let pushed = request.kept.as_ref().filter(|kept| kept.kept.pushed);
    let Some(pushed) = pushed else {
        return Ok(());
    };
    if call.state.store.take_request(pushed.hash).await? {
        Ok(())
    } else {
        Err(gone())
    }
}
