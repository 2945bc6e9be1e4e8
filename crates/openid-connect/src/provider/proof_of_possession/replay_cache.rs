//! Proofs that were used (RFC 9449 §11.1): none is forgotten while it would be
//! taken again, so what there is no room for is refused.
//!
//! They are held by the key that made them, in spans of time, a few of which a
//! proof may live to see. A span that has passed is dropped whole.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::decide::refusal::Refusal;
use crate::provider::single_flight::digest_of;
use doorward_core::jose::claims::CLOCK_SKEW;

/// Most proofs of one key that are remembered.
const OF_A_KEY: usize = 512 * 1024;
/// Most proofs that are remembered.
const OF_ALL: usize = 2 * 1024 * 1024;
/// Keys share a lock with this part of the others.
const SHARDS: usize = 64;
/// Spans, by turns: the one that passes, those in which a proof may end, and one
/// more, since none of them begins with a proof.
const SPANS: usize = 8;

/// A digest, shortened: nobody finds two texts that share one.
type Short = [u8; 16];

/// The proofs that were used.
pub(crate) struct ReplayCache {
    shards: Vec<Mutex<Shard>>,
    /// Seconds that a span lasts.
    span: i64,
    of_a_key: usize,
    of_all: usize,
    held: AtomicUsize,
    /// When all shards were last looked through, in seconds.
    swept: AtomicI64,
}

#[derive(Default)]
struct Shard([Span; SPANS]);

/// Proofs that end before the same moment.
#[derive(Default)]
struct Span {
    /// That moment, in seconds.
    end: i64,
    proofs: HashSet<Short, ahash::RandomState>,
    /// How many are of a key.
    keys: HashMap<Short, usize, ahash::RandomState>,
}

impl ReplayCache {
    /// For proofs that are taken for `lifetime` seconds.
    pub(crate) fn new(lifetime: i64) -> Self {
        Self::within(lifetime, OF_A_KEY, OF_ALL)
    }

    fn within(lifetime: i64, of_a_key: usize, of_all: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            // One may be made a little ahead.
            span: lifetime.saturating_add(CLOCK_SKEW + 1) / (SPANS as i64 - 2) + 1,
            of_a_key,
            of_all,
            held: AtomicUsize::new(0),
            swept: AtomicI64::new(i64::MIN),
        }
    }

    /// Uses a proof by its key and identifier; it is taken `until` then.
    ///
    /// # Errors
    /// [`Refusal::ProofRepeated`], or [`Refusal::TooManyProofs`] where it could
    /// not be remembered.
    pub(crate) fn use_up(&self, key: &str, id: &str, until: i64, now: i64) -> Result<(), Refusal> {
        let proof = short(&[key.as_bytes(), id.as_bytes()]);
        let key = short(&[key.as_bytes()]);
        let has_room = self.has_room(now);
        let mut shard = self.shards[usize::from(key[0]) % SHARDS].lock();
        self.drop_passed(&mut shard, now);
        if shard.has(&proof) {
            return Err(Refusal::ProofRepeated);
        }
        if !has_room || shard.count(&key) >= self.of_a_key {
            return Err(Refusal::TooManyProofs);
        }
        let turn = until.div_euclid(self.span);
        let end = turn.saturating_add(1).saturating_mul(self.span);
        let place = turn.rem_euclid(SPANS as i64) as usize;
        shard.0[place].insert(key, proof, end);
        self.held.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there is room for one more, once those are gone that nobody has
    /// come by to drop: they are looked for once a second at most.
    fn has_room(&self, now: i64) -> bool {
        let held = || self.held.load(Ordering::Relaxed);
        if held() >= self.of_all && self.swept.swap(now, Ordering::Relaxed) != now {
            for shard in &self.shards {
                self.drop_passed(&mut shard.lock(), now);
            }
        }
        held() < self.of_all
    }

    fn drop_passed(&self, shard: &mut Shard, now: i64) {
        for span in &mut shard.0 {
            if span.end <= now && !span.proofs.is_empty() {
                self.held.fetch_sub(span.proofs.len(), Ordering::Relaxed);
                *span = Span::default();
            }
        }
    }
}

impl Shard {
    fn has(&self, proof: &Short) -> bool {
        self.0.iter().any(|span| span.proofs.contains(proof))
    }

    fn count(&self, key: &Short) -> usize {
        let of_key = self.0.iter().filter_map(|span| span.keys.get(key));
        of_key.sum()
    }
}

