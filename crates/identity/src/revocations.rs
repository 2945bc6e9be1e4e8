//! What was revoked before its time, in memory as in the store: asking costs
//! no look-up in the store.
//!
//! An entry stays as long as what it revokes could live, so there are never
//! more than were revoked within that time.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;

use doorward_core::model::grant::{Revocation, TokenHash};

/// Tells entries apart; 128 bits of a digest are enough for that.
type Digest = u128;

/// Hashes a digest as itself: any part of one is a good hash.
#[derive(Clone, Copy, Debug, Default)]
struct DigestHasher(u64);

impl std::hash::Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        // The low half is what shards are chosen by, too.
        self.0 = (digest >> 64) as u64 ^ digest as u64;
    }
}

/// Revoked grants and tokens, with the time until which that matters.
#[derive(Debug, Default)]
pub(super) struct Revocations {
    until_ms: DashMap<Digest, i64, BuildHasherDefault<DigestHasher>>,
    version: AtomicU64,
}

fn digest(kind: &str, id: &str) -> Digest {
    let TokenHash(hash) = TokenHash::of(&format!("{kind}\n{id}"));
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    u128::from_be_bytes(half)
}

/// What a token and its grant are known by here.
#[derive(Debug)]
pub(super) struct TokenDigests {
    grant: Digest,
    token: Digest,
}

impl TokenDigests {
    pub(super) fn of(grant_id: &str, token_id: &str) -> Self {
        Self {
            grant: digest("grant", grant_id),
            token: digest("token", token_id),
        }
    }
}

impl Revocations {
    /// From now on, and until `until_ms`, this is revoked.
    pub(super) fn add(&self, what: &Revocation, until_ms: i64) {
        let digest = match what {
            Revocation::Grant(id) => digest("grant", id),
            Revocation::Token(id) => digest("token", id),
        };
        let mut new = false;
        let entry = self.until_ms.entry(digest).and_modify(|known| {
            *known = (*known).max(until_ms);
        });
        entry.or_insert_with(|| {
            new = true;
            until_ms
        });
        if new {
            // Last: who sees the new version sees the entry.
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Grows with everything that is revoked.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether the token of these digests is revoked, or its grant.
    pub(super) fn has(&self, digests: &TokenDigests) -> bool {
        if self.version() == 0 {
            return false;
        }
        self.until_ms.contains_key(&digests.grant) || self.until_ms.contains_key(&digests.token)
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
        let revocations = Revocations::default();
        let has = |grant, token| revocations.has(&TokenDigests::of(grant, token));
        assert!(!has("g", "t"));
        revocations.add(&Revocation::Grant("g".to_owned()), 10);
        revocations.add(&Revocation::Token("t".to_owned()), 20);
        revocations.add(&Revocation::Token("t".to_owned()), 5);
        assert_eq!(revocations.version(), 2);
        assert!(has("g", "x") && has("x", "t"));
        // A grant and a token of one name are two things.
        assert!(!has("t", "g"));
        revocations.prune(10);
        assert!(!has("g", "x") && has("x", "t"));
        revocations.prune(20);
        assert!(!has("x", "t"));
    }
}
