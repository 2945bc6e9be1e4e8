//! What is known of a request on its way through route files.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use pingora::http::{RequestHeader, ResponseHeader};
use smallvec::SmallVec;

use super::Step;
use super::base::Base;
use super::routes::FileRoute;
use crate::head;
use crate::snapshot::LiveService;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::Exchange;

/// A request that no entity route has taken.
pub(crate) struct HandlerContext {
    /// The route file that took it; of nested ones the outermost.
    pub(super) outer: Option<Arc<FileRoute>>,
    /// The innermost one.
    pub(super) inner: Option<Arc<FileRoute>>,
    /// What took part and may have a say in the answer.
    ran: SmallVec<[Ran; 4]>,
    /// The last base URI that was met.
    pub(super) base: Option<Arc<Base>>,
    /// Where it goes, once that is known.
    pub(crate) destination: Option<Arc<LiveService>>,
    /// The host that the client asked for.
    pub(crate) host: Option<HeaderValue>,
    /// The method that the client used.
    pub(super) method: Method,
    /// How the client's body is framed.
    pub(super) framing: Framing,
    /// The upstream's method, where it is not the client's.
    pub(crate) asked: Option<Method>,
    /// Whether the upstream's answer was replaced by another one.
    pub(crate) diverted: bool,
}

/// Steps of one list that ran one after the other.
struct Ran {
    steps: Arc<[Step]>,
    from: usize,
    to: usize,
}

impl HandlerContext {
    /// Sets out with the request of `session`, whose normal path is `path` if
    /// that is not the one that was sent.
    pub(super) fn begin(session: &mut Session, path: Option<&str>) -> Self {
        // Reads the framing, which no filter can change from here on.
        session.is_body_done();
        let request = session.req_header_mut();
        let authority = request.uri.authority().cloned();
        if let Some(authority) = &authority
            && !request.headers.contains_key(header::HOST)
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            // HTTP/2 says it in the target, where base URIs are said now.
            let _ = request.insert_header(header::HOST, host);
        }
        if path.is_some() || authority.is_some() {
            let uri = origin_form(&request.uri, path);
            request.set_uri(uri);
        }
        // What a filter adds can't be nominated away.
        head::settle_nominated(request);
        Self {
            outer: None,
            inner: None,
            ran: SmallVec::new(),
            base: None,
            destination: None,
            host: request.headers.get(header::HOST).cloned(),
            method: request.method.clone(),
            framing: Framing::of(&request.headers),
            asked: None,
            diverted: false,
        }
    }

    /// The route file that is counted and logged.
    pub(crate) fn route(&self) -> Option<&Arc<FileRoute>> {
        self.inner.as_ref()
    }

    /// Whether the body of the upstream's answer is for nobody.
    pub(crate) fn drops_body(&self) -> bool {
        self.diverted || self.method == Method::HEAD
    }

    /// Headers that filters of the route vouch for.
    pub(crate) fn owned_headers(&self) -> &[HeaderName] {
        self.outer
            .as_ref()
            .map_or(&[], |route| route.owned_headers())
    }

    /// Notes that `steps[at]` ran.
    pub(super) fn note(&mut self, steps: &Arc<[Step]>, at: usize) {
        if let Some(last) = self.ran.last_mut()
            && last.to == at
            && Arc::ptr_eq(&last.steps, steps)
        {
            last.to += 1;
            return;
        }
        self.ran.push(Ran {
            steps: steps.clone(),
            from: at,
            to: at + 1,
        });
    }

    /// The last step that ran and has not had its say.
    pub(super) fn pop(&mut self) -> Option<(Arc<[Step]>, usize)> {
        let last = self.ran.last_mut()?;
        last.to -= 1;
        let popped = (last.steps.clone(), last.to);
        if last.to == last.from {
            self.ran.pop();
        }
        Some(popped)
    }

    /// Turns the request into the upstream's, as far as its steps have a say.
    pub(crate) fn forward(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        if let Some(method) = &self.asked {
            request.parts_mut().method.clone_from(method);
        }
        for step in self.ran.iter().flat_map(|ran| &ran.steps[ran.from..ran.to]) {
            if let Step::Filter { filter, .. } = step {
                filter.on_upstream_request(exchange, request);
            }
        }
    }
}

/// The target in origin form: what clients send, and what upstreams get.
pub(super) fn origin_form(uri: &Uri, path: Option<&str>) -> Uri {
    let target = match (path, uri.query()) {
        (None, _) => uri.path_and_query().cloned(),
        (Some(path), None) => path.parse().ok(),
        (Some(path), Some(query)) => format!("{path}?{query}").parse().ok(),
    };
    let target = target.filter(|target| target.as_str().starts_with('/'));
    target.map_or_else(|| Uri::from_static("/"), Uri::from)
}

/// The fields of a message that say where it ends.
#[derive(Debug, PartialEq)]
pub(super) struct Framing {
    length: Option<HeaderValue>,
    encoding: Option<HeaderValue>,
}

impl Framing {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            length: headers.get(header::CONTENT_LENGTH).cloned(),
            encoding: headers.get(header::TRANSFER_ENCODING).cloned(),
        }
    }

    /// Puts them back where a filter has changed them.
    pub(super) fn restore(&self, head: &mut impl Fields) {
        for (name, value) in [
            (header::CONTENT_LENGTH, &self.length),
            (header::TRANSFER_ENCODING, &self.encoding),
        ] {
            let mut all = head.map().get_all(&name).iter();
            if (all.next(), all.next()) != (value.as_ref(), None) {
                head.put(name, value.clone());
            }
        }
    }
}

/// Header fields of a head, of a request or an answer.
pub(super) trait Fields {
    fn map(&self) -> &HeaderMap;
    fn put(&mut self, name: HeaderName, value: Option<HeaderValue>);
}

/// The same for both kinds of head.
macro_rules! fields {
    ($head:ty) => {
        impl Fields for $head {
            fn map(&self) -> &HeaderMap {
                &self.headers
            }

            fn put(&mut self, name: HeaderName, value: Option<HeaderValue>) {
                self.remove_header(&name);
                if let Some(value) = value {
                    // A value that was one before.
                    let _ = self.insert_header(name, value);
                }
            }
        }
    };
}

fields!(RequestHeader);
fields!(ResponseHeader);
