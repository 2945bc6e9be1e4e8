//! Login sessions: created, opened, authorized, refreshed, renewed and ended. Their
//! tokens are sealed in cookies, or kept in a storage to which the browser has a
//! handle.

pub(crate) mod admin;
pub(crate) mod authorization;
mod claims;
mod cookies;
pub(crate) mod creation;
pub(crate) mod decision;
mod headers;
pub(crate) mod liveness;
mod open_session;
mod recheck;
pub(crate) mod refresh;
mod remember_me;
pub(crate) mod revoked_sessions;
mod server_side;
pub(crate) mod storage;
mod token_session;

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{SET_COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Providers;
use crate::config::fields::Fields;
use crate::config::fields::sessions::SessionBinding;
use crate::config::fields::types::{Bounded, Seconds};
use crate::config::methods::{Method, Methods};
use crate::decide::refusal::Refusal;
use crate::login::token;
use crate::provider::single_flight::digest_of;
use crate::session::storage::{Storage, Storages};
use doorward_net::session::cookie::Style;
use doorward_net::session::seal::Sealer;
use doorward_net::session::timers::{Age, Timers};
use doorward_plugin_api::filter::Exchange;
use doorward_plugin_api::{ConfigError, Parts};

use headers::SessionHeaders;
use open_session::SessionCache;
use remember_me::RememberMe;
use token_session::TokenSessions;

pub(crate) use claims::of_user;
pub(crate) use cookies::{Browser, CookieStyle, sealer, strip, style};
pub(crate) use headers::{answered, owned};
pub(crate) use open_session::{Handle, OpenSession};
pub(crate) use server_side::hashed;
pub(crate) use token_session::{Caller, TokenSession};

/// When the mark of a session goes whose timers never end it: in ten years, in
/// milliseconds.
const FOR_EVER: i64 = 3_650 * 86_400_000;

/// What a session holds.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct LoginSession {
    /// Its name. It opens nothing.
    #[serde(rename = "s")]
    pub(crate) id: String,
    /// The client whose tokens these are.
    #[serde(rename = "c")]
    pub(crate) client: String,
    /// What it was begun by.
    #[serde(
        rename = "y",
        skip_serializing_if = "is_of_login",
        default = "of_login"
    )]
    pub(crate) by: Method,
    #[serde(rename = "a")]
    pub(crate) access: String,
    #[serde(rename = "i", skip_serializing_if = "Option::is_none", default)]
    pub(crate) id_token: Option<String>,
    /// What ID tokens before that one have said of the user and it does not.
    #[serde(rename = "o", skip_serializing_if = "Map::is_empty", default)]
    pub(crate) earlier: Map<String, Value>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none", default)]
    pub(crate) refresh: Option<String>,
    /// Granted scopes, where the provider names them.
    #[serde(rename = "g", skip_serializing_if = "Option::is_none", default)]
    pub(crate) scope: Option<String>,
    /// When the access token ends, in milliseconds, where the provider tells.
    #[serde(rename = "e", skip_serializing_if = "Option::is_none", default)]
    pub(crate) ends_at: Option<i64>,
    /// A digest of what it is bound to besides (`session_bind`).
    #[serde(rename = "h", skip_serializing_if = "Option::is_none", default)]
    pub(crate) bound: Option<String>,
    /// Whether the provider is asked what the access token says.
    #[serde(rename = "w", skip_serializing_if = "is_no", default)]
    pub(crate) needs_introspection: bool,
    /// Whether no signature vouches for an ID token of it.
    #[serde(rename = "u", skip_serializing_if = "is_no", default)]
    pub(crate) unverified: bool,
    #[serde(rename = "b")]
    pub(crate) started: i64,
    #[serde(rename = "n")]
    pub(crate) renewed: i64,
    /// When its user signed in, where browsers are remembered: it may have begun
    /// anew since.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none", default)]
    pub(crate) signed_in: Option<i64>,
    /// The handle of the one that has taken its place.
    #[serde(rename = "m", skip_serializing_if = "Option::is_none", default)]
    pub(crate) moved: Option<String>,
}

impl LoginSession {
    /// One of a login that begins now, with an access token of which nothing else is
    /// known.
    pub(crate) fn begun(client: &str, access: &str, now_ms: i64) -> Self {
        Self {
            id: token::<16>(),
            client: client.to_owned(),
            by: of_login(),
            access: access.to_owned(),
            id_token: None,
            earlier: Map::new(),
            refresh: None,
            scope: None,
            ends_at: None,
            bound: None,
            needs_introspection: false,
            unverified: false,
            started: now_ms,
            renewed: now_ms,
            signed_in: None,
            moved: None,
        }
    }

