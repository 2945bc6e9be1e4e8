//! Sessions of callers who show a credential of their own with each request: one
//! for each token and way to come by it, whoever shows that, or a few where they are
//! bound to who does, so that those who keep no cookies do not fill the storage.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};

use super::held::{Handle, Held};
use super::{Browser, LoginSession, Sessions};
use crate::plugins::openid_connect::methods::Method;
use crate::plugins::openid_connect::refusal::Refusal;

/// Most tokens whose sessions are known, about.
const TOKENS: usize = 16 * 1024;
/// Most sessions of one token, where they are bound to who shows it.
const MOST: usize = 8;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// A session that was begun for a token.
pub(in super::super) struct Opening {
    pub(in super::super) held: Arc<Held>,
    /// What its callers keep.
    text: String,
}

/// Who a session is given to.
#[derive(Clone, Copy)]
pub(in super::super) struct Caller<'a> {
    pub(in super::super) headers: &'a HeaderMap,
    pub(in super::super) from: IpAddr,
    /// Whether the request came by TLS.
    pub(in super::super) secure: bool,
}

/// A token, and how it came. One that was given for a credential has sessions of
/// its own: they hold what else was given, which who shows the token alone, as
/// upstreams may, must not get.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    by: Method,
    access: Arc<str>,
}

/// A [`Key`] to look for.
#[derive(Hash)]
struct Asked<'a> {
    by: Method,
    access: &'a str,
}

impl Equivalent<Key> for Asked<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.by == key.by && *self.access == *key.access
    }
}

/// The sessions of one token: one for each client that they are bound to.
type Openings = Arc<[Arc<Opening>]>;

/// The sessions of tokens, by these.
pub(super) struct OfTokens(Cache<Key, Openings, Weight, ahash::RandomState>);

impl OfTokens {
    pub(super) fn new() -> Self {
        let state = ahash::RandomState::new();
        let lifecycle = DefaultLifecycle::default();
        Self(Cache::with(TOKENS, BYTES, Weight, state, lifecycle))
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Openings> for Weight {
    fn weight(&self, key: &Key, openings: &Openings) -> u64 {
        let all = openings.iter();
        let all = all.map(|opening| opening.held.weight() + opening.text.len() as u64);
        key.access.len() as u64 + all.sum::<u64>()
    }
}

impl Sessions {
    /// Whether who shows a credential of this method gets a session.
    pub(in super::super) fn begin_by(&self, method: Method) -> bool {
        self.begins.has(method)
    }

    /// The session that was begun for a token, while it is young: callers who
    /// keep no cookies get the next one long before it is over.
    pub(in super::super) fn of_token(
        &self,
        (by, access): (Method, &str),
        caller: Caller<'_>,
        now_ms: i64,
    ) -> Option<Arc<Opening>> {
        let openings = self.of_tokens.0.get(&Asked { by, access })?;
        let bound = self.bound(caller);
        let mut openings = openings.iter();
        let own = openings.find(|one| one.held.bound == bound && self.is_young(one, now_ms));
        own.cloned()
    }

    fn is_young(&self, opening: &Opening, now_ms: i64) -> bool {
        let held = &opening.held;
        let young = self.timers.is_young(held.started, held.renewed, now_ms);
        young && !held.is_over(&self.storages.ends)
    }

    /// Begins the session of a token, which callers may show instead; `None`: others
    /// have begun as many as it may have.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`], [`Refusal::SessionStoreUnavailable`].
    pub(in super::super) async fn begin_of_token(
        &self,
        login: LoginSession,
        caller: Caller<'_>,
        now_ms: i64,
    ) -> Result<Option<Arc<Opening>>, Refusal> {
        let login = LoginSession {
            bound: self.bound(caller),
            ..login
        };
        let key = Key {
            by: login.by,
            access: login.access.as_str().into(),
        };
        let openings = self.of_tokens.0.get(&key).unwrap_or_default();
        let others = openings.iter().filter(|one| self.is_young(one, now_ms));
        let mut all: Vec<_> = others.cloned().collect();
        if all.len() >= MOST {
            return Ok(None);
        }
        let opening = Arc::new(match &self.storage {
            None => Opening {
                text: self.sealed(&login)?.1,
                held: Arc::new(Held::fresh(login)),
            },
            Some(storage) => {
                let handle = Handle::new(&self.context, self.sealer.id());
                let stored = self.stored(&login, &handle, now_ms)?;
                let inserted = storage.insert(&stored).await;
                inserted.map_err(|_| Refusal::SessionStoreUnavailable)?;
                Opening {
                    held: self.hold(login, &handle, storage, now_ms),
                    text: handle.text().to_owned(),
                }
            }
        });
        all.push(Arc::clone(&opening));
        self.of_tokens.0.insert(key, all.into());
        Ok(Some(opening))
    }

    /// Has the caller keep a session.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`].
    pub(in super::super) fn hand_over(
        &self,
        opening: &Opening,
        mut browser: Browser<'_>,
    ) -> Result<(), Refusal> {
        browser.keep(&self.style, &opening.text)
    }

    fn bound(&self, caller: Caller<'_>) -> Option<String> {
        self.binding(caller.headers, caller.from, caller.secure)
    }
}
