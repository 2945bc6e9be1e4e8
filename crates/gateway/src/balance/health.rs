//! How outcomes make an endpoint unhealthy, and healthy again.
//!
//! Counting is the imitated gateway's: each kind of failure has its own
//! counter; a counted success clears the failures, a counted failure the
//! successes; what has the limit 0 is not counted at all. Probes and requests
//! share the counters.

use std::sync::atomic::{AtomicU32, Ordering};

use doorward_core::model::upstream::{ActiveCheck, CheckType, Healthchecks, PassiveCheck};

/// How a try at an endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this status.
    Status(u16),
    /// The connection was not made, or broke.
    TcpFailure,
    /// Nothing happened within the limit.
    Timeout,
    /// What came was not HTTP.
    HttpFailure,
}

/// What a counter counts; the value is its shift within the tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Success = 0,
    Http = 8,
    Tcp = 16,
    Timeout = 24,
}

const SUCCESSES: u32 = 0xff;

/// Four counters of eight bits.
#[derive(Debug, Default)]
pub(super) struct Tally(AtomicU32);

impl Tally {
    /// Counts `event`; the health that follows if it is another one.
    pub(super) fn count(&self, event: Event, limit: u8, healthy: bool) -> Option<bool> {
        if limit == 0 {
            return None;
        }
        let good = event == Event::Success;
        let opposite = if good { !SUCCESSES } else { SUCCESSES };
        let old = self.0.load(Ordering::Relaxed);
        if good == healthy && old & opposite == 0 {
            return None;
        }
        let counted = |old: u32| {
            let n = (old >> event as u32) & 0xff;
            let raised = old + (u32::from(n < 0xff) << event as u32);
            raised & !opposite
        };
        let old = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                Some(counted(old))
            })
            .unwrap_or(old);
        let n = (counted(old) >> event as u32) & 0xff;
        (n >= u32::from(limit) && good != healthy).then_some(good)
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What of an outcome is counted, up to which limit.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    good: Statuses,
    bad: Statuses,
    /// Statuses count; otherwise each answer is a success.
    by_status: bool,
    successes: u8,
    http: u8,
    tcp: u8,
    timeouts: u8,
}

impl Rules {
    pub(super) fn passive(check: &PassiveCheck) -> Self {
        Self {
            good: Statuses::of(&check.healthy.http_statuses),
            bad: Statuses::of(&check.unhealthy.http_statuses),
            by_status: check.kind != CheckType::Tcp,
            successes: check.healthy.successes,
            http: check.unhealthy.http_failures,
            tcp: check.unhealthy.tcp_failures,
            timeouts: check.unhealthy.timeouts,
        }
    }

    pub(super) fn active(check: &ActiveCheck) -> Self {
        Self {
            good: Statuses::of(&check.healthy.http_statuses),
            bad: Statuses::of(&check.unhealthy.http_statuses),
            by_status: matches!(check.kind, CheckType::Http | CheckType::Https),
            successes: check.healthy.successes,
            http: check.unhealthy.http_failures,
            tcp: check.unhealthy.tcp_failures,
            timeouts: check.unhealthy.timeouts,
        }
    }

    /// What `outcome` counts as, and the limit of that.
    pub(super) fn event(&self, outcome: Outcome) -> Option<(Event, u8)> {
        let event = match outcome {
            Outcome::TcpFailure => Event::Tcp,
            Outcome::Timeout => Event::Timeout,
            Outcome::HttpFailure => Event::Http,
            Outcome::Status(_) if !self.by_status => Event::Success,
            Outcome::Status(status) if self.good.contains(status) => Event::Success,
            Outcome::Status(status) if self.bad.contains(status) => Event::Http,
            // A gateway between us and the target ran into its own limit.
            Outcome::Status(504) => Event::Timeout,
            Outcome::Status(_) => return None,
        };
        let limit = match event {
            Event::Success => self.successes,
            Event::Http => self.http,
            Event::Tcp => self.tcp,
            Event::Timeout => self.timeouts,
        };
        Some((event, limit))
    }

    /// Whether nothing that happens would be counted.
    pub(super) fn is_idle(&self) -> bool {
        [self.successes, self.http, self.tcp, self.timeouts] == [0; 4]
    }
}

/// A set of statuses.
#[derive(Clone, Debug)]
struct Statuses(Box<[u64; 16]>);

impl Statuses {
    fn of(statuses: &[u16]) -> Self {
        let mut set = Box::new([0; 16]);
        for &status in statuses.iter().filter(|status| **status < 1024) {
            set[usize::from(status / 64)] |= 1 << (status % 64);
        }
        Self(set)
    }

    fn contains(&self, status: u16) -> bool {
        let word = self.0.get(usize::from(status / 64)).copied();
        word.is_some_and(|word| word >> (status % 64) & 1 == 1)
    }
}

/// Whether anything could make a target unhealthy: as the imitated gateway
/// decides whether health checks are on.
pub(super) fn is_checked(checks: &Healthchecks) -> bool {
    let (active, passive) = (&checks.active, &checks.passive.unhealthy);
    active.healthy.interval > 0.0
        || active.unhealthy.interval > 0.0
        || passive.tcp_failures > 0
        || passive.timeouts > 0
        || passive.http_failures > 0
}
