//! A brake on guessing keys.

use std::net::IpAddr;

use quick_cache::sync::Cache;

use crate::authentication::brake::{Brake, OF_ADDRESS, network};
use doorward_core::model::grant::TokenHash;

/// Keys that are remembered with their addresses.
const REMEMBERED: usize = 65_536;

/// The guesses at a process, whatever plugin they are made at.
pub(super) struct Guesses {
    brake: Brake,
    /// Keys that were good before their address was braked: whoever has one goes on,
    /// whatever others behind the address try.
    proven: Cache<TokenHash, ()>,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            brake: Brake::default(),
            proven: Cache::new(REMEMBERED),
        }
    }
}

impl Guesses {
    /// Whether the address may learn what its key is. Without failures before, a good
    /// key costs one look.
    pub(super) fn admits(&self, address: IpAddr, key: &[u8], is_good: bool, now_secs: i64) -> bool {
        let failures = self.brake.failures(address, now_secs);
        if !is_good {
            self.brake.note(address, b"", now_secs);
            return failures < OF_ADDRESS;
        }
        if failures == 0 {
            return true;
        }
        let own = TokenHash::of_bytes(&[&network(address).to_be_bytes()[..], key].concat());
        if failures < OF_ADDRESS {
            self.proven.insert(own, ());
            return true;
        }
        self.proven.get(&own).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_key_is_no_news_to_an_address_that_guesses_unless_it_had_it_before() {
        let guesses = Guesses::default();
        let (address, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert!(guesses.admits(address, b"early", true, 0));
        assert!(guesses.admits(address, b"guess", false, 0));
        assert!(guesses.admits(address, b"known", true, 0));
        for _ in 1..OF_ADDRESS {
            assert!(guesses.admits(address, b"guess", false, 0));
        }
        for (key, is_good) in [(&b"guess"[..], false), (b"right", true), (b"early", true)] {
            assert!(!guesses.admits(address, key, is_good, 59));
        }
        assert!(guesses.admits(address, b"known", true, 59));
        // What one address knows another does not.
        for _ in 0..OF_ADDRESS {
            guesses.admits(other, b"guess", false, 0);
        }
        assert!(!guesses.admits(other, b"known", true, 0));
        assert!(guesses.admits(address, b"right", true, 60));
    }
}
