//! Sessions that were opened, so that the next request with the same one costs a
//! look-up: nothing is decrypted or parsed, and nobody is asked.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde_json::Value;

use crate::provider::merged_claims::MergedClaims;
use crate::provider::single_flight::digest_of;
use crate::session::LoginSession;
use crate::session::claims::identity;
use crate::session::revoked_sessions::{RevokedSessions, SessionSelector};
use doorward_core::clock::random_bytes;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::{REMOVED_KEPT_MS, SessionTombstone, TombstoneKey};

/// Most sessions held, about.
const SESSIONS: usize = 16 * 1024;
/// Most memory held, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;

/// What the browser has of a session that is kept elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Handle {
    text: Arc<str>,
    /// Where the session is kept.
    pub(crate) key: TokenHash,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

impl Handle {
    /// Its bytes: a mark, what tells the gateway's own from others, and 25 that
    /// are random.
    const BYTES: usize = 30;
    /// How it begins.
    pub(crate) const MARK: u8 = 2;

    /// A new one, for sessions of this context and the keys called `id`.
    pub(crate) fn new(context: &[u8], id: [u8; 4]) -> Self {
        let mut bytes = random_bytes::<{ Self::BYTES }>();
        bytes[0] = Self::MARK;
        bytes[1..5].copy_from_slice(&id);
        Self::at(&URL_SAFE_NO_PAD.encode(bytes), context)
    }

    /// The one that a browser shows; `None`: it is none.
    pub(crate) fn of(text: &str, context: &[u8]) -> Option<Self> {
        let good = text.len() == Self::BYTES / 3 * 4
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        good.then(|| Self::at(text, context))
    }

    fn at(text: &str, context: &[u8]) -> Self {
        Self {
            key: TokenHash(digest_of([&b"login handle"[..], context, text.as_bytes()])),
            text: text.into(),
        }
    }

    /// As the browser has it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// A session that was opened.
pub(crate) struct OpenSession {
    login: LoginSession,
    /// Where it is kept, if not in the cookie.
    pub(crate) handle: Option<Handle>,
    /// What ends it besides its time.
    pub(crate) marks: Vec<TombstoneKey>,
    /// The generation of ends at which it was still there.
    compared: AtomicU64,
    /// From when on it has to be read again, in milliseconds.
    pub(crate) stale_ms: i64,
    /// When it is looked up again while an answer lasts, in milliseconds.
    pub(crate) look_at_ms: AtomicI64,
    /// What is known of its access token, with what its ID token says.
    pub(crate) merged: MergedClaims,
}

impl Deref for OpenSession {
    type Target = LoginSession;

    fn deref(&self) -> &LoginSession {
        &self.login
    }
}

impl OpenSession {
    /// A session that was kept at this handle, to be read again at `stale_ms`.
    pub(crate) fn new(login: LoginSession, handle: Option<Handle>, stale_ms: i64) -> Self {
        Self {
            marks: marks(&login, handle.as_ref()),
            login,
            handle,
            compared: AtomicU64::new(u64::MAX),
            stale_ms,
            look_at_ms: AtomicI64::new(stale_ms),
            merged: MergedClaims::default(),
        }
    }

    /// A session that is kept nowhere yet.
    pub(crate) fn fresh(login: LoginSession) -> Self {
        Self::new(login, None, i64::MAX)
    }

    /// Whether a mark says that it is over.
    pub(crate) fn is_over(&self, revoked_sessions: &RevokedSessions) -> bool {
        let generation = revoked_sessions.generation();
        if self.compared.load(Ordering::Relaxed) == generation {
            return false;
        }
        let over = revoked_sessions.is_over(&self.marks, self.login.since());
        if !over {
            self.compared.store(generation, Ordering::Relaxed);
        }
        over
    }

    /// The mark that ends it where it was read.
    pub(crate) fn end_mark(&self, now_ms: i64) -> SessionTombstone {
        SessionTombstone {
            what: SessionSelector::Session(&self.login.id).digest(),
            before_ms: now_ms.max(self.login.since()),
            until_ms: now_ms.saturating_add(REMOVED_KEPT_MS),
        }
    }

    /// About the memory it takes, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        let login = &self.login;
        let tokens = [
            Some(&login.access),
            login.id_token.as_ref(),
            login.refresh.as_ref(),
        ];
        let tokens: usize = tokens.into_iter().flatten().map(String::len).sum();
        // The claims of the ID token take a few times its length besides.
        let id_token = login.id_token.as_ref().map_or(0, String::len);
        let earlier = serde_json::to_vec(&login.earlier).map_or(0, |text| text.len());
        (1024 + tokens + 6 * (id_token + earlier)) as u64
    }

    /// Whose it is, as far as its tokens tell.
    pub(crate) fn owner(&self) -> Owner {
        Owner::of(&self.login)
    }
}

/// Whose a session is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) issuer: String,
    pub(crate) subject: Option<String>,
    pub(crate) sid: Option<String>,
}

