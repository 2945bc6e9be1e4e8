//! Buckets shared with other nodes: one script a decision, one round trip.
//!
//! What a decision says of the buckets is kept in this process too. As long as
//! that says a bucket is empty, requests are refused without asking, but for
//! one a second; and when the Redis gives no answer, counting goes on from
//! there.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::partitions::{Key, MAX_RATES, Outcome};
use super::rate::Rate;
use super::rates::Rates;
use doorward_net::shared::{Redis, Script, Unavailable};
use doorward_net::telemetry::metrics::Counter;

/// Time from the Redis: all nodes count by one clock.
const TAKE: &str = concat!(
    "local t = redis.call('TIME')\n",
    "local now_s, now_n = tonumber(t[1]), tonumber(t[2]) * 1000\n",
    include_str!("take.lua")
);
/// Partitions that are empty are asked about again, each once a second; this
/// many are told apart.
const ASKED: usize = 1024;

/// The shared buckets of a filter.
pub(super) struct Remote {
    redis: Redis,
    take: Script,
    /// What tells this filter from every other on all nodes.
    scope: String,
    /// When an empty partition was last asked about, in seconds, by its hash.
    asked: Box<[AtomicU64]>,
    /// Decisions that were made without an answer.
    alone: Counter,
}

impl Remote {
    pub(super) fn new(redis: Redis, scope: &str, alone: Counter) -> Self {
        Self {
            take: redis.script(TAKE),
            redis,
            scope: scope.to_owned(),
            asked: (0..ASKED).map(|_| AtomicU64::new(0)).collect(),
            alone,
        }
    }

    /// Whether to ask at all.
    pub(super) fn is_up(&self) -> bool {
        self.redis.is_up()
    }

    /// Counts a decision that this process made by itself.
    pub(super) fn fell_back_to_local(&self) {
        self.alone.inc();
    }

    /// Whether a partition that is known to be empty may be refused without
    /// asking. Now and then the answer is no: it may have been reset.
    pub(super) fn may_refuse(&self, key: Option<Key>, now: u64) -> bool {
        let index = key.map_or(0, |Key(first, _)| first % ASKED as u64);
        let Some(asked) = usize::try_from(index).ok().and_then(|i| self.asked.get(i)) else {
            return false;
        };
        // Never zero, which is never.
        let second = now / 1_000_000_000 + 1;
        asked.load(Ordering::Relaxed) == second || asked.swap(second, Ordering::Relaxed) == second
    }

    /// Takes a token of each rate from the shared buckets of the partition
    /// called `text`, or of none.
    pub(super) async fn take_all(
        &self,
        text: &str,
        rates: &Rates,
        limit: &[u16],
    ) -> Result<Outcome, Unavailable> {
        let limit = || limit.iter().map(|number| rates.get(*number));
        let keys = self.keys(text, limit());
        let arguments: Vec<u64> = limit().flat_map(arguments).collect();
        let answer = self.redis.run(&self.take, &keys, &arguments).await?;
        outcome(&answer).ok_or(Unavailable)
    }

    /// Forgets the shared buckets of a partition; whether there was one.
    pub(super) async fn reset(&self, text: &str, rates: &Rates) -> bool {
        let all = (0..rates.len()).map(|number| rates.get(number));
        let keys = self.keys(text, all);
        self.redis.remove(&keys).await.unwrap_or(false)
    }

    /// The keys of a partition's buckets, all in one hash slot. Texts may be
    /// names of people: only a hash of them leaves this process.
    fn keys<'a>(&self, text: &str, rates: impl Iterator<Item = &'a Rate>) -> Vec<String> {
        let scope = &self.scope;
        let hash = digest::digest(&digest::SHA256, format!("{scope} {text}").as_bytes());
        let hash = hash.as_ref().get(..16).unwrap_or_default();
        let partition = URL_SAFE_NO_PAD.encode(hash);
        rates
            .map(|rate| format!("doorward:throttle:{{{partition}}}:{rate}"))
            .collect()
    }
}

/// Step and fill of a rate, for the script.
fn arguments(rate: &Rate) -> [u64; 3] {
    let step = rate.step();
    [step / 1_000_000_000, step % 1_000_000_000, rate.fill()]
}

/// The script's answer.
fn outcome(answer: &[i64]) -> Option<Outcome> {
    let mut levels = [0; MAX_RATES];
    let (delay, found) = answer.split_first()?;
    for (level, found) in levels.iter_mut().zip(found) {
        *level = u64::try_from(*found).ok()?;
    }
    let delay = u64::try_from(*delay).ok()?;
    Some(Outcome { delay, levels })
}

#[cfg(test)]
mod tests;
