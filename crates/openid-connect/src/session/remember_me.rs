//! Browsers that are remembered (`session_remember`): a cookie that outlives the
//! session's own, and begins the session anew when that is gone or over.
//!
//! In the cookie is what is in the session's, or its handle, sealed for this
//! purpose alone: the cookie of a session is none that lasts longer. It ends with
//! its session, and so do copies of it.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::config::fields::types::Seconds;
use crate::config::fields::{Fields, wrong};
use crate::decide::refusal::Refusal;
use crate::login::token;
use crate::session::open_session::{Handle, OpenSession};
use crate::session::server_side::{UNAVAILABLE, unavailable};
use crate::session::storage::Lock;
use crate::session::{Browser, LoginSession, SessionLookup, Sessions};
use doorward_net::session::cookie::Style;
use doorward_net::session::timers::{Age, Timers};
use doorward_plugin_api::ConfigError;

const NAME: &str = "session_remember_cookie_name";
/// Longest time for which browsers keep a cookie, in milliseconds: 400 days.
const KEPT_MAX: i64 = 400 * 86_400_000;
/// For how long a session leads to the one that has taken its place, in
/// milliseconds: requests that a browser sends at once show the same cookie.
const GRACE_MS: i64 = 30_000;
/// How often is looked whether another request or node has begun it anew.
const LOOK: Duration = Duration::from_millis(100);

/// How browsers are remembered.
pub(crate) struct RememberMe {
    pub(crate) style: Style,
    pub(crate) timers: Timers,
    /// What its cookies are sealed for.
    context: Vec<u8>,
}

impl RememberMe {
    /// `None`: they are not. `style` and `context` are those of sessions.
    pub(crate) fn new(
        fields: &Fields,
        style: &Style,
        context: &[u8],
    ) -> Result<Option<Self>, ConfigError> {
        if !fields.sessions.session_remember {
            return Ok(None);
        }
        let bound = |seconds: Seconds| {
            let ms = seconds.0.saturating_mul(1000);
            Some(ms).filter(|ms| *ms > 0)
        };
        let timers = Timers {
            rolling: bound(fields.sessions.session_remember_rolling_timeout),
            idling: None,
            absolute: bound(fields.sessions.session_remember_absolute_timeout),
        };
        let kept = timers.ends_at(0, 0).unwrap_or(KEPT_MAX).min(KEPT_MAX);
        let name = &*fields.sessions.session_remember_cookie_name;
        Style::new(name, "/", None).map_err(|_| wrong(NAME, "can't be written as a cookie"))?;
        let lasting = style.called(name).lasting(kept.div_euclid(1000));
        let logins = fields.cookies.authorization_cookie_name.as_deref();
        if style.is_own(name.as_bytes())
            || lasting.is_own(style.name().as_bytes())
            || name.starts_with(logins.unwrap_or("authorization"))
        {
            return Err(wrong(NAME, "is a name of other cookies"));
        }
        Ok(Some(Self {
            style: lasting,
            timers,
            context: [context, b"\nremember"].concat(),
        }))
    }
}

impl Sessions {
    /// Whether a request shows that its browser is remembered.
    pub(crate) fn has_remember_me(&self, headers: &HeaderMap) -> bool {
        let remembers = self.remembers.as_ref();
        remembers.is_some_and(|remembers| remembers.style.read(headers).is_some())
    }

    /// The session of a browser that is remembered, where `shown` is none or over,
    /// and whether it is that: then it has to be begun anew to be used.
    ///
    /// # Errors
    /// As [`Sessions::find`].
    pub(crate) async fn restore_remembered(
        &self,
        shown: SessionLookup,
        headers: &HeaderMap,
        now_ms: i64,
    ) -> Result<(SessionLookup, bool), Refusal> {
        let Some(remembers) = &self.remembers else {
            return Ok((shown, false));
        };
        let over = matches!(
            shown,
            SessionLookup::Absent | SessionLookup::Invalid(Refusal::SessionOver)
        );
        let named = self.remember_me_value(remembers, headers).filter(|_| over);
        let Some(named) = named else {
            return Ok((shown, false));
        };
        let void = |refusal| Ok((SessionLookup::Invalid(refusal), false));
        let found = match named {
            Some(RememberMeValue::Stored(handle)) => self.follow(&handle, now_ms).await?,
            Some(RememberMeValue::Sealed(login)) => {
                Ok(Arc::new(OpenSession::new(*login, None, i64::MAX)))
            }
            None => Err(Refusal::BrokenSession),
        };
        let held = match found {
            Ok(held) => held,
            Err(refusal) => return void(refusal),
        };
        match remembers.timers.age(held.since(), held.renewed, now_ms) {
            Age::Over => void(Refusal::SessionOver),
            _ if held.signed_in.is_none() => void(Refusal::SessionOver),
            _ if held.is_over(&self.storages.revoked_sessions) => void(Refusal::SessionOver),
            Age::Fresh | Age::Due => Ok((SessionLookup::Active(held, false), true)),
        }
    }