    /// What ended at this moment or later ends it.
    fn since(&self) -> i64 {
        self.signed_in.unwrap_or(self.started)
    }
}

fn is_no(flag: &bool) -> bool {
    !flag
}

fn of_login() -> Method {
    Method::AuthorizationCode
}

fn is_of_login(by: &Method) -> bool {
    *by == of_login()
}

/// What a request shows of a session.
pub(crate) enum SessionLookup {
    /// It shows none.
    Absent,
    /// It shows one that can't be opened, or is over.
    Invalid(Refusal),
    /// It shows the handle of one that has to be read.
    NeedsLoad(Handle),
    /// The session, and whether it shall be renewed.
    Active(Arc<OpenSession>, bool),
}

/// Makes, keeps and ends sessions.
pub(crate) struct Sessions {
    sealer: Sealer,
    style: Style,
    timers: Timers,
    /// The cookies that outlive those of sessions (`session_remember`).
    remembers: Option<RememberMe>,
    /// What a session is sealed for: it is void elsewhere.
    context: Vec<u8>,
    pub(crate) leeway_ms: i64,
    /// Whether access tokens that end are refreshed.
    pub(crate) refreshes: bool,
    destroy_unauthorized: bool,
    destroy_forbidden: bool,
    session_cache: SessionCache,
    /// Where they are kept; `None`: in the cookie.
    storage: Option<Storage>,
    storages: Arc<Storages>,
    /// For how long one node alone may ask for a session's next tokens, in
    /// milliseconds.
    lock_ms: i64,
    hash_subject: bool,
    /// The methods that begin sessions (`disable_session`).
    begins: Methods,
    token_sessions: TokenSessions,
    /// What sessions are bound to besides the cookie.
    binds: Vec<SessionBinding>,
    session_headers: SessionHeaders,
}

impl Sessions {
    /// The sessions of a configuration.
    pub(crate) fn new(fields: &Fields, parts: &Parts) -> Result<Self, ConfigError> {
        let name = fields
            .cookies
            .session_cookie_name
            .as_deref()
            .unwrap_or("session");
        let audience = fields
            .sessions
            .session_audience
            .as_deref()
            .unwrap_or_default();
        let issuer = &fields.provider.issuer.text;
        let timers = timers(fields);
        Storages::of(parts).lives(timers.copies_end(0, 0));
        let context = [issuer, audience, name].join("\n").into_bytes();
        let style = style(&CookieStyle::of_sessions(fields))?;
        let remembers = RememberMe::new(fields, &style, &context)?;
        if let Some(remembers) = &remembers {
            Storages::of(parts).lives(remembers.timers.copies_end(0, 0));
        }
        let storage = Storages::of(parts).storage(fields, &parts.metrics)?;
        Ok(Self {
            sealer: sealer(fields, "login session", Providers::of(parts).secret())?,
            style,
            timers,
            remembers,
            context,
            leeway_ms: fields.checks.leeway.0.saturating_mul(1000),
            refreshes: fields.client.refresh_tokens,
            destroy_unauthorized: fields.responses.unauthorized_destroy_session,
            destroy_forbidden: fields.refusals.forbidden_destroy_session,
            session_cache: SessionCache::new(),
            lock_ms: server_side::lock_ms(fields.connection.timeout.0, storage.as_ref()),
            storage,
            storages: Storages::of(parts),
            hash_subject: fields.sessions.session_hash_subject,
            begins: Methods::but(&fields.sessions.disable_session),
            token_sessions: TokenSessions::new(),
            binds: fields.sessions.session_bind.clone(),
            session_headers: SessionHeaders::new(fields)?,
        })
    }

    /// The session that a request shows, at `now_ms`, as far as is known without
    /// asking anybody.
    pub(crate) fn shown(&self, headers: &HeaderMap, now_ms: i64) -> SessionLookup {
        let Some(text) = self.style.read(headers) else {
            return SessionLookup::Absent;
        };
        let Some(text) = text else {
            return SessionLookup::Invalid(Refusal::BrokenSession);
        };
        if let Some(held) = self.session_cache.get(&text)
            && now_ms < held.stale_ms
        {
            return self.aged(held, now_ms);
        }
        if self.storage.is_some() {
            return match Handle::of(&text, &self.context) {
                Some(handle) => SessionLookup::NeedsLoad(handle),
                None => SessionLookup::Invalid(Refusal::BrokenSession),
            };
        }
        let opened = self.sealer.open(&self.context, &text).ok();
        let session = opened.and_then(|plain| serde_json::from_slice(&plain).ok());
        let Some(session): Option<LoginSession> = session else {
            return SessionLookup::Invalid(Refusal::BrokenSession);
        };
        let held = Arc::new(OpenSession::new(session, None, i64::MAX));
        self.session_cache.insert(&text, &held);
        self.aged(held, now_ms)
    }

