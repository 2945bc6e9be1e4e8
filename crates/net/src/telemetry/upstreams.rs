//! What is counted of the way to upstreams: names, failed tries.

use super::metrics::{Counter, Gauge};

/// What the resolver counts.
#[derive(Debug, Clone, Default)]
pub struct DnsMetrics {
    /// Look-ups that found addresses.
    pub found: Counter,
    /// Look-ups of names that don't exist.
    pub not_found: Counter,
    /// Look-ups that no server answered.
    pub failed: Counter,
    /// Hosts whose expired addresses are in use because no server answers.
    pub stale: Gauge,
}

/// Why a try at an upstream came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The host has no address.
    NameResolution,
    /// No connection: refused, reset or unreachable.
    Connect,
    /// No connection in time.
    ConnectTimeout,
    /// A connection, but no agreement on TLS.
    Tls,
    /// The request could not be sent.
    Write,
    /// The request could not be sent in time.
    WriteTimeout,
    /// The connection ended before the answer did.
    Read,
    /// No answer, or no more of it, in time.
    ReadTimeout,
    /// An answer that breaks the protocol.
    InvalidResponse,
}

impl Failure {
    /// All of them, in the order of their numbers.
    pub const ALL: [Failure; 9] = [
        Failure::NameResolution,
        Failure::Connect,
        Failure::ConnectTimeout,
        Failure::Tls,
        Failure::Write,
        Failure::WriteTimeout,
        Failure::Read,
        Failure::ReadTimeout,
        Failure::InvalidResponse,
    ];

    /// The value of the label `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Failure::NameResolution => "name_resolution",
            Failure::Connect => "connect",
            Failure::ConnectTimeout => "connect_timeout",
            Failure::Tls => "tls",
            Failure::Write => "write",
            Failure::WriteTimeout => "write_timeout",
            Failure::Read => "read",
            Failure::ReadTimeout => "read_timeout",
            Failure::InvalidResponse => "invalid_response",
        }
    }
}

/// Failed tries at upstreams, and further ones.
#[derive(Debug, Clone, Default)]
pub struct UpstreamMetrics {
    failures: [Counter; Failure::ALL.len()],
    /// Tries after a first one that failed.
    pub retries: Counter,
    /// Further tries that were refused because too many were under way.
    pub retries_refused: Counter,
}

impl UpstreamMetrics {
    /// Tries that failed in this way.
    pub fn failures(&self, failure: Failure) -> &Counter {
        &self.failures[failure as usize]
    }
}
