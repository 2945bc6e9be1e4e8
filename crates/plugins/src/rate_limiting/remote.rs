//! Counters in a Redis: one script a decision, one round trip.

use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Identifier;
use super::counters::{Limit, Used};
use doorward_net::shared::{Redis, Script, Unavailable};

/// Reads the counters of KEYS and, where none has come to its limit, counts one
/// in each. ARGV: of each key its limit, rounded up, and its life in seconds.
const TAKE: &str = "\
local used, passes = {}, true
for i = 1, #KEYS do
  used[i] = tonumber(redis.call('GET', KEYS[i]) or '0')
  if used[i] >= tonumber(ARGV[2 * i - 1]) then passes = false end
end
if passes then
  for i = 1, #KEYS do
    if redis.call('INCR', KEYS[i]) == 1 then
      redis.call('EXPIRE', KEYS[i], ARGV[2 * i])
    end
  end
end
return used
";

/// Reads the counters of KEYS and adds to each its cost, unless one that costs
/// something has come to its limit. ARGV: of each key its limit, rounded up, its
/// life in seconds and its cost.
const SPEND: &str = "\
local used, passes = {}, true
for i = 1, #KEYS do
  used[i] = tonumber(redis.call('GET', KEYS[i]) or '0')
  local costs = tonumber(ARGV[3 * i]) > 0
  if costs and used[i] >= tonumber(ARGV[3 * i - 2]) then passes = false end
end
if passes then
  for i = 1, #KEYS do
    local cost = tonumber(ARGV[3 * i])
    if cost > 0 and redis.call('INCRBY', KEYS[i], cost) == cost then
      redis.call('EXPIRE', KEYS[i], ARGV[3 * i - 1])
    end
  end
end
return used
";

/// Limits of one name, and what a request costs of them.
pub(crate) struct Spending<'a> {
    pub(crate) name: &'a str,
    pub(crate) limits: &'a [Limit],
    pub(crate) cost: u64,
}

/// The counters that a filter shares with the filters of other nodes.
pub(crate) struct Remote {
    redis: Arc<Redis>,
    take: Script,
    spend: Script,
    /// What tells the plugin from others, the same on all nodes.
    scope: Arc<str>,
}

impl Remote {
    pub(crate) fn new(redis: Arc<Redis>, scope: Arc<str>) -> Self {
        Self {
            take: redis.script(TAKE),
            spend: redis.script(SPEND),
            redis,
            scope,
        }
    }

    /// As [`super::counters::Counters::take`].
    ///
    /// # Errors
    /// [`Unavailable`] where the Redis gives no answer in time.
    pub(crate) async fn take(
        &self,
        identifier: &Identifier<'_>,
        limits: &[Limit],
        now: i64,
    ) -> Result<(Used, bool), Unavailable> {
        let keys = self.keys(identifier, limits, now);
        let arguments: Vec<u64> = limits.iter().flat_map(|limit| arguments(*limit)).collect();
        let answer = self.redis.run(&self.take, &keys, &arguments).await?;
        let mut used = Used::default();
        let mut passes = true;
        if answer.len() != limits.len() {
            return Err(Unavailable);
        }
        for ((limit, used), found) in limits.iter().zip(&mut used).zip(answer) {
            *used = u64::try_from(found).unwrap_or(0);
            passes &= limit.remaining(*used) > 0.0;
        }
        Ok((used, passes))
    }

    /// What each limit had before, name by name, and whether all was counted.
    ///
    /// # Errors
    /// [`Unavailable`] where the Redis gives no answer in time.
    pub(crate) async fn spend(
        &self,
        identifier: &Identifier<'_>,
        all: &[Spending<'_>],
        now: i64,
    ) -> Result<(Vec<Used>, bool), Unavailable> {
        let (mut keys, mut numbers) = (Vec::new(), Vec::new());
        for spending in all {
            let limits = spending.limits;
            let own = self.keys(identifier, limits, now);
            keys.extend(
                own.iter()
                    .map(|key| format!("response-{key}:{}", spending.name)),
            );
            for limit in limits {
                numbers.extend(arguments(*limit));
                numbers.push(spending.cost);
            }
        }
        let answer = self.redis.run(&self.spend, &keys, &numbers).await?;
        if answer.len() != keys.len() {
            return Err(Unavailable);
        }
        let mut answer = answer.into_iter();
        let mut passes = true;
        let mut used = Vec::with_capacity(all.len());
        for spending in all {
            let mut own = Used::default();
            for (limit, used) in spending.limits.iter().zip(&mut own) {
                *used = answer
                    .next()
                    .and_then(|n| u64::try_from(n).ok())
                    .unwrap_or(0);
                passes &= spending.cost == 0 || limit.remaining(*used) > 0.0;
            }
            used.push(own);
        }
        Ok((used, passes))
    }

    /// A key for each limit. What identifies a caller may be a secret or a name:
    /// only a hash of it leaves the process.
    fn keys(&self, identifier: &Identifier<'_>, limits: &[Limit], now: i64) -> Vec<String> {
        let scope = &self.scope;
        let text = identifier.text();
        let hash = digest::digest(&digest::SHA256, format!("{scope} {text}").as_bytes());
        let hash = hash.as_ref().get(..16).unwrap_or_default();
        let hash = URL_SAFE_NO_PAD.encode(hash);
        let key = |limit: &Limit| {
            let (period, window) = (limit.period.name(), limit.period.window(now));
            format!("ratelimit:{{{scope}:{hash}}}:{window}000:{period}")
        };
        limits.iter().map(key).collect()
    }
}

/// The limit, rounded up, and the seconds of its period.
fn arguments(limit: Limit) -> [u64; 2] {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "above zero; what is too large for a number is no limit"
    )]
    let most = limit.limit.ceil() as u64;
    // A script knows doubles only.
    let most = most.min(1 << 53);
    [most, u64::try_from(limit.period.seconds()).unwrap_or(1)]
}
