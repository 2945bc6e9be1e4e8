//! Who is signed in: a sealed cookie, and the sessions that were ended before
//! their time.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use doorward_core::clock::random_bytes;
use doorward_identity::SignIn;
use doorward_net::session::cookie::{SameSite, Style};
use doorward_net::session::seal::{SealError, Sealer};

use super::PREFIX;
use super::texts::Texts;

/// How long a session lasts: a working day.
const LIFETIME_MS: i64 = 8 * 3600 * 1000;
/// Most ended sessions that are remembered. Beyond it those that would have ended
/// first are forgotten: each of them cost somebody a sign-in.
const ENDED_MAX: usize = 10_000;

/// What somebody may do, from less to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Sees everything that is shown.
    Viewer,
    /// Changes entities, ends sessions, resets counters.
    Operator,
    /// May do all that the Admin API offers.
    Owner,
}

impl Role {
    /// What it is called where it is stored.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }

    /// The role of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Viewer, Self::Operator, Self::Owner];
        all.into_iter().find(|role| role.name() == name)
    }

    /// What people call it.
    pub(crate) fn text(self, texts: &Texts) -> &'static str {
        match self {
            Self::Viewer => texts.viewer,
            Self::Operator => texts.operator,
            Self::Owner => texts.owner,
        }
    }
}

/// A sign-in at the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    id: String,
    /// What its forms carry.
    pub(crate) form_token: String,
    /// Of a person: as it was at the sign-in. What counts is looked up.
    pub(crate) role: Role,
    /// The person's sign-in at the provider; `None`: by the admin token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sign_in: Option<SignIn>,
    /// When it ends, in milliseconds since the epoch.
    pub(crate) until_ms: i64,
}

impl Session {
    /// Whether a form carries the token of this session, in constant time.
    pub(crate) fn has_form_token(&self, candidate: &str) -> bool {
        let (own, candidate) = (self.form_token.as_bytes(), candidate.as_bytes());
        own.ct_eq(candidate).into()
    }
}

/// The sessions of this process. They end with it: the key of the cookies is of
/// the process alone, so nobody can try the admin token on a cookie.
pub(crate) struct Sessions {
    sealer: Sealer,
    /// Of changes that wait for a yes.
    changes: Sealer,
    style: Style,
    ended: Mutex<HashMap<String, i64>>,
}

impl Sessions {
    pub(crate) fn new(port: u16) -> Result<Self, SealError> {
        let key = random_bytes::<32>();
        let name = format!("doorward_console_{port}");
        let style = Style::new(&name, PREFIX, None).map_err(|_| SealError)?;
        Ok(Self {
            sealer: Sealer::new("console session", [&key[..]])?,
            changes: Sealer::new("console change", [&key[..]])?,
            // A link in a chat has to find who is signed in, hence not `Strict`:
            // whatever changes something is checked for its origin and its token.
            style: style.with(SameSite::Lax, true, None),
            ended: Mutex::default(),
        })
    }

    /// The session that the request's cookie shows.
    pub(crate) fn read(&self, headers: &HeaderMap, now_ms: i64) -> Option<Session> {
        let sealed = self.style.read(headers)??;
        let plain = self
            .sealer
            .open(self.style.name().as_bytes(), &sealed)
            .ok()?;
        let session: Session = serde_json::from_slice(&plain).ok()?;
        self.is_active(&session, now_ms).then_some(session)
    }

    /// Whether a session has neither lapsed nor been ended.
    pub(crate) fn is_active(&self, session: &Session, now_ms: i64) -> bool {
        now_ms < session.until_ms && !self.ended.lock().contains_key(&session.id)
    }

    /// A change to what `target` names, sealed for the session: its page holds
    /// nothing of it in the clear, and nobody else can have it made.
    pub(crate) fn seal_change(
        &self,
        session: &Session,
        target: &str,
        change: &[u8],
    ) -> Option<String> {
        let context = format!("{} {target}", session.id);
        self.changes.seal(context.as_bytes(), change).ok()
    }

    /// What [`Sessions::seal_change`] sealed for the same session and target.
    pub(crate) fn open_change(
        &self,
        session: &Session,
        target: &str,
        sealed: &str,
    ) -> Option<Vec<u8>> {
        let context = format!("{} {target}", session.id);
        self.changes.open(context.as_bytes(), sealed).ok()
    }

