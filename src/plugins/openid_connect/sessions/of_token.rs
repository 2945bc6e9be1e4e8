//! Sessions of callers who show a credential of their own with each request: one
//! for each token, whoever shows that, so that those who keep no cookies do not
//! fill the storage.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::held::{Handle, Held};
use super::{Browser, LoginSession, Sessions};
use crate::plugins::openid_connect::methods::Method;
use crate::plugins::openid_connect::refusal::Refusal;
use crate::session::timers::Age;

/// Most tokens whose sessions are known, about.
const TOKENS: usize = 16 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// A session that was begun for a token.
pub(in super::super) struct Opening {
    held: Arc<Held>,
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

/// The sessions of tokens, by these.
pub(super) struct OfTokens(Cache<Arc<str>, Arc<Opening>, Weight, ahash::RandomState>);

impl OfTokens {
    pub(super) fn new() -> Self {
        let state = ahash::RandomState::new();
        let lifecycle = DefaultLifecycle::default();
        Self(Cache::with(TOKENS, BYTES, Weight, state, lifecycle))
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Arc<str>, Arc<Opening>> for Weight {
    fn weight(&self, access: &Arc<str>, opening: &Arc<Opening>) -> u64 {
        opening.held.weight() + (access.len() + opening.text.len()) as u64
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
        access: &str,
        caller: Caller<'_>,
        now_ms: i64,
    ) -> Option<Arc<Opening>> {
        let opening = self.of_tokens.0.get(access)?;
        let held = &opening.held;
        let young = self.timers.age(held.started, held.renewed, now_ms) == Age::Fresh;
        let good = young && !held.is_over(&self.storages.ends) && held.bound == self.bound(caller);
        good.then_some(opening)
    }

    /// Begins the session of a token, which callers may show instead.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`], [`Refusal::SessionStoreUnavailable`].
    pub(in super::super) async fn begin_of_token(
        &self,
        login: LoginSession,
        caller: Caller<'_>,
        now_ms: i64,
    ) -> Result<Arc<Opening>, Refusal> {
        let login = LoginSession {
            bound: self.bound(caller),
            ..login
        };
        let access: Arc<str> = login.access.as_str().into();
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
        self.of_tokens.0.insert(access, Arc::clone(&opening));
        Ok(opening)
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
