//! What was revoked before its time, in memory as in the store: asking costs
//! no look-up in the store.
//!
//! An entry stays as long as what it revokes could live, so there are never
//! more than were revoked within that time.

use std::hash::BuildHasherDefault;

use dashmap::DashMap;

use crate::model::grant::{Revocation, TokenHash};

/// Tells entries apart; 128 bits of a digest are enough for that.
type Mark = u128;

/// Marks are digests: any part of one is a good hash.
#[derive(Clone, Copy, Debug, Default)]
struct AsIs(u64);

impl std::hash::Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, mark: u128) {
        // The low half is what shards are chosen by, too.
        self.0 = (mark >> 64) as u64 ^ mark as u64;
    }
}

/// Revoked grants and tokens, with the time until which that matters.
#[derive(Debug, Default)]
pub(super) struct Revoked {
    until_ms: DashMap<Mark, i64, BuildHasherDefault<AsIs>>,
}

fn mark(kind: &str, id: &str) -> Mark {
    let TokenHash(hash) = TokenHash::of(&format!("{kind}\n{id}"));
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    u128::from_be_bytes(half)
}

impl Revoked {
    /// From now on, and until `until_ms`, this is revoked.
    pub(super) fn add(&self, what: &Revocation, until_ms: i64) {
        let mark = match what {
            Revocation::Grant(id) => mark("grant", id),
            Revocation::Token(id) => mark("token", id),
        };
        let mut entry = self.until_ms.entry(mark).or_insert(until_ms);
        *entry = (*entry).max(until_ms);
    }

    /// Whether the token of this identifier is revoked, or its grant.
    pub(super) fn has(&self, grant_id: &str, token_id: &str) -> bool {
        if self.until_ms.is_empty() {
            return false;
        }
        let known = |kind, id| self.until_ms.contains_key(&mark(kind, id));
        known("grant", grant_id) || known("token", token_id)
    }

    /// Forgets what has died anyway.
    pub(super) fn prune(&self, now_ms: i64) {
        self.until_ms.retain(|_, until_ms| *until_ms > now_ms);
        if self.until_ms.is_empty() {
            self.until_ms.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_stays_so_until_it_has_died() {
        let revoked = Revoked::default();
        assert!(!revoked.has("g", "t"));
        revoked.add(&Revocation::Grant("g".to_owned()), 10);
        revoked.add(&Revocation::Token("t".to_owned()), 20);
        revoked.add(&Revocation::Token("t".to_owned()), 5);
        assert!(revoked.has("g", "x") && revoked.has("x", "t"));
        // A grant and a token of one name are two things.
        assert!(!revoked.has("t", "g"));
        revoked.prune(10);
        assert!(!revoked.has("g", "x") && revoked.has("x", "t"));
        revoked.prune(20);
        assert!(!revoked.has("x", "t"));
    }
}
