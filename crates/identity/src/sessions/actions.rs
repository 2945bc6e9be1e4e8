//! `/json[/realms/…]/sessions`: looking at sessions, using and ending them.
//!
//! Who holds a token may know all about its session. With one session others of
//! the same user can be named, and by the administrator anybody's.

use axum::response::Response;
use chrono::{DateTime, SecondsFormat};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{BALANCER, clear_cookie, find, note_use, token_of_caller};
use crate::api_version::{Version, version};
use crate::error::{Fault, JsonError};
use crate::form::Form;
use crate::login::is_admin;
use crate::rest::{denied, forbidden};
use crate::{Call, audit, cookies, respond, rest};
use doorward_core::model::audit::{Actor, Event, Kind, PendingAudit};
use doorward_core::model::grant::StoredSession;
use doorward_core::model::session::Ending;
use doorward_core::model::user::User;

const VERSIONS: &[Version] = &[version(1, 2), version(2, 1), version(3, 1)];

/// The one property of sessions.
const CONTEXT: &str = "AMCtxId";

/// What who validates another's token is told who shows none of their own.
const NO_CALLER: &str = "A tokenId in the body needs the caller's own token in a header or cookie; \
    without one, name the session in the path: /sessions/{token}?_action=validate";

/// A session and its user.
type SessionAndUser = (StoredSession, User);

/// Answers an action on a session; the path may name its token.
pub(crate) async fn post(call: &Call, named: Option<&str>) -> Response {
    match rest::version(call, VERSIONS) {
        Ok(chosen) => rest::finish(chosen, act(call, named, chosen.resource).await),
        Err(refused) => refused.response(),
    }
}

/// What a request is about.
struct ActionRequest<'a> {
    call: &'a Call,
    query: &'a Form<'a>,
    body: &'a Map<String, Value>,
    /// The caller's own token.
    own: Option<String>,
    /// The token that path, body or query names.
    named: Option<String>,
    /// Whether body or query names it, and not the path.
    named_beside_path: bool,
    version: Version,
}

async fn act(call: &Call, path: Option<&str>, version: Version) -> Result<Response, JsonError> {
    let query = rest::query(call)?;
    let body = rest::body(call)?.unwrap_or_default();
    let named = path.or_else(|| body.get("tokenId")?.as_str());
    let request = ActionRequest {
        call,
        query: &query,
        body: &body,
        own: token_of_caller(call),
        named_beside_path: path.is_none() && named.or_else(|| query.get("tokenId")).is_some(),
        named: named.or_else(|| query.get("tokenId")).map(str::to_owned),
        version,
    };
    let answer = match rest::action(&query)? {
        "logout" => return request.logout().await,
        "validate" => request.validate().await,
        "isActive" => request.is_active().await,
        "getSessionInfo" => request.info().await,
        "refresh" => request.refresh().await,
        "getTimeLeft" => request.times(&["maxtime"]).await,
        "getIdle" => request.times(&["idletime"]).await,
        "getMaxIdle" => request.times(&["maxidletime"]).await,
        "getMaxSessionTime" => request.times(&["maxsessiontime"]).await,
        "getPropertyNames" => {
            request.subject().await?;
            Ok(json!({"properties": [CONTEXT]}))
        }
        "getProperty" | "getSessionProperties" => request.properties().await,
        // None of them is for callers to change.
        "setProperty" | "deleteProperty" | "updateSessionProperties" => {
            request.subject().await?;
            Err(forbidden())
        }
        other => Err(rest::no_such_action(other)),
    };
    answer.map(|body| respond::json(StatusCode::OK, &body))
}

