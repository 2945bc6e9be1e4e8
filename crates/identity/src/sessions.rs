//! Sessions of signed-in users: begun, found, used and ended, whatever surface
//! a request came by.
//!
//! With a session ends what was given in it, but for `offline_access`; so it
//! does when the session lapses.

mod actions;
mod server_info;

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::USER_AGENT;
use uuid::Uuid;

use super::audit;
use super::context::Methods;
use super::error::Fault;
use super::login::{is_confined, settle, still_stands};
use super::sign_in::Proof;
use super::{Call, State, cookies};
use doorward_core::clock::{random_bytes, random_uuid};
use doorward_core::model::audit::{Actor, Detail, Event, Kind, PendingAudit, Trace};
use doorward_core::model::grant::{Grant, StoredSession, TokenHash};
use doorward_core::model::session::{ENDED_AT_ONCE, EndedSession, Ending};
use doorward_core::model::user::{Owner, User};
use doorward_net::http::ClientInfo;
use doorward_store::StoreError;

pub(super) use actions::{id_from_session, post, universal_id};
pub(super) use server_info::server_info;

/// A use within this part of the idle time, and at most a minute, of the last
/// noted one is not noted: a busy session must not write to the disk each time.
const NOTED: i64 = 30;

/// How long ago another tab may have signed in for this one to go on with its
/// session, in milliseconds.
const BESIDE_MS: i64 = 10 * 1000;

/// A cookie beside the session's that some clients send back.
pub(super) const BALANCER: &str = "amlbcookie";

/// The caller's session token: header or cookie of the session's name. A cookie
/// does not count where a page of another site may have sent it along.
fn token_of_caller(call: &Call) -> Option<String> {
    if let Some(token) = token_in_header(call) {
        return Some(token);
    }
    let site = call.headers().get("sec-fetch-site");
    let foreign = site.is_some_and(|site| site == "cross-site" || site == "same-site");
    // A form can't send these.
    let by_script = ["accept-api-version", "x-requested-with"];
    if foreign
        && !by_script
            .iter()
            .any(|name| call.headers().contains_key(*name))
    {
        return None;
    }
    let live = &call.live;
    let plain = &live.config.session.cookie_name;
    let token = token_of_browser(call);
    token.or_else(|| cookies::value(call.headers(), plain).map(str::to_owned))
}

/// The token that a script or a program sends in a header, named as the cookie
/// is anywhere.
fn token_in_header(call: &Call) -> Option<String> {
    let live = &call.live;
    let plain = &live.config.session.cookie_name;
    let names = [plain.clone(), cookies::name(live, plain)];
    let mut values = names.iter().filter_map(|name| call.headers().get(name));
    let token = values.find_map(|value| value.to_str().ok().filter(|token| !token.is_empty()));
    token.map(str::to_owned)
}

/// Whether the caller says its token itself, and not its browser for it.
pub(super) fn is_in_header(call: &Call) -> bool {
    token_in_header(call).is_some()
}

