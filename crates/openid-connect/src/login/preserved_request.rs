//! Forms that were sent by whom the session had left, kept until the user has
//! signed in (`preserve_request_body`).
//!
//! In the memory of this process, and bounded: whoever can't be told who they
//! are can't fill it. A form of another site is never kept: sent again it would
//! do in the user's name what the user does not know of.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method};
use pingora::http::RequestHeader;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use uuid::Uuid;

use crate::config::fields::Fields;
use crate::login::site::Site;
use crate::provider::single_flight::{Digest, digest_of};
use doorward_net::http::form::is_form_type;

/// Most bytes of all that is kept, about.
const BYTES: u64 = 16 * 1024 * 1024;
/// Most requests that are kept, about.
const REQUESTS: usize = 4 * 1024;

/// What was sent.
#[derive(Clone, Debug)]
pub(crate) struct PreservedRequest {
    pub(crate) method: Method,
    /// The route that it came by.
    pub(crate) route: Option<Uuid>,
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Bytes,
}

impl PreservedRequest {
    /// Whether a page can send it again.
    pub(crate) fn is_form(&self) -> bool {
        let kind = self.content_type.to_str().unwrap_or_default();
        self.method == Method::POST && is_form_type(kind)
    }
}

/// The requests that are kept.
pub(crate) struct PreservedRequests {
    most: usize,
    all: Cache<Digest, Arc<PreservedRequest>, Weight, ahash::RandomState>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Digest, Arc<PreservedRequest>> for Weight {
    fn weight(&self, _: &Digest, request_to_resend: &Arc<PreservedRequest>) -> u64 {
        256 + request_to_resend.body.len() as u64
    }
}

impl PreservedRequests {
    /// `None`: nothing is kept.
    pub(crate) fn new(fields: &Fields) -> Option<Self> {
        let most = usize::try_from(fields.responses.preserve_request_body.0).unwrap_or(0);
        let state = ahash::RandomState::new();
        let all = || Cache::with(REQUESTS, BYTES, Weight, state, DefaultLifecycle::default());
        (most > 0).then(|| Self { most, all: all() })
    }

    /// Whether a request is one to be kept: it has a body, of this site.
    pub(crate) fn accepts(&self, request: &RequestHeader, own: Option<&str>) -> bool {
        let text = |name: &str| request.headers.get(name)?.to_str().ok();
        let ours = Site::of(request, own) == Site::Own;
        let length = text(CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
        let methods = [Method::POST, Method::PUT, Method::PATCH];
        ours && methods.contains(&request.method)
            && request.headers.contains_key(CONTENT_TYPE)
            && length.is_some_and(|length: usize| (1..=self.most).contains(&length))
    }

    /// Keeps a request for the login with this nonce.
    pub(crate) fn store(
        &self,
        nonce: &str,
        request: &RequestHeader,
        route: Option<Uuid>,
        body: Bytes,
    ) {
        if let Some(content_type) = request.headers.get(CONTENT_TYPE)
            && body.len() <= self.most
        {
            let request_to_resend = PreservedRequest {
                method: request.method.clone(),
                route,
                content_type: content_type.clone(),
                body,
            };
            self.all
                .insert(digest_of([nonce.as_bytes()]), Arc::new(request_to_resend));
        }
    }

    /// What was kept for a login; it is not any more.
    pub(crate) fn take(&self, nonce: &str) -> Option<Arc<PreservedRequest>> {
        let about = digest_of([nonce.as_bytes()]);
        self.all
            .remove(&about)
            .map(|(_, request_to_resend)| request_to_resend)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn preserved() -> PreservedRequests {
        let config = json!({"preserve_request_body": 10});
        let preserved = PreservedRequests::new(&Fields::of(&config).expect("valid"));
        preserved.expect("it is on")
    }

    fn post(headers: &[(&'static str, &str)]) -> RequestHeader {
        let mut request = RequestHeader::build("POST", b"/", None).expect("a request");
        for (name, value) in headers {
            request.insert_header(*name, *value).expect("a field");
        }
        request
    }

    #[test]
    fn a_form_of_another_site_is_never_kept() {
        let (kind, length) = (("content-type", "text/plain"), ("content-length", "3"));
        let own = Some("https://api.test");
        for (more, taken) in [
            (("sec-fetch-site", "same-origin"), true),
            (("origin", "https://api.test"), true),
            (("sec-fetch-site", "cross-site"), false),
            (("sec-fetch-site", "same-site"), false),
            (("sec-fetch-site", "none"), false),
            (("origin", "https://evil.test"), false),
            (("origin", "null"), false),
            (("x-other", "1"), false),
        ] {
            let request = post(&[kind, length, more]);
            assert_eq!(preserved().accepts(&request, own), taken, "{more:?}");
        }
        let long = post(&[
            kind,
            ("content-length", "11"),
            ("sec-fetch-site", "same-origin"),
        ]);
        assert!(!preserved().accepts(&long, own));
    }

    #[test]
    fn a_flood_of_forms_stays_within_the_bound() {
        let preserved = PreservedRequests {
            most: 65_536,
            ..preserved()
        };
        let request = post(&[("content-type", "text/plain")]);
        for n in 0..1000 {
            preserved.store(&n.to_string(), &request, None, Bytes::from(vec![0; 60_000]));
        }
        assert!(preserved.all.weight() <= BYTES + BYTES / 8);
        preserved.store("x", &request, None, Bytes::from_static(b"a"));
        assert!(preserved.take("x").is_some());
        assert!(preserved.take("x").is_none(), "once");
    }
}
