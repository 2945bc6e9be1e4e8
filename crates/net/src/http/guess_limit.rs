//! A brake on guesses of secrets that programs send: of clients, applications
//! and operators.
//!
//! Wrong secrets are counted by their pair: whose the secret is said to be, and
//! the network that it comes from. A pair with too many is *braked*: one secret
//! at a time is looked at, and a wrong one holds its turn for a while. What comes
//! meanwhile is refused without being looked at. So a guesser learns about no
//! more than one secret in [`GuessLimitConfig::pause_ms`] by a network, however many
//! requests it sends at once.
//!
//! A right secret is never refused for earlier wrong ones: it finds the turn free
//! as soon as no guess holds it. From a network that has shown a right secret
//! before, it is looked at out of turn, up to [`SPARE`] wrong ones a window: who
//! shares an address with a guesser is not kept waiting, and the guesser there
//! gains no more than those.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use serde::Deserialize;

/// Pairs that are counted at once, and those that have shown a right secret. When
/// strangers bring more, the ones longest without a request are forgotten.
const MOST: usize = 100_000;

/// Wrong secrets of a window that are looked at out of turn.
const SPARE: u32 = 100;

/// When the brake takes hold, and how hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuessLimitConfig {
    /// Wrong secrets of a pair within `window` that brake it; 0 switches it off.
    pub failures: u32,
    /// Seconds over which they count.
    pub window: u32,
    /// Seconds from the last wrong secret on that the brake holds.
    pub duration: u32,
    /// Milliseconds that a wrong secret takes meanwhile.
    pub pause_ms: u32,
}

impl Default for GuessLimitConfig {
    fn default() -> Self {
        Self {
            failures: 20,
            window: 300,
            duration: 60,
            pause_ms: 500,
        }
    }
}

/// Whose secret it is said to be, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair(u64);

#[derive(Debug, Default)]
struct Counter {
    failures: u32,
    spare: u32,
    window_began_ms: i64,
    until_ms: i64,
    /// When the last brake was set or lifted.
    set_ms: i64,
    /// Whether a secret is looked at, or a wrong one holds the turn.
    taken: bool,
}

/// The counters of one kind of secret.
#[derive(Debug)]
pub struct GuessLimiter {
    random: ahash::RandomState,
    pairs: Cache<u64, Arc<Mutex<Counter>>>,
    proven: Cache<u64, ()>,
    /// When the last brake of all ends: until the first one nothing is looked up.
    latest_ms: AtomicI64,
}

/// A secret that may be looked at. Dropped, it gives its turn back.
#[derive(Debug)]
pub struct GuessAttempt<'a> {
    brake: &'a GuessLimiter,
    config: GuessLimitConfig,
    pair: Option<Pair>,
    turn: Option<Turn>,
}

/// The turn of a braked pair.
#[derive(Debug)]
struct Turn(Arc<Mutex<Counter>>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().taken = false;
    }
}

/// What follows a wrong secret.
#[derive(Debug)]
#[must_use]
pub struct WrongGuess {
    /// Until when the pair is braked, if this secret brought that about.
    pub begun_ms: Option<i64>,
    /// Whether the pair was braked before.
    pub braked: bool,
    turn: Option<Turn>,
    pause: Duration,
}

impl WrongGuess {
    /// Holds the turn for the pause.
    pub async fn pause(self) {
        if let Some(turn) = self.turn {
            tokio::time::sleep(self.pause).await;
            drop(turn);
        }
    }
}

/// The pair is braked and its turn is taken: nothing is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyGuesses;

impl Default for GuessLimiter {
    fn default() -> Self {
        Self {
            random: ahash::RandomState::new(),
            pairs: Cache::new(MOST),
            proven: Cache::new(MOST),
            latest_ms: AtomicI64::new(i64::MIN),
        }
    }
}

impl GuessLimiter {
    /// The pair of `owner` in `realm`, and of an address (IPv6: its network of 64
    /// bits).
    pub fn pair(&self, realm: &str, owner: &str, address: IpAddr) -> Pair {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        let is_old = address.to_canonical().is_ipv4();
        Pair(self.random.hash_one((realm, owner, is_old, network)))
    }

