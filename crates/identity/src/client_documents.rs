//! Clients whose identifier is the address of a document about themselves (Client ID
//! Metadata Documents). Who was seen so is a client of the store like one that
//! registered itself: every endpoint knows it, and operators see it.
//!
//! Whatever the document says is a stranger's word. It is fetched under the rules for
//! addresses that strangers choose, and only where somebody begins to sign in.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use quick_cache::sync::Cache;
use serde_json::{Map, Value, json};
use url::Url;

use super::client_address::{UNUSABLE_DOCUMENT, address};
use super::clients::LiveClient;
use super::error::OAuthError;
use super::{Call, audit, register, registry};
use doorward_core::jose::json;
use doorward_core::model::audit::{Event, Kind, PendingAudit};
use doorward_core::model::client::{Client, ClientMetadata, ClientSecret};
use doorward_core::model::registration::RegistrationOutcome;
use doorward_core::model::user::Owner;
use doorward_net::http::outbound::{Bounds, ChosenBy};
use doorward_store::StoreError;

/// Documents whose freshness is kept in memory.
const KEPT: usize = 10_000;
/// Longest document, in bytes, and longest time to get it.
const BOUNDS: Bounds = Bounds {
    body: 5 * 1024,
    timeout: std::time::Duration::from_secs(3),
};
/// Shortest and longest time for which a document is believed, in seconds.
const LIFE: (i64, i64) = (5 * 60, 24 * 60 * 60);

/// What a document may say; the rest is ignored.
const MEMBERS: [&str; 17] = [
    "application_type",
    "client_name",
    "client_uri",
    "contacts",
    "dpop_bound_access_tokens",
    "grant_types",
    "jwks",
    "jwks_uri",
    "logo_uri",
    "policy_uri",
    "redirect_uris",
    "scope",
    "software_id",
    "software_version",
    "token_endpoint_auth_method",
    "token_endpoint_auth_signing_alg",
    "tos_uri",
];

/// Grants for which a client may ask by its document.
const GRANTS: [&str; 2] = ["authorization_code", "refresh_token"];

/// Until when documents are believed, by realm and address.
pub(super) struct ClientDocuments(Cache<(String, String), i64>);

impl ClientDocuments {
    pub(super) fn new() -> Self {
        Self(Cache::new(KEPT))
    }
}

/// The client of this identifier; its document is fetched where that is due.
///
/// # Errors
/// The document can't be had, or is none.
pub(super) async fn find(call: &Call, id: &str) -> Result<Option<Arc<LiveClient>>, OAuthError> {
    let state = &call.state;
    let known = state.clients.find(&state.store, &call.realm, id).await?;
    let settings = &call.realm.settings.client_metadata_documents;
    let Some(url) = address(id).filter(|url| settings.admits(url)) else {
        return Ok(known);
    };
    // What an operator or a registration has put under this name is theirs.
    let is_other = |client: &LiveClient| {
        client.client.owner != Owner::Client || client.client.registration.is_some()
    };
    let key = (call.realm.path.clone(), id.to_owned());
    let is_fresh = (state.documents.0.get(&key)).is_some_and(|ends_ms| call.now_ms < ends_ms);
    if known
        .as_deref()
        .is_some_and(|client| is_other(client) || is_fresh)
    {
        return Ok(known);
    }
    register::slow_down(call, " documents")?;
    let (metadata, life) = read(call, &url, id).await?;
    keep(call, metadata, known.as_deref()).await?;
    state.documents.0.insert(key, call.now_ms + life * 1000);
    Ok(state.clients.read(&state.store, &call.realm, id).await?)
}

fn unusable(text: impl std::fmt::Display) -> OAuthError {
    let text = format!("{UNUSABLE_DOCUMENT}: {text}");
    OAuthError::bad("invalid_client", text.replace(['`', '"'], "'"))
}

/// Fetches a document: what it says, and for how many seconds that is believed.
async fn read(call: &Call, url: &Url, id: &str) -> Result<(ClientMetadata, i64), OAuthError> {
    let outbound = &call.state.outbound;
    let answer = outbound
        .get(url, HeaderMap::new(), ChosenBy::Stranger, BOUNDS)
        .await;
    let answer = answer.map_err(|error| {
        // To a stranger the reason would say what is in the network.
        doorward_net::telemetry::warn_limited!(id, %error, "a client's document can't be had");
        unusable("it can't be had")
    })?;
    if answer.status != StatusCode::OK {
        return Err(unusable("the answer is not 200"));
    }
    let media_type = answer.headers.get(CONTENT_TYPE);
    let media_type = media_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    if essence != "application/json" && !essence.ends_with("+json") {
        return Err(unusable("it is not of the type application/json"));
    }
    let members = json::object(&answer.body);
    let members = members.map_err(|_| unusable("it is not one JSON object, no member twice"))?;
    let members = checked(members, id).map_err(|text| {
        doorward_net::telemetry::warn_limited!(id, "a client's document can't be used: {text}");
        unusable(text)
    })?;
    let metadata = register::metadata_of_document(call, members, id)?;
    Ok((metadata, life(&answer.headers)))
}

