//! A rate for each of many partitions, for other plugins: the counters of the
//! throttle without its filter.

use std::sync::Arc;
use std::time::Duration;

use super::bucket::Decision;
use super::partitions::{Keys, Partitions};
use super::rate::Rate;
use super::rates::Rates;
use super::sweep;
use doorward_net::telemetry::Metrics;

/// Most partitions that are counted apart.
const MOST: usize = 100_000;
/// How often buckets that are full are forgotten.
const CLEANING: Duration = Duration::from_secs(60);

/// So many requests in so long, for each partition.
pub struct Quota {
    rate: Rate,
    keys: Keys,
    partitions: Arc<Partitions>,
}

impl Quota {
    /// Full buckets of this rate.
    pub fn new(rate: Rate, metrics: &Metrics) -> Self {
        let rates = Rates::new(vec![rate], false);
        let (gauge, overflow) = (metrics.throttle_partitions(), metrics.throttle_overflow());
        let partitions = Arc::new(Partitions::new(rates, MOST, gauge, overflow));
        sweep::schedule(&partitions, CLEANING);
        Self {
            rate,
            keys: Keys::random(),
            partitions,
        }
    }

    /// The rate of each partition.
    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    /// Takes a token of `partition` at `now` (monotonic nanoseconds).
    ///
    /// # Errors
    /// Nanoseconds until there is one, at least 1.
    pub fn take(&self, partition: &str, now: u64) -> Result<(), u64> {
        match self.partitions.take(Some(self.keys.key(partition)), 0, now) {
            Decision::Pass(_) => Ok(()),
            Decision::Refuse(delay) => Err(delay),
        }
    }
}

impl std::fmt::Debug for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Quota({})", self.rate)
    }
}
