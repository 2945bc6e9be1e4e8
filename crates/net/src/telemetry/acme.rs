//! Orders for certificates.

use super::metrics::{Counter, Gauge};

/// What came of orders for certificates.
#[derive(Clone, Debug, Default)]
pub struct AcmeMetrics {
    /// Certificates that were issued to this node.
    pub issued: Counter,
    /// Orders of this node that failed.
    pub failed: Counter,
    /// Certificates whose last order failed, of whichever node.
    pub failing: Gauge,
}
