//! A token bucket in one atomic word.
//!
//! The word is the instant (monotonic, in nanoseconds) at which the bucket is
//! full again; zero is a bucket that was never used. Tokens are never counted:
//! a request moves the instant one step on, and passes if that is no further
//! away than an empty bucket takes to fill. The bucket never holds more than a
//! rate's requests, and what comes back in part of a step is kept while the
//! bucket is in use and dropped once it was full for a whole step.
//!
//! How far away the instant is, is the bucket's *level*: nanoseconds until it
//! is full. Everything a client is told follows from rate and level.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rate::Rate;

/// A word from here on says that its bucket is at another place, or will be.
/// No instant is half as late: rates are bounded so.
pub(super) const MOVED: u64 = 1 << 63;
/// No instant is later.
const LATEST: u64 = (1 << 62) - 1;
/// A word that decides as one that was never used, and is not zero.
pub(super) const FULL: u64 = 1;

/// Whether a request passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It took a token; the level is now this.
    Pass(u64),
    /// There is no token; the next one comes in this many nanoseconds (≥ 1).
    Refuse(u64),
}

impl Decision {
    /// Whether the request passes.
    pub fn passes(self) -> bool {
        matches!(self, Self::Pass(_))
    }
}

/// The bucket is somewhere else now: look it up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved;

/// An atomic word; a model checker has its own.
pub(super) trait AtomicWord {
    /// The value.
    fn get(&self) -> u64;
    /// Replaces whatever is there.
    fn put(&self, to: u64);
    /// Replaces `from` by `to`, or says what is there instead.
    fn exchange(&self, from: u64, to: u64) -> Result<(), u64>;
    /// What is there, which is `value` if it was zero; and whether it was.
    fn hold(&self, value: u64) -> (u64, bool);
    /// Adds, and says what was there.
    fn add(&self, n: u64) -> u64;
}

/// The same for both kinds of memory.
macro_rules! word {
    ($atomic:ty) => {
        impl $crate::throttling::bucket::AtomicWord for $atomic {
            fn get(&self) -> u64 {
                self.load(Ordering::Acquire)
            }

            fn put(&self, to: u64) {
                self.store(to, Ordering::Release);
            }

            fn exchange(&self, from: u64, to: u64) -> Result<(), u64> {
                self.compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Acquire)
                    .map(drop)
            }

            fn hold(&self, value: u64) -> (u64, bool) {
                // Most are taken: looking is cheaper than trying.
                match self.load(Ordering::Acquire) {
                    0 => match self.compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire)
                    {
                        Ok(_) => (value, true),
                        Err(found) => (found, false),
                    },
                    found => (found, false),
                }
            }

            fn add(&self, n: u64) -> u64 {
                self.fetch_add(n, Ordering::AcqRel)
            }
        }
    };
}

word!(AtomicU64);
#[cfg(test)]
pub(super) use word;

/// Takes a token at `now` (monotonic, in nanoseconds). A refusal leaves the
/// bucket as it is. Holds no lock.
pub(super) fn take(word: &impl AtomicWord, rate: &Rate, now: u64) -> Result<Decision, Moved> {
    let mut full_at = word.get();
    if is_plenty(full_at, rate, now) {
        let level = word.add(rate.step());
        if level >= MOVED {
            return Err(Moved);
        }
        let level = (level + rate.step()).saturating_sub(now);
        if level <= rate.fill() {
            return Ok(Decision::Pass(level));
        }
        // Hundreds of others took a token in between.
        give_back(word, rate)?;
        full_at = word.get();
    }
    loop {
        if full_at >= MOVED {
            return Err(Moved);
        }
        let next = match after(full_at, rate, now) {
            Ok(next) => next,
            Err(delay) => return Ok(Decision::Refuse(delay)),
        };
        match word.exchange(full_at, next) {
            Ok(()) => return Ok(Decision::Pass(next - now)),
            Err(changed) => full_at = changed,
        }
    }
}

/// The word, to look at.
pub(super) fn read(word: &impl AtomicWord) -> Result<u64, Moved> {
    match word.get() {
        MOVED.. => Err(Moved),
        full_at => Ok(full_at),
    }
}

/// Gives a token back that was taken for a request that another rate refused.
pub(super) fn give_back(word: &impl AtomicWord, rate: &Rate) -> Result<(), Moved> {
    change(word, |full_at| {
        full_at.saturating_sub(rate.step()).max(FULL)
    })
}

/// Lets the bucket be full at `full_at`.
pub(super) fn set(word: &impl AtomicWord, full_at: u64) -> Result<(), Moved> {
    change(word, |_| full_at.clamp(FULL, LATEST))
}

fn change(word: &impl AtomicWord, to: impl Fn(u64) -> u64) -> Result<(), Moved> {
    let mut full_at = word.get();
    while full_at < MOVED {
        match word.exchange(full_at, to(full_at)) {
            Ok(()) => return Ok(()),
            Err(changed) => full_at = changed,
        }
    }
    Err(Moved)
}

/// The word of a bucket whose first request passes at `now`; never zero.
pub(super) fn first(rate: &Rate, now: u64) -> u64 {
    now + rate.step()
}

/// Whether the bucket decides at `now` as one that was never used would.
pub(super) fn is_idle(full_at: u64, rate: &Rate, now: u64) -> bool {
    full_at == 0 || now.saturating_sub(full_at) >= rate.step()
}

/// Whether the bucket is in use and has tokens for every thread there is many
/// times over: one can be taken without looking at the rest, which is faster
/// where many threads meet.
fn is_plenty(full_at: u64, rate: &Rate, now: u64) -> bool {
    const MANY: u64 = 1024;
    full_at < MOVED
        && full_at > now
        && full_at - now
            <= rate
                .fill()
                .saturating_sub(MANY * rate.step().min(MOVED / MANY))
}

/// What a request at `now` would meet, without taking anything.
pub(super) fn look(full_at: u64, rate: &Rate, now: u64) -> Decision {
    match after(full_at, rate, now) {
        Ok(_) => Decision::Pass(full_at.saturating_sub(now)),
        Err(delay) => Decision::Refuse(delay),
    }
}

/// The word after a request at `now`, or the wait for the next token.
fn after(full_at: u64, rate: &Rate, now: u64) -> Result<u64, u64> {
    if is_idle(full_at, rate, now) {
        return Ok(first(rate, now));
    }
    let next = full_at + rate.step();
    let to_fill = next - now;
    if to_fill <= rate.fill() {
        Ok(next)
    } else {
        Err(to_fill - rate.fill())
    }
}

#[cfg(test)]
mod tests;
