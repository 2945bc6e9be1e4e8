//! The circuit breaker of one endpoint, in two words.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Low bits of the word: requests let through while half open.
const TRIAL_BITS: u32 = 16;
const TRIALS: u64 = (1 << TRIAL_BITS) - 1;
const NS_PER_MS: u64 = 1_000_000;

/// When a breaker opens and how it closes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Failures in a row that open it; 0: never.
    pub(super) failures: u32,
    /// How long it stays open.
    pub(super) open_ns: u64,
    /// Requests that may try at once while it is half open, at least one.
    pub(super) trials: u16,
}

/// Closed: the word is 0. Otherwise it holds the time (in milliseconds) until
/// which it is open and, after that, how many requests are trying.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    word: AtomicU64,
    failures: AtomicU32,
}

/// What a breaker did because of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swing {
    Opened,
    Closed,
}

/// What a breaker says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It is closed.
    Free,
    /// It is half open and this request tries; the ticket goes back with the
    /// outcome, or unused.
    Trial(Ticket),
}

/// Proof that a request tries a half-open breaker: the time until which it
/// had been open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// How a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Requests pass.
    Closed,
    /// None does.
    Open,
    /// A few may try.
    HalfOpen,
}

impl Stand {
    /// As metrics and logs name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Stand::Closed => "closed",
            Stand::Open => "open",
            Stand::HalfOpen => "half_open",
        }
    }
}

impl Breaker {
    pub(super) fn stand(&self, now_ns: u64) -> Stand {
        match self.word.load(Ordering::Relaxed) {
            0 => Stand::Closed,
            word if until(word) > now_ns => Stand::Open,
            _ => Stand::HalfOpen,
        }
    }

    /// Whether a request could pass now.
    pub(super) fn is_passable(&self, terms: Terms, now_ns: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word == 0 || (until(word) <= now_ns && word & TRIALS < u64::from(terms.trials))
    }

    /// Lets a request pass, or not.
    pub(super) fn pass(&self, terms: Terms, now_ns: u64) -> Option<Passage> {
        let taken = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                let free = until(word) <= now_ns && word & TRIALS < u64::from(terms.trials);
                (word != 0 && free).then_some(word + 1)
            });
        match taken {
            Ok(word) => Some(Passage::Trial(Ticket(word >> TRIAL_BITS))),
            Err(0) => Some(Passage::Free),
            Err(_) => None,
        }
    }

    /// Takes back an unused ticket.
    pub(super) fn give_back(&self, ticket: Ticket) {
        // Of an earlier opening: nothing to give back.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                let own = word >> TRIAL_BITS == ticket.0 && word & TRIALS > 0;
                own.then(|| word - 1)
            });
    }

    pub(super) fn succeeded(&self, ticket: Option<Ticket>) -> Option<Swing> {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        let ticket = ticket?;
        // A request that began before it opened does not close it.
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word != 0 && word >> TRIAL_BITS == ticket.0).then_some(0)
            })
            .ok()
            .map(|_| Swing::Closed)
    }

    pub(super) fn failed(
        &self,
        ticket: Option<Ticket>,
        terms: Terms,
        now_ns: u64,
    ) -> Option<Swing> {
        let opened = (now_ns.saturating_add(terms.open_ns) / NS_PER_MS).max(1) << TRIAL_BITS;
        if let Some(ticket) = ticket {
            return self
                .word
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                    (word >> TRIAL_BITS == ticket.0).then_some(opened)
                })
                .ok()
                .map(|_| Swing::Opened);
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < terms.failures {
            return None;
        }
        self.word
            .compare_exchange(0, opened, Ordering::AcqRel, Ordering::Acquire)
            .ok()
            .map(|_| {
                self.failures.store(0, Ordering::Relaxed);
                Swing::Opened
            })
    }

    /// Closes it; whether it was not closed.
    pub(super) fn reset(&self) -> bool {
        self.failures.store(0, Ordering::Relaxed);
        self.word.swap(0, Ordering::AcqRel) != 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Ordering::SeqCst) == 0
    }
}

fn until(word: u64) -> u64 {
    (word >> TRIAL_BITS).saturating_mul(NS_PER_MS)
}
