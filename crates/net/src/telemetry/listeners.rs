//! What listeners take in, and what they turn away.

use super::metrics::{Counter, Gauge, InFlight};

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// It took too long.
    Timeout,
    /// The client hung up.
    Closed,
    /// The client speaks HTTP without TLS.
    PlainHttp,
    /// No version or cipher suite in common.
    Incompatible,
    /// What the client sent is no TLS.
    Malformed,
    /// The client's certificate is missing or not trusted.
    ClientCertificate,
    /// The client refused, usually our certificate.
    RefusedByClient,
    /// Anything else.
    Other,
}

impl HandshakeFailure {
    /// Every reason with its label.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Timeout, "timeout"),
        (Self::Closed, "closed"),
        (Self::PlainHttp, "plain_http"),
        (Self::Incompatible, "incompatible"),
        (Self::Malformed, "malformed"),
        (Self::ClientCertificate, "client_certificate"),
        (Self::RefusedByClient, "refused_by_client"),
        (Self::Other, "other"),
    ];

    /// Its label.
    pub fn label(self) -> &'static str {
        let found = Self::ALL.iter().find(|(failure, _)| *failure == self);
        found.map_or("other", |(_, label)| label)
    }
}

/// A certificate and how long it is still valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Which one: its section of the configuration, its first server name, or
    /// its id.
    pub label: String,
    /// Seconds until it expires; negative: it has expired.
    pub seconds_left: i64,
    /// Whether it is renewed in time by itself, as far as is known.
    pub is_renewed: bool,
}

/// Counters of one kind of listener.
#[derive(Clone, Debug, Default)]
pub struct ListenerCounters {
    open: Gauge,
    /// Connections closed at once because there were too many.
    pub too_many: Counter,
    /// Connections closed because no complete request came in time.
    pub too_slow: Counter,
    /// Connections of proxies closed because no PROXY header came.
    pub proxy_header: Counter,
    failures: [Counter; HandshakeFailure::ALL.len()],
}

impl ListenerCounters {
    /// Counts a connection until the answer is dropped; nothing if `limit` are
    /// open already.
    pub fn admit(&self, limit: usize) -> Option<InFlight> {
        let admitted = self.open.enter();
        if usize::try_from(self.open.get()).is_ok_and(|open| open > limit) {
            self.too_many.inc();
            return None;
        }
        Some(admitted)
    }

    /// Open connections.
    pub fn open(&self) -> i64 {
        self.open.get()
    }

    /// Counts a failed handshake.
    pub fn handshake_failed(&self, failure: HandshakeFailure) {
        let mut all = HandshakeFailure::ALL.iter().zip(&self.failures);
        if let Some((_, counter)) = all.find(|((one, _), _)| *one == failure) {
            counter.inc();
        }
    }

    /// Failed handshakes by reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let labels = HandshakeFailure::ALL.iter().map(|(_, label)| *label);
        labels.zip(self.failures.iter().map(Counter::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_are_admitted_and_room_comes_back() {
        let counters = ListenerCounters::default();
        let first = counters.admit(1).expect("room");
        assert!(counters.admit(1).is_none());
        assert_eq!((counters.open(), counters.too_many.get()), (1, 1));
        drop(first);
        assert!(counters.admit(1).is_some());
    }
}
