//! One place that requests can go to, and what is known of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use http::HeaderValue;

use super::balancer::Group;
use super::breaker::{Breaker, Stand};
use super::health::{Outcome, Tally};

/// Checks say that it is unhealthy.
pub(super) const SICK: u32 = 1;
/// An operator says so, of an upstream without checks.
pub(super) const DOWN: u32 = 2;
/// Its breaker is not closed.
pub(super) const TRIPPED: u32 = 4;
/// It grows to its full weight.
pub(super) const RAMPING: u32 = 8;

/// The part of its weight that a target begins with when it grows.
const RAMP_FLOOR: f64 = 0.1;
/// Within this time an average forgets all but a third.
const MEMORY_MS: f32 = 10_000.0;
/// Cost of an endpoint whose first answer is still awaited, in microseconds.
const UNKNOWN_COST: f32 = 1e9;

/// A target, or one address of a target that is a name, as one version of the
/// configuration sees it.
#[derive(Debug)]
pub struct Endpoint {
    /// The target as the record has it, `host:port`.
    pub(super) target: Arc<str>,
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) address: Option<SocketAddr>,
    /// Host header over plain HTTP and over TLS, where the scheme's own port
    /// is left out.
    pub(super) authority: [HeaderValue; 2],
    /// Its part of the upstream's requests, in units of the endpoint set.
    pub(super) weight: u64,
    /// The same in units of a target's weight.
    pub(super) share: f64,
    /// What places it on the hash ring.
    pub(super) key: u64,
    pub(super) state: Arc<State>,
    pub(super) group: Arc<Group>,
}

/// What is known of an endpoint; kept while any configuration names it.
///
/// Aligned so that two endpoints never share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct State {
    pub(super) flags: AtomicU32,
    pub(super) number: u32,
    /// Requests sent here so far; those in flight are the difference.
    started: AtomicU64,
    finished: AtomicU64,
    /// Moving average in microseconds (`f32`) and its time in milliseconds.
    latency: AtomicU64,
    ramp_from_ns: AtomicU64,
    pub(super) tally: Tally,
    pub(super) breaker: Breaker,
    failures: [AtomicU64; 3],
}

impl State {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            ..Self::default()
        }
    }

    pub(super) fn in_flight(&self) -> u64 {
        // In this order the difference can't be negative.
        let finished = self.finished.load(Ordering::Relaxed);
        self.started
            .load(Ordering::Relaxed)
            .saturating_sub(finished)
    }

    /// Requests sent here so far.
    pub(super) fn picks(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Counts a request in, unless `limit` (0: none) are in flight.
    pub(super) fn enter(&self, limit: u32) -> bool {
        if limit == 0 {
            self.started.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let limit = u64::from(limit);
        self.started
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |started| {
                let finished = self.finished.load(Ordering::Acquire);
                (started.saturating_sub(finished) < limit).then_some(started + 1)
            })
            .is_ok()
    }

    pub(super) fn leave(&self) {
        self.finished.fetch_add(1, Ordering::Release);
    }

    pub(super) fn set(&self, flag: u32) -> bool {
        self.flags.fetch_or(flag, Ordering::AcqRel) & flag == 0
    }

    pub(super) fn unset(&self, flag: u32) -> bool {
        self.flags.fetch_and(!flag, Ordering::AcqRel) & flag != 0
    }

    /// Begins to grow to the full weight.
    pub(super) fn ramp(&self, now_ns: u64) {
        self.ramp_from_ns.store(now_ns, Ordering::Relaxed);
        self.set(RAMPING);
    }

    /// The part of its weight that counts now, above 0 and at most 1.
    pub(super) fn ramped(&self, slow_start_ns: u64, now_ns: u64) -> f64 {
        if self.flags.load(Ordering::Relaxed) & RAMPING == 0 {
            return 1.0;
        }
        let since = now_ns.saturating_sub(self.ramp_from_ns.load(Ordering::Relaxed));
        if since >= slow_start_ns {
            self.unset(RAMPING);
            return 1.0;
        }
        (since as f64 / slow_start_ns as f64).max(RAMP_FLOOR)
    }

    /// Takes a latency into the average: a rise at once, a fall slowly.
    pub(super) fn observe(&self, sample_ns: u64, now_ns: u64) {
        let (sample, now) = (sample_ns as f32 / 1e3, millis(now_ns));
        let _ = self
            .latency
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                let (average, at) = unpack(old);
                let new = if old == 0 || sample > average {
                    sample
                } else {
                    let kept = fading(now, at);
                    average * kept + sample * (1.0 - kept)
                };
                Some(pack(new, now))
            });
    }

    /// Expected wait of one more request, in microseconds, for comparison.
    pub(super) fn cost(&self, now_ns: u64) -> f32 {
        let in_flight = self.in_flight() as f32;
        match self.latency.load(Ordering::Relaxed) {
            // One request finds out, the others go elsewhere meanwhile.
            0 if in_flight == 0.0 => 0.0,
            0 => UNKNOWN_COST + in_flight,
            word => {
                let (average, at) = unpack(word);
                average * fading(millis(now_ns), at) * (in_flight + 1.0)
            }
        }
    }

    pub(super) fn note_failure(&self, outcome: Outcome) {
        self.failures[failure_kind(outcome)].fetch_add(1, Ordering::Relaxed);
    }

    /// Failures so far: of HTTP, of connections, timeouts.
    pub(super) fn failures(&self) -> [u64; 3] {
        [0, 1, 2].map(|kind| self.failures[kind].load(Ordering::Relaxed))
    }
}

