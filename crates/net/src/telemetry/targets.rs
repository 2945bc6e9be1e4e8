//! The numbers of upstreams' targets: read where they are counted, when asked.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// What is known of one endpoint of an upstream.
#[derive(Debug, Clone)]
pub struct TargetNumbers {
    /// Name of the upstream.
    pub upstream: Box<str>,
    /// The target as its record names it.
    pub target: Box<str>,
    /// Its address; empty: not resolved.
    pub address: String,
    /// `healthy`, `unhealthy`, `healthchecks_off` or `dns_error`.
    pub health: &'static str,
    /// `closed`, `open` or `half_open`; `None`: it has no breaker.
    pub breaker: Option<&'static str>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests sent to it so far.
    pub picks: u64,
    /// Failures so far: of HTTP, of connections, timeouts.
    pub failures: [u64; 3],
}

type Source = Box<dyn Fn() -> Vec<TargetNumbers> + Send + Sync>;

/// Where the numbers of all targets come from.
#[derive(Clone, Default)]
pub struct Targets(Arc<OnceLock<Source>>);

impl Targets {
    /// Names the source; the first one counts.
    pub fn from(&self, source: impl Fn() -> Vec<TargetNumbers> + Send + Sync + 'static) {
        // A second source would be a mistake of the caller without harm.
        let _ = self.0.set(Box::new(source));
    }

    /// The numbers now.
    pub fn read(&self) -> Vec<TargetNumbers> {
        self.0.get().map_or_else(Vec::new, |source| source())
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Targets")
    }
}
