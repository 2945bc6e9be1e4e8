//! What an answer says of a session: that it begins, that it is renewed, or that it is
//! over. Where the store has sessions, they are written before the answer goes, so that
//! the next request finds them on every node.

use std::borrow::Cow;

use http::HeaderValue;
use http::header::SET_COOKIE;
use pingora::http::{RequestHeader, ResponseHeader};

use super::SessionPlugin;
use super::config::CookieKind;
use super::cookies::{HeldSession, presented};
use super::state::SessionState;
use super::storage::{self, Handle};
use doorward_core::clock::http_date_text;
use doorward_core::model::login::StoredLogin;
use doorward_net::session::timers::Age;
use doorward_plugin_api::filter::Exchange;

/// What becomes of a session with an answer.
enum Course<'e> {
    /// The request has none, and none begins.
    Absent,
    /// The request shows cookies that lead to none.
    Over,
    /// It stays as it is.
    Same(&'e SessionState),
    /// It begins, or is renewed.
    Written(WrittenSession<'e>),
}

/// A session that an answer begins or renews.
struct WrittenSession<'e> {
    begins: bool,
    state: Cow<'e, SessionState>,
    /// What is written of it, by the kind of its cookie.
    records: Vec<SessionRecord<'e>>,
}

/// What is written of a session for one cookie.
struct SessionRecord<'e> {
    kind: &'e CookieKind,
    state: SessionState,
    /// Where the store has it already.
    handle: Option<Handle>,
}

/// A session that is in the store before its answer goes.
struct StoredSession {
    state: SessionState,
    /// Texts of cookies; with each, whether it outlives the browser.
    cookies: Vec<(bool, String)>,
}

