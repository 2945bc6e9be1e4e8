//! Sessions that are kept in a storage: written, read, renewed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::config::methods::Method;
use crate::decide::refusal::Refusal;
use crate::session::admin::marks_for;
use crate::session::open_session::{Handle, OpenSession, Owner};
use crate::session::storage::{Lock, Storage, StorageError};
use crate::session::{Browser, LoginSession, SessionLookup, Sessions};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::{LoginQuery, SessionTombstone, StoredLogin};
use doorward_plugin_api::filter::SessionsUnavailable;

/// How long a session is locked for a refresh, in milliseconds: longer than it
/// takes at most to read it, to ask for tokens, to have the keys for them, and to
/// save them, of a provider that answers within `timeout` and of this storage.
pub(crate) fn lock_ms(timeout: i64, storage: Option<&Storage>) -> i64 {
    let pause = i64::try_from(SAVE_PAUSE.as_millis()).unwrap_or(i64::MAX);
    let wait = storage.map_or(0, Storage::wait_ms).saturating_add(pause);
    let asked = i64::from(SAVES + READS).saturating_mul(wait);
    timeout.saturating_mul(2).saturating_add(asked)
}

/// How often new tokens are tried to be saved, and the pause between tries: the
/// old ones are spent.
const SAVES: u32 = 4;
/// Questions to the storage besides, at most: the session, and whether it is over,
/// before the tokens are asked for and afterwards.
const READS: u32 = 3;
const SAVE_PAUSE: Duration = Duration::from_millis(250);
/// Longest session, in bytes: what any storage holds.
const KEPT_MAX: usize = 512 * 1024;
/// When a session ends that nothing ends: in 400 days.
const FOR_EVER: i64 = 400 * 86_400_000;

pub(crate) const UNAVAILABLE: Refusal = Refusal::SessionStoreUnavailable;

pub(crate) fn unavailable(_: StorageError) -> Refusal {
    UNAVAILABLE
}

impl Sessions {
    /// As [`Sessions::shown`], reading what has to be read.
    ///
    /// # Errors
    /// [`Refusal::SessionStoreUnavailable`]: nobody knows whether there is one.
    pub(crate) async fn find(
        &self,
        headers: &http::HeaderMap,
        now_ms: i64,
    ) -> Result<SessionLookup, Refusal> {
        match self.shown(headers, now_ms) {
            SessionLookup::NeedsLoad(handle) => self.read(&handle, now_ms).await,
            shown => Ok(shown),
        }
    }

    /// Reads a session, whatever was read of it before.
    ///
    /// # Errors
    /// As [`Sessions::find`].
    pub(crate) async fn read(
        &self,
        handle: &Handle,
        now_ms: i64,
    ) -> Result<SessionLookup, Refusal> {
        match self.load(handle, now_ms).await? {
            Ok(held) => {
                self.session_cache.insert(handle.text(), &held);
                Ok(self.aged(held, now_ms))
            }
            Err(refusal) => Ok(SessionLookup::Invalid(refusal)),
        }
    }

    /// A session with the tokens that it has now: another node may have refreshed
    /// them since it was read.
    ///
    /// # Errors
    /// As [`Sessions::find`].
    pub(crate) async fn current(
        &self,
        held: &Arc<OpenSession>,
        now_ms: i64,
    ) -> Result<Arc<OpenSession>, Refusal> {
        let Some(handle) = &held.handle else {
            return Ok(Arc::clone(held));
        };
        Ok(match self.read(handle, now_ms).await? {
            SessionLookup::Active(current, _) => current,
            // It is over, and nobody knows of others.
            SessionLookup::Invalid(_) | SessionLookup::Absent | SessionLookup::NeedsLoad(_) => {
                Arc::clone(held)
            }
        })
    }

    /// What is kept at a handle, however old, or why there is nothing.
    ///
    /// # Errors
    /// As [`Sessions::find`].
    pub(crate) async fn load(
        &self,
        handle: &Handle,
        now_ms: i64,
    ) -> Result<Result<Arc<OpenSession>, Refusal>, Refusal> {
        let storage = self.storage.as_ref().ok_or(UNAVAILABLE)?;
        let sealed = storage.load(&handle.key, now_ms).await;
        let Some(sealed) = sealed.map_err(unavailable)? else {
            if let Some(known) = self.session_cache.get(handle.text()) {
                self.note_end(&known, now_ms);
                self.session_cache.remove(handle.text());
            }
            return Ok(Err(Refusal::SessionOver));
        };
        let Some(login) = self.unseal(&handle.key, &sealed) else {
            return Ok(Err(Refusal::BrokenSession));
        };
        let held = read_now(login, handle, storage, now_ms);
        let over = storage.is_over(&held.marks, held.since()).await;
        if over.map_err(unavailable)? {
            self.note_end(&held, now_ms);
            return Ok(Err(Refusal::SessionOver));
        }
        Ok(Ok(held))
    }