/// The session token as a browser sends it, or a script in a header: with TLS,
/// only the cookie that no other host can have set.
pub(super) fn token_of_browser(call: &Call) -> Option<String> {
    if let Some(token) = token_in_header(call) {
        return Some(token);
    }
    let live = &call.live;
    let name = cookies::name(live, &live.config.session.cookie_name);
    let token = cookies::value(call.headers(), &name);
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

/// The token of the caller's session in the realm of the call, if that is good;
/// `named` counts for more than header and cookie. With its user.
pub(super) async fn of_caller(
    call: &Call,
    named: Option<&str>,
) -> Result<Option<(String, User)>, Fault> {
    let token = named.map(str::to_owned).or_else(|| token_of_caller(call));
    let Some(token) = token else {
        return Ok(None);
    };
    let found = find(call, &token).await?;
    let found = found.filter(|(session, _)| session.realm == call.realm.path);
    let Some((session, user)) = found else {
        return Ok(None);
    };
    audit::user(&user);
    audit::actor(Actor::User(user.id));
    note_use(call, &session).await?;
    Ok(Some((token, user)))
}

/// What came of signing in with a session that is to be taken over.
#[derive(Debug)]
pub(super) enum Upgrade {
    /// The user has a session; this is its token.
    Done(String),
    /// The session is of somebody else, and stays as it is.
    OtherUser,
    /// The password is another one by now.
    Outdated,
}

/// Begins a session like [`begin`]: in the place of that of the token `named`,
/// if it is alive, and of the browser's otherwise.
pub(super) async fn begin_upgrade(
    call: &Call,
    user: &User,
    named: Option<&str>,
    proof: &Proof,
) -> Result<Upgrade, Fault> {
    let old = match named {
        Some(token) => find(call, token).await?,
        None => None,
    };
    let token = match (named, old) {
        (_, Some((_, other))) if other.id != user.id => return Ok(Upgrade::OtherUser),
        (Some(named), Some(_)) => begin_after(call, user, Some(named), proof).await?,
        _ => begin(call, user, proof).await?,
    };
    Ok(token.map_or(Upgrade::Outdated, Upgrade::Done))
}

/// The session of the caller's browser in the realm of the call, and its user.
pub(super) async fn of_browser(call: &Call) -> Result<Option<(StoredSession, User)>, Fault> {
    let Some(token) = token_of_browser(call) else {
        return Ok(None);
    };
    let found = find(call, &token).await?;
    let found = found.filter(|(session, _)| session.realm == call.realm.path);
    if let Some((session, user)) = &found {
        audit::user(user);
        audit::actor(Actor::User(user.id));
        note_use(call, session).await?;
    }
    Ok(found)
}

/// The token of the session that another tab of the browser has just begun for
/// `user` by no less than `proof`, since the page of this one was shown: replaced,
/// it would be gone while that tab is on its way with it.
pub(super) async fn concurrent_session(
    call: &Call,
    user: &User,
    proof: &Proof,
    shown_ms: i64,
) -> Result<Option<String>, Fault> {
    let Some(token) = token_of_browser(call) else {
        return Ok(None);
    };
    let found = find(call, &token).await?;
    let Some((session, _)) = found.filter(|(session, _)| session.realm == call.realm.path) else {
        return Ok(None);
    };
    let shown = Methods::from(session.amr.as_slice());
    let fits = session.user_id == user.id
        && session.auth_ms >= shown_ms
        && (0..BESIDE_MS).contains(&(proof.auth_ms - session.auth_ms))
        && shown.missing(proof.methods.words()).is_empty();
    Ok(fits.then_some(token))
}

/// Begins a session for `user`, who has shown `proof`; gives its token. The
/// session that the browser had ends: whoever knew its token has nothing. If it
/// was the same user's and is alive, the new one keeps its name. `None`: the
/// password is another one by now, or the administrator may not be here.
pub(super) async fn begin(
    call: &Call,
    user: &User,
    proof: &Proof,
) -> Result<Option<String>, Fault> {
    begin_after(call, user, token_of_browser(call).as_deref(), proof).await
}

async fn begin_after(
    call: &Call,
    user: &User,
    old: Option<&str>,
    proof: &Proof,
) -> Result<Option<String>, Fault> {
    let (state, now_ms) = (&call.state, call.now_ms);
    // The last of all ways to sign in: one that forgot to ask ends here.
    if is_confined(call, &user.user_name) {
        audit::because("address");
        return Ok(None);
    }
    let token = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
    let old = old.map(TokenHash::of);
    let known = match old {
        Some(old) => state.store.session(old).await?,
        None => None,
    };
    let live = &call.live;
    let settings = &live.config.session;
    let mut session = StoredSession {
        hash: TokenHash::of(&token),
        realm: call.realm.path.clone(),
        user_id: user.id,
        created_ms: now_ms,
        used_ms: now_ms,
        ends_ms: now_ms + i64::from(settings.max_minutes) * 60_000,
        sid: random_uuid().to_string(),
        auth_ms: proof.auth_ms,
        amr: proof.methods.words().to_vec(),
        agent: agent(call),
        address: address(call),
    };
    let store = &state.store;
    if let Some(known) = &known
        && known.user_id == user.id
        && state.is_alive(known, now_ms)
    {
        session.sid.clone_from(&known.sid);
    }
    let write = async |audit: Option<&PendingAudit>| match &known {
        None => store.insert_session(&session, settings.quota, audit).await,
        Some(known) => {
            let kept = store.replace_session(known.hash, &session, settings.quota, audit);
            kept.await
        }
    };
    audit::actor(Actor::User(user.id));
    let told = |event: Event| {
        let methods = session.amr.iter().map(String::as_str);
        let event = event.with("methods", methods.collect::<Detail>());
        let event = event.user(user.id, &user.user_name);
        event.target(&format!("sessions/{}", session.sid))
    };
    let ended = audit::with(state, Kind::SessionBegin, told, write).await?;
    state.mark_ended(&ended, now_ms);
    audit::keep_each(state, Kind::SessionEnd, &ended, |event, ended| {
        event_of(event, ended, "replaced")
    })
    .await;
    if !still_stands(state, &call.realm, user).await? {
        let which = Ending::Token(session.hash);
        state.end_sessions(&which, now_ms, None).await?;
        return Ok(None);
    }
    Ok(Some(token))
}

/// Most of what a browser calls itself that is kept, in characters.
const AGENT_MAX: usize = 256;

/// What the caller's browser or program calls itself.
fn agent(call: &Call) -> String {
    let agent = call.headers().get(USER_AGENT);
    let agent = agent.and_then(|value| value.to_str().ok());
    agent.unwrap_or_default().chars().take(AGENT_MAX).collect()
}

fn address(call: &Call) -> String {
    let info = call.parts.extensions.get::<ClientInfo>();
    info.map_or_else(String::new, |info| {
        info.addr.ip().to_canonical().to_string()
    })
}

impl State {
    /// How long a session lasts without use.
    pub(super) fn idle_ms(&self) -> i64 {
        i64::from(self.live().config.session.idle_minutes) * 60_000
    }

    /// Whether the time of a session is not over.
    pub(super) fn is_alive(&self, session: &StoredSession, now_ms: i64) -> bool {
        now_ms < session.ends_at(self.idle_ms())
    }

    /// Ends these sessions with what was to live only as long; when it returns,
    /// no endpoint takes a token of theirs, and their clients are being told.
    pub(super) async fn end_sessions(
        &self,
        which: &Ending,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let mut all = Vec::new();
        loop {
            let ended = self.store.end_sessions(which, now_ms, audit).await?;
            self.mark_ended(&ended, now_ms);
            let more = ended.len() >= usize::try_from(ENDED_AT_ONCE).unwrap_or(usize::MAX);
            all.extend(ended);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Ends sessions that were not used for too long, or are too old.
    pub(super) async fn end_lapsed(&self, now_ms: i64) -> Result<(), StoreError> {
        let lapsed = Ending::Lapsed {
            unused_since_ms: now_ms - self.idle_ms(),
            told: self.live().config.session.backchannel_logout_on_expiry,
        };
        for ended in self.end_sessions(&lapsed, now_ms, None).await? {
            // Without its name: thousands may lapse at once.
            let event = Event::new(Kind::SessionEnd, Actor::System);
            let event = event.realm(&ended.realm).with("cause", "lapsed");
            self.audit.note(event, Trace::default(), now_ms);
        }
        Ok(())
    }

    /// Learns what ended with these sessions.
    fn mark_ended(&self, ended: &[EndedSession], now_ms: i64) {
        for session in ended {
            self.mark_revoked(&session.grants, now_ms);
        }
        if ended.iter().any(|session| session.told > 0) {
            self.backchannel_logout.wake();
        }
    }

    /// Whether the session that a grant hangs on is alive; if so, it was used
    /// just now. Grants with `offline_access`, or from without a session, hang
    /// on none.
    pub(super) async fn grant_lives(&self, grant: &Grant, now_ms: i64) -> Result<bool, StoreError> {
        let offline = grant.scopes.iter().any(|scope| scope == "offline_access");
        let Some(sid) = grant.sid.as_ref().filter(|_| !offline) else {
            return Ok(true);
        };
        let session = self.session_of(&grant.realm, sid, grant.user_id, now_ms);
        match session.await? {
            None => Ok(false),
            Some(session) => {
                self.note_use(&session, now_ms).await?;
                Ok(true)
            }
        }
    }

    /// The session of this name, if it is the user's and alive.
    pub(super) async fn session_of(
        &self,
        realm: &str,
        sid: &str,
        user_id: Uuid,
        now_ms: i64,
    ) -> Result<Option<StoredSession>, StoreError> {
        let found = self.store.session_named(realm, sid).await?;
        let session = found.map(|found| found.session);
        Ok(session.filter(|one| one.user_id == user_id && self.is_alive(one, now_ms)))
    }

    /// The session was used just now.
    pub(super) async fn note_use(
        &self,
        session: &StoredSession,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let unnoted = (self.idle_ms() / NOTED).min(60_000);
        if now_ms - session.used_ms >= unnoted {
            self.store.touch_session(session.hash, now_ms).await?;
        }
        Ok(())
    }
}

/// What the audit log is told of a session that has ended.
pub(super) fn event_of(event: Event, ended: &EndedSession, cause: &'static str) -> Event {
    let clients = ended.clients.iter().map(String::as_str);
    event
        .realm(&ended.realm)
        .target(&format!("sessions/{}", ended.sid))
        .with("cause", cause)
        .with("clients", clients.collect::<Detail>())
}

/// Gives the browser the token of its session.
pub(super) fn set_cookie(call: &Call, response: &mut Response, token: &str) {
    let live = &call.live;
    let name = cookies::name(live, &live.config.session.cookie_name);
    cookies::set(response, live, &name, token);
}

/// Takes the token of its session from the browser, unless it is good: the
/// cookie may be that of a session of another realm. Says whether it did.
pub(super) async fn clear_cookie(call: &Call, response: &mut Response) -> Result<bool, Fault> {
    if let Some(token) = token_of_browser(call)
        && find(call, &token).await?.is_some()
    {
        return Ok(false);
    }
    let live = &call.live;
    let name = cookies::name(live, &live.config.session.cookie_name);
    cookies::clear(response, live, &name);
    Ok(true)
}

/// What the user of the session of this token has shown.
pub(super) async fn proof(call: &Call, token: &str) -> Result<Proof, Fault> {
    let found = call.state.store.session(TokenHash::of(token)).await?;
    let now = || Proof::now(call, Methods::default());
    Ok(found.as_ref().map_or_else(now, Proof::of))
}

/// The session of this token and its user, if both are good now.
async fn find(call: &Call, token: &str) -> Result<Option<(StoredSession, User)>, Fault> {
    let state = &call.state;
    let store = &state.store;
    let Some(session) = store.session(TokenHash::of(token)).await? else {
        return Ok(None);
    };
    if !state.is_alive(&session, call.now_ms) {
        return Ok(None);
    }
    let user = store.user(&session.realm, session.user_id).await?;
    // What is declared now counts: it may be what ends this session.
    let live = state.live.load_full();
    if let (Some(user), Some(realm)) = (&user, live.realm(&session.realm))
        && user.owner == Owner::File
    {
        settle(state, realm, user).await?;
        if store.session(session.hash).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(user.filter(|user| user.active).map(|user| (session, user)))
}

async fn note_use(call: &Call, session: &StoredSession) -> Result<(), Fault> {
    Ok(call.state.note_use(session, call.now_ms).await?)
}
