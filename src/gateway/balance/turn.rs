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
pub(super) struct Turns {
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

impl Turns {
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
        // Both factors are below 2^48 / 2^16 parts of weights: see `lineup`.
        let position = (u128::from(turn) * u128::from(self.stride) % u128::from(self.total)) as u64;
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

fn stride(total: u64, ends: &[u64]) -> u64 {
    if total < 3 || is_even(ends) {
        return 1;
    }
    let golden = (total as f64 / 1.618_033_988_749_895) as u64;
    (0..total)
        .flat_map(|off| [golden + off, golden.saturating_sub(off)])
        .find(|&stride| stride > 0 && gcd(stride, total) == 1)
        .unwrap_or(1)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