    /// What is in a session of the storage, if it is one of these.
    pub(crate) fn unseal(&self, key: &TokenHash, sealed: &str) -> Option<LoginSession> {
        let plain = self.sealer.open(&self.context_of(key), sealed).ok()?;
        serde_json::from_slice(&plain).ok()
    }

    /// A session opens at its own key alone.
    fn context_of(&self, key: &TokenHash) -> Vec<u8> {
        let mut context = self.context.clone();
        context.push(b'\n');
        context.extend_from_slice(&key.0);
        context
    }

    /// Begins a session, if logins do: the browser gets its cookie, the storage the
    /// rest. A session that the browser shows of before ends. Says whether there is
    /// one now.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`], [`Refusal::SessionStoreUnavailable`].
    pub(crate) async fn begin(
        &self,
        login: &LoginSession,
        browser: Browser<'_>,
        from: IpAddr,
        now_ms: i64,
    ) -> Result<bool, Refusal> {
        if !self.begin_by(Method::AuthorizationCode) {
            return Ok(false);
        }
        let login = &LoginSession {
            bound: self.binding(browser.headers, from, browser.secure),
            signed_in: self.remembers.is_some().then_some(login.started),
            ..login.clone()
        };
        let Some(storage) = &self.storage else {
            self.seal(login, browser, now_ms)?;
            return Ok(true);
        };
        let before = self.find(browser.headers, now_ms).await?;
        let (before, _) = self
            .restore_remembered(before, browser.headers, now_ms)
            .await?;
        let handle = Handle::new(&self.context, self.sealer.id());
        let stored = self.stored(login, &handle, now_ms)?;
        let end = async {
            match &before {
                SessionLookup::Active(before, _) => self.end(before, now_ms).await,
                SessionLookup::Absent | SessionLookup::Invalid(_) | SessionLookup::NeedsLoad(_) => {
                    Ok(())
                }
            }
        };
        // One wait for the disk.
        let (ended, inserted) = tokio::join!(end, storage.insert(&stored));
        ended?;
        inserted.map_err(unavailable)?;
        self.hold(login.clone(), &handle, storage, now_ms);
        self.set(&handle, login, browser)?;
        Ok(true)
    }

    /// Renews a session of the storage, as used at `now_ms`. One that can't be
    /// goes on for now: it was good a moment ago. Whoever asks for its next
    /// tokens at this moment renews it, too, and must not find the last ones
    /// written over them.
    pub(crate) async fn renew(&self, held: &OpenSession, now_ms: i64) {
        let (Some(storage), Some(handle)) = (&self.storage, &held.handle) else {
            return;
        };
        let lock = match self.lock(handle, now_ms).await {
            Ok(Some(lock)) => lock,
            Ok(None) => return,
            Err(_) => return tracing::warn!("a session was not renewed"),
        };
        let of = (handle, lock);
        match self.renewed(storage, of, held, now_ms).await {
            Ok(Some(login)) => return drop(self.hold(login, handle, storage, now_ms)),
            // It has ended, or has other tokens by now.
            Ok(None) => self.session_cache.remove(handle.text()),
            Err(_) => tracing::warn!("a session was not renewed"),
        }
        self.unlock(handle, lock).await;
    }

    /// Writes a session that is locked as renewed, and unlocks it; `None`: it is
    /// not what was read of it before any more.
    async fn renewed(
        &self,
        storage: &Storage,
        (handle, lock): (&Handle, Lock),
        held: &OpenSession,
        now_ms: i64,
    ) -> Result<Option<LoginSession>, Refusal> {
        let sealed = storage.load(&handle.key, now_ms).await;
        let sealed = sealed.map_err(unavailable)?;
        let current = sealed.and_then(|sealed| self.unseal(&handle.key, &sealed));
        let same = |one: &LoginSession| one.access == held.access && one.refresh == held.refresh;
        let Some(mut login) = current.filter(same) else {
            return Ok(None);
        };
        let over = storage.is_over(&held.marks, held.since()).await;
        if over.map_err(unavailable)? {
            self.note_end(held, now_ms);
            return Ok(None);
        }
        login.renewed = now_ms.max(login.renewed);
        let stored = self.stored(&login, handle, now_ms)?;
        let there = storage.update(&stored, lock).await.map_err(unavailable)?;
        Ok(there.then_some(login))
    }

