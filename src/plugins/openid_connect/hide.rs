//! Credentials that are not for the upstream, whether or not the configuration
//! hides them.

use http::HeaderValue;
use pingora::http::RequestHeader;

use super::OpenIdConnect;

impl OpenIdConnect {
    /// Takes out of the head of a request that passes without a verified token
    /// what the upstream could take for one.
    pub(super) fn withhold(&self, request: &mut RequestHeader) {
        let settings = self.settings();
        if self.takes_tokens() {
            settings.places.hide(request);
        }
        let reads = |value: &HeaderValue| self.desk.is_some() && settings.search.reads(value);
        settings.headers.withhold(reads, request);
    }
}