    /// Begins to look at a secret of `pair`; `None`: of nobody who is counted.
    ///
    /// # Errors
    /// [`TooManyGuesses`] where nothing may be looked at now.
    pub fn look(
        &self,
        config: GuessLimitConfig,
        pair: Option<Pair>,
        now_ms: i64,
    ) -> Result<GuessAttempt<'_>, TooManyGuesses> {
        let pair = pair.filter(|_| config.failures > 0);
        let turn = match pair {
            Some(pair) if now_ms < self.latest_ms.load(Ordering::Relaxed) => {
                self.take_turn(config, pair, now_ms)?
            }
            _ => None,
        };
        Ok(GuessAttempt {
            brake: self,
            config,
            pair,
            turn,
        })
    }

    fn take_turn(
        &self,
        config: GuessLimitConfig,
        pair: Pair,
        now_ms: i64,
    ) -> Result<Option<Turn>, TooManyGuesses> {
        let Some(counter) = self.pairs.get(&pair.0) else {
            return Ok(None);
        };
        let mut counted = counter.lock();
        counted.turn_window(config, now_ms);
        if now_ms >= counted.until_ms {
            return Ok(None);
        }
        if self.proven.get(&pair.0).is_some() && counted.spare < SPARE {
            return Ok(None);
        }
        if std::mem::replace(&mut counted.taken, true) {
            return Err(TooManyGuesses);
        }
        drop(counted);
        Ok(Some(Turn(counter)))
    }

    /// Brakes a pair as a node did at `set_ms`, or lifts that with 0. What is known
    /// already changes nothing.
    pub fn take_in(&self, pair: Pair, until_ms: i64, set_ms: i64) {
        let counter = self.counter(pair);
        let mut counted = counter.lock();
        if set_ms <= counted.set_ms {
            return;
        }
        self.latest_ms.fetch_max(until_ms, Ordering::Relaxed);
        (counted.until_ms, counted.set_ms) = (until_ms, set_ms);
        if until_ms == 0 {
            (counted.failures, counted.spare) = (0, 0);
        }
    }

    fn counter(&self, pair: Pair) -> Arc<Mutex<Counter>> {
        let made = || Ok::<_, std::convert::Infallible>(Arc::default());
        let Ok(counter) = self.pairs.get_or_insert_with(&pair.0, made);
        counter
    }
}

impl Counter {
    fn turn_window(&mut self, config: GuessLimitConfig, now_ms: i64) {
        if now_ms - self.window_began_ms >= i64::from(config.window) * 1000 {
            (self.failures, self.spare) = (0, 0);
            self.window_began_ms = now_ms;
        }
    }
}

