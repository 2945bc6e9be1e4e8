//! What the tests stand on: the real program in a directory of its own, real
//! upstreams and providers on loopback, and clients that say exactly what they
//! send.

pub(crate) mod dns;
pub(crate) mod door;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod redis;
pub(crate) mod smtp;
pub(crate) mod tls;
pub(crate) mod upstream;

use std::time::{Duration, Instant};

pub(crate) use door::{Door, Setup};
pub(crate) use http::Answer;
pub(crate) use issuer::Issuer;
pub(crate) use upstream::{Reply, Upstream};

/// How long anything may take before a test gives up. Only a broken build
/// waits for it; a slow machine stays below.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Asks `probe` again and again until it answers.
///
/// # Panics
/// When it has not within [`DEADLINE`]; `what` says what was waited for.
pub(crate) async fn eventually<T, F>(what: &str, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
