//! Counting wrong passwords, by user name and by address.
//!
//! An attempt takes one of the name's remaining tries before its password is
//! hashed, and gives it back unless the password turns out to be wrong: of a
//! thousand parallel guesses no more are looked at than of serial ones, and
//! right passwords, however many at once, lock nobody out. Who finds all tries
//! taken waits for the outcome of one. Names that no user has count alike: a
//! lock says nothing about who exists.
//!
//! Counts are this process's own; locks are told to the other nodes, and known
//! after a restart, through the store.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use tokio::sync::Notify;

use super::config::LockoutConfig;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::lockout::{LockKind, StoredLock};

/// Names that are counted at once. When strangers try more, the ones longest
/// without a try are forgotten.
const MAX_NAMES: usize = 100_000;

/// Longest lock, in milliseconds.
const LONGEST_MS: i64 = 3600 * 1000;

/// The counters.
#[derive(Debug)]
pub(super) struct Lockout {
    kind: LockKind,
    names: Cache<[u8; 32], Arc<Name>>,
}

#[derive(Debug, Default)]
struct Name {
    counter: Mutex<Counter>,
    /// Told when an attempt has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Counter {
    failures: u32,
    /// Attempts whose outcome is not known yet.
    under_way: u32,
    window_began_ms: i64,
    locked_until_ms: i64,
    locks: u32,
    /// When the last lock was set or lifted.
    set_ms: i64,
}

/// A lock that an attempt has brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewLock {
    pub(super) id: TokenHash,
    pub(super) until_ms: i64,
    /// How many there were in a row.
    pub(super) locks: u32,
}

/// The name is locked: the attempt fails whatever its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockedOut;

/// An attempt under way. Dropped without an outcome (the store failed, the
/// client went away) it has not been one.
#[derive(Debug)]
pub(super) struct Attempt {
    /// `None`: nothing is counted.
    name: Option<Arc<Name>>,
    id: TokenHash,
}

impl Lockout {
    pub(super) fn new() -> Self {
        Self::of(LockKind::Name)
    }

    /// Counters of this kind.
    pub(super) fn of(kind: LockKind) -> Self {
        Self {
            kind,
            names: Cache::new(MAX_NAMES),
        }
    }

    fn name(&self, id: TokenHash) -> Arc<Name> {
        let made = || Ok::<_, Infallible>(Arc::default());
        let Ok(name) = self.names.get_or_insert_with(&id.0, made);
        name
    }

    /// Takes in what nodes have told of a lock.
    pub(super) fn take_in(&self, lock: &StoredLock) {
        let name = self.name(lock.id);
        let mut counter = name.lock();
        if lock.set_ms <= counter.set_ms {
            return;
        }
        (counter.set_ms, counter.locks) = (lock.set_ms, lock.locks);
        counter.locked_until_ms = lock.until_ms;
        if lock.until_ms == 0 {
            counter.failures = 0;
        }
    }

    /// Whether this realm's folded name is locked; counts nothing.
    pub(super) fn is_locked(&self, realm: &str, key: &str, now_ms: i64) -> bool {
        let name = self.names.get(&self.kind.id(realm, key).0);
        name.is_some_and(|name| now_ms < name.lock().locked_until_ms)
    }

