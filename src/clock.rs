//! The only reader of wall time and of the system's randomness.
//!
//! Everything below takes time as an argument (`now_ms`), so that expiry can
//! be tested without sleeping.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use uuid::Uuid;

/// A source of wall time, in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// `None`: the system's clock.
    manual: Option<Arc<AtomicI64>>,
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self { manual: None }
    }

    /// A clock that stands at `now_ms` until [`Clock::advance`] moves it.
    pub fn manual(now_ms: i64) -> Self {
        Self {
            manual: Some(Arc::new(AtomicI64::new(now_ms))),
        }
    }

    /// Milliseconds since the Unix epoch.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads wall time"
    )]
    pub fn now_ms(&self) -> i64 {
        match &self.manual {
            Some(now) => now.load(Ordering::Relaxed),
            None => chrono::Utc::now().timestamp_millis(),
        }
    }

    /// Whole seconds since the Unix epoch, rounded down.
    pub fn now_secs(&self) -> i64 {
        self.now_ms().div_euclid(1000)
    }

    /// Moves a manual clock on; the system's clock is not touched.
    pub fn advance(&self, by_ms: i64) {
        if let Some(now) = &self.manual {
            now.fetch_add(by_ms, Ordering::Relaxed);
        }
    }
}

/// Nanoseconds of the monotonic clock since its first reading in this process.
pub fn monotonic_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// `N` bytes from the operating system's generator.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the system's randomness"
)]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the operating system's random generator works");
    bytes
}

/// A random (version 4) UUID.
pub fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(random_bytes()).into_uuid()
}
