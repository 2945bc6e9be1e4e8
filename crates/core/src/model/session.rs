//! Sessions as they are looked for and ended, and what clients are told of
//! their end.

use uuid::Uuid;

use super::grant::{StoredSession, TokenHash};

/// Most sessions that the store ends in one step: writers must not wait long.
pub const ENDED_AT_ONCE: u32 = 500;

/// Which sessions are to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The one of this token.
    Token(TokenHash),
    /// The one that ID tokens of the realm call so, and what was given in it
    /// even if it is no more.
    Named {
        /// Path of the realm.
        realm: String,
        /// [`StoredSession::sid`].
        sid: String,
    },
    /// Every one that fits, at most [`ENDED_AT_ONCE`].
    Every(SessionQuery),
    /// Those that lapsed, at most [`ENDED_AT_ONCE`].
    Lapsed {
        /// Sessions that were not used since then have lapsed, and so have those
        /// whose time is over. In milliseconds since the epoch.
        unused_since_ms: i64,
        /// Whether clients are told.
        told: bool,
    },
}

/// What sessions are asked for by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Path of their realm.
    pub realm: Option<String>,
    /// Whose they are.
    pub user_id: Option<Uuid>,
    /// A client that is signed in through them.
    pub client_id: Option<String>,
}

/// A session with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session itself.
    pub session: StoredSession,
    /// The name of its user.
    pub user_name: String,
    /// The clients that are signed in through it, in alphabetical order.
    pub clients: Vec<String>,
}

/// One page of sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionPage {
    /// The sessions, by ascending `sid`.
    pub sessions: Vec<SessionRecord>,
    /// Whether others follow.
    pub more: bool,
}

/// A session that has ended, and what ended with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// Path of its realm.
    pub realm: String,
    /// What ID tokens called it.
    pub sid: String,
    /// The clients that were signed in through it.
    pub clients: Vec<String>,
    /// The grants that were revoked.
    pub grants: Vec<String>,
    /// How many clients are to be told ([`Logout`]).
    pub told: u64,
}

/// A client is to be told that a session has ended (OpenID Connect
/// Back-Channel Logout 1.0 §2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logout {
    /// Tells it from others.
    pub id: i64,
    /// Path of the realm.
    pub realm: String,
    /// The client.
    pub client_id: String,
    /// Whose session it was.
    pub user_id: Uuid,
    /// What its user is called, or was when the session ended.
    pub user_name: String,
    /// What ID tokens called the session.
    pub sid: String,
    /// How often it was tried, this time included.
    pub tries: u32,
    /// When it is tried for the last time, in milliseconds since the epoch.
    pub until_ms: i64,
}

/// For how long a client is tried to be told, in milliseconds: two hours.
pub const LOGOUT_TRIED_MS: i64 = 2 * 3600 * 1000;

/// Clients that are owed so many logouts are not told of more: one that never
/// answers must not fill the store.
pub const LOGOUTS_OWED: u32 = 10_000;