    /// Begins an attempt for this realm and folded name, when one of its tries
    /// is free.
    pub(super) async fn begin(
        &self,
        config: &LockoutConfig,
        realm: &str,
        key: &str,
        now_ms: i64,
    ) -> Result<Attempt, LockedOut> {
        let id = self.kind.id(realm, key);
        if config.failures == 0 {
            return Ok(Attempt { name: None, id });
        }
        let name = self.name(id);
        loop {
            let mut ended = pin!(name.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            match name.lock().take_try(config, now_ms) {
                TryOutcome::Taken => break,
                TryOutcome::Locked => return Err(LockedOut),
                TryOutcome::AllTaken => {}
            }
            ended.await;
        }
        let name = Some(name);
        Ok(Attempt { name, id })
    }
}

impl Name {
    fn lock(&self) -> MutexGuard<'_, Counter> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum TryOutcome {
    Taken,
    /// Others may give theirs back.
    AllTaken,
    Locked,
}

impl Counter {
    fn take_try(&mut self, config: &LockoutConfig, now_ms: i64) -> TryOutcome {
        if now_ms < self.locked_until_ms {
            return TryOutcome::Locked;
        }
        if now_ms - self.window_began_ms >= i64::from(config.window) * 1000 {
            self.failures = 0;
            self.window_began_ms = now_ms;
        }
        // With none under way there is nobody to wait for: a limit that was
        // lowered below what was counted locks with the next failure.
        if self.under_way > 0 && self.failures + self.under_way >= config.failures {
            return TryOutcome::AllTaken;
        }
        self.under_way += 1;
        TryOutcome::Taken
    }

    /// Says whether that was one too many.
    fn count_failure(&mut self, config: &LockoutConfig, now_ms: i64) -> bool {
        self.failures += 1;
        if self.failures < config.failures {
            return false;
        }
        let first = i64::from(config.duration) * 1000;
        let doubled = first.saturating_mul(1 << self.locks.min(20));
        self.locked_until_ms = now_ms + doubled.min(LONGEST_MS.max(first));
        self.locks += 1;
        self.failures = 0;
        self.set_ms = now_ms;
        true
    }
}

impl Attempt {
    /// Its password was wrong; tells of the lock that this brings about.
    pub(super) fn failed(self, config: &LockoutConfig, now_ms: i64) -> Option<NewLock> {
        let name = self.name.as_ref()?;
        let mut counter = name.lock();
        let locked = counter.count_failure(config, now_ms);
        locked.then_some(NewLock {
            id: self.id,
            until_ms: counter.locked_until_ms,
            locks: counter.locks,
        })
    }

