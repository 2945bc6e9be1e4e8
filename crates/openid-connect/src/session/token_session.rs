//! Sessions of callers who show a credential of their own with each request: one
//! for each token and way to come by it, whoever shows that, or a few where they are
//! bound to who does, so that those who keep no cookies do not fill the storage.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};

use crate::config::methods::Method;
use crate::decide::refusal::Refusal;
use crate::provider::single_flight::{Digest, REFUSED_MS, SingleFlight, digest_of};
use crate::session::open_session::{Handle, OpenSession};
use crate::session::{Browser, LoginSession, Sessions};
use doorward_core::clock::Clock;

/// Most tokens whose sessions are known, about.
const TOKENS: usize = 16 * 1024;
/// Most sessions of one token, where they are bound to who shows it.
const MOST: usize = 8;
/// Longest wait for a session where too many begin at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// A session that was begun for a token.
pub(crate) struct TokenSession {
    pub(crate) held: Arc<OpenSession>,
    /// What its callers keep.
    text: String,
}

/// Who a session is given to.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) from: IpAddr,
    /// Whether the request came by TLS.
    pub(crate) secure: bool,
}

/// A token, and how it came. One that was given for a credential has sessions of
/// its own: they hold what else was given, which who shows the token alone, as
/// upstreams may, must not get.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    by: Method,
    access: Arc<str>,
}

impl Key {
    fn digest(&self) -> Digest {
        digest_of([self.by.name().as_bytes(), self.access.as_bytes()])
    }
}

/// A [`Key`] to look for.
#[derive(Hash)]
struct KeyRef<'a> {
    by: Method,
    access: &'a str,
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.by == key.by && *self.access == *key.access
    }
}

/// The sessions of one token: one for each client that they are bound to.
type SessionsOfToken = Arc<[Arc<TokenSession>]>;

/// The sessions of tokens, by these.
pub(crate) struct TokenSessions {
    known: Cache<Key, SessionsOfToken, Weight, ahash::RandomState>,
    /// Those that begin: one of a token at a time, or many requests that come at
    /// once would begin more than it may have.
    begin: SingleFlight<()>,
}

impl TokenSessions {
    pub(crate) fn new() -> Self {
        let state = ahash::RandomState::new();
        let lifecycle = DefaultLifecycle::default();
        Self {
            known: Cache::with(TOKENS, BYTES, Weight, state, lifecycle),
            begin: SingleFlight::new(REFUSED_MS, PATIENCE),
        }
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, SessionsOfToken> for Weight {
    fn weight(&self, key: &Key, all: &SessionsOfToken) -> u64 {
        let all = all.iter();
        let all =
            all.map(|token_session| token_session.held.weight() + token_session.text.len() as u64);
        key.access.len() as u64 + all.sum::<u64>()
    }
}

impl Sessions {
    /// Whether who shows a credential of this method gets a session.
    pub(crate) fn begin_by(&self, method: Method) -> bool {
        self.begins.has(method)
    }

    /// The session that was begun for a token, while it is young: callers who
    /// keep no cookies get the next one long before it is over.
    pub(crate) fn of_token(
        &self,
        (by, access): (Method, &str),
        caller: Caller<'_>,
        now_ms: i64,
    ) -> Option<Arc<TokenSession>> {
        let all = self.token_sessions.known.get(&KeyRef { by, access })?;
        let bound = self.bound(caller);
        self.token_session_of(&all, bound.as_deref(), now_ms)
    }

    fn token_session_of(
        &self,
        all: &[Arc<TokenSession>],
        bound: Option<&str>,
        now_ms: i64,
    ) -> Option<Arc<TokenSession>> {
        let mut all = all.iter();
        let is_own = |one: &TokenSession| one.held.bound.as_deref() == bound;
        let own = all.find(|one| is_own(one) && self.is_young(one, now_ms));
        own.cloned()
    }

    fn is_young(&self, token_session: &TokenSession, now_ms: i64) -> bool {
        let held = &token_session.held;
        let young = self.timers.is_young(held.started, held.renewed, now_ms);
        young && !held.is_over(&self.storages.revoked_sessions)
    }

    /// Begins the session of a token, which callers may show instead; `None`: others
    /// have begun as many as it may have.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`], [`Refusal::SessionStoreUnavailable`].
    pub(crate) async fn begin_of_token(
        self: &Arc<Self>,
        login: LoginSession,
        caller: Caller<'_>,
        clock: &Clock,
    ) -> Result<Option<Arc<TokenSession>>, Refusal> {
        let login = LoginSession {
            bound: self.bound(caller),
            ..login
        };
        let key = Key {
            by: login.by,
            access: login.access.as_str().into(),
        };
        // As often as others may be first.
        for _ in 0..=MOST {
            let now_ms = clock.now_ms();
            let all = self.sessions_of_token(&key, now_ms);
            let own = self.token_session_of(&all, login.bound.as_deref(), now_ms);
            if own.is_some() || all.len() >= MOST {
                return Ok(own);
            }
            if self.storage.is_none() {
                // Nothing is waited for, and nothing kept elsewhere.
                self.add_of_token(key.clone(), login.clone(), now_ms)
                    .await?;
                continue;
            }
            let (sessions, key, login) = (Arc::clone(self), key.clone(), login.clone());
            let (about, later) = (key.digest(), clock.clone());
            let begin = move || async move { sessions.add_of_token(key, login, now_ms).await };
            let begins = &self.token_sessions.begin;
            begins.ask(about, begin, move || later.now_ms()).await?;
        }
        Ok(None)
    }

    /// The sessions of a token that are young.
    fn sessions_of_token(&self, key: &Key, now_ms: i64) -> Vec<Arc<TokenSession>> {
        let all = self.token_sessions.known.get(key).unwrap_or_default();
        let young = all.iter().filter(|one| self.is_young(one, now_ms));
        young.cloned().collect()
    }

    /// Begins a session of a token of which no other one begins.
    async fn add_of_token(
        &self,
        key: Key,
        login: LoginSession,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let mut all = self.sessions_of_token(&key, now_ms);
        // The last one may have begun between the look and the question.
        let own = self.token_session_of(&all, login.bound.as_deref(), now_ms);
        if own.is_some() || all.len() >= MOST {
            return Ok(());
        }
        all.push(Arc::new(self.begin_token_session(login, now_ms).await?));
        self.token_sessions.known.insert(key, all.into());
        Ok(())
    }

    async fn begin_token_session(
        &self,
        login: LoginSession,
        now_ms: i64,
    ) -> Result<TokenSession, Refusal> {
        let Some(storage) = &self.storage else {
            return Ok(TokenSession {
                text: self.sealed(&login)?.1,
                held: Arc::new(OpenSession::fresh(login)),
            });
        };
        let handle = Handle::new(&self.context, self.sealer.id());
        let stored = self.stored(&login, &handle, now_ms)?;
        let inserted = storage.insert(&stored).await;
        inserted.map_err(|_| Refusal::SessionStoreUnavailable)?;
        Ok(TokenSession {
            held: self.hold(login, &handle, storage, now_ms),
            text: handle.text().to_owned(),
        })
    }

    /// Has the caller keep a session.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`].
    pub(crate) fn set_cookie(
        &self,
        token_session: &TokenSession,
        mut browser: Browser<'_>,
    ) -> Result<(), Refusal> {
        browser.keep(&self.style, &token_session.text)
    }

    fn bound(&self, caller: Caller<'_>) -> Option<String> {
        self.binding(caller.headers, caller.from, caller.secure)
    }
}