impl GuessAttempt<'_> {
    /// The secret was right.
    pub fn right(self) {
        if let Some(pair) = self.pair
            && self.brake.proven.get(&pair.0).is_none()
        {
            self.brake.proven.insert(pair.0, ());
        }
    }

    /// The secret was wrong, at `now_ms`.
    pub fn wrong(mut self, now_ms: i64) -> WrongGuess {
        let mut wrong = WrongGuess {
            begun_ms: None,
            braked: false,
            turn: self.turn.take(),
            pause: Duration::from_millis(self.config.pause_ms.into()),
        };
        let Some(pair) = self.pair else { return wrong };
        let counter = self.brake.counter(pair);
        let mut counted = counter.lock();
        counted.turn_window(self.config, now_ms);
        counted.failures = counted.failures.saturating_add(1);
        wrong.braked = now_ms < counted.until_ms;
        if wrong.braked && wrong.turn.is_none() {
            counted.spare = counted.spare.saturating_add(1);
        }
        if wrong.braked || counted.failures >= self.config.failures {
            let until_ms = now_ms.saturating_add(i64::from(self.config.duration) * 1000);
            counted.until_ms = until_ms;
            self.brake.latest_ms.fetch_max(until_ms, Ordering::Relaxed);
            if !wrong.braked {
                counted.set_ms = now_ms;
                wrong.begun_ms = Some(until_ms);
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: GuessLimitConfig = GuessLimitConfig {
        failures: 3,
        window: 300,
        duration: 60,
        pause_ms: 500,
    };

    fn pair(brake: &GuessLimiter, address: &str) -> Option<Pair> {
        Some(brake.pair("/", "app", address.parse().expect("an address")))
    }

    /// Brings wrong secrets until the pair is braked.
    fn brake_pair(brake: &GuessLimiter, pair: Option<Pair>, now_ms: i64) {
        for failure in 1..=CONFIG.failures {
            let look = brake.look(CONFIG, pair, now_ms).expect("looked at");
            let wrong = look.wrong(now_ms);
            let begun = (failure == CONFIG.failures).then_some(now_ms + 60_000);
            assert_eq!(wrong.begun_ms, begun);
        }
    }

    #[test]
    fn of_a_thousand_guesses_at_once_one_is_looked_at() {
        let brake = GuessLimiter::default();
        let one = pair(&brake, "192.0.2.1");
        brake_pair(&brake, one, 1000);
        let held = brake.look(CONFIG, one, 1001).expect("the turn");
        let held = held.wrong(1001);
        for _ in 0..1000 {
            assert_eq!(brake.look(CONFIG, one, 1002).err(), Some(TooManyGuesses));
        }
        drop(held);
        assert!(brake.look(CONFIG, one, 1003).is_ok());
    }

    #[test]
    fn a_right_secret_passes_while_the_brake_holds() {
        let brake = GuessLimiter::default();
        let one = pair(&brake, "192.0.2.1");
        brake_pair(&brake, one, 1000);
        // Here for the first time, and as often as it likes.
        for _ in 0..1000 {
            brake.look(CONFIG, one, 1001).expect("looked at").right();
        }
        // Now also while a guess holds the turn.
        let guess = brake.look(CONFIG, one, 1002).expect("looked at");
        let guess = guess.wrong(1002);
        brake.look(CONFIG, one, 1003).expect("looked at").right();
        drop(guess);
    }

    #[test]
    fn a_guesser_at_a_proven_address_gains_a_bounded_number() {
        let brake = GuessLimiter::default();
        let one = pair(&brake, "192.0.2.1");
        brake.look(CONFIG, one, 1000).expect("looked at").right();
        brake_pair(&brake, one, 1000);
        let mut held = Vec::new();
        let mut looked_at = 0;
        for _ in 0..1000 {
            // The owner's secret does not make the guesser's tries fresh ones.
            if let Ok(look) = brake.look(CONFIG, one, 1001) {
                look.right();
            }
            if let Ok(look) = brake.look(CONFIG, one, 1001) {
                looked_at += 1;
                held.push(look.wrong(1001));
            }
        }
        assert_eq!(looked_at, SPARE + 1);
    }

    #[test]
    fn other_addresses_and_clients_are_not_braked_and_time_ends_it() {
        let brake = GuessLimiter::default();
        let one = pair(&brake, "2001:db8:1:2::1");
        brake_pair(&brake, one, 1000);
        let _turn = brake.look(CONFIG, one, 1001).expect("the turn");
        let same = pair(&brake, "2001:db8:1:2:ffff::9");
        assert_eq!(brake.look(CONFIG, same, 1001).err(), Some(TooManyGuesses));
        let other = Some(brake.pair("/", "other", "2001:db8:1:2::1".parse().expect("one")));
        for free in [pair(&brake, "2001:db8:1:3::1"), other, None] {
            for _ in 0..2 {
                assert!(brake.look(CONFIG, free, 1001).is_ok());
            }
        }
        assert!(brake.look(CONFIG, one, 61_000).is_ok());
        let off = GuessLimitConfig {
            failures: 0,
            ..CONFIG
        };
        assert!(brake.look(off, one, 1001).is_ok());
    }

    #[test]
    fn a_brake_of_another_node_holds_here_until_it_is_lifted() {
        let brake = GuessLimiter::default();
        let one = pair(&brake, "192.0.2.1");
        let named = one.expect("a pair");
        brake.take_in(named, 60_000, 500);
        let turn = brake.look(CONFIG, one, 1000).expect("the turn");
        assert_eq!(brake.look(CONFIG, one, 1000).err(), Some(TooManyGuesses));
        // An earlier word does not lift it.
        brake.take_in(named, 0, 500);
        assert_eq!(brake.look(CONFIG, one, 1000).err(), Some(TooManyGuesses));
        brake.take_in(named, 0, 501);
        assert!(brake.look(CONFIG, one, 1000).is_ok());
        drop(turn);
    }
}