impl Span {
    fn insert(&mut self, key: Short, proof: Short, end: i64) {
        // Where the clock was set back, a later one lasts as long as it has to.
        self.end = self.end.max(end);
        self.proofs.insert(proof);
        *self.keys.entry(key).or_default() += 1;
    }
}

fn short(texts: &[&[u8]]) -> Short {
    let digest = digest_of(texts.iter().copied());
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;
    const LIFETIME: i64 = 300;
    const TOO_MANY: Result<(), Refusal> = Err(Refusal::TooManyProofs);

    fn flood(used: &ReplayCache, key: &str, now: i64) -> usize {
        let ids = (0..1_000).map(|n| format!("{now} {n}"));
        let taken = ids.take_while(|id| used.use_up(key, id, now + LIFETIME, now).is_ok());
        taken.count()
    }

    #[test]
    fn a_client_that_floods_is_refused_and_makes_nobodys_proof_good_again() {
        let used = ReplayCache::within(LIFETIME, 10, 100);
        assert_eq!(used.use_up("victim", "1", NOW + LIFETIME, NOW), Ok(()));
        for second in 0..LIFETIME {
            let now = NOW + second;
            flood(&used, "flood", now);
            let again = used.use_up("victim", "1", NOW + LIFETIME, now);
            assert_eq!(again, Err(Refusal::ProofRepeated), "{second}");
            let other = used.use_up("flood", "other", now + LIFETIME, now);
            assert_eq!(other, TOO_MANY, "{second}");
        }
        assert_eq!(used.use_up("victim", "2", NOW + LIFETIME, NOW), Ok(()));
    }

    #[test]
    fn many_keys_that_flood_fill_no_more_than_there_is_and_proofs_stay_used() {
        let used = ReplayCache::within(LIFETIME, 10, 100);
        assert_eq!(used.use_up("victim", "1", NOW + LIFETIME, NOW), Ok(()));
        let taken: usize = (0..50).map(|n| flood(&used, &n.to_string(), NOW)).sum();
        assert_eq!(taken, 99);
        let again = used.use_up("victim", "1", NOW + LIFETIME, NOW + 1);
        assert_eq!(again, Err(Refusal::ProofRepeated));
        let more = used.use_up("victim", "2", NOW + LIFETIME, NOW + 1);
        assert_eq!(more, TOO_MANY);
    }

    #[test]
    fn proofs_that_have_ended_make_room_whoever_made_them() {
        let used = ReplayCache::within(LIFETIME, 10, 100);
        for n in 0..50 {
            flood(&used, &n.to_string(), NOW);
        }
        assert_eq!(flood(&used, "late", NOW + 2 * LIFETIME + 22), 10);
        assert_eq!(used.held.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn a_proof_stays_used_for_as_long_as_it_is_taken_wherever_its_span_begins() {
        for start in 0..700 {
            let used = ReplayCache::within(LIFETIME, 10, 100);
            let (now, made) = (NOW + start, NOW + start + CLOCK_SKEW);
            assert_eq!(used.use_up("k", "1", made + LIFETIME, now), Ok(()));
            for later in [now, made, now + LIFETIME, made + LIFETIME - 1] {
                // Others come by and drop what has passed.
                let id = later.to_string();
                assert_eq!(used.use_up("k", &id, later + LIFETIME, later), Ok(()));
                let again = used.use_up("k", "1", made + LIFETIME, later);
                assert_eq!(again, Err(Refusal::ProofRepeated), "{start} {later}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_and_a_lifetime_without_end_do_no_harm() {
        let used = ReplayCache::within(LIFETIME, 10, 100);
        let at = |id: &str, now: i64| used.use_up("k", id, now + LIFETIME, now);
        assert_eq!(at("1", NOW), Ok(()));
        assert_eq!(at("2", NOW - 10_000), Ok(()));
        for (id, now) in [("1", NOW - 10_000), ("2", NOW - 10_000), ("1", NOW)] {
            assert_eq!(at(id, now), Err(Refusal::ProofRepeated), "{id} {now}");
        }
        let used = ReplayCache::within(i64::MAX, 10, 100);
        assert_eq!(used.use_up("k", "1", i64::MAX, NOW), Ok(()));
        let again = used.use_up("k", "1", i64::MAX, NOW + 1);
        assert_eq!(again, Err(Refusal::ProofRepeated));
    }
}
