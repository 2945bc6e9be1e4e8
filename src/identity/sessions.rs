//! `/json[/realms/…]/sessions`: looking at a session and ending it; and
//! `/json/serverinfo/*`, which names the cookie that carries it.

use axum::response::Response;
use chrono::{DateTime, SecondsFormat};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::api_version::{self, Version, version};
use super::error::{Fault, JsonError};
use super::form::Form;
use super::login::settle;
use super::{Call, respond};
use crate::model::grant::{StoredSession, TokenHash};
use crate::model::user::{Owner, User};

const VERSIONS: &[Version] = &[version(1, 2), version(2, 1), version(3, 1)];

/// A use within this part of the idle time, and at most a minute, of the last
/// noted one is not noted: a busy session must not write to the disk each time.
const NOTED: i64 = 30;

/// Answers an action on a session.
pub(super) async fn post(call: &Call) -> Response {
    let chosen = match api_version::choose(call.headers(), VERSIONS) {
        Ok(chosen) => chosen,
        Err(error) => return error.response(),
    };
    let answer = act(call).await;
    let mut response = answer.unwrap_or_else(JsonError::response);
    respond::never_stored(&mut response);
    chosen.stamp(&mut response, "CREST");
    response
}

async fn act(call: &Call) -> Result<Response, JsonError> {
    let bad = |text: String| JsonError::new(StatusCode::BAD_REQUEST, text);
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes()).map_err(|error| bad(error.to_string()))?;
    let named = token_of_body(call).or_else(|| query.get("tokenId").map(str::to_owned));
    let own = token_of_caller(call);
    match query.get("_action") {
        Some("validate") => {
            let token = named.or(own).ok_or_else(denied)?;
            validate(call, &token).await
        }
        Some("logout") => logout(call, &own.ok_or_else(denied)?, named.as_deref()).await,
        Some("getSessionInfo") => {
            let own = own.ok_or_else(denied)?;
            info(call, &named.unwrap_or(own)).await
        }
        Some(other) => Err(bad(format!("Unsupported action: {other}"))),
        None => Err(bad("Missing parameter: _action".to_owned())),
    }
}

fn denied() -> JsonError {
    JsonError::new(StatusCode::UNAUTHORIZED, "Access Denied")
}

fn token_of_body(call: &Call) -> Option<String> {
    let body: Value = serde_json::from_slice(&call.body).ok()?;
    body["tokenId"].as_str().map(str::to_owned)
}

/// The caller's session token: header or cookie of the session's name.
fn token_of_caller(call: &Call) -> Option<String> {
    let live = call.state.live();
    let name = &live.config.session.cookie_name;
    if let Some(token) = call
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok())
    {
        return Some(token.to_owned());
    }
    let cookies = call.headers().get_all(COOKIE).iter();
    cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(known, _)| known == name)
        .map(|(_, token)| token.trim_matches('"').to_owned())
}

/// The session of this token and its user, if both are good now.
async fn find(call: &Call, token: &str) -> Result<Option<(StoredSession, User)>, Fault> {
    let store = &call.state.store;
    let Some(session) = store.session(TokenHash::of(token)).await? else {
        return Ok(None);
    };
    let alive = call.now_ms < session.ends_ms && call.now_ms - session.used_ms < idle_ms(call);
    if !alive {
        return Ok(None);
    }
    let user = store.user(&session.realm, session.user_id).await?;
    let live = call.state.live.load_full();
    if let (Some(user), Some(realm)) = (&user, live.realm(&session.realm))
        && user.owner == Owner::File
    {
        settle(&call.state, realm, user).await?;
        if store.session(session.hash).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(user.filter(|user| user.active).map(|user| (session, user)))
}

/// How long a session lasts without use.
fn idle_ms(call: &Call) -> i64 {
    i64::from(call.state.live().config.session.idle_minutes) * 60_000
}

fn not_valid() -> Response {
    respond::json(StatusCode::OK, &json!({"valid": false}))
}

async fn validate(call: &Call, token: &str) -> Result<Response, JsonError> {
    let Some((session, user)) = find(call, token).await? else {
        return Ok(not_valid());
    };
    note_use(call, &session).await?;
    let body = json!({"valid": true, "uid": user.user_name, "realm": session.realm});
    Ok(respond::json(StatusCode::OK, &body))
}

async fn note_use(call: &Call, session: &StoredSession) -> Result<(), Fault> {
    let unnoted = (idle_ms(call) / NOTED).min(60_000);
    if call.now_ms - session.used_ms >= unnoted {
        call.state
            .store
            .touch_session(session.hash, call.now_ms)
            .await?;
    }
    Ok(())
}

async fn info(call: &Call, token: &str) -> Result<Response, JsonError> {
    let Some((session, user)) = find(call, token).await? else {
        return Ok(not_valid());
    };
    let instant = |ms: i64| {
        let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
        time.to_rfc3339_opts(SecondsFormat::Secs, true)
    };
    let idle_ms = idle_ms(call);
    let body = json!({
        "username": user.user_name,
        "universalId": format!("id={},ou=user", user.user_name),
        "realm": session.realm,
        "latestAccessTime": instant(session.used_ms),
        "maxIdleExpirationTime": instant(session.used_ms + idle_ms),
        "maxSessionExpirationTime": instant(session.ends_ms),
        "properties": {},
    });
    Ok(respond::json(StatusCode::OK, &body))
}

/// Who holds a session may end it, and no other one than its own user's.
async fn logout(call: &Call, own: &str, named: Option<&str>) -> Result<Response, JsonError> {
    let (session, _) = find(call, own).await?.ok_or_else(denied)?;
    let token = named.unwrap_or(own);
    let mut text = "Successfully logged out";
    match find(call, token).await? {
        None => text = "Token has expired",
        Some((other, _)) if other.user_id != session.user_id => {
            return Err(JsonError::new(StatusCode::FORBIDDEN, "Forbidden"));
        }
        Some((other, _)) => {
            call.state.store.delete_session(other.hash).await?;
        }
    }
    let mut response = respond::json(StatusCode::OK, &json!({"result": text}));
    let live = call.state.live();
    let gone = format!(
        "{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax",
        live.config.session.cookie_name
    );
    if let Ok(cookie) = HeaderValue::from_str(&gone) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// What a login page needs to know; public.
pub(super) fn server_info(call: &Call) -> Response {
    let live = call.state.live();
    let host = url::Url::parse(&live.base_url).ok();
    let host = host.as_ref().and_then(|url| url.host_str());
    let body = json!({
        "domains": [],
        "cookieName": live.config.session.cookie_name,
        "secureCookie": live.base_url.starts_with("https://"),
        "realm": call.realm.path,
        "FQDN": host,
        "zeroPageLogin": {"enabled": false, "refererWhitelist": [], "allowedWithoutReferer": true},
    });
    let mut response = respond::json(StatusCode::OK, &body);
    respond::never_stored(&mut response);
    response
}
