//! Connections to upstreams that wait for their next request: a pool for each worker.
//!
//! The engine's pool starts a task for each connection that it is given, with a timer
//! and two locks. One worker's connections need none of these: whoever takes one looks
//! whether it is still good, and one task clears out the others once a second.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use pingora::protocols::Stream;
use pingora::upstreams::peer::{HttpPeer, Peer as _};
use tokio::io::AsyncReadExt as _;
use tokio::task::unconstrained;

/// How often connections are looked at that nobody takes.
const SWEEP: Duration = Duration::from_secs(1);
/// The part of a full pool that is closed at once, so that a full one is not searched
/// for each connection.
const EVICTED: usize = 16;

/// What connections are made for: only those with equal keys are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    /// All of the peer that decides whom an upstream is taken for. Names in it are
    /// chosen by strangers, so the hash is keyed anew in each process.
    hash: u64,
    address: Option<SocketAddr>,
}

impl PoolKey {
    pub(super) fn of(peer: &HttpPeer) -> Self {
        static STATE: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);
        Self {
            hash: STATE.hash_one(peer),
            address: peer.address().as_inet().copied(),
        }
    }
}

/// A connection that waits.
struct Waiting {
    stream: Stream,
    /// When it is closed if nobody has taken it.
    until: Instant,
    /// Later ones have higher numbers.
    number: u64,
}

#[derive(Default)]
struct Connections {
    /// Of each key, the one that waits longest comes first.
    by_key: HashMap<PoolKey, Vec<Waiting>, ahash::RandomState>,
    count: usize,
    /// How many there have been.
    number: u64,
    /// Whether a task clears them out.
    swept: bool,
}

/// The connections of one worker that wait for their next request.
pub(super) struct UpstreamPool {
    capacity: usize,
    connections: Arc<Mutex<Connections>>,
}

impl UpstreamPool {
    /// A pool of `capacity` connections at most.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            connections: Arc::default(),
        }
    }

    /// The connection of `key` that has waited least, if it is still good.
    pub(super) fn take(&self, key: PoolKey) -> Option<Stream> {
        let mut connections = self.connections.lock();
        loop {
            let mut waiting = connections.take(key)?;
            // The upstream may be about to close it, later than it said.
            if waiting.until > Instant::now() && is_quiet(&mut waiting.stream) {
                return Some(waiting.stream);
            }
        }
    }

    /// Keeps a connection for the next request of `key`, for `idle` at most. It is
    /// closed if something was sent that nobody has asked for.
    pub(super) fn put(&self, key: PoolKey, mut stream: Stream, idle: Duration) {
        if self.capacity == 0 || !is_quiet(&mut stream) {
            return;
        }
        let mut connections = self.connections.lock();
        if connections.count >= self.capacity {
            connections.evict(self.capacity.div_ceil(EVICTED));
        }
        connections.put(key, stream, Instant::now() + idle);
        if !std::mem::replace(&mut connections.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.connections)));
        }
    }
}

impl Connections {
    fn take(&mut self, key: PoolKey) -> Option<Waiting> {
        let waiting = self.by_key.get_mut(&key)?.pop()?;
        self.count -= 1;
        Some(waiting)
    }

    fn put(&mut self, key: PoolKey, stream: Stream, until: Instant) {
        self.number += 1;
        self.count += 1;
        self.by_key.entry(key).or_default().push(Waiting {
            stream,
            until,
            number: self.number,
        });
    }

    /// Closes the `count` connections that have waited longest.
    fn evict(&mut self, count: usize) {
        let all = self.by_key.values().flatten();
        let mut numbers: Vec<u64> = all.map(|waiting| waiting.number).collect();
        numbers.sort_unstable();
        if let Some(last) = numbers.get(count.saturating_sub(1)).or(numbers.last()) {
            let last = *last;
            self.retain(|waiting| waiting.number > last);
        }
    }

    fn retain(&mut self, mut keeps: impl FnMut(&mut Waiting) -> bool) {
        self.by_key.retain(|_, of_key| {
            of_key.retain_mut(&mut keeps);
            !of_key.is_empty()
        });
        self.count = self.by_key.values().map(Vec::len).sum();
    }
}

/// Closes what its upstream has closed and what has waited too long, until nothing is
/// left.
async fn sweep(connections: Weak<Mutex<Connections>>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(connections) = connections.upgrade() else {
            return;
        };
        let mut connections = connections.lock();
        let now = Instant::now();
        connections.retain(|waiting| waiting.until > now && is_quiet(&mut waiting.stream));
        if connections.count == 0 {
            connections.swept = false;
            return;
        }
    }
}

/// Whether an idle connection is open, and nothing was sent over it: an upstream that
/// speaks first would answer the next request before it is asked.
fn is_quiet(stream: &mut Stream) -> bool {
    let mut byte = [0];
    // A task that has used up its turn would see nothing.
    unconstrained(stream.read(&mut byte))
        .now_or_never()
        .is_none()
}
