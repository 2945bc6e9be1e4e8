//! How often devices ask whether their users have decided.
//!
//! That is politeness and not safety: it is kept in memory, and polling never
//! writes to the disk.

use quick_cache::sync::Cache;

use crate::model::grant::TokenHash;

/// Devices whose polls are timed at once.
const MOST: usize = 50_000;

/// Seconds by which the interval grows with every poll that comes too soon
/// (RFC 8628 §3.5).
const SLOWER: u32 = 5;

/// Milliseconds by which a poll may come early: clocks and networks jitter.
const EARLY_MS: i64 = 500;

#[derive(Clone, Copy, Debug)]
struct Poll {
    last_ms: i64,
    interval_s: u32,
}

/// When devices polled last.
#[derive(Debug)]
pub(in crate::identity) struct Polls(Cache<TokenHash, Poll>);

impl Polls {
    pub(in crate::identity) fn new() -> Self {
        Self(Cache::new(MOST))
    }

    /// Whether this poll comes too soon after the last one; then the device has
    /// to wait longer each time from now on.
    pub(in crate::identity) fn is_too_soon(
        &self,
        device: TokenHash,
        interval_s: u32,
        now_ms: i64,
    ) -> bool {
        let known = self.0.get(&device);
        let mut poll = known.unwrap_or(Poll {
            last_ms: i64::MIN,
            interval_s,
        });
        let wait_ms = i64::from(poll.interval_s) * 1000 - EARLY_MS;
        let too_soon = now_ms.saturating_sub(poll.last_ms) < wait_ms;
        if too_soon {
            poll.interval_s = poll.interval_s.saturating_add(SLOWER);
        }
        poll.last_ms = now_ms;
        self.0.insert(device, poll);
        too_soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_polls_too_soon_waits_five_seconds_longer() {
        let polls = Polls::new();
        let mut now_ms = 1_000_000;
        let mut after = |seconds: i64| {
            now_ms += seconds * 1000;
            polls.is_too_soon(TokenHash::of("one"), 5, now_ms)
        };
        assert!(!after(0));
        assert!(!after(5));
        assert!(after(1));
        assert!(after(9), "the interval is ten seconds now");
        assert!(!after(15));
        assert!(after(14), "it stays");
        assert!(!polls.is_too_soon(TokenHash::of("other"), 5, now_ms));
    }
}
