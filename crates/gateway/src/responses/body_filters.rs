//! What the body of an answer goes through.

use bytes::Bytes;

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

    /// What is still held back, where the end comes without a body.
    pub(crate) fn rest(&mut self) -> Option<Bytes> {
        let mut body = None;
        self.piece(&mut body, true);
        self.0.clear();
        body.filter(|body| !body.is_empty())
    }
}
