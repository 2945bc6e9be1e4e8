//! A brake on guessing: whoever fails too often in a minute waits for the next.

use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;

/// Counters. Callers beyond that share some.
const COUNTERS: usize = 8192;
/// Failures of an address with one name, in a minute.
const OF_NAME: u32 = 30;
/// Failures of an address with all names, in a minute.
pub(crate) const OF_ADDRESS: u32 = 300;

/// What the failures of this minute are.
pub(crate) struct Brake {
    /// Minute and number of failures.
    counters: Box<[AtomicU64]>,
    keys: RandomState,
}

impl Default for Brake {
    fn default() -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            keys: RandomState::new(),
        }
    }
}

impl Brake {
    /// Whether an address has failed too often to try this name.
    pub(crate) fn holds(&self, address: IpAddr, name: &[u8], now_secs: i64) -> bool {
        let of_name = self.counter(&(network(address), name));
        self.failures(address, now_secs) >= OF_ADDRESS || count(of_name, now_secs) >= OF_NAME
    }

    /// Failures of an address in this minute, whatever it tried.
    pub(crate) fn failures(&self, address: IpAddr, now_secs: i64) -> u32 {
        count(self.counter(&network(address)), now_secs)
    }

    /// Notes a failure.
    pub(crate) fn note(&self, address: IpAddr, name: &[u8], now_secs: i64) {
        let (network, minute) = (network(address), minute(now_secs));
        for counter in [self.counter(&network), self.counter(&(network, name))] {
            let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
                let (of, count) = unpack(packed);
                let count = if of == minute { count } else { 0 };
                Some(u64::from(minute) << 32 | u64::from(count.saturating_add(1)))
            });
        }
    }

    fn counter(&self, key: &impl Hash) -> &AtomicU64 {
        let counters = u64::try_from(COUNTERS).unwrap_or(u64::MAX);
        let at = self.keys.hash_one(key) % counters;
        &self.counters[usize::try_from(at).unwrap_or_default()]
    }
}

/// The failures of this minute.
fn count(counter: &AtomicU64, now_secs: i64) -> u32 {
    match unpack(counter.load(Ordering::Relaxed)) {
        (of, count) if of == minute(now_secs) => count,
        _ => 0,
    }
}

/// Whom an address belongs to: of IPv6 the network, which one caller has as a whole.
pub(crate) fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "minutes only differ"
)]
fn minute(now_secs: i64) -> u32 {
    now_secs.div_euclid(60) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "two halves")]
fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_fails_too_often_waits_for_the_next_minute() {
        let brake = Brake::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..OF_NAME {
            assert!(!brake.holds(address, b"anna", 0));
            brake.note(address, b"anna", 0);
        }
        assert!(brake.holds(address, b"anna", 59));
        assert!(!brake.holds(address, b"anna", 60));
        assert!(!brake.holds(address, b"bert", 0));
        assert!(!brake.holds(IpAddr::from([192, 0, 2, 2]), b"anna", 0));
    }

    #[test]
    fn one_password_tried_with_many_names_is_guessing_too() {
        let brake = Brake::default();
        let address = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
        for name in 0..OF_ADDRESS {
            brake.note(address, &name.to_le_bytes(), 0);
        }
        let neighbour = IpAddr::from([0x2001, 0xdb8, 0, 0, 9, 9, 9, 9]);
        assert!(brake.holds(neighbour, b"somebody", 0));
    }
}
