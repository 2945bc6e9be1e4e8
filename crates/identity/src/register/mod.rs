//! Clients that register themselves: `connect/register` (RFC 7591, OpenID
//! Connect Dynamic Client Registration 1.0) and what they do with their record
//! afterwards (RFC 7592).
//!
//! Whatever a client says of itself is a stranger's word: only members that
//! are its own to choose are taken, and of grants and scopes only what the
//! realm lets registered clients have.

mod metadata;
mod rate;
mod redirects;
mod sector;

use std::net::{IpAddr, Ipv4Addr};

use aws_lc_rs::hmac;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use super::clients::stored_secret;
use super::config::RegistrationMode;
use super::error::OAuthError;
use super::form::Form;
use super::records::check_metadata;
use super::registry::{self, SECRET_BYTES, new_secret};
use super::{Call, audit, bearer, maintain, respond};
use doorward_core::clock::random_uuid;
use doorward_core::jose::json;
use doorward_core::model::audit::{Actor, Event, Kind, PendingAudit};
use doorward_core::model::client::{Client, ClientMetadata, ClientSecret};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::registration::RegistrationOutcome;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::Owner;
use doorward_net::http::ClientInfo;
use doorward_net::http::form::is_json;
use doorward_store::StoreError;
use metadata::Refused;

pub(super) use rate::Rate;
pub use redirects::check as check_redirects;

/// Members of the answer that the client must not send back (RFC 7592 §2.2).
const MANAGED: [&str; 4] = [
    "registration_access_token",
    "registration_client_uri",
    "client_secret_expires_at",
    "client_id_issued_at",
];

/// Seconds after which a full realm may be tried again.
const FULL_SECONDS: HeaderValue = HeaderValue::from_static("3600");

/// Answers any request to `connect/register`.
pub(super) async fn answer(call: &Call) -> Result<Response, OAuthError> {
    if call.realm.settings.registration.mode == RegistrationMode::Disabled {
        return Err(OAuthError {
            status: StatusCode::NOT_FOUND,
            ..OAuthError::bad("not_found", "Resource not found")
        });
    }
    match call.parts.method {
        Method::POST => register(call).await,
        Method::PUT => change(call).await,
        Method::DELETE => remove(call).await,
        _ => show(call).await,
    }
}

async fn register(call: &Call) -> Result<Response, OAuthError> {
    let token = initial_token(call).await?;
    let members = body(call)?;
    let mut metadata = metadata::read(call, members, None)?;
    metadata.client_id = random_uuid().to_string();
    sector::check(call, &metadata).await?;
    let access = new_secret();
    let secret = secret_of(&metadata, &call.realm.path, &access);
    check_metadata(&metadata, secret.as_ref()).map_err(Refused::from)?;
    let client = Client {
        realm: call.realm.path.clone(),
        secret: stored_secret(&metadata, secret.as_ref()),
        metadata,
        owner: Owner::Client,
        registration: Some(TokenHash::of(access.expose())),
        created_ms: call.now_ms,
        updated_ms: call.now_ms,
    };
    let most = call.realm.settings.registration.max_clients;
    let write = async |audit: Option<&PendingAudit>| {
        let store = &call.state.store;
        store.register_client(&client, most, token, audit).await
    };
    let told = |event: Event| event.client(&client.metadata.client_id);
    let done = |kept: &RegistrationOutcome| *kept == RegistrationOutcome::Done;
    let kept = audit::with_if(&call.state, Kind::ClientCreate, told, write, done).await?;
    let id = &client.metadata.client_id;
    let realm = &call.realm.path;
    match kept {
        RegistrationOutcome::Done => {
            tracing::info!(client_id = id, realm, "a client registered itself")
        }
        RegistrationOutcome::TokenSpent => return Err(OAuthError::invalid_token()),
        RegistrationOutcome::Full => {
            doorward_net::telemetry::warn_limited!(
                realm,
                most,
                "no more clients can register themselves"
            );
            return Err(full());
        }
    }
    maintain::make_keys_for(&call.state, &client.metadata);
    let answer = record(call, &client, secret.as_ref(), access.expose());
    Ok(answered(StatusCode::CREATED, &answer))
}

async fn show(call: &Call) -> Result<Response, OAuthError> {
    let (client, access) = caller(call).await?;
    let secret = known_secret(&client, access);
    let answer = record(call, &client, secret.as_ref(), access);
    Ok(answered(StatusCode::OK, &answer))
}

async fn change(call: &Call) -> Result<Response, OAuthError> {
    let (old, access) = caller(call).await?;
    if call.realm.settings.registration.mode == RegistrationMode::Open {
        slow_down(call, " changes")?;
    }
    let members = body(call)?;
    check_identity(&old, access, &members)?;
    let metadata = metadata::read(call, members, Some(&old))?;
    sector::check(call, &metadata).await?;
    let (secret, stored) = next_secret(&old, &metadata, access)?;
    let client = Client {
        metadata,
        secret: stored,
        updated_ms: call.now_ms.max(old.updated_ms + 1),
        ..old.clone()
    };
    let write = async |audit: Option<&PendingAudit>| {
        let store = &call.state.store;
        store.update_client(&client, old.updated_ms, audit).await
    };
    match audit::with(&call.state, Kind::ClientUpdate, audit::as_it_is, write).await {
        Err(StoreError::Conflict(_)) => {
            let text = "The record was changed by somebody else at the same time";
            return Err(Refused::metadata(text).into());
        }
        outcome => outcome?,
    }
    maintain::make_keys_for(&call.state, &client.metadata);
    let answer = record(call, &client, secret.as_ref(), access);
    Ok(answered(StatusCode::OK, &answer))
}

