//! What filters do with the bodies of requests on their way.

use bytes::Bytes;

/// The body of a request is not of the form that it has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is malformed")]
pub struct Malformed;

/// Changes the body of one request on its way to the upstream, piece by piece, and
/// holds back no more than a few bytes.
pub trait BodyDecoder: std::fmt::Debug + Send + Sync {
    /// A try at an upstream begins: the first byte comes, maybe again.
    fn restart(&mut self);

    /// Changes the next piece; at the `end` nothing follows. Must not block.
    ///
    /// # Errors
    /// [`Malformed`]: the request is answered with 400, and the upstream is told
    /// that the rest will not come.
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) -> Result<(), Malformed>;
}