impl SessionPlugin {
    /// What becomes of the session of a request.
    fn course<'e>(&'e self, exchange: &'e Exchange) -> Course<'e> {
        let presented = presented(exchange);
        // Nobody, or somebody without a consumer.
        let caller = exchange.consumer.as_ref().zip(exchange.credential.as_ref());
        let Some((consumer, credential)) = caller else {
            return match presented {
                Some(shown) if shown.state().is_none() => Course::Over,
                _ => Course::Absent,
            };
        };
        let now_ms = self.clock.now_ms();
        // The credential is that of the session itself.
        let own = |held: &'e Option<HeldSession>| {
            let held = held.as_ref();
            held.filter(|held| held.state.matches(consumer.id, credential.id))
        };
        let shown = presented.and_then(|shown| own(&shown.session));
        let remembered = presented.and_then(|shown| own(&shown.remembered));
        let begins = shown.is_none();
        let record = |kind: &'e CookieKind, held: Option<&HeldSession>, begins: bool| {
            let state = match held {
                Some(held) if begins || self.age(kind, &held.state) == Age::Due => {
                    held.state.renewed(now_ms)
                }
                Some(_) => return None,
                None => {
                    let groups = exchange.authenticated_groups.clone();
                    SessionState::new(consumer.id, credential.id, groups, now_ms)
                }
            };
            let handle = held.and_then(|held| held.handle.clone());
            Some(SessionRecord {
                kind,
                state,
                handle,
            })
        };
        let session = record(&self.config.session, shown, false);
        let remember = self.config.remember.as_ref();
        let remember = remember
            .filter(|_| begins || remembered.is_some())
            .and_then(|kind| record(kind, remembered, begins));
        let state = match (&session, shown) {
            (Some(record), _) => Cow::Owned(record.state.clone()),
            (None, Some(held)) if remember.is_none() => return Course::Same(&held.state),
            (None, Some(held)) => Cow::Borrowed(&held.state),
            (None, None) => return Course::Absent,
        };
        Course::Written(WrittenSession {
            begins,
            state,
            records: session.into_iter().chain(remember).collect(),
        })
    }

    /// Has the store keep what the answer to a request says of its session. A session
    /// begins only where it `may_begin`.
    pub(super) async fn store_session(&self, exchange: &mut Exchange, may_begin: bool) {
        // The answer may have taken the place of another one.
        if !self.config.is_stored || stored(exchange).is_some() {
            return;
        }
        let Course::Written(session) = self.course(exchange) else {
            return;
        };
        if session.begins && !may_begin {
            return;
        }
        let Some(cookies) = self.store_records(&session).await else {
            return;
        };
        let (begins, state) = (session.begins, session.state.into_owned());
        exchange
            .notes
            .push(Box::new(StoredSession { state, cookies }));
        if begins {
            self.begun.inc();
        }
    }

    fn is_remember(&self, kind: &CookieKind) -> bool {
        !std::ptr::eq(kind, &self.config.session)
    }

    /// Stores a session; the texts of its cookies, once it is there. What it has in the
    /// store already is renewed first: of one that has ended meanwhile none begins, and
    /// nothing new is left behind.
    async fn store_records(&self, session: &WrittenSession<'_>) -> Option<Vec<(bool, String)>> {
        let store = self.store.as_ref()?;
        let now_ms = self.clock.now_ms();
        let (mut cookies, mut new) = (Vec::new(), Vec::new());
        for record in &session.records {
            let (login, text) = self.sealed(record)?;
            if record.handle.is_none() {
                new.push(login);
            } else if !store.renew(&login, now_ms).await {
                if session.begins {
                    return None;
                }
                continue;
            }
            cookies.push((self.is_remember(record.kind), text));
        }
        if !new.is_empty() && !store.begin(&new, now_ms).await {
            return None;
        }
        Some(cookies)
    }

    /// The record of a session for the store, and the text of its cookie.
    fn sealed(&self, record: &SessionRecord<'_>) -> Option<(StoredLogin, String)> {
        let SessionRecord {
            kind,
            state,
            handle,
        } = record;
        let sealer = &self.config.sealer;
        let handle = handle.clone().unwrap_or_else(Handle::random);
        let key = handle.key();
        let sealed = state.seal(sealer, &storage::context(kind, &key))?;
        let login = storage::record(kind, (key, sealed), state, &self.config.audience);
        Some((login, handle.seal(sealer, kind)?))
    }

    /// Writes what an answer says of the session of its request.
    pub(super) fn write(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        if let Some(stored) = stored(exchange) {
            for (is_remember, text) in &stored.cookies {
                let remember = self.config.remember.as_ref().filter(|_| *is_remember);
                let kind = remember.unwrap_or(&self.config.session);
                append(response, self.cookies(kind, text, request, exchange));
            }
            return self.tell(&stored.state, response);
        }
        match self.course(exchange) {
            Course::Absent => {}
            Course::Over => append(response, self.forget(request, exchange)),
            Course::Same(state) => self.tell(state, response),
            // What could not be stored begins no session, and ends none.
            Course::Written(session) if self.config.is_stored => {
                if !session.begins {
                    self.tell(&session.state, response);
                }
            }
            Course::Written(session) => {
                for record in &session.records {
                    let sealer = &self.config.sealer;
                    let Some(text) = record.state.seal(sealer, &record.kind.context) else {
                        return;
                    };
                    append(
                        response,
                        self.cookies(record.kind, &text, request, exchange),
                    );
                }
                if session.begins {
                    self.begun.inc();
                }
                self.tell(&session.state, response);
            }
        }
    }

    /// Tells the client of a session.
    fn tell(&self, state: &SessionState, response: &mut ResponseHeader) {
        let items = &self.config.response_headers;
        for (name, value) in self.told(items, &self.config.session, state) {
            // A name and a value that are already those of a message.
            let _ = response.insert_header(name.clone(), value);
        }
    }

    /// The fields that set a cookie. Its attributes have the order of the imitated
    /// gateway, and its end is a date, too: clients compare and old ones need it.
    fn cookies(
        &self,
        kind: &CookieKind,
        text: &str,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> Vec<HeaderValue> {
        let cookies = kind.style.keep(text, &request.headers, exchange.secure);
        let cookies = cookies.unwrap_or_else(|error| {
            tracing::warn!(%error, "a session can't be kept in cookies");
            Vec::new()
        });
        let end = kind.kept.map(|kept| self.clock.now_secs() + kept);
        let end = end.and_then(http_date_text);
        let ordered = |cookie: &HeaderValue| {
            let mut text = cookie.to_str().ok()?.to_owned();
            if text.contains("; HttpOnly; Secure") {
                text = text.replacen("; HttpOnly; Secure", "; Secure; HttpOnly", 1);
            }
            if let Some(end) = &end
                && !text.ends_with("; Max-Age=0")
            {
                text = text.replacen("; Max-Age=", &format!("; Expires={end}; Max-Age="), 1);
            }
            HeaderValue::try_from(text).ok()
        };
        let both = cookies
            .iter()
            .map(|one| ordered(one).unwrap_or_else(|| one.clone()));
        both.collect()
    }

    /// The fields that have browsers forget the cookies that the request shows.
    pub(super) fn forget(&self, request: &RequestHeader, exchange: &Exchange) -> Vec<HeaderValue> {
        let fields = self.kinds();
        let fields = fields.flat_map(|kind| kind.style.forget(&request.headers, exchange.secure));
        fields.collect()
    }
}

/// The session that is in the store for the answer to a request.
fn stored(exchange: &Exchange) -> Option<&StoredSession> {
    let mut notes = exchange.notes.iter();
    notes.find_map(|note| note.downcast_ref())
}

fn append(response: &mut ResponseHeader, cookies: Vec<HeaderValue>) {
    for cookie in cookies {
        // A name and a value that are already those of a message.
        let _ = response.append_header(SET_COOKIE, cookie);
    }
}
