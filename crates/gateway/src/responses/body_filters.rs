//! What the body of an answer goes through.

use bytes::Bytes;
use http::HeaderMap;

use doorward_plugin_api::filter::BodyFilter;

/// What the body of an answer goes through, the filter that runs last first. Of most
/// requests nothing, which takes no memory.
#[derive(Default)]
pub(crate) struct BodyFilters(pub(super) Vec<Box<dyn BodyFilter>>);

impl BodyFilters {
    /// Whether bodies pass as they are.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets the next piece go through all.
    pub(crate) fn piece(&mut self, body: &mut Option<Bytes>, end: bool) {
        for filter in &mut self.0 {
            filter.piece(body, end);
        }
    }

    /// Tells each that the answer is over, which has no body: what one adds is for nobody.
    pub(crate) fn end_without_body(&mut self) {
        for filter in &mut self.0 {
            filter.piece(&mut None, true);
        }
    }

    /// What is still held back, where trailers end the answer.
    pub(crate) fn rest(&mut self, trailers: &HeaderMap) -> Option<Bytes> {
        if self.0.is_empty() {
            return None;
        }
        self.0
            .iter_mut()
            .for_each(|filter| filter.trailers(trailers));
        let mut body = None;
        self.piece(&mut body, true);
        self.0.clear();
        body.filter(|body| !body.is_empty())
    }
}
