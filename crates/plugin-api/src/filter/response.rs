//! What filters do with the answers of upstreams.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use doorward_net::http::reply::Reply;

/// What becomes of an upstream's answer whose head a filter has seen.
pub enum ResponseFlow {
    /// It goes on.
    Continue,
    /// Its body goes through this on its way.
    Filter(Box<dyn BodyFilter>),
    /// Another answer takes its place.
    Replace(Reply),
}

/// Sees the body of one answer, piece by piece.
pub trait BodyFilter: Send + Sync {
    /// Takes the next piece, and may change it, hold it back or add to it. At the
    /// `end` nothing follows; an answer that is cut short has no end. Of an answer
    /// without a body the end is all, and nothing can be added. Must not block.
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool);

    /// Takes the trailers of the answer, which come before the end. Clients get no
    /// others than what it adds to the body.
    fn trailers(&mut self, _trailers: &HeaderMap) {}
}

/// A filter that stores answers, as operators see it.
pub trait ResponseCache: Send + Sync {
    /// What is stored under a key, as JSON.
    fn entry(&self, key: &str) -> Option<Value>;

    /// Forgets what is stored under a key; whether there was anything.
    fn remove(&self, key: &str) -> bool;

    /// Forgets everything.
    fn clear(&self);
}