async fn remove(call: &Call) -> Result<Response, OAuthError> {
    let (client, _) = caller(call).await?;
    let id = &client.metadata.client_id;
    let write = async |audit: Option<&PendingAudit>| {
        let store = &call.state.store;
        store.delete_client(&client.realm, id, None, audit).await
    };
    let gone = audit::with(&call.state, Kind::ClientDelete, audit::as_it_is, write).await?;
    call.state
        .mark_revoked(&gone.unwrap_or_default(), call.now_ms);
    tracing::info!(
        client_id = id,
        realm = client.realm,
        "a client removed itself"
    );
    let mut response = respond::empty(StatusCode::NO_CONTENT);
    respond::never_stored(&mut response);
    Ok(response)
}

/// The initial access token that the registration spends.
async fn initial_token(call: &Call) -> Result<Option<TokenHash>, OAuthError> {
    if call.realm.settings.registration.mode == RegistrationMode::Open {
        return slow_down(call, "").map(|()| None);
    }
    let token = bearer::from_header(call.headers());
    let token = token.ok_or_else(|| OAuthError::no_token(&call.realm.path))?;
    let hash = TokenHash::of(token);
    let store = &call.state.store;
    // Looked at before anything is fetched; spent at the end.
    let good = store.is_initial_token(&call.realm.path, hash, call.now_ms);
    if good.await? {
        Ok(Some(hash))
    } else {
        Err(OAuthError::invalid_token())
    }
}

/// Refuses strangers of one network that register too many clients, or change
/// records too often: each time everybody's clients are read again. What is of
/// another `kind` is counted apart.
pub(super) fn slow_down(call: &Call, kind: &str) -> Result<(), OAuthError> {
    let info = call.parts.extensions.get::<ClientInfo>();
    let address = info.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.addr.ip());
    let realm = &call.realm;
    let most = realm.settings.registration.rate_per_minute;
    let admitted = call.state.registrations.admit(
        &format!("{}{kind}", realm.path),
        address,
        most,
        call.now_ms,
    );
    admitted.map_err(|seconds| OAuthError {
        status: StatusCode::TOO_MANY_REQUESTS,
        headers: vec![(RETRY_AFTER, HeaderValue::from(seconds))],
        ..OAuthError::bad(
            "temporarily_unavailable",
            "Too many clients were registered or changed from this address",
        )
    })
}

/// What a document says of the client `id`, with no more rights than the realm lets
/// registered clients have.
pub(super) fn metadata_of_document(
    call: &Call,
    members: Map<String, Value>,
    id: &str,
) -> Result<ClientMetadata, OAuthError> {
    let mut metadata = metadata::read(call, members, None)?;
    id.clone_into(&mut metadata.client_id);
    check_metadata(&metadata, None).map_err(Refused::from)?;
    Ok(metadata)
}

/// The client that calls about itself, and what it shows for that. Nobody
/// learns whether there is such a client.
async fn caller(call: &Call) -> Result<(Client, &str), OAuthError> {
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes());
    let query = query.map_err(|error| OAuthError::bad("invalid_request", error.to_string()))?;
    let access = bearer::from_header(call.headers());
    let access = access.ok_or_else(|| OAuthError::no_token(&call.realm.path))?;
    let id = query.get("client_id").filter(|id| id.len() <= 255);
    let id = id.ok_or_else(OAuthError::invalid_token)?;
    let client = call.state.store.client(&call.realm.path, id).await?;
    let TokenHash(shown) = TokenHash::of(access);
    let TokenHash(wanted) = client
        .as_ref()
        .and_then(|client| client.registration)
        .unwrap_or(TokenHash([0; 32]));
    let same: bool = shown.ct_eq(&wanted).into();
    match client.filter(|client| same && client.registration.is_some()) {
        Some(client) => {
            audit::actor(Actor::Client(id.to_owned()));
            audit::of_client(id);
            Ok((client, access))
        }
        None => Err(OAuthError::invalid_token()),
    }
}

fn body(call: &Call) -> Result<Map<String, Value>, Refused> {
    if !is_json(call.headers()) {
        return Err(Refused::metadata("The body must be application/json"));
    }
    let object = json::object(&call.body);
    object.map_err(|_| Refused::metadata("The body must be one JSON object, no member twice"))
}

