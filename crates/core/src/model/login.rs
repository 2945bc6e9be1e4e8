//! Login sessions of the gateway as a relying party, as a store keeps them.
//!
//! What is in a session is sealed by who keeps it; beside that stands what it
//! takes to find it, to show it and to end it.

use super::grant::TokenHash;

/// Most login sessions that are ended in one transaction.
pub const LOGINS_AT_ONCE: u32 = 1000;
/// For how long it is remembered that a session that was removed has ended, in
/// milliseconds: longer than any node goes on with what it has read of it.
pub const REMOVED_KEPT_MS: i64 = 120_000;

/// A login session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLogin {
    /// Hash of the handle that the browser has.
    pub key: TokenHash,
    /// What it is called where it is shown. It opens nothing.
    pub id: String,
    /// Who let the user in.
    pub issuer: String,
    /// The client that the gateway is there.
    pub client_id: String,
    /// The user there, or a hash of that.
    pub subject: Option<String>,
    /// What the provider calls its own session.
    pub sid: Option<String>,
    /// When it began, in milliseconds since the epoch.
    pub started_ms: i64,
    /// When it was written last.
    pub used_ms: i64,
    /// When it is over if it is not used.
    pub ends_ms: i64,
    /// What is in it, sealed.
    pub sealed: String,
}

/// Which login sessions are meant: those that fit all that is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginQuery {
    /// Of this name.
    pub id: Option<String>,
    /// Of users of this provider.
    pub issuer: Option<String>,
    /// Of a user: any of these.
    pub subjects: Vec<String>,
    /// Of this client.
    pub client_id: Option<String>,
    /// Of this session of the provider.
    pub sid: Option<String>,
    /// Begun no later than this, in milliseconds since the epoch.
    pub started_ms: Option<i64>,
}

impl LoginQuery {
    /// Whether a session is meant.
    pub fn fits(&self, login: &StoredLogin) -> bool {
        let is = |wanted: &Option<String>, own: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| own == Some(wanted))
        };
        is(&self.id, Some(&login.id))
            && is(&self.issuer, Some(&login.issuer))
            && is(&self.client_id, Some(&login.client_id))
            && is(&self.sid, login.sid.as_ref())
            && (self.subjects.is_empty()
                || (login.subject.as_ref()).is_some_and(|subject| self.subjects.contains(subject)))
            && self
                .started_ms
                .is_none_or(|bound| login.started_ms <= bound)
    }
}

/// One page of login sessions, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct LoginPage {
    /// The sessions.
    pub logins: Vec<StoredLogin>,
    /// Whether others follow.
    pub more: bool,
}

/// What [`SessionTombstone`]s are about: the first half of a SHA-256.
pub type TombstoneKey = [u8; 16];

/// That sessions are over which some browser may still show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTombstone {
    /// A digest of what the sessions have in common.
    pub what: TombstoneKey,
    /// Sessions that began no later are over, in milliseconds since the epoch.
    pub before_ms: i64,
    /// When none of them can live any more.
    pub until_ms: i64,
}

impl SessionTombstone {
    /// What tells the session of this key from all others.
    pub fn of_key(key: &TokenHash) -> TombstoneKey {
        let mut what = [0; 16];
        what.copy_from_slice(&key.0[..16]);
        what
    }
}
