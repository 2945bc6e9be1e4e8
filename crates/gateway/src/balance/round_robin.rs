//! Weighted round-robin without a table of turns.
//!
//! The weights, laid end to end, are a line of `total` positions. Turn `n`
//! stands at position `n * stride mod total`. As the stride has no divisor in
//! common with the total, every position is visited once in a cycle, so shares
//! are exact; as it is near the golden section of the total, the visits to one
//! endpoint are spread evenly over the cycle.

use std::sync::atomic::{AtomicU64, Ordering};

/// The order of turns for fixed weights.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// For each endpoint the position after its last one.
    ends: Box<[u64]>,
    total: u64,
    stride: u64,
    /// All weights are equal: the position is the endpoint.
    even: bool,
}

/// The next turn, on a cache line of its own; outlives changes of the weights.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Cursor(AtomicU64);

impl Cursor {
    /// Takes a turn that no other caller gets.
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl RoundRobin {
    pub(super) fn new(weights: impl Iterator<Item = u64> + Clone) -> Self {
        let divisor = weights.clone().fold(0, gcd).max(1);
        let mut total = 0;
        let ends: Box<[u64]> = weights
            .map(|weight| {
                total += weight / divisor;
                total
            })
            .collect();
        Self {
            even: is_even(&ends),
            stride: stride(total, &ends),
            ends,
            total,
        }
    }

    /// Whose turn number `n` is; `None` if nobody has a weight.
    pub(super) fn at(&self, n: u64) -> Option<usize> {
        if self.total == 0 {
            return None;
        }
        let turn = n % self.total;
        if self.even {
            return Some(turn as usize);
        }
        // Totals fit into 32 bits, but for what rounding up added: see `endpoint_set`.
        let position = match turn.checked_mul(self.stride) {
            Some(product) => product % self.total,
            None => (u128::from(turn) * u128::from(self.stride) % u128::from(self.total)) as u64,
        };
        Some(self.owner(position))
    }

    /// An endpoint by weight, for a number spread evenly over all `u64`.
    pub(super) fn drawn(&self, draw: u64) -> Option<usize> {
        let position = super::random::scale(draw, self.total);
        (self.total > 0).then(|| self.owner(position))
    }

    fn owner(&self, position: u64) -> usize {
        self.ends.partition_point(|&end| end <= position)
    }
}

fn is_even(ends: &[u64]) -> bool {
    ends.iter().zip(1..).all(|(&end, n)| end == n)
}

/// Near the golden section there are strides that come close to a fraction
/// with a small denominator, which would favour some for a while; the best of
/// a neighbourhood is the one whose continued fraction stays smallest.
fn stride(total: u64, ends: &[u64]) -> u64 {
    const NEIGHBOURHOOD: u64 = 64;
    if total < 3 || is_even(ends) {
        return 1;
    }
    let golden = (total as f64 / 1.618_033_988_749_895) as u64;
    let from = golden.saturating_sub(NEIGHBOURHOOD).max(1);
    let to = (golden + NEIGHBOURHOOD).min(total - 1);
    (from..=to)
        .filter(|&stride| gcd(stride, total) == 1)
        .min_by_key(|&stride| (unevenness(stride, total), stride.abs_diff(golden)))
        .unwrap_or(1)
}

/// The greatest partial quotient of the continued fraction of `a / b`.
fn unevenness(mut a: u64, mut b: u64) -> u64 {
    let mut greatest = 0;
    while b != 0 {
        greatest = greatest.max(a / b);
        (a, b) = (b, a % b);
    }
    greatest
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