impl ActionRequest<'_> {
    async fn find(&self, token: &str) -> Result<Option<SessionAndUser>, Fault> {
        find(self.call, token).await
    }

    /// The caller's own session, which must be good.
    async fn caller(&self) -> Result<SessionAndUser, JsonError> {
        let own = self.own.as_ref().ok_or_else(denied)?;
        self.find(own).await?.ok_or_else(denied)
    }

    /// The session that an action is on: the named one, if the caller may name
    /// it, or the caller's. `None`: there is none of that name.
    async fn named(&self) -> Result<Option<SessionAndUser>, JsonError> {
        let caller = self.caller().await?;
        let Some(named) = &self.named else {
            return Ok(Some(caller));
        };
        let found = self.find(named).await?;
        match &found {
            Some((_, user)) if user.id != caller.1.id && !is_admin(&caller.1) => Err(forbidden()),
            _ => Ok(found),
        }
    }

    /// As [`ActionRequest::named`], where there must be one.
    async fn subject(&self) -> Result<SessionAndUser, JsonError> {
        self.named().await?.ok_or_else(denied)
    }

    async fn validate(&self) -> Result<Value, JsonError> {
        if self.named_beside_path && self.own.is_none() {
            return Err(rest::bad_request(NO_CALLER));
        }
        let token = self.named.as_ref().or(self.own.as_ref());
        let Some((session, user)) = self.find(token.ok_or_else(denied)?).await? else {
            return Ok(json!({"valid": false}));
        };
        if self.query.get("refresh") != Some("false") {
            note_use(self.call, &session).await?;
        }
        let mut body = json!({"valid": true, "uid": user.user_name, "realm": session.realm});
        if self.version.major > 1 {
            body["sessionUid"] = session.sid.into();
        }
        Ok(body)
    }

    async fn is_active(&self) -> Result<Value, JsonError> {
        let found = self.named().await?;
        if let Some((session, _)) = &found
            && self.query.get("refresh") == Some("true")
        {
            self.use_now(session).await?;
        }
        Ok(json!({"active": found.is_some()}))
    }

    async fn info(&self) -> Result<Value, JsonError> {
        let (session, user) = self.subject().await?;
        let instant = |ms: i64| {
            let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
            time.to_rfc3339_opts(SecondsFormat::Secs, true)
        };
        let idle_ms = self.call.state.idle_ms();
        let mut body = json!({
            "username": user.user_name,
            "universalId": universal_id(&user),
            "realm": session.realm,
            "latestAccessTime": instant(session.used_ms),
            "maxIdleExpirationTime": instant(session.used_ms + idle_ms),
            "maxSessionExpirationTime": instant(session.ends_ms),
        });
        if self.version.major > 2 {
            body["properties"] = json!({CONTEXT: session.sid});
        }
        Ok(body)
    }

    async fn refresh(&self) -> Result<Value, JsonError> {
        let (mut session, user) = self.subject().await?;
        self.use_now(&session).await?;
        session.used_ms = self.call.now_ms;
        let mut body = self.session_times(
            &session,
            &["idletime", "maxidletime", "maxsessiontime", "maxtime"],
        );
        body["uid"] = user.user_name.into();
        body["realm"] = session.realm.into();
        Ok(body)
    }

    async fn use_now(&self, session: &StoredSession) -> Result<(), Fault> {
        let Call { state, now_ms, .. } = self.call;
        Ok(state.store.touch_session(session.hash, *now_ms).await?)
    }

    async fn times(&self, names: &[&str]) -> Result<Value, JsonError> {
        let (session, _) = self.subject().await?;
        Ok(self.session_times(&session, names))
    }

    /// Times of a session, by name: `maxtime` and `idletime` in seconds, the
    /// others in minutes.
    fn session_times(&self, session: &StoredSession, names: &[&str]) -> Value {
        let now_ms = self.call.now_ms;
        let time = |name: &str| match name {
            "maxtime" => (session.ends_ms - now_ms).max(0) / 1000,
            "idletime" => (now_ms - session.used_ms).max(0) / 1000,
            "maxidletime" => self.call.state.idle_ms() / 60_000,
            _ => (session.ends_ms - session.created_ms) / 60_000,
        };
        let times = names
            .iter()
            .map(|name| ((*name).to_owned(), json!(time(name))));
        Value::Object(times.collect())
    }

    /// The properties that the body names, or all of them.
    async fn properties(&self) -> Result<Value, JsonError> {
        let (session, _) = self.subject().await?;
        let wanted = self.body.get("properties").and_then(Value::as_array);
        let named = wanted.is_none_or(|names| names.iter().any(|name| name == CONTEXT));
        Ok(if named {
            json!({CONTEXT: session.sid})
        } else {
            json!({})
        })
    }

    async fn logout(&self) -> Result<Response, JsonError> {
        let text = match self.named().await? {
            None => "Token has expired",
            Some((session, user)) => {
                let which = Ending::Token(session.hash);
                let state = &self.call.state;
                let write = async |audit: Option<&PendingAudit>| {
                    state.end_sessions(&which, self.call.now_ms, audit).await
                };
                let with_session = |event: Event| {
                    let event = event.target(&format!("sessions/{}", session.sid));
                    event
                        .user(user.id, &user.user_name)
                        .with("cause", "sign_out")
                };
                audit::actor(Actor::User(user.id));
                audit::with(state, Kind::SessionEnd, with_session, write).await?;
                "Successfully logged out"
            }
        };
        let mut response = respond::json(StatusCode::OK, &json!({"result": text}));
        if clear_cookie(self.call, &mut response).await? {
            cookies::clear(&mut response, &self.call.live, BALANCER);
        }
        Ok(response)
    }
}

/// The name of a user among those of all realms, as a distinguished name.
pub(crate) fn universal_id(user: &User) -> String {
    let escaped = |text: &str| {
        let special = |c: char| matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=');
        let escape = |c: char| special(c).then_some('\\').into_iter().chain([c]);
        text.chars().flat_map(escape).collect::<String>()
    };
    let realms = user.realm.rsplit('/').filter(|name| !name.is_empty());
    let realms: String = realms.map(|name| format!(",o={}", escaped(name))).collect();
    format!(
        "id={},ou=user{realms},ou=services",
        escaped(&user.user_name)
    )
}

/// Who the user of the caller's session is.
pub(crate) async fn id_from_session(call: &Call) -> Result<Value, JsonError> {
    let own = token_of_caller(call).ok_or_else(denied)?;
    let (session, user) = find(call, &own).await?.ok_or_else(denied)?;
    note_use(call, &session).await?;
    Ok(json!({
        "id": user.user_name,
        "realm": session.realm,
        "dn": universal_id(&user),
        "successURL": call.realm.settings.success_url,
        "fullLoginURL": null,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pose_as_a_realm() {
        let id = |realm: &str, name: &str| {
            let mut record = Map::new();
            record.insert("userName".to_owned(), name.into());
            universal_id(&crate::new_user(realm, &record).expect("a user"))
        };
        assert_eq!(id("/", "demo"), "id=demo,ou=user,ou=services");
        assert_eq!(id("/a/b", "x"), "id=x,ou=user,o=b,o=a,ou=services");
        assert_eq!(
            id("/", "x,ou=user,o=a"),
            "id=x\\,ou\\=user\\,o\\=a,ou=user,ou=services"
        );
    }
}