fn failure_kind(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Status(_) | Outcome::HttpFailure => 0,
        Outcome::TcpFailure => 1,
        Outcome::Timeout => 2,
    }
}

/// Milliseconds that wrap after 49 days; differences survive that.
fn millis(ns: u64) -> u32 {
    (ns / 1_000_000) as u32
}

fn fading(now: u32, at: u32) -> f32 {
    match now.wrapping_sub(at) {
        0 => 1.0,
        passed => (-(passed as f32) / MEMORY_MS).exp(),
    }
}

fn pack(average: f32, at: u32) -> u64 {
    // Never 0, which is the absence of an average.
    (u64::from(average.max(1e-3).to_bits()) << 32) | u64::from(at)
}

fn unpack(word: u64) -> (f32, u32) {
    (f32::from_bits((word >> 32) as u32), word as u32)
}

impl Endpoint {
    /// The weight that counts now, 0 if it gets no request.
    pub(super) fn current_weight(&self, now_ns: u64) -> f64 {
        if self.weight == 0 || !self.is_open(now_ns) {
            return 0.0;
        }
        self.weight as f64 * self.state.ramped(self.group.slow_start_ns, now_ns)
    }

    /// Whether it may get requests, apart from limits on requests in flight.
    pub(super) fn is_open(&self, now_ns: u64) -> bool {
        let flags = self.state.flags.load(Ordering::Relaxed) & self.group.heeded;
        flags & (SICK | DOWN | TRIPPED) == 0
            || (flags & (SICK | DOWN) == 0
                && self.state.breaker.is_passable(self.group.breaker, now_ns))
    }

    /// Whether checks and operators hold it to be healthy.
    pub fn is_healthy(&self) -> bool {
        let flags = self.state.flags.load(Ordering::Relaxed) & self.group.heeded;
        flags & (SICK | DOWN) == 0
    }

    /// How its breaker stands.
    pub fn stand(&self, now_ns: u64) -> Stand {
        self.state.breaker.stand(now_ns)
    }

    /// The Host header for the target, over TLS or not.
    pub fn authority(&self, tls: bool) -> &HeaderValue {
        &self.authority[usize::from(tls)]
    }

    /// Its part of its target's weight.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The target as its record names it.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Host name or address; of SRV records with `use_srv_name`, theirs.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The name that the target's certificate is for: the upstream's
    /// `host_header` without port, else the host.
    pub fn server_name(&self) -> &str {
        let name = self.group.host_header.as_deref().unwrap_or(&self.host);
        match name.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') && port.parse::<u16>().is_ok() => host,
            _ => name,
        }
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The resolved address; `None` until the name was resolved once.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.state.in_flight()
    }

    /// Requests sent here so far.
    pub fn picks(&self) -> u64 {
        self.state.picks()
    }

    /// Failures so far: of HTTP, of connections, timeouts.
    pub fn failures(&self) -> [u64; 3] {
        self.state.failures()
    }
}
