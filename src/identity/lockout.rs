//! Counting wrong passwords, by user name.
//!
//! An attempt is counted before its password is hashed, so that a thousand
//! parallel guesses are a thousand counted ones. Names that no user has count
//! alike: a lock says nothing about who exists.

use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::Cache;

use super::config::LockoutConfig;

/// Names that are counted at once. When strangers try more, the ones longest
/// without a try are forgotten.
const MAX_NAMES: usize = 100_000;

/// Longest lock, in milliseconds.
const LONGEST_MS: i64 = 3600 * 1000;

/// The counters.
#[derive(Debug)]
pub(super) struct Lockout {
    names: Cache<(String, String), Arc<Mutex<Counter>>>,
}

#[derive(Debug, Default)]
struct Counter {
    failures: u32,
    window_began_ms: i64,
    locked_until_ms: i64,
    locks: u32,
}

impl Lockout {
    pub(super) fn new() -> Self {
        Self {
            names: Cache::new(MAX_NAMES),
        }
    }

    /// Counts an attempt for this realm and folded name; `false`: the name is
    /// locked and the attempt must fail whatever its password.
    pub(super) fn attempt(
        &self,
        config: &LockoutConfig,
        realm: &str,
        key: &str,
        now_ms: i64,
    ) -> bool {
        if config.failures == 0 {
            return true;
        }
        let made = self
            .names
            .get_or_insert_with(&(realm.to_owned(), key.to_owned()), || {
                Ok::<_, std::convert::Infallible>(Arc::default())
            });
        let Ok(counter) = made;
        let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms < counter.locked_until_ms {
            return false;
        }
        if now_ms - counter.window_began_ms >= i64::from(config.window) * 1000 {
            counter.failures = 0;
            counter.window_began_ms = now_ms;
        }
        counter.failures += 1;
        if counter.failures >= config.failures {
            // This attempt may still succeed; those that follow may not try.
            let first = i64::from(config.duration) * 1000;
            let doubled = first.saturating_mul(1 << counter.locks.min(20));
            counter.locked_until_ms = now_ms + doubled.min(LONGEST_MS.max(first));
            counter.locks += 1;
            counter.failures = 0;
        }
        true
    }

    /// Forgets the failures of a name: its password was given.
    pub(super) fn success(&self, realm: &str, key: &str) {
        self.names.remove(&(realm.to_owned(), key.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: LockoutConfig = LockoutConfig {
        failures: 3,
        window: 300,
        duration: 60,
    };

    #[test]
    fn the_attempt_after_the_last_failure_is_locked_out() {
        let lockout = Lockout::new();
        let attempt = |now| lockout.attempt(&CONFIG, "/", "demo", now);
        assert_eq!(
            [attempt(1), attempt(2), attempt(3), attempt(4)],
            [true, true, true, false]
        );
        assert!(lockout.attempt(&CONFIG, "/", "other", 4));
        assert!(lockout.attempt(&CONFIG, "/alpha", "demo", 4));
        assert!(!attempt(60_002));
        assert!(attempt(60_003), "the lock did not end");
    }

    #[test]
    fn each_lock_takes_twice_as_long() {
        let lockout = Lockout::new();
        let attempt = |now| lockout.attempt(&CONFIG, "/", "demo", now);
        assert!((1..=3).all(attempt));
        assert!((100_001..=100_003).all(attempt));
        assert!(!attempt(100_003 + 119_999));
        assert!(attempt(100_003 + 120_000));
    }

    #[test]
    fn success_and_time_reset_the_counter() {
        let lockout = Lockout::new();
        let attempt = |now| lockout.attempt(&CONFIG, "/", "demo", now);
        assert!(attempt(1) && attempt(2));
        lockout.success("/", "demo");
        assert!(attempt(3) && attempt(4));
        assert!(attempt(300_003) && attempt(300_004) && attempt(300_005));
    }

    #[test]
    fn parallel_guesses_are_counted_one_by_one() {
        let lockout = Lockout::new();
        let tried: usize = std::thread::scope(|scope| {
            let guess = || {
                (0..100)
                    .filter(|_| lockout.attempt(&CONFIG, "/", "demo", 1))
                    .count()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(guess)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        assert_eq!(tried, 3);
    }
}