    fn aged(&self, held: Arc<OpenSession>, now_ms: i64) -> SessionLookup {
        if held.moved.is_some() {
            return SessionLookup::Invalid(Refusal::SessionOver);
        }
        match self.timers.age(held.started, held.renewed, now_ms) {
            Age::Over => SessionLookup::Invalid(Refusal::SessionOver),
            _ if held.is_over(&self.storages.revoked_sessions) => {
                SessionLookup::Invalid(Refusal::SessionOver)
            }
            age => SessionLookup::Active(held, age == Age::Due),
        }
    }

    /// Whether a session that was last used at `used_ms` is over at `now_ms`, as
    /// far as is known without asking anybody.
    pub(crate) fn is_over(&self, held: &OpenSession, used_ms: i64, now_ms: i64) -> bool {
        self.timers.age(held.started, used_ms, now_ms) == Age::Over
            || held.is_over(&self.storages.revoked_sessions)
    }

    /// A digest of what the session of a request is bound to, if it is.
    fn binding(&self, headers: &HeaderMap, from: IpAddr, secure: bool) -> Option<String> {
        if self.binds.is_empty() {
            return None;
        }
        let has = |what| self.binds.contains(&what);
        let ip = from.to_canonical().to_string();
        let provider_client = headers.get(USER_AGENT).map(HeaderValue::as_bytes);
        let parts = [
            if has(SessionBinding::Ip) {
                ip.as_bytes()
            } else {
                b""
            },
            if has(SessionBinding::Scheme) && secure {
                b"s"
            } else {
                b""
            },
            provider_client
                .filter(|_| has(SessionBinding::UserAgent))
                .unwrap_or_default(),
        ];
        let digest = digest_of(parts);
        Some(URL_SAFE_NO_PAD.encode(&digest[..16]))
    }

    /// Whether a session is shown by another client than it is bound to.
    pub(crate) fn is_elsewhere(
        &self,
        held: &OpenSession,
        headers: &HeaderMap,
        exchange: &Exchange,
    ) -> bool {
        !self.binds.is_empty()
            && held.bound != self.binding(headers, exchange.client.ip(), exchange.secure)
    }

    /// Whether sessions are kept elsewhere than in cookies.
    pub(crate) fn is_kept(&self) -> bool {
        self.storage.is_some()
    }

    /// Has the browser keep a session in its cookies, as renewed at `now_ms`.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`] when it does not fit into them: an error now is
    /// better than a login that leads to the next login.
    pub(crate) fn seal(
        &self,
        session: &LoginSession,
        browser: Browser<'_>,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let mut session = session.clone();
        session.renewed = now_ms;
        let (plain, sealed) = self.sealed(&session)?;
        let mut browser = browser;
        browser.keep(&self.style, &sealed)?;
        self.set_remember_me(&session, &plain, &mut browser)
    }

    /// A session as its cookies have it: readable, and sealed.
    fn sealed(&self, session: &LoginSession) -> Result<(Vec<u8>, String), Refusal> {
        let plain = serde_json::to_vec(session).map_err(|_| Refusal::SessionTooBig)?;
        let sealed = self.sealer.seal(&self.context, &plain);
        let sealed = sealed.map_err(|_| Refusal::SessionTooBig)?;
        Ok((plain, sealed))
    }

    /// Has the browser keep the handle of a session.
    fn set(
        &self,
        handle: &Handle,
        session: &LoginSession,
        mut browser: Browser<'_>,
    ) -> Result<(), Refusal> {
        browser.keep(&self.style, handle.text())?;
        self.set_remember_me(session, handle.text().as_bytes(), &mut browser)
    }

    /// Has the browser forget its session.
    pub(crate) fn forget(&self, mut browser: Browser<'_>) {
        browser.forget(&self.style);
        if let Some(remembers) = &self.remembers {
            browser.forget(&remembers.style);
        }
    }