    /// The sessions of a browser that can be had by what it shows: its own, and
    /// the one that is remembered.
    ///
    /// # Errors
    /// As [`Sessions::find`].
    pub(crate) async fn find_or_restore(
        &self,
        headers: &HeaderMap,
        now_ms: i64,
    ) -> Result<Vec<Arc<OpenSession>>, Refusal> {
        let mut all = Vec::new();
        if let SessionLookup::Active(held, _) = self.find(headers, now_ms).await? {
            all.push(held);
        }
        let recalled = self
            .restore_remembered(SessionLookup::Absent, headers, now_ms)
            .await?
            .0;
        if let SessionLookup::Active(held, _) = recalled
            && all.iter().all(|one| one.id != held.id)
        {
            all.push(held);
        }
        Ok(all)
    }

    /// What a request shows to be remembered by; `Some(None)`: nothing that was
    /// made here.
    fn remember_me_value(
        &self,
        remembers: &RememberMe,
        headers: &HeaderMap,
    ) -> Option<Option<RememberMeValue>> {
        let text = remembers.style.read(headers)?;
        let open = |text: &str| {
            let plain = self.sealer.open(&remembers.context, text).ok()?;
            if self.storage.is_none() {
                return serde_json::from_slice(&plain)
                    .ok()
                    .map(RememberMeValue::Sealed);
            }
            let handle = Handle::of(std::str::from_utf8(&plain).ok()?, &self.context)?;
            Some(RememberMeValue::Stored(handle))
        };
        Some(text.and_then(|text| open(&text)))
    }

    /// What is kept at a handle, or has taken its place.
    async fn follow(
        &self,
        handle: &Handle,
        now_ms: i64,
    ) -> Result<Result<Arc<OpenSession>, Refusal>, Refusal> {
        let found = self.load(handle, now_ms).await?;
        let next = found.as_ref().ok().and_then(|held| held.moved.as_ref());
        match next.map(|next| Handle::of(next, &self.context)) {
            None => Ok(found),
            Some(Some(next)) => self.load(&next, now_ms).await,
            Some(None) => Ok(Err(Refusal::BrokenSession)),
        }
    }

    /// Begins a session anew that was recalled: the browser gets new cookies. One
    /// that is kept gets a new name, too; in a cookie it keeps its name, by which
    /// all copies end.
    ///
    /// # Errors
    /// [`Refusal::SessionOver`] if it has ended meanwhile,
    /// [`Refusal::SessionTooBig`], [`Refusal::SessionStoreUnavailable`].
    pub(crate) async fn resume(
        self: &Arc<Self>,
        held: &OpenSession,
        browser: Browser<'_>,
        now_ms: i64,
    ) -> Result<Arc<OpenSession>, Refusal> {
        let remembers = self.remembers.as_ref().ok_or(Refusal::SessionOver)?;
        let named = self.remember_me_value(remembers, browser.headers).flatten();
        let Some(RememberMeValue::Stored(handle)) = named else {
            let login = anew(held, held.id.clone(), now_ms);
            self.seal(&login, browser, now_ms)?;
            return Ok(Arc::new(OpenSession::fresh(login)));
        };
        let this = Arc::clone(self);
        // In a task of its own: who hangs up would leave it locked.
        let moving = tokio::spawn(async move { this.replace(&handle, now_ms).await });
        let current = moving.await.map_err(|_| UNAVAILABLE)??;
        let at = current.handle.as_ref().ok_or(UNAVAILABLE)?;
        self.set(at, &current, browser)?;
        Ok(current)
    }

