//! Whether the database answers: a limit for everything that waits for it.
//!
//! A database can stop without a word: its process is halted, the network takes
//! packets and gives none. What was asked then ends after its limit. From there
//! on nobody waits in vain: one question a second tries whether it answers
//! again, the others are refused at once.

use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::StoreError;
use doorward_core::clock::monotonic_ns;

/// The time between two trials, while the database is silent.
const TRIAL_NS: u64 = 1_000_000_000;

/// What is known of a database.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// When it answered last.
    answered_ns: AtomicU64,
    silent: AtomicBool,
    /// When the next question may be asked of a silent one.
    trial_ns: AtomicU64,
    /// When a connection was last found broken.
    broken_ns: AtomicU64,
    /// Whether writes fail, and why.
    failing: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Health {
    /// Whether it is worth to ask now.
    pub(super) fn admit(&self) -> Result<(), StoreError> {
        if self.admits(monotonic_ns()) {
            return Ok(());
        }
        let why = "the database does not answer; it is asked again every second";
        Err(StoreError::Unavailable(why.to_owned(), None))
    }

    fn admits(&self, now_ns: u64) -> bool {
        if !self.silent.load(Ordering::Acquire) {
            return true;
        }
        let next = |trial_ns| (now_ns >= trial_ns).then_some(now_ns + TRIAL_NS);
        let turn = self
            .trial_ns
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        turn.is_ok()
    }

    fn answered(&self, now_ns: u64) {
        self.answered_ns.fetch_max(now_ns, Ordering::AcqRel);
        if self.silent.load(Ordering::Acquire) {
            self.silent.store(false, Ordering::Release);
        }
    }

    /// A connection was found broken. The database may have restarted: those that
    /// are older are not worth a try.
    pub(super) fn note_broken(&self) {
        self.broken_ns.fetch_max(monotonic_ns(), Ordering::AcqRel);
    }

    /// Whether a connection of this age is worth a try.
    pub(super) fn is_sound(&self, age: Duration) -> bool {
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.broken_ns.load(Ordering::Acquire) < monotonic_ns().saturating_sub(age_ns)
    }

    /// What was asked at `asked_ns` was not answered until now. If nothing else
    /// was since, it is silent; if so, it was one connection alone.
    fn missed(&self, asked_ns: u64, now_ns: u64) {
        if self.answered_ns.load(Ordering::Acquire) <= asked_ns {
            self.trial_ns.store(now_ns + TRIAL_NS, Ordering::Release);
            self.silent.store(true, Ordering::Release);
        }
    }

    /// The answer to a question to the database, or [`is_timeout`].
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let asked_ns = monotonic_ns();
        let Ok(answer) = timeout(limit, answer).await else {
            self.missed(asked_ns, monotonic_ns());
            self.note_broken();
            let why = format!("no answer within {} s", limit.as_secs());
            return Err(sqlx::Error::Io(Error::new(ErrorKind::TimedOut, why)));
        };
        match &answer {
            Ok(_) | Err(sqlx::Error::Database(_)) => self.answered(monotonic_ns()),
            Err(_) => {}
        }
        answer
    }

    /// A connection of a pool: to have one says nothing of the database.
    pub(super) async fn acquire<T>(
        &self,
        connection: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let asked_ns = monotonic_ns();
        let connection = connection.await;
        if matches!(connection, Err(sqlx::Error::PoolTimedOut)) {
            self.missed(asked_ns, monotonic_ns());
        }
        connection
    }

    /// Notes what became of a write: as long as they fail, operators are told.
    pub(super) fn note_write<T>(&self, outcome: &Result<T, StoreError>) {
        match outcome {
            Err(StoreError::Unavailable(why, _)) => self.note_failure(why),
            Ok(_) if self.failing.swap(false, Ordering::AcqRel) => {
                *self.failure.lock() = None;
                tracing::info!("writes to the store succeed again");
            }
            _ => {}
        }
    }

    /// Notes that a write failed, and why.
    pub(super) fn note_failure(&self, why: &str) {
        if !self.failing.swap(true, Ordering::AcqRel) {
            tracing::error!(why, "writes to the store fail");
        }
        *self.failure.lock() = Some(why.to_owned());
    }

    /// Why the last write failed, if it did.
    pub(super) fn failing_writes(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

/// Whether nobody answered.
pub(super) fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == ErrorKind::TimedOut)
}

/// Whether it is the database that is ill, rather than what it was asked: any
/// other write would fail as well, and nothing of the transaction may be left.
pub(super) fn is_database_fault(error: &sqlx::Error) -> bool {
    let Some(refused) = error.as_database_error() else {
        return true;
    };
    let code = refused.code().unwrap_or_default();
    match code.parse::<u32>() {
        // SQLite's: five digits are PostgreSQL's. The low byte is the kind: BUSY,
        // NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB.
        Ok(number) if code.len() != 5 => {
            matches!(number & 0xff, 5 | 7 | 8 | 10 | 11 | 13 | 14 | 26)
        }
        // Connections, resources, the operator's doing, the system, the server,
        // and a transaction that was ended for its idleness.
        _ => ["08", "53", "57P", "58", "XX", "25P03"]
            .iter()
            .any(|class| code.starts_with(class)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_silent_database_one_question_a_second_is_asked() {
        let health = Health::default();
        assert!(health.admits(0) && health.admits(0));
        health.missed(10, 20);
        assert!(!health.admits(20));
        assert!(health.admits(20 + TRIAL_NS), "the trial");
        assert!(!health.admits(20 + TRIAL_NS), "one trial");
        assert!(!health.admits(19 + 2 * TRIAL_NS));
        assert!(health.admits(20 + 2 * TRIAL_NS));
        health.answered(30 + 2 * TRIAL_NS);
        assert!(health.admits(30 + 2 * TRIAL_NS) && health.admits(30 + 2 * TRIAL_NS));
    }

    #[test]
    fn one_connection_that_is_silent_says_nothing_of_the_others() {
        let health = Health::default();
        health.answered(15);
        health.missed(10, 20);
        assert!(health.admits(20) && health.admits(20));
    }
}