/// The members that count, once nothing in the document speaks against it.
fn checked(mut members: Map<String, Value>, id: &str) -> Result<Map<String, Value>, &'static str> {
    members.retain(|_, value| !value.is_null());
    if members.get("client_id").and_then(Value::as_str) != Some(id) {
        return Err("its client_id is not its address");
    }
    if members.keys().any(|name| name.starts_with("client_secret")) {
        return Err("a secret in it would be none");
    }
    let method = members
        .entry("token_endpoint_auth_method")
        .or_insert_with(|| json!("none"));
    if !matches!(method.as_str(), Some("none" | "private_key_jwt")) {
        return Err("token_endpoint_auth_method must be none or private_key_jwt");
    }
    let name = members.get("client_name").and_then(Value::as_str);
    if name.is_none_or(|name| name.trim().is_empty()) {
        return Err("it has no client_name");
    }
    let redirects = members.get("redirect_uris").and_then(Value::as_array);
    if redirects.is_none_or(Vec::is_empty) {
        return Err("it has no redirect_uris");
    }
    members.retain(|name, _| MEMBERS.contains(&name.as_str()));
    // What it could do elsewhere is no reason to refuse it here.
    if let Some(grants) = members.get_mut("grant_types").and_then(Value::as_array_mut) {
        grants.retain(|grant| grant.as_str().is_some_and(|grant| GRANTS.contains(&grant)));
    }
    Ok(members)
}

/// For how many seconds an answer is believed.
fn life(headers: &HeaderMap) -> i64 {
    let directives = headers.get_all(CACHE_CONTROL);
    let directives = directives.iter().filter_map(|value| value.to_str().ok());
    let mut directives = directives.flat_map(|text| text.split(',')).map(str::trim);
    let age = directives.find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        let value = value.trim_matches('"').parse::<i64>().ok()?;
        name.eq_ignore_ascii_case("max-age").then_some(value)
    });
    age.unwrap_or_default().clamp(LIFE.0, LIFE.1)
}

/// Puts the client into the store, or what has changed of it.
async fn keep(
    call: &Call,
    metadata: ClientMetadata,
    known: Option<&LiveClient>,
) -> Result<(), OAuthError> {
    let store = &call.state.store;
    let Some(known) = known else {
        let client = Client {
            realm: call.realm.path.clone(),
            metadata,
            secret: ClientSecret::None,
            owner: Owner::Client,
            registration: None,
            created_ms: call.now_ms,
            updated_ms: call.now_ms,
        };
        let most = call.realm.settings.registration.max_clients;
        let write = async |audit: Option<&PendingAudit>| {
            store.register_client(&client, most, None, audit).await
        };
        let of_client = |event: Event| event.client(&client.metadata.client_id);
        let done = |kept: &RegistrationOutcome| *kept == RegistrationOutcome::Done;
        let kept = audit::with_if(&call.state, Kind::ClientCreate, of_client, write, done).await;
        return match kept {
            // Somebody else has come first with the same document.
            Ok(RegistrationOutcome::Done) | Err(StoreError::Taken(_)) => Ok(()),
            Ok(_) => Err(register::full()),
            Err(error) => Err(error.into()),
        };
    };
    let old = &known.client;
    if registry::members(&old.metadata) == registry::members(&metadata) {
        return Ok(());
    }
    let client = Client {
        metadata,
        updated_ms: call.now_ms.max(old.updated_ms + 1),
        ..old.clone()
    };
    let write = async |audit: Option<&PendingAudit>| {
        store.update_client(&client, old.updated_ms, audit).await
    };
    match audit::with(&call.state, Kind::ClientUpdate, audit::as_it_is, write).await {
        Ok(_) | Err(StoreError::Conflict(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const ID: &str = "https://app.test/client.json";

    fn document() -> Map<String, Value> {
        let document = json!({
            "client_id": ID, "client_name": "App", "redirect_uris": ["https://app.test/back"],
            "grant_types": ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
            "post_logout_redirect_uris": ["https://elsewhere.test"],
        });
        document.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn a_document_says_who_it_is_and_shares_no_secret() {
        let members = checked(document(), ID).expect("a document");
        assert_eq!(members["grant_types"], json!(["authorization_code"]));
        assert_eq!(members["token_endpoint_auth_method"], "none");
        assert!(!members.contains_key("post_logout_redirect_uris"));
        for (name, value) in [
            ("client_id", json!("https://app.test/client.json/")),
            ("client_id", Value::Null),
            ("client_secret", json!("s")),
            ("client_secret_expires_at", json!(0)),
            ("token_endpoint_auth_method", json!("client_secret_basic")),
            ("token_endpoint_auth_method", json!(1)),
            ("redirect_uris", json!([])),
            ("client_name", json!(" ")),
        ] {
            let mut members = document();
            members.insert(name.to_owned(), value);
            assert!(checked(members, ID).is_err(), "{name}");
        }
    }

    #[test]
    fn a_document_is_believed_for_five_minutes_to_a_day() {
        let life_of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(text));
            life(&headers)
        };
        assert_eq!(life(&HeaderMap::new()), 300);
        assert_eq!(life_of("no-store"), 300);
        assert_eq!(life_of("public, max-age=3600"), 3600);
        assert_eq!(life_of("max-age=99999999"), 86_400);
        assert_eq!(life_of("max-age=0"), 300);
    }
}
