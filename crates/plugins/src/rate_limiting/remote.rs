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

/// The counters that a filter shares with the filters of other nodes.
pub(super) struct Remote {
    redis: Arc<Redis>,
    take: Script,
    /// What tells the plugin from others, the same on all nodes.
    scope: Arc<str>,
}

impl Remote {
    pub(super) fn new(redis: Arc<Redis>, scope: Arc<str>) -> Self {
        Self {
            take: redis.script(TAKE),
            redis,
            scope,
        }
    }

    /// As [`super::counters::Counters::take`].
    ///
    /// # Errors
    /// [`Unavailable`] where the Redis gives no answer in time.
    pub(super) async fn take(
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
