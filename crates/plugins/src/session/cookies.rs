//! What the cookies of a request come to: the sessions that they hold, or lead to.

use std::sync::Arc;

use pingora::http::RequestHeader;

use super::SessionPlugin;
use super::config::CookieKind;
use super::state::SessionState;
use super::storage::{self, Handle};
use doorward_core::model::grant::TokenHash;
use doorward_net::session::timers::Age;
use doorward_plugin_api::filter::Exchange;

/// A session, and its handle where the store has it.
#[derive(Clone)]
pub(super) struct HeldSession {
    pub(super) state: SessionState,
    pub(super) handle: Option<Handle>,
}

/// What the cookies of a request come to.
#[derive(Default)]
pub(super) struct Presented {
    /// The session, unless it is over.
    pub(super) session: Option<HeldSession>,
    /// The one that outlives the browser, unless it is over.
    pub(super) remembered: Option<HeldSession>,
}

impl Presented {
    pub(super) fn both(&self) -> impl Iterator<Item = &HeldSession> {
        self.session.iter().chain(&self.remembered)
    }

    /// The session that counts.
    pub(super) fn state(&self) -> Option<&SessionState> {
        self.both().next().map(|held| &held.state)
    }

    /// Whether the session that counts is the one that outlives the browser.
    pub(super) fn is_remembered(&self) -> bool {
        self.session.is_none()
    }
}

/// A session has to be read before anything can be said of it.
pub(super) struct NeedsStore;

/// The store does not say whether there is a session.
pub(super) struct Unavailable;

/// A session that was read for a request: its key, and what is sealed of it if it is there.
type ReadSession = (TokenHash, Option<Arc<str>>);

/// What the cookies of a request came to.
pub(super) fn presented(exchange: &Exchange) -> Option<&Presented> {
    let mut notes = exchange.notes.iter();
    notes.find_map(|note| note.downcast_ref())
}

impl SessionPlugin {
    /// The session of a request; `None`: it shows none of the cookies. `read` is what was
    /// read for the request.
    pub(super) fn present(
        &self,
        request: &RequestHeader,
        read: &[ReadSession],
    ) -> Result<Option<Presented>, NeedsStore> {
        let open = |kind: &CookieKind| {
            let Some(text) = kind.style.read(&request.headers) else {
                return Ok(None);
            };
            let held = text.map_or(Ok(None), |text| self.open(kind, &text, read))?;
            Ok(Some(
                held.filter(|held| self.age(kind, &held.state) != Age::Over),
            ))
        };
        let session = open(&self.config.session)?;
        let remembered = match &self.config.remember {
            Some(kind) => open(kind)?,
            None => None,
        };
        let shown = session.is_some() || remembered.is_some();
        Ok(shown.then(|| Presented {
            session: session.flatten(),
            remembered: remembered.flatten(),
        }))
    }

    /// What a cookie's text opens.
    fn open(
        &self,
        kind: &CookieKind,
        text: &str,
        read: &[ReadSession],
    ) -> Result<Option<HeldSession>, NeedsStore> {
        let sealer = &self.config.sealer;
        let held = |state, handle| HeldSession { state, handle };
        if !self.config.is_stored {
            let state = SessionState::open(sealer, &kind.context, text);
            return Ok(state.map(|state| held(state, None)));
        }
        let Some((store, handle)) = self.store.as_ref().zip(Handle::open(sealer, kind, text))
        else {
            return Ok(None);
        };
        let key = handle.key();
        let sealed = match read.iter().find(|(known, _)| *known == key) {
            Some((_, sealed)) => sealed.clone(),
            None => store.at_hand(&key, self.clock.now_ms()).ok_or(NeedsStore)?,
        };
        let Some(sealed) = sealed else {
            return Ok(None);
        };
        let state = SessionState::open(sealer, &storage::context(kind, &key), &sealed);
        Ok(state.map(|state| held(state, Some(handle))))
    }

    /// As [`SessionPlugin::present`], reading what has to be read.
    pub(super) async fn present_stored(
        &self,
        request: &RequestHeader,
    ) -> Result<Option<Presented>, Unavailable> {
        let mut read = Vec::new();
        for kind in self.kinds() {
            let text = kind.style.read(&request.headers).flatten();
            let handle = text.and_then(|text| Handle::open(&self.config.sealer, kind, &text));
            let Some((store, handle)) = self.store.as_ref().zip(handle) else {
                continue;
            };
            let (key, now_ms) = (handle.key(), self.clock.now_ms());
            let sealed = match store.at_hand(&key, now_ms) {
                Some(sealed) => sealed,
                None => store.look_up(key, now_ms).await.map_err(|error| {
                    tracing::warn!(%error, "the store gives no session");
                    Unavailable
                })?,
            };
            read.push((key, sealed));
        }
        self.present(request, &read)
            .map_err(|NeedsStore| Unavailable)
    }

    pub(super) fn age(&self, kind: &CookieKind, state: &SessionState) -> Age {
        let now_ms = self.clock.now_ms();
        kind.timers.age(state.started_ms, state.renewed_ms, now_ms)
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &CookieKind> {
        let kinds = [Some(&self.config.session), self.config.remember.as_ref()];
        kinds.into_iter().flatten()
    }
}
