//! `/json[/realms/…]/sessions`: looking at a session and ending it; and
//! `/json/serverinfo/*`, which names the cookie that carries it.

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat};
use http::StatusCode;
use serde_json::{Value, json};

use super::api_version::{self, Version, version};
use super::error::{Fault, JsonError};
use super::form::Form;
use super::login::settle;
use super::{Call, cookies, respond};
use crate::clock::{random_bytes, random_uuid};
use crate::model::grant::{MAX_TOKEN_LIFE_MS, Revocation, StoredSession, TokenHash};
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
    let plain = call.state.live().config.session.cookie_name.clone();
    let token = token_of_browser(call);
    token.or_else(|| cookies::value(call.headers(), &plain).map(str::to_owned))
}

/// The session token as a browser sends it, or a script in a header: with TLS,
/// only the cookie that no other host can have set.
pub(super) fn token_of_browser(call: &Call) -> Option<String> {
    let live = call.state.live();
    let plain = &live.config.session.cookie_name;
    let header = call.headers().get(plain);
    let token = match header.and_then(|value| value.to_str().ok()) {
        Some(token) => Some(token),
        None => cookies::value(call.headers(), &cookies::name(&live, plain)),
    };
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

/// The session of the caller's browser in the realm of the call, and its user.
pub(super) async fn of_browser(call: &Call) -> Result<Option<(StoredSession, User)>, Fault> {
    let Some(token) = token_of_browser(call) else {
        return Ok(None);
    };
    let found = find(call, &token).await?;
    let found = found.filter(|(session, _)| session.realm == call.realm.path);
    if let Some((session, _)) = &found {
        note_use(call, session).await?;
    }
    Ok(found)
}

/// Begins a session for `user`, who has just shown the password; gives its
/// token. The session that the browser had ends: whoever knew its token has
/// nothing. If it was the same user's, the new one keeps its name.
pub(super) async fn begin(call: &Call, user: &User) -> Result<String, Fault> {
    let (state, now_ms) = (&call.state, call.now_ms);
    let token = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
    let old = token_of_browser(call).map(|token| TokenHash::of(&token));
    let known = match old {
        Some(old) => state.store.session(old).await?,
        None => None,
    };
    let live = state.live.load_full();
    let settings = &live.config.session;
    let mut session = StoredSession {
        hash: TokenHash::of(&token),
        realm: call.realm.path.clone(),
        user_id: user.id,
        created_ms: now_ms,
        used_ms: now_ms,
        ends_ms: now_ms + i64::from(settings.max_minutes) * 60_000,
        sid: random_uuid().to_string(),
        auth_ms: now_ms,
    };
    let Some(known) = known else {
        let store = &state.store;
        store.insert_session(&session, settings.quota).await?;
        return Ok(token);
    };
    if known.user_id == user.id {
        session.sid.clone_from(&known.sid);
    }
    let kept = state
        .store
        .replace_session(known.hash, &session, settings.quota);
    kept.await?;
    Ok(token)
}

/// Ends a session and what was to live only as long.
pub(super) async fn end(call: &Call, hash: TokenHash) -> Result<(), Fault> {
    let until_ms = call.now_ms.saturating_add(MAX_TOKEN_LIFE_MS);
    let ended = call.state.store.end_session(hash, until_ms).await?;
    for grant in ended.into_iter().flatten() {
        call.state.revoked.add(&Revocation::Grant(grant), until_ms);
    }
    Ok(())
}

/// Gives the browser the token of its session.
pub(super) fn hand_over(call: &Call, response: &mut Response, token: &str) {
    let live = call.state.live();
    let name = cookies::name(&live, &live.config.session.cookie_name);
    cookies::set(response, &live, &name, token);
}

/// Takes the token of its session from the browser.
pub(super) fn take_back(call: &Call, response: &mut Response) {
    let live = call.state.live();
    let name = cookies::name(&live, &live.config.session.cookie_name);
    cookies::clear(response, &live, &name);
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
            end(call, other.hash).await?;
        }
    }
    let mut response = respond::json(StatusCode::OK, &json!({"result": text}));
    take_back(call, &mut response);
    Ok(response)
}

/// What a login page needs to know; public.
pub(super) fn server_info(call: &Call) -> Response {
    let live = call.state.live();
    let host = url::Url::parse(&live.base_url).ok();
    let host = host.as_ref().and_then(|url| url.host_str());
    let body = json!({
        "domains": [],
        "cookieName": cookies::name(&live, &live.config.session.cookie_name),
        "secureCookie": live.base_url.starts_with("https://"),
        "realm": call.realm.path,
        "FQDN": host,
        "zeroPageLogin": {"enabled": false, "refererWhitelist": [], "allowedWithoutReferer": true},
    });
    let mut response = respond::json(StatusCode::OK, &body);
    respond::never_stored(&mut response);
    response
}