    /// Whether a refusal ends the session that was shown.
    pub(crate) fn end_by(&self, refusal: Refusal) -> bool {
        match refusal.class().status() {
            StatusCode::UNAUTHORIZED => self.destroy_unauthorized,
            StatusCode::FORBIDDEN => self.destroy_forbidden,
            _ => false,
        }
    }

    /// Whether one of these fields has the browser keep a session.
    pub(crate) fn is_in(&self, fields: &[(HeaderName, HeaderValue)]) -> bool {
        let mut fields = fields.iter();
        fields.any(|(field, value)| {
            *field == SET_COOKIE && self.styles().any(|style| style.is_given(value))
        })
    }

    /// Whether the access token is still good for a while at `now_ms`.
    pub(crate) fn is_fresh(&self, session: &LoginSession, now_ms: i64) -> bool {
        let until = now_ms.saturating_add(self.leeway_ms);
        session.ends_at.is_none_or(|end| until < end)
    }

    /// Whether the access token has ended, and no other one can be had.
    pub(crate) fn has_run_out(&self, session: &LoginSession, now_ms: i64) -> bool {
        let refreshable = self.refreshes && session.refresh.is_some();
        !refreshable && session.ends_at.is_some_and(|end| end <= now_ms)
    }

    /// Ends a session for good, wherever a copy of its cookie may be.
    ///
    /// # Errors
    /// [`Refusal::SessionStoreUnavailable`] when it can't be said where it counts: it
    /// goes on, and can be ended again.
    pub(crate) async fn end(&self, held: &OpenSession, now_ms: i64) -> Result<(), Refusal> {
        let mut mark = held.end_mark(now_ms);
        let unavailable = |_| Refusal::SessionStoreUnavailable;
        let (Some(storage), Some(handle)) = (&self.storage, &held.handle) else {
            let until = self.copies_end(held, now_ms);
            mark.until_ms = until.unwrap_or_else(|| now_ms.saturating_add(FOR_EVER));
            // The browser forgets it in any case; copies are over on this node.
            if self.storages.end_of_user(mark).await.is_err() {
                tracing::warn!("other nodes do not learn that a session has ended");
            }
            return Ok(());
        };
        let ended = storage.end(&handle.key, &held.id, now_ms).await;
        ended.map_err(unavailable)?;
        // Also for those who have read it at this moment.
        self.storages.revoked_sessions.add_of_user(&mark);
        self.session_cache.remove(handle.text());
        Ok(())
    }

    /// As [`Sessions::end`], without waiting; for sessions in cookies alone that
    /// is up to the browser.
    pub(crate) fn end_soon(self: &Arc<Self>, held: &Arc<OpenSession>, now_ms: i64) {
        if self.storage.is_none() {
            return;
        }
        let (sessions, held) = (Arc::clone(self), Arc::clone(held));
        tokio::spawn(async move {
            if sessions.end(&held, now_ms).await.is_err() {
                tracing::warn!("a refused session was not taken out of its storage");
            }
        });
    }

    /// Whether a cookie is of a session.
    pub(crate) fn owns(&self, name: &str, value: &str) -> bool {
        // Behind the number of pieces.
        self.styles().any(|style| name == style.name())
            && value
                .get(1..)
                .is_some_and(|text| self.sealer.is_own(text, Handle::MARK))
    }

    /// Takes the session's cookies out of what the upstream gets.
    pub(crate) fn strip(&self, request: &mut RequestHeader) {
        strip(request, |name| self.names(name));
    }

    /// Whether cookies of sessions have this name.
    pub(crate) fn names(&self, name: &[u8]) -> bool {
        self.styles().any(|style| style.is_own(name))
    }

    fn styles(&self) -> impl Iterator<Item = &Style> {
        let remembered = self.remembers.as_ref().map(|remembers| &remembers.style);
        [&self.style].into_iter().chain(remembered)
    }
}

fn timers(fields: &Fields) -> Timers {
    let ms = |seconds: Seconds| Some(seconds.0.saturating_mul(1000)).filter(|ms| *ms > 0);
    let rolling = fields.sessions.session_rolling_timeout;
    let idling = fields.sessions.session_idling_timeout;
    let absolute = fields.sessions.session_absolute_timeout;
    Timers {
        rolling: ms(rolling.unwrap_or(fields.cookies.session_cookie_lifetime)),
        idling: idling
            .or(fields.sessions.session_cookie_idletime)
            .and_then(ms),
        absolute: ms(absolute.unwrap_or(Bounded(86_400))),
    }
}
