//! Which sessions are over although a browser may still show them.
//!
//! What is sealed in a cookie can't be taken back, and what a node has read of a
//! session it holds for a moment: both are compared with these marks. They are in
//! the process's own store, and every node has them in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::provider::single_flight::digest_of;
use doorward_core::model::login::{SessionTombstone, TombstoneKey};

/// Most marks held.
pub(crate) const MARKS: usize = 256 * 1024;
/// Of these, what is left to providers and operators: whoever signs in and out
/// again and again must not take from them that they can end sessions.
const RESERVED: usize = MARKS / 4;

/// What sessions may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionSelector<'a> {
    /// A session by its name.
    Session(&'a str),
    /// The sessions of one session at the provider.
    ProviderSession { issuer: &'a str, sid: &'a str },
    /// The sessions of a user.
    User { issuer: &'a str, subject: &'a str },
    /// The sessions of a client.
    Client(&'a str),
    /// The sessions of a user with a client.
    UserOfClient {
        issuer: &'a str,
        subject: &'a str,
        client: &'a str,
    },
}

impl SessionSelector<'_> {
    /// Its digest.
    pub(crate) fn digest(self) -> TombstoneKey {
        let texts = match self {
            Self::Session(id) => ["session", "", id, ""],
            Self::ProviderSession { issuer, sid } => ["sid", bare(issuer), sid, ""],
            Self::User { issuer, subject } => ["sub", bare(issuer), subject, ""],
            Self::Client(client) => ["client", "", "", client],
            Self::UserOfClient {
                issuer,
                subject,
                client,
            } => ["both", bare(issuer), subject, client],
        };
        let digest = digest_of(texts.map(str::as_bytes));
        let mut marked = [0; 16];
        marked.copy_from_slice(&digest[..16]);
        marked
    }
}

/// Issuers are the same with and without a slash at their end.
fn bare(issuer: &str) -> &str {
    issuer.trim_end_matches('/')
}

/// The marks that a process knows.
#[derive(Debug, Default)]
pub(crate) struct RevokedSessions {
    /// Up to when sessions are over, and until when it has to be known.
    marks: RwLock<HashMap<TombstoneKey, (i64, i64), ahash::RandomState>>,
    /// How often a mark was added.
    generation: AtomicU64,
}

impl RevokedSessions {
    /// A number that grows with every mark.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether a session that began at `started_ms` is over by one of its marks.
    pub(crate) fn is_over(&self, of: &[TombstoneKey], started_ms: i64) -> bool {
        let marks = self.marks.read();
        !marks.is_empty()
            && of.iter().any(|what| {
                let mark = marks.get(what);
                mark.is_some_and(|(before_ms, _)| started_ms <= *before_ms)
            })
    }

    /// Adds a mark; says whether there was room.
    pub(crate) fn add(&self, mark: &SessionTombstone) -> bool {
        self.add_below(MARKS, mark)
    }

    /// As [`RevokedSessions::add`], of a user who signs out.
    pub(crate) fn add_of_user(&self, mark: &SessionTombstone) -> bool {
        self.add_below(MARKS - RESERVED, mark)
    }

    fn add_below(&self, most: usize, mark: &SessionTombstone) -> bool {
        let mut marks = self.marks.write();
        if marks.len() >= most && !marks.contains_key(&mark.what) {
            return false;
        }
        let (before, until) = marks.entry(mark.what).or_insert((i64::MIN, i64::MIN));
        *before = mark.before_ms.max(*before);
        *until = mark.until_ms.max(*until);
        drop(marks);
        self.generation.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Forgets what no session can need any more.
    pub(crate) fn prune(&self, now_ms: i64) {
        let over = |until: i64| until <= now_ms;
        if self.marks.read().values().any(|(_, until)| over(*until)) {
            self.marks.write().retain(|_, (_, until)| !over(*until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(what: TombstoneKey, before_ms: i64, until_ms: i64) -> SessionTombstone {
        SessionTombstone {
            what,
            before_ms,
            until_ms,
        }
    }

    #[test]
    fn sessions_that_began_before_a_mark_are_over_and_later_ones_are_not() {
        let revoked_sessions = RevokedSessions::default();
        let (issuer, subject) = ("https://id/", "anna");
        let user = SessionSelector::User { issuer, subject }.digest();
        let before = revoked_sessions.generation();
        assert!(!revoked_sessions.is_over(&[user], 5));
        assert!(revoked_sessions.add(&mark(user, 10, 100)));
        assert_ne!(revoked_sessions.generation(), before);
        assert!(revoked_sessions.is_over(&[SessionSelector::Session("x").digest(), user], 10));
        assert!(!revoked_sessions.is_over(&[user], 11));
        let issuer = "https://id";
        assert_eq!(SessionSelector::User { issuer, subject }.digest(), user);
        // An earlier mark does not undo a later one.
        assert!(revoked_sessions.add(&mark(user, 3, 50)));
        assert!(revoked_sessions.is_over(&[user], 10));
        revoked_sessions.prune(99);
        assert!(revoked_sessions.is_over(&[user], 10));
        revoked_sessions.prune(100);
        assert!(!revoked_sessions.is_over(&[user], 10));
    }

    #[test]
    fn what_marks_are_about_is_never_mixed_up() {
        let all = [
            SessionSelector::Session("a").digest(),
            SessionSelector::Session("b").digest(),
            SessionSelector::User {
                issuer: "",
                subject: "a",
            }
            .digest(),
            SessionSelector::ProviderSession {
                issuer: "",
                sid: "a",
            }
            .digest(),
            SessionSelector::Client("a").digest(),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn a_flood_of_marks_stays_within_the_bound() {
        let revoked_sessions = RevokedSessions::default();
        for n in 0..MARKS {
            let mut what = [0; 16];
            what[..8].copy_from_slice(&(n as u64).to_be_bytes());
            assert!(revoked_sessions.add(&mark(what, 1, 1)));
        }
        assert!(!revoked_sessions.add(&mark([255; 16], 1, 1)));
    }

    #[test]
    fn one_account_that_signs_out_without_end_leaves_providers_and_operators_their_room() {
        let revoked_sessions = RevokedSessions::default();
        let marks = (0..=MARKS as u64).map(|n| {
            let mut what = [0; 16];
            what[..8].copy_from_slice(&n.to_be_bytes());
            mark(what, 1, 1)
        });
        let taken = marks
            .filter(|mark| revoked_sessions.add_of_user(mark))
            .count();
        assert_eq!(taken, MARKS - RESERVED);
        let user = mark([255; 16], 10, 100);
        assert!(!revoked_sessions.add_of_user(&user));
        assert!(revoked_sessions.add(&user));
        assert!(revoked_sessions.is_over(&[user.what], 10));
    }
}