    /// Its password was right: the name's failures are forgotten.
    pub(super) fn succeeded(self) {
        if let Some(name) = &self.name {
            let mut counter = name.lock();
            (counter.failures, counter.locks) = (0, 0);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            name.lock().under_way -= 1;
            name.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    const CONFIG: LockoutConfig = LockoutConfig {
        failures: 3,
        window: 300,
        duration: 60,
    };

    /// Whether a wrong password was looked at.
    async fn guess(lockout: &Lockout, realm: &str, now_ms: i64) -> bool {
        match lockout.begin(&CONFIG, realm, "demo", now_ms).await {
            Ok(attempt) => {
                attempt.failed(&CONFIG, now_ms);
                true
            }
            Err(LockedOut) => false,
        }
    }

    #[tokio::test]
    async fn a_limit_lowered_below_what_was_counted_makes_nobody_wait() {
        let lockout = Lockout::new();
        let wide = LockoutConfig {
            failures: 10,
            ..CONFIG
        };
        for _ in 0..5 {
            let Ok(attempt) = lockout.begin(&wide, "/", "demo", 0).await else {
                panic!("a try is free");
            };
            attempt.failed(&wide, 0);
        }
        assert!(guess(&lockout, "/", 0).await);
        assert!(!guess(&lockout, "/", 0).await);
    }

    #[tokio::test]
    async fn the_attempt_after_the_last_failure_is_locked_out() {
        let lockout = Lockout::new();
        for (now, looked_at) in [(1, true), (2, true), (3, true), (4, false)] {
            assert_eq!(guess(&lockout, "/", now).await, looked_at, "{now}");
        }
        assert!(lockout.is_locked("/", "demo", 4));
        assert!(!lockout.is_locked("/", "other", 4));
        assert!(guess(&lockout, "/alpha", 4).await);
        assert!(!guess(&lockout, "/", 60_002).await);
        assert!(guess(&lockout, "/", 60_003).await, "the lock did not end");
    }

    #[tokio::test]
    async fn each_lock_takes_twice_as_long() {
        let lockout = Lockout::new();
        for now in [1, 2, 3, 100_001, 100_002, 100_003] {
            assert!(guess(&lockout, "/", now).await);
        }
        assert!(!guess(&lockout, "/", 100_003 + 119_999).await);
        assert!(guess(&lockout, "/", 100_003 + 120_000).await);
    }

    #[tokio::test]
    async fn a_lock_of_another_node_counts_here_and_so_does_its_end() {
        let lockout = Lockout::new();
        let id = LockKind::Name.id("/", "demo");
        let mut lock = StoredLock {
            id,
            kind: LockKind::Name,
            realm: "/".to_owned(),
            subject: None,
            until_ms: 5000,
            locks: 3,
            set_ms: 1000,
        };
        lockout.take_in(&lock);
        assert!(lockout.is_locked("/", "demo", 4999));
        assert!(!guess(&lockout, "/", 2000).await);
        (lock.until_ms, lock.locks, lock.set_ms) = (0, 0, 3000);
        lockout.take_in(&lock);
        assert!(!lockout.is_locked("/", "demo", 3000));
        // What was told before does not come back.
        (lock.until_ms, lock.set_ms) = (5000, 1000);
        lockout.take_in(&lock);
        assert!(guess(&lockout, "/", 3000).await);
    }

    #[tokio::test]
    async fn the_failure_that_locks_says_so() {
        let lockout = Lockout::new();
        let mut last = None;
        for now in 1..=3 {
            assert_eq!(last, None);
            let attempt = lockout.begin(&CONFIG, "/", "demo", now).await;
            last = attempt.expect("a try").failed(&CONFIG, now);
        }
        let last = last.expect("a lock");
        assert_eq!((last.until_ms, last.locks), (60_003, 1));
    }

    #[tokio::test]
    async fn success_and_time_reset_the_counter() {
        let lockout = Lockout::new();
        assert!(guess(&lockout, "/", 1).await && guess(&lockout, "/", 2).await);
        let right = lockout.begin(&CONFIG, "/", "demo", 3).await;
        right.expect("not locked").succeeded();
        assert!(guess(&lockout, "/", 3).await && guess(&lockout, "/", 4).await);
        for now in [300_003, 300_004, 300_005] {
            assert!(guess(&lockout, "/", now).await);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn parallel_guesses_get_no_more_tries_than_serial_ones() {
        let lockout = Arc::new(Lockout::new());
        let looked_at = Arc::new(AtomicUsize::new(0));
        let guesses = (0..400).map(|_| {
            let (lockout, looked_at) = (Arc::clone(&lockout), Arc::clone(&looked_at));
            tokio::spawn(async move {
                if let Ok(attempt) = lockout.begin(&CONFIG, "/", "demo", 1).await {
                    looked_at.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    attempt.failed(&CONFIG, 1);
                }
            })
        });
        join_all(guesses).await;
        assert_eq!(looked_at.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn an_attempt_without_an_outcome_was_none() {
        let lockout = Lockout::new();
        for _ in 0..10 {
            drop(lockout.begin(&CONFIG, "/", "demo", 1).await);
        }
        assert!(guess(&lockout, "/", 1).await);
    }

    #[tokio::test]
    async fn who_finds_all_tries_taken_waits_for_an_outcome() {
        let lockout = Lockout::new();
        let begin = || lockout.begin(&CONFIG, "/", "demo", 1);
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(begin().await.expect("a try"));
        }
        let mut fourth = Box::pin(begin());
        assert!(poll!(&mut fourth).is_pending());
        taken.pop().expect("an attempt").succeeded();
        let fourth = fourth.await.expect("a try");
        let mut fifth = Box::pin(begin());
        assert!(poll!(&mut fifth).is_pending());
        taken.push(fourth);
        for attempt in taken {
            attempt.failed(&CONFIG, 1);
        }
        assert_eq!(fifth.await.map(drop), Err(LockedOut));
    }
}
