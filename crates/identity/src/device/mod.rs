//! `/oauth2[/realms/…]/device/…` (RFC 8628): devices without a browser ask for
//! codes; people enter one of them in the browser of another device and say
//! whether the first one may have what it asks for.

mod page;
mod user_code;

use std::sync::Arc;

use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde_json::json;

pub(super) use page::answer as page;

use super::authorize::is_challenge;
use super::clients::LiveClient;
use super::config::{LockoutConfig, UnknownScope};
use super::error::OAuthError;
use super::form::{self, Form};
use super::token::{client_for, others_than_offline, scopes_for, without_offline};
use super::{Call, audit, issue, resource, respond};
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::authorization::{Challenge, ChallengeMethod};
use doorward_core::model::device::{DeviceRequest, StoredDevice, Verdict};
use doorward_core::model::grant::TokenHash;
use doorward_store::StoreError;

/// The name of the grant type.
pub(super) const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// What it was called before it was registered.
pub(super) const EARLIER_GRANT: &str = "http://oauth.net/grant_type/device/1.0";

/// Wrong user codes of one address, which many people may share.
const ADDRESS_GUESSES: LockoutConfig = LockoutConfig {
    failures: 20,
    window: 300,
    duration: 60,
};

/// Wrong user codes of one user.
const USER_GUESSES: LockoutConfig = LockoutConfig {
    failures: 10,
    ..ADDRESS_GUESSES
};

/// Seconds after which a client may try again that has too many requests.
const FULL_SECONDS: HeaderValue = HeaderValue::from_static("30");

/// How often a new user code may turn out to be another device's.
const DRAWS: usize = 4;

/// Answers a device authorization request (RFC 8628 §3.1).
pub(super) async fn authorize(call: &Call) -> Result<Response, OAuthError> {
    let form = form::read_body(call)?;
    let client = client_for(call, &form, GRANT).await?;
    let asked = form.get("scope");
    let asked = asked.map(|asked| without_offline(call, &client, asked));
    let mut scopes = scopes_for(call, &client, asked.as_deref(), UnknownScope::Refuse)?;
    if !client.gets_refresh_tokens(&call.realm) {
        let text = "Lasting access alone can't be given to the client";
        let invalid = || OAuthError::bad("invalid_scope", text);
        scopes = others_than_offline(scopes).ok_or_else(invalid)?;
    }
    let request = DeviceRequest {
        scopes,
        resources: resource::requested(&form, &client, &call.realm)?,
        challenge: challenge(call, &form)?,
    };
    let device_code = issue::handle();
    let user_code = keep(call, &client, &device_code, request).await?;
    let settings = &call.realm.settings;
    let page = match &settings.device_verification_uri {
        Some(address) => address.clone(),
        None => format!("{}/device/user", call.realm.issuer),
    };
    let joint = if page.contains('?') { '&' } else { '?' };
    let mut body = json!({
        "device_code": device_code,
        "user_code": user_code,
        "verification_uri": &page,
        "verification_uri_complete": format!("{page}{joint}user_code={user_code}"),
        "expires_in": settings.device_code_lifetime,
        "interval": settings.device_polling_interval,
    });
    // What drafts of RFC 8628 called it is for clients that ask as was due
    // then; some others take both names for one member, there twice.
    if form.get("response_type").is_some() {
        body["verification_url"] = page.into();
    }
    let mut response = respond::json(StatusCode::OK, &body);
    respond::never_stored(&mut response);
    Ok(response)
}

/// The code challenge, for clients that prove with it that it is they who poll.
fn challenge(call: &Call, form: &Form<'_>) -> Result<Option<Challenge>, OAuthError> {
    let wrong = |text: &str| Err(OAuthError::bad("invalid_request", text));
    let method = form.get("code_challenge_method");
    let Some(value) = form.get("code_challenge") else {
        return match method {
            Some(_) => wrong("Missing parameter, 'code_challenge'"),
            None => Ok(None),
        };
    };
    let method = match method {
        Some("S256") => ChallengeMethod::S256,
        Some("plain") | None if call.realm.settings.plain_pkce => ChallengeMethod::Plain,
        _ => return wrong("The code_challenge_method must be S256"),
    };
    if !is_challenge(method, value) {
        return wrong("Malformed parameter, 'code_challenge'");
    }
    Ok(Some(Challenge {
        method,
        value: value.to_owned(),
    }))
}

/// Keeps the request; gives the code that the user has to enter.
async fn keep(
    call: &Call,
    client: &Arc<LiveClient>,
    device_code: &str,
    request: DeviceRequest,
) -> Result<String, OAuthError> {
    let settings = &call.realm.settings;
    let realm = &call.realm.path;
    let mut device = StoredDevice {
        hash: TokenHash::of(device_code),
        user_code: TokenHash::of(""),
        realm: realm.clone(),
        client_id: client.id().to_owned(),
        request,
        verdict: Verdict::Pending,
        expires_ms: call.now_ms + i64::from(settings.device_code_lifetime) * 1000,
    };
    let most = settings.device_codes_per_client;
    for _ in 0..DRAWS {
        let user_code = user_code::new();
        device.user_code = user_code::hash(realm, &user_code).unwrap_or(device.user_code);
        let store = &call.state.store;
        let write = async |audit: Option<&PendingAudit>| {
            store.insert_device(&device, most, call.now_ms, audit).await
        };
        let (kind, more) = (Kind::DeviceBegin, audit::as_it_is);
        match audit::with_if(&call.state, kind, more, write, |kept| *kept).await {
            Ok(true) => return Ok(user_code),
            Ok(false) => return Err(full(client.id())),
            Err(StoreError::Taken(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(full(client.id()))
}

fn full(client_id: &str) -> OAuthError {
    doorward_net::telemetry::warn_limited!(
        client_id,
        "too many devices of the client wait for people"
    );
    OAuthError {
        status: StatusCode::SERVICE_UNAVAILABLE,
        headers: vec![(RETRY_AFTER, FULL_SECONDS)],
        ..OAuthError::bad("temporarily_unavailable", "Too many devices are waiting")
    }
}
