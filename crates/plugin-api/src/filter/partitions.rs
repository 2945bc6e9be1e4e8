//! What operators see of a filter that counts by partition.

use async_trait::async_trait;

/// A filter that counts by partition, as operators see it.
#[async_trait]
pub trait Partitioned: Send + Sync {
    /// What it holds, and the partitions that ask most.
    fn report(&self) -> PartitionReport;

    /// Forgets what was counted of a partition, named by its id or its text.
    /// Whether there was anything to forget.
    async fn reset(&self, partition: &str) -> bool;
}

/// What a filter holds of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReport {
    /// Buckets held.
    pub held: usize,
    /// Most buckets that may be held.
    pub maximum: usize,
    /// Whether it counts and reports without refusing.
    pub shadow: bool,
    /// Whether counters are shared with other nodes at the moment.
    pub shared: bool,
    /// The hottest first; a bounded number.
    pub hottest: Vec<HotPartition>,
}

/// A partition that asks much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotPartition {
    /// A keyed hash of the text: it tells partitions apart and nothing else.
    pub id: String,
    /// What the grouping made of the request: may be a person's name.
    pub text: Box<str>,
    /// Requests that passed since it is watched; sampled when very many.
    pub passed: u64,
    /// Requests that were refused, or would have been.
    pub refused: u64,
    /// Its buckets.
    pub buckets: Vec<BucketReport>,
}

/// A bucket of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketReport {
    /// Its rate, as `6/10s`.
    pub rate: String,
    /// Tokens of a full bucket.
    pub capacity: u64,
    /// Tokens it has.
    pub remaining: u64,
    /// Milliseconds until it is full, rounded up.
    pub full_in_ms: u64,
}
