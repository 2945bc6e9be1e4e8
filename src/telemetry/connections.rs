//! Client connections that have sent at least one request.

use std::sync::Arc;

use super::metrics::{Counter, Gauge, Tallied};

/// Counts connections as they open and close.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    opened: Counter,
    open: Gauge,
}

/// One open connection; it counts until it is dropped.
pub type Connection = Tallied;

impl Connections {
    /// Notes a new connection.
    pub fn opened(&self) -> Arc<Connection> {
        self.opened.inc();
        Arc::new(self.open.enter())
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
        let first = connections.opened();
        let kept = first.clone();
        drop(first);
        assert_eq!((connections.total(), connections.open()), (1, 1));
        drop(kept);
        assert_eq!((connections.total(), connections.open()), (1, 0));
    }
}
