//! The only reader of wall time and of the system's randomness.
//!
//! Everything below takes time as an argument (`now_ms`), so that expiry can
//! be tested without sleeping.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
            None => {
                // No clock that is set stands before the epoch.
                let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
                elapsed.map_or(0, |elapsed| i64::try_from(elapsed.as_millis()).unwrap_or(0))
            }
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

/// Seconds since the epoch of the date in a header (RFC 9110 §5.6.7), in the one form
/// that senders use.
pub fn http_date(text: &str) -> Option<i64> {
    let text = text.trim();
    let date = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    text.ends_with(" GMT").then(|| date.timestamp())
}

/// The text of a date in a header (RFC 9110 §5.6.7), of seconds since the epoch.
pub fn http_date_text(seconds: i64) -> Option<String> {
    let date = chrono::DateTime::from_timestamp(seconds, 0)?;
    Some(date.format("%a, %d %b %Y %H:%M:%S GMT").to_string())
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

/// Letters and digits, the alphabet of texts that are made here.
pub const ALPHANUMERIC: &[u8; 62] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// `N` random letters and digits, of 5.95 bits each.
pub fn random_alphanumeric<const N: usize>() -> String {
    let mut text = String::with_capacity(N);
    while text.len() < N {
        for byte in random_bytes::<64>() {
            // The bytes beyond a multiple of 62 would favour some letters.
            if byte < 248 && text.len() < N {
                text.push(char::from(ALPHANUMERIC[usize::from(byte) % 62]));
            }
        }
    }
    text
}

/// A UUID that begins with the time (version 7, RFC 9562 section 5.7).
///
/// Rows that are added one after the other lie together in an index of them;
/// 74 bits are random. It always tells the system's time: nothing reads it.
pub fn ordered_uuid() -> Uuid {
    let now_ms = u64::try_from(Clock::system().now_ms()).unwrap_or_default();
    uuid::Builder::from_unix_timestamp_millis(now_ms, &random_bytes()).into_uuid()
}

/// A random (version 4) UUID.
pub fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(random_bytes()).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read_and_written_in_their_one_form() {
        assert_eq!(
            http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777)
        );
        let written = http_date_text(784_111_777);
        assert_eq!(written.as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        for text in [
            "",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 25:49:37 GMT",
        ] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }

    #[test]
    fn ordered_identifiers_differ_and_begin_with_the_time() {
        let (one, other) = (ordered_uuid(), ordered_uuid());
        assert_ne!(one, other);
        assert_eq!(one.get_version_num(), 7);
        let told = |id: Uuid| id.get_timestamp().map(|time| time.to_unix().0);
        assert!(told(one) <= told(other));
        assert!(told(one) > Some(1_700_000_000));
    }

    #[test]
    fn random_texts_are_letters_and_digits() {
        let text = random_alphanumeric::<28>();
        assert!(text.len() == 28 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_ne!(text, random_alphanumeric::<28>());
    }
}