    /// A new session, and the fields that have the browser keep it.
    pub(crate) fn begin(
        &self,
        (role, sign_in): (Role, Option<SignIn>),
        headers: &HeaderMap,
        secure: bool,
        now_ms: i64,
    ) -> Option<(Session, Vec<HeaderValue>)> {
        let session = Session {
            id: URL_SAFE_NO_PAD.encode(random_bytes::<16>()),
            form_token: URL_SAFE_NO_PAD.encode(random_bytes::<32>()),
            role,
            sign_in,
            until_ms: now_ms + LIFETIME_MS,
        };
        let plain = serde_json::to_vec(&session).ok()?;
        let sealed = self
            .sealer
            .seal(self.style.name().as_bytes(), &plain)
            .ok()?;
        let fields = self.style.keep(&sealed, headers, secure).ok()?;
        Some((session, fields))
    }

    /// Ends a session; gives the fields that have the browser forget it.
    pub(crate) fn end(
        &self,
        session: &Session,
        headers: &HeaderMap,
        secure: bool,
        now_ms: i64,
    ) -> Vec<HeaderValue> {
        let mut ended = self.ended.lock();
        ended.retain(|_, until_ms| now_ms < *until_ms);
        if ended.len() >= ENDED_MAX {
            let first = ended.iter().min_by_key(|(_, until_ms)| **until_ms);
            if let Some(first) = first.map(|(id, _)| id.clone()) {
                ended.remove(&first);
            }
        }
        ended.insert(session.id.clone(), session.until_ms);
        drop(ended);
        self.style.forget(headers, secure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(fields: &[HeaderValue]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for field in fields {
            let text = field.to_str().expect("text");
            let pair = text.split(';').next().expect("a pair");
            headers.append("cookie", HeaderValue::from_str(pair).expect("a value"));
        }
        headers
    }

    #[test]
    fn a_session_lasts_until_its_time_or_its_end() {
        let sessions = Sessions::new(8001).expect("a key");
        let none = HeaderMap::new();
        assert_eq!(sessions.read(&none, 0), None);
        let (session, fields) = sessions
            .begin((Role::Owner, None), &none, true, 0)
            .expect("one");
        let field = fields[0].to_str().expect("text");
        for attribute in ["Path=/console", "HttpOnly", "SameSite=Lax", "Secure"] {
            assert!(field.contains(attribute), "{field}");
        }
        assert!(!field.contains(&session.form_token), "sealed");
        let cookie = shown(&fields);
        assert_eq!(sessions.read(&cookie, 1), Some(session.clone()));
        assert_eq!(sessions.read(&cookie, LIFETIME_MS), None);
        sessions.end(&session, &cookie, true, 2);
        assert_eq!(sessions.read(&cookie, 3), None, "a copy ends as well");
    }

    #[test]
    fn a_cookie_of_another_process_or_port_shows_nothing() {
        let (one, other) = (
            Sessions::new(8001).expect("one"),
            Sessions::new(8001).expect("two"),
        );
        let (_, fields) = one
            .begin((Role::Owner, None), &HeaderMap::new(), false, 0)
            .expect("one");
        assert_eq!(other.read(&shown(&fields), 1), None);
        let third = Sessions::new(8002).expect("three");
        assert_eq!(third.read(&shown(&fields), 1), None);
    }

    #[test]
    fn a_form_carries_the_token_of_its_own_session() {
        let sessions = Sessions::new(8001).expect("a key");
        let none = HeaderMap::new();
        let (one, _) = sessions
            .begin((Role::Owner, None), &none, false, 0)
            .expect("one");
        let (other, _) = sessions
            .begin((Role::Owner, None), &none, false, 0)
            .expect("one");
        assert!(one.has_form_token(&one.form_token));
        for wrong in ["", "x", other.form_token.as_str()] {
            assert!(!one.has_form_token(wrong), "{wrong}");
        }
    }

    #[test]
    fn ended_sessions_are_bounded() {
        let sessions = Sessions::new(8001).expect("a key");
        let none = HeaderMap::new();
        for number in 0..ENDED_MAX + 5 {
            let session = Session {
                id: number.to_string(),
                form_token: String::new(),
                role: Role::Viewer,
                sign_in: None,
                until_ms: 1000,
            };
            sessions.end(&session, &none, false, 0);
        }
        assert_eq!(sessions.ended.lock().len(), ENDED_MAX);
    }
}