    /// Keeps the next tokens of a session, and unlocks it.
    ///
    /// # Errors
    /// [`Refusal::SessionOver`] if it has ended meanwhile. Tokens that can't be
    /// saved are used on this node while it holds them: they may be the only ones
    /// left.
    pub(crate) async fn save(
        &self,
        mut login: LoginSession,
        (handle, lock): (&Handle, Lock),
        now_ms: i64,
    ) -> Result<Arc<OpenSession>, Refusal> {
        let storage = self.storage.as_ref().ok_or(UNAVAILABLE)?;
        login.renewed = now_ms;
        let stored = self.stored(&login, handle, now_ms)?;
        let held = read_now(login, handle, storage, now_ms);
        // By a mark that was left while the provider was asked. Without an answer
        // the tokens count more: it is asked again when the session is read.
        if let Ok(true) = storage.is_over(&held.marks, held.since()).await {
            self.note_end(&held, now_ms);
            self.session_cache.remove(handle.text());
            self.unlock(handle, lock).await;
            return Err(Refusal::SessionOver);
        }
        for last in (0..SAVES).rev() {
            match storage.update(&stored, lock).await {
                Ok(true) => break,
                Ok(false) => {
                    self.session_cache.remove(handle.text());
                    return Err(Refusal::SessionOver);
                }
                Err(StorageError) if last == 0 => {
                    tracing::error!(
                        "refreshed tokens are not saved: another node ends the session"
                    );
                }
                Err(StorageError) => tokio::time::sleep(SAVE_PAUSE).await,
            }
        }
        self.session_cache.insert(handle.text(), &held);
        Ok(held)
    }

    pub(crate) fn hold(
        &self,
        login: LoginSession,
        handle: &Handle,
        storage: &Storage,
        now_ms: i64,
    ) -> Arc<OpenSession> {
        let held = read_now(login, handle, storage, now_ms);
        self.session_cache.insert(handle.text(), &held);
        held
    }

    pub(crate) fn stored(
        &self,
        login: &LoginSession,
        handle: &Handle,
        now_ms: i64,
    ) -> Result<StoredLogin, Refusal> {
        let plain = serde_json::to_vec(login).map_err(|_| Refusal::SessionTooBig)?;
        if plain.len() > KEPT_MAX {
            return Err(Refusal::SessionTooBig);
        }
        let sealed = self.sealer.seal(&self.context_of(&handle.key), &plain);
        let mut stored = self.described(login, handle.key, now_ms);
        stored.sealed = sealed.map_err(|_| Refusal::SessionTooBig)?;
        Ok(stored)
    }

    /// What stands beside a session.
    fn described(&self, login: &LoginSession, key: TokenHash, now_ms: i64) -> StoredLogin {
        let whose = Owner::of(login);
        let subject = whose.subject.map(|subject| {
            if self.hash_subject {
                hashed(&subject)
            } else {
                subject
            }
        });
        let ends = self.ends_at(login);
        StoredLogin {
            key,
            id: login.id.clone(),
            issuer: whose.issuer,
            client_id: login.client.clone(),
            subject,
            sid: whose.sid,
            started_ms: login.since(),
            used_ms: login.renewed,
            ends_ms: ends.unwrap_or_else(|| now_ms.saturating_add(FOR_EVER)),
            sealed: String::new(),
        }
    }

    /// Asks for the right to ask for the next tokens of a session; `None`: somebody
    /// else has it.
    ///
    /// # Errors
    /// [`Refusal::SessionStoreUnavailable`].
    pub(crate) async fn lock(&self, handle: &Handle, now_ms: i64) -> Result<Option<Lock>, Refusal> {
        let storage = self.storage.as_ref().ok_or(UNAVAILABLE)?;
        let until_ms = now_ms.saturating_add(self.lock_ms);
        let locked = storage.lock(&handle.key, until_ms, now_ms).await;
        locked.map_err(unavailable)
    }

    /// Gives that back.
    pub(crate) async fn unlock(&self, handle: &Handle, lock: Lock) {
        if let Some(storage) = &self.storage
            && storage.unlock(&handle.key, lock).await.is_err()
        {
            tracing::warn!("a session stays locked for a while");
        }
    }

