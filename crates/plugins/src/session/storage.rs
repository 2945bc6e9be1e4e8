//! Sessions in the store, of which browsers have a handle alone.
//!
//! Keys are hashes of handles, and values are sealed: who reads the store can use
//! neither. All nodes share the sessions.

use std::sync::Arc;

use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use super::config::CookieKind;
use super::state::SessionState;
use doorward_core::clock::random_alphanumeric;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::{LoginQuery, StoredLogin};
use doorward_net::session::seal::Sealer;
use doorward_store::{Store, StoreError};

/// Letters and digits of handles: 190 bits.
const HANDLE: usize = 32;
/// Sessions that are remembered.
const REMEMBERED: usize = 65_536;
/// For how long, in milliseconds: what was ended elsewhere is good no longer.
const FRESH_MS: i64 = 1000;
/// When a session ends that nothing ends, in milliseconds: in 400 days.
const FOR_EVER_MS: i64 = 400 * 86_400_000;
/// Sessions that are written at a time, at most: fewer than the store's queue has room
/// for, so that other writes find some. Answers that find no place go without.
static WRITES: Semaphore = Semaphore::const_new(256);
/// The issuer of these sessions in the lists of operators.
pub const ISSUER: &str = "session";

/// The sessions of a process that its store keeps.
pub struct SessionStore {
    store: Arc<Store>,
    looked_up: Cache<TokenHash, CachedSession>,
}

/// A session as it was a moment ago.
#[derive(Clone)]
struct CachedSession {
    at_ms: i64,
    known: Lookup,
}

/// What came of looking a session up.
#[derive(Clone)]
enum Lookup {
    /// It goes on. This is sealed of it.
    Live(Arc<str>),
    /// The store has none, or none yet.
    Absent,
    /// It was ended here. Nothing brings it back.
    Ended,
}

/// What the cookie of such a session holds: letters and digits that nobody guesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handle(Box<str>);

impl Handle {
    /// The handle of a session that begins.
    pub(super) fn random() -> Self {
        Self(random_alphanumeric::<HANDLE>().into())
    }

    /// The handle in a cookie of this kind.
    pub(super) fn open(sealer: &Sealer, kind: &CookieKind, text: &str) -> Option<Self> {
        let plain = sealer.open(&Self::context(kind), text).ok()?;
        Some(Self(String::from_utf8(plain).ok()?.into()))
    }

    /// The text of the cookie.
    pub(super) fn seal(&self, sealer: &Sealer, kind: &CookieKind) -> Option<String> {
        sealer.seal(&Self::context(kind), self.0.as_bytes()).ok()
    }

    /// The key of its session.
    pub(super) fn key(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }

    /// A handle is no session, and opens nothing of another kind.
    fn context(kind: &CookieKind) -> Vec<u8> {
        [&kind.context[..], b"\nhandle"].concat()
    }
}

/// A session opens at its own key alone.
pub(super) fn context(kind: &CookieKind, key: &TokenHash) -> Vec<u8> {
    [&kind.context[..], b"\nstored\n", &key.0[..]].concat()
}

/// The record of a session.
pub(super) fn record(
    kind: &CookieKind,
    (key, sealed): (TokenHash, String),
    state: &SessionState,
    audience: &str,
) -> StoredLogin {
    let ends_ms = kind.timers.ends_at(state.started_ms, state.renewed_ms);
    let for_ever = state.renewed_ms.saturating_add(FOR_EVER_MS);
    StoredLogin {
        key,
        id: state.id.as_deref().unwrap_or_default().to_owned(),
        issuer: ISSUER.to_owned(),
        client_id: audience.to_owned(),
        subject: Some(state.consumer.to_string()),
        sid: None,
        started_ms: state.started_ms,
        used_ms: state.renewed_ms,
        ends_ms: ends_ms.unwrap_or(for_ever),
        sealed,
    }
}

impl SessionStore {
    /// The sessions in `store`.
    pub fn of(store: Arc<Store>) -> Self {
        Self {
            store,
            looked_up: Cache::new(REMEMBERED),
        }
    }

    /// What is sealed of a session that was looked up a moment ago; `Some(None)`: there
    /// is none.
    pub(super) fn at_hand(&self, key: &TokenHash, now_ms: i64) -> Option<Option<Arc<str>>> {
        let cached = self.looked_up.get(key)?;
        let age_ms = now_ms.saturating_sub(cached.at_ms);
        match cached.known {
            Lookup::Ended => Some(None),
            _ if !(0..FRESH_MS).contains(&age_ms) => None,
            Lookup::Live(sealed) => Some(Some(sealed)),
            Lookup::Absent => Some(None),
        }
    }

    /// Looks a session up: what is sealed of it, if there is one.
    pub(super) async fn look_up(
        &self,
        key: TokenHash,
        now_ms: i64,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let login = self.store.login(key).await?;
        let login = login.filter(|login| now_ms < login.ends_ms);
        let sealed: Option<Arc<str>> = login.map(|login| login.sealed.into());
        let known = sealed.clone().map_or(Lookup::Absent, Lookup::Live);
        self.note(key, known, now_ms);
        // It may have been ended while the store was asked.
        Ok(sealed.filter(|_| !self.has_ended(&key)))
    }

    fn has_ended(&self, key: &TokenHash) -> bool {
        let cached = self.looked_up.get(key);
        cached.is_some_and(|cached| matches!(cached.known, Lookup::Ended))
    }

    /// Notes what is known now. What was ended stays so.
    fn note(&self, key: TokenHash, known: Lookup, at_ms: i64) {
        if !self.has_ended(&key) {
            self.looked_up.insert(key, CachedSession { at_ms, known });
        }
    }

    /// Keeps the records of a new session, all or none. Whether they are there, for every
    /// node.
    pub(super) async fn begin(&self, logins: &[StoredLogin], now_ms: i64) -> bool {
        let Ok(_place) = WRITES.try_acquire() else {
            tracing::warn!("sessions begin faster than the store takes them");
            return false;
        };
        if let Err(error) = self.store.insert_logins(logins).await {
            tracing::warn!(%error, "a session is not stored");
            return false;
        }
        for login in logins {
            self.note_live(login, now_ms);
        }
        true
    }

    /// Keeps what a session is now, unless it has ended meanwhile. Whether it goes on,
    /// as what it is now or as what it was.
    pub(super) async fn renew(&self, login: &StoredLogin, now_ms: i64) -> bool {
        let Ok(_place) = WRITES.try_acquire() else {
            return true;
        };
        match self.store.update_login(login, 0).await {
            Ok(true) => self.note_live(login, now_ms),
            Ok(false) => {
                self.note(login.key, Lookup::Ended, now_ms);
                return false;
            }
            Err(error) => tracing::warn!(%error, "a session is not renewed"),
        }
        true
    }

    fn note_live(&self, login: &StoredLogin, now_ms: i64) {
        let live = Lookup::Live(login.sealed.as_str().into());
        self.note(login.key, live, now_ms);
    }

    /// Ends a session.
    pub(super) async fn end(
        &self,
        key: TokenHash,
        id: &str,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        self.note(key, Lookup::Ended, now_ms);
        let query = LoginQuery {
            id: Some(id.to_owned()),
            issuer: Some(ISSUER.to_owned()),
            ..LoginQuery::default()
        };
        self.store
            .end_logins(&query, &[], now_ms, None)
            .await
            .map(drop)
    }
}