    /// Puts a new session in the place of one that is kept, unless another request
    /// or node has.
    async fn replace(&self, handle: &Handle, now_ms: i64) -> Result<Arc<OpenSession>, Refusal> {
        let mut looks = self.lock_ms().unsigned_abs() / LOOK.as_millis() as u64;
        let lock = loop {
            let current = self.follow(handle, now_ms).await??;
            if current.handle.as_ref() != Some(handle) {
                return Ok(current);
            }
            if let Some(lock) = self.lock(handle, now_ms).await? {
                break lock;
            }
            looks = looks.checked_sub(1).ok_or(UNAVAILABLE)?;
            tokio::time::sleep(LOOK).await;
        };
        let moved = self.replace_locked(handle, lock, now_ms).await;
        self.unlock(handle, lock).await;
        moved
    }

    async fn replace_locked(
        &self,
        handle: &Handle,
        lock: Lock,
        now_ms: i64,
    ) -> Result<Arc<OpenSession>, Refusal> {
        let storage = self.storage.as_ref().ok_or(UNAVAILABLE)?;
        // Another one may have done it just before.
        let current = self.follow(handle, now_ms).await??;
        if current.handle.as_ref() != Some(handle) {
            return Ok(current);
        }
        let next = Handle::new(&self.context, self.sealer.id());
        let login = anew(&current, token::<16>(), now_ms);
        let inserted = storage.insert(&self.stored(&login, &next, now_ms)?).await;
        inserted.map_err(unavailable)?;
        let left = LoginSession {
            moved: Some(next.text().to_owned()),
            ..LoginSession::clone(&current)
        };
        let mut left = self.stored(&left, handle, now_ms)?;
        left.used_ms = now_ms;
        left.ends_ms = now_ms.saturating_add(GRACE_MS);
        self.session_cache.remove(handle.text());
        if !storage.update(&left, lock).await.map_err(unavailable)? {
            // It has ended meanwhile, and so has what was to follow it.
            let ended = storage.end(&next.key, &login.id, now_ms).await;
            ended.map_err(unavailable)?;
            return Err(Refusal::SessionOver);
        }
        Ok(self.hold(login, &next, storage, now_ms))
    }

    /// Has the browser keep what it is remembered by, if it is.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`].
    pub(crate) fn set_remember_me(
        &self,
        login: &LoginSession,
        plain: &[u8],
        browser: &mut Browser<'_>,
    ) -> Result<(), Refusal> {
        let remembers = self.remembers.as_ref();
        let Some(remembers) = remembers.filter(|_| login.signed_in.is_some()) else {
            return Ok(());
        };
        let sealed = self.sealer.seal(&remembers.context, plain);
        let sealed = sealed.map_err(|_| Refusal::SessionTooBig)?;
        browser.keep(&remembers.style, &sealed)
    }

    /// The same for a session that is kept, when it is renewed.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`].
    pub(crate) fn renew_remember_me(
        &self,
        held: &OpenSession,
        mut browser: Browser<'_>,
    ) -> Result<(), Refusal> {
        match &held.handle {
            Some(handle) => self.set_remember_me(held, handle.text().as_bytes(), &mut browser),
            None => Ok(()),
        }
    }

    /// When a session is over that is not renewed again and can't be begun anew;
    /// `None`: never.
    pub(crate) fn ends_at(&self, login: &LoginSession) -> Option<i64> {
        let own = self.timers.ends_at(login.started, login.renewed);
        match self.remembering(login) {
            Some(timers) => later(own, timers.ends_at(login.since(), login.renewed)),
            None => own,
        }
    }

    /// When every copy of it is over; `None`: never.
    pub(crate) fn copies_end(&self, login: &LoginSession, now_ms: i64) -> Option<i64> {
        let own = self.timers.copies_end(login.started, now_ms);
        match self.remembering(login) {
            Some(timers) => later(own, timers.copies_end(login.since(), now_ms)),
            None => own,
        }
    }

    fn remembering(&self, login: &LoginSession) -> Option<&Timers> {
        let remembers = self.remembers.as_ref();
        let remembers = remembers.filter(|_| login.signed_in.is_some());
        remembers.map(|remembers| &remembers.timers)
    }
}

/// What a browser is remembered by.
enum RememberMeValue {
    /// What is in its session.
    Sealed(Box<LoginSession>),
    /// The handle of one that is kept.
    Stored(Handle),
}

/// The later of two ends, of which none is never.
fn later(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    Some(one?.max(other?))
}

fn anew(login: &LoginSession, id: String, now_ms: i64) -> LoginSession {
    LoginSession {
        id,
        started: now_ms,
        renewed: now_ms,
        ..login.clone()
    }
}
