//! Client connections that have sent at least one request.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;

use super::metrics::{Counter, Gauge, InFlight};

/// Counts connections as they open and close.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    opened: Counter,
    open: Gauge,
}

/// One open connection, and what is the same for all of its requests. It
/// counts until it is dropped.
#[derive(Debug)]
pub struct Connection {
    /// The TCP peer.
    pub peer: SocketAddr,
    /// The peer's address as text.
    pub peer_text: HeaderValue,
    _open: Option<InFlight>,
}

impl Connections {
    /// A new connection from `peer`, and whether it counts.
    pub fn opened(
        &self,
        peer: SocketAddr,
        peer_text: HeaderValue,
        counted: bool,
    ) -> Arc<Connection> {
        if counted {
            self.opened.inc();
        }
        Arc::new(Connection {
            peer,
            peer_text,
            _open: counted.then(|| self.open.enter()),
        })
    }

    /// Connections so far.
    pub fn total(&self) -> u64 {
        self.opened.get()
    }

    /// Connections that are open.
    pub fn open(&self) -> i64 {
        self.open.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_its_last_owner_is_gone() {
        let connections = Connections::default();
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let first = connections.opened(peer, HeaderValue::from_static("127.0.0.1"), true);
        let kept = first.clone();
        drop(first);
        assert_eq!((connections.total(), connections.open()), (1, 1));
        drop(kept);
        assert_eq!((connections.total(), connections.open()), (1, 0));
    }
}