/// What of the body must agree with the record that is to be replaced.
fn check_identity(old: &Client, access: &str, members: &Map<String, Value>) -> Result<(), Refused> {
    if let Some(name) = MANAGED.iter().find(|name| members.contains_key(**name)) {
        return Err(Refused::metadata(format!("{name}: must not be sent")));
    }
    let id = members.get("client_id").and_then(Value::as_str);
    if id != Some(&old.metadata.client_id) {
        return Err(Refused::metadata("client_id: must be that of the client"));
    }
    let differs = match members.get("client_secret") {
        None | Some(Value::Null) => false,
        Some(Value::String(secret)) => {
            let derived = known_secret(old, access);
            let known = derived.is_some_and(|own| own.matches(secret));
            !known && !old.secret.matches(secret)
        }
        Some(_) => true,
    };
    if differs {
        Err(Refused::metadata(
            "client_secret: must be that of the client",
        ))
    } else {
        Ok(())
    }
}

/// The secret of a client, if it needs one. It follows from what the client
/// shows to see its record: so it can be told again, and only a digest is kept.
fn secret_of(metadata: &ClientMetadata, realm: &str, access: &Secret) -> Option<Secret> {
    metadata
        .has_use_for_secret()
        .then(|| derived(realm, metadata, access.expose()))
}

/// The secret that follows from `access`, as long as what the record signs by needs.
fn derived(realm: &str, metadata: &ClientMetadata, access: &str) -> Secret {
    let algorithm = match metadata.key_bytes() {
        0..=SECRET_BYTES => hmac::HMAC_SHA256,
        _ => hmac::HMAC_SHA512,
    };
    derived_by(algorithm, realm, &metadata.client_id, access)
}

fn derived_by(algorithm: hmac::Algorithm, realm: &str, client_id: &str, access: &str) -> Secret {
    let key = hmac::Key::new(algorithm, access.as_bytes());
    let text = format!("client_secret\n{realm}\n{client_id}");
    Secret::new(URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes())))
}

/// The secret of a client as far as it can be told.
fn known_secret(client: &Client, access: &str) -> Option<Secret> {
    match &client.secret {
        ClientSecret::None => None,
        ClientSecret::Plain(secret) => Some(secret.clone()),
        kept @ ClientSecret::Digest { .. } => {
            let id = &client.metadata.client_id;
            // A long one stays when a short one would do.
            let mut own = [hmac::HMAC_SHA256, hmac::HMAC_SHA512]
                .into_iter()
                .map(|algorithm| derived_by(algorithm, &client.realm, id, access));
            // The operator may have given it another one.
            own.find(|own| kept.matches(own.expose()))
        }
    }
}

/// The secret from now on, and what is kept of it.
fn next_secret(
    old: &Client,
    metadata: &ClientMetadata,
    access: &str,
) -> Result<(Option<Secret>, ClientSecret), Refused> {
    if !metadata.has_use_for_secret() {
        check_metadata(metadata, None)?;
        return Ok((None, ClientSecret::None));
    }
    let is_enough = |known: &Secret| known.expose().len() >= metadata.key_bytes();
    let known = known_secret(old, access).filter(is_enough);
    let others = known.is_none() && matches!(old.secret, ClientSecret::Digest { .. });
    if others && !metadata.needs_plain_secret() {
        return Ok((None, old.secret.clone()));
    }
    let secret = known.unwrap_or_else(|| derived(&old.realm, metadata, access));
    check_metadata(metadata, Some(&secret))?;
    let stored = stored_secret(metadata, Some(&secret));
    Ok((Some(secret), stored))
}

/// The client as it is told to itself (RFC 7591 §3.2.1, RFC 7592 §3).
fn record(
    call: &Call,
    client: &Client,
    secret: Option<&Secret>,
    access: &str,
) -> Map<String, Value> {
    let mut told = registry::members(&client.metadata);
    told.retain(|name, _| name == "client_id" || metadata::is_registrable(name));
    // What is empty is not as if absent: that would mean `code`.
    told.entry("response_types")
        .or_insert_with(|| Value::Array(Vec::new()));
    told.entry("token_endpoint_auth_method")
        .or_insert_with(|| metadata::USUAL_METHOD.into());
    let mut add = |name: &str, value: Value| told.insert(name.to_owned(), value);
    let issued_s = client.created_ms.div_euclid(1000);
    add("client_id_issued_at", issued_s.into());
    if let Some(secret) = secret {
        add("client_secret", secret.expose().into());
    }
    if client.metadata.has_use_for_secret() {
        add("client_secret_expires_at", 0.into());
    }
    let id = &client.metadata.client_id;
    let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    let address = format!("{}/connect/register?client_id={id}", call.realm.issuer);
    add("registration_client_uri", address.into());
    add("registration_access_token", access.into());
    told
}

fn answered(status: StatusCode, record: &Map<String, Value>) -> Response {
    let mut response = respond::json(status, record);
    respond::never_stored(&mut response);
    response
}

pub(super) fn full() -> OAuthError {
    OAuthError {
        status: StatusCode::SERVICE_UNAVAILABLE,
        headers: vec![(RETRY_AFTER, FULL_SECONDS)],
        ..OAuthError::bad(
            "temporarily_unavailable",
            "The realm has as many registered clients as it may",
        )
    }
}
