//! What a device asked for, and what its user said to it (RFC 8628).

use super::authorization::Challenge;
use super::grant::{Grant, TokenHash};
use serde::{Deserialize, Serialize};

/// What a device asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// The scopes.
    pub scopes: Vec<String>,
    /// What its access tokens shall be for; none: for the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The challenge whose verifier must come with the device code, if the
    /// request had one (RFC 7636).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
}

/// What a user said to a device's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Pending,
    /// No.
    Denied,
    /// Yes: this is what it gets.
    Approved(Box<Grant>),
}

/// A device's request as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDevice {
    /// Hash of the device code.
    pub hash: TokenHash,
    /// Hash of the code that its user enters.
    pub user_code: TokenHash,
    /// Path of the realm.
    pub realm: String,
    /// The client that the device runs.
    pub client_id: String,
    /// What it asked for.
    pub request: DeviceRequest,
    /// What its user said.
    pub verdict: Verdict,
    /// When both codes die, in milliseconds since the epoch.
    pub expires_ms: i64,
}

/// Seconds by which the interval grows with every poll that comes too soon
/// (RFC 8628 §3.5).
const SLOWER_S: i64 = 5;

/// Milliseconds by which a poll may come early: clocks and networks jitter.
const EARLY_MS: i64 = 500;

/// When a device asked last whether its user has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// `None`: never.
    pub last_ms: Option<i64>,
    /// Seconds between two polls.
    pub interval_s: i64,
}

impl Poll {
    /// What follows a poll at `now_ms`, and whether that came too soon: then the
    /// device has to wait longer each time.
    pub fn follow(self, now_ms: i64) -> (Self, bool) {
        let wait_ms = self.interval_s.saturating_mul(1000) - EARLY_MS;
        let is_soon = |last_ms: i64| now_ms.saturating_sub(last_ms) < wait_ms;
        let too_soon = self.last_ms.is_some_and(is_soon);
        let longer = self.interval_s.saturating_add(SLOWER_S);
        let next = Self {
            last_ms: Some(now_ms),
            interval_s: if too_soon { longer } else { self.interval_s },
        };
        (next, too_soon)
    }
}

/// How long a device's request is remembered after it expired, in
/// milliseconds, so that the device can be told: ten minutes.
pub const DEVICE_KEPT_MS: i64 = 600 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_polls_too_soon_waits_five_seconds_longer() {
        let mut now_ms = 1_000_000;
        let mut poll = Poll {
            last_ms: None,
            interval_s: 5,
        };
        let mut after = |seconds: i64| {
            now_ms += seconds * 1000;
            let (next, too_soon) = poll.follow(now_ms);
            poll = next;
            too_soon
        };
        assert!(!after(0));
        assert!(!after(5));
        assert!(after(1));
        assert!(after(9), "the interval is ten seconds now");
        assert!(!after(15));
        assert!(after(14), "it stays");
    }
}