    /// For how long one node alone may ask for a session's next tokens, in
    /// milliseconds.
    pub(crate) fn lock_ms(&self) -> i64 {
        self.lock_ms
    }
}

/// A session that is known as it is kept at `now_ms`.
fn read_now(
    login: LoginSession,
    handle: &Handle,
    storage: &Storage,
    now_ms: i64,
) -> Arc<OpenSession> {
    let stale_ms = now_ms.saturating_add(storage.read_ms());
    Arc::new(OpenSession::new(login, Some(handle.clone()), stale_ms))
}

/// A subject as it is stored where it shall not be read.
pub(crate) fn hashed(subject: &str) -> String {
    URL_SAFE_NO_PAD.encode(TokenHash::of(subject).0)
}

impl Sessions {
    /// The sessions of a storage of their own that can list them, and whether
    /// these are all.
    pub(crate) async fn list(
        &self,
    ) -> Result<Option<(Vec<StoredLogin>, bool)>, SessionsUnavailable> {
        let Some(Storage::Remote(remote)) = &self.storage else {
            return Ok(None);
        };
        let listed = remote.list().await.map_err(|_| SessionsUnavailable)?;
        let Some((all, whole)) = listed else {
            return Ok(None);
        };
        let shown = all.into_iter().filter_map(|(key, sealed)| {
            let login = self.unseal(&key, &sealed)?;
            let mut stored = self.described(&login, key, i64::MAX);
            stored.sealed.clear();
            Some(stored)
        });
        Ok(Some((shown.collect(), whole)))
    }

    /// Ends sessions wherever they are: in cookies by marks. How many there were
    /// of which is known.
    pub(crate) async fn end_all(
        &self,
        which: &LoginQuery,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<usize, SessionsUnavailable> {
        let marks = marks_for(which, |what| self.storages.mark(what, now_ms));
        let own = self.storages.end(which, &marks, now_ms, audit).await;
        let down = |_| SessionsUnavailable;
        if let Some(storage @ Storage::Remote(_)) = &self.storage {
            storage.mark(&marks, now_ms).await.map_err(down)?;
        }
        let mut ended = own.map_err(down)?.len();
        if let Some(Storage::Remote(remote)) = &self.storage {
            let listed = self.list().await?.unwrap_or_default().0;
            for login in listed.iter().filter(|login| which.fits(login)) {
                remote.end(&login.key).await.map_err(down)?;
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Ends the sessions of a provider's session, or else of one of its users: those
    /// that have begun by now, or by the time that is named.
    ///
    /// # Errors
    /// [`SessionsUnavailable`]: some may go on.
    pub(crate) async fn end_at_provider(
        &self,
        which: &LoginQuery,
        now_ms: i64,
    ) -> Result<(), SessionsUnavailable> {
        let before_ms = which.started_ms.map_or(now_ms, |bound| bound.min(now_ms));
        let marks = marks_for(which, |what| SessionTombstone {
            before_ms,
            ..self.storages.mark(what, now_ms)
        });
        // Here first; whatever one place can't do, the other does.
        let ended = self.storages.end(which, &marks, now_ms, None).await;
        if let Some(storage) = &self.storage {
            let left = storage.mark(&marks, now_ms).await;
            left.map_err(|_| SessionsUnavailable)?;
        }
        ended.map(drop).map_err(|_| SessionsUnavailable)
    }

    /// Whether the process's own store keeps such a session.
    pub(crate) async fn is_stored(&self, which: &LoginQuery) -> bool {
        let Ok(store) = self.storages.store() else {
            return false;
        };
        let page = store.logins(which, None, 1).await;
        page.is_ok_and(|page| !page.logins.is_empty())
    }

    /// Whether something was shown before and remembered.
    pub(crate) async fn has_seen(
        &self,
        what: TokenHash,
        now_ms: i64,
    ) -> Result<bool, SessionsUnavailable> {
        let store = self.storages.store().map_err(|_| SessionsUnavailable)?;
        let seen = store.has_seen(what, now_ms).await;
        seen.map_err(|_| SessionsUnavailable)
    }

    /// Remembers that something was shown until `until_ms`; says whether it is
    /// new.
    pub(crate) async fn remember(
        &self,
        what: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, SessionsUnavailable> {
        let store = self.storages.store().map_err(|_| SessionsUnavailable)?;
        let new = store.remember(what, until_ms, now_ms).await;
        new.map_err(|_| SessionsUnavailable)
    }
}