impl Owner {
    /// The tokens were verified when the session began.
    pub(crate) fn of(login: &LoginSession) -> Self {
        let claims = match &login.id_token {
            Some(_) => login.identity(),
            None => identity(&login.access),
        };
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            issuer: text("iss").unwrap_or_default(),
            subject: text("sub"),
            sid: text("sid"),
        }
    }
}

fn marks(login: &LoginSession, handle: Option<&Handle>) -> Vec<TombstoneKey> {
    let whose = Owner::of(login);
    let issuer = whose.issuer.as_str();
    let mut marks = vec![SessionSelector::Session(&login.id).digest()];
    marks.extend(handle.map(|handle| SessionTombstone::of_key(&handle.key)));
    if let Some(sid) = &whose.sid {
        marks.push(SessionSelector::ProviderSession { issuer, sid }.digest());
    }
    if let Some(subject) = &whose.subject {
        marks.push(SessionSelector::User { issuer, subject }.digest());
        let client = login.client.as_str();
        let both = SessionSelector::UserOfClient {
            issuer,
            subject,
            client,
        };
        marks.push(both.digest());
    }
    marks.push(SessionSelector::Client(&login.client).digest());
    marks
}

/// A bounded set of opened sessions, by the text of their cookies. Only texts
/// that opened, or that a storage knows, come in.
pub(crate) struct SessionCache(Cache<Arc<str>, Arc<OpenSession>, Weight, ahash::RandomState>);

impl SessionCache {
    pub(crate) fn new() -> Self {
        Self(Cache::with(
            SESSIONS,
            BYTES,
            Weight,
            ahash::RandomState::new(),
            DefaultLifecycle::default(),
        ))
    }

    pub(crate) fn get(&self, text: &str) -> Option<Arc<OpenSession>> {
        self.0.get(text)
    }

    pub(crate) fn insert(&self, text: &str, held: &Arc<OpenSession>) {
        self.0.insert(text.into(), Arc::clone(held));
    }

    pub(crate) fn remove(&self, text: &str) {
        self.0.remove(text);
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Arc<str>, Arc<OpenSession>> for Weight {
    fn weight(&self, text: &Arc<str>, held: &Arc<OpenSession>) -> u64 {
        held.weight() + text.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn login(access: String) -> LoginSession {
        let login = json!({"s": "id", "c": "app", "a": access, "b": 5, "n": 5});
        serde_json::from_value(login).expect("a session")
    }

    #[test]
    fn a_flood_of_sessions_stays_within_the_bound() {
        let opened = SessionCache::new();
        for n in 0..20_000 {
            let held = OpenSession::new(login("x".repeat(3000)), None, i64::MAX);
            opened.insert(&format!("{n:03000}"), &Arc::new(held));
        }
        assert!(opened.0.weight() <= BYTES + BYTES / 8);
    }

    #[test]
    fn a_handle_is_found_in_its_own_context_alone() {
        let mine = Handle::new(b"a", [1; 4]);
        assert_eq!(mine.text().len(), 40);
        let again = Handle::of(mine.text(), b"a").expect("a handle");
        assert!(again == mine);
        let foreign = Handle::of(mine.text(), b"b").expect("a handle");
        assert!(foreign.key != mine.key);
        for text in [
            "",
            "short",
            &"x".repeat(33),
            "x*xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ] {
            assert!(Handle::of(text, b"a").is_none(), "{text}");
        }
    }

    #[test]
    fn a_session_ends_by_its_name_its_key_its_user_its_client_and_the_providers_session() {
        let claims = json!({"iss": "https://id", "sub": "anna", "sid": "s1"});
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        let header = URL_SAFE_NO_PAD.encode("{\"alg\":\"ES256\"}");
        let mut login = login("opaque".to_owned());
        login.id_token = Some(format!("{header}.{claims}.AAAA"));
        let handle = Handle::new(b"a", [1; 4]);
        let issuer = "https://id";
        for what in [
            SessionSelector::Session("id").digest(),
            SessionTombstone::of_key(&handle.key),
            SessionSelector::ProviderSession { issuer, sid: "s1" }.digest(),
            SessionSelector::User {
                issuer,
                subject: "anna",
            }
            .digest(),
            SessionSelector::Client("app").digest(),
        ] {
            let revoked_sessions = RevokedSessions::default();
            let held = OpenSession::new(login.clone(), Some(handle.clone()), i64::MAX);
            assert!(!held.is_over(&revoked_sessions));
            let mark = |before_ms| SessionTombstone {
                what,
                before_ms,
                until_ms: 100,
            };
            assert!(revoked_sessions.add(&mark(4)));
            assert!(!held.is_over(&revoked_sessions), "it began later");
            assert!(revoked_sessions.add(&mark(5)));
            assert!(held.is_over(&revoked_sessions));
            assert!(held.is_over(&revoked_sessions), "and stays over");
        }
    }
}
