//! A provider in this process, reached by its `Router`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower::ServiceExt;
use url::Url;

use super::{Answer, BODY_MAX, OutboundError, TokenStatus, local_request};
use crate::http::bridge::{ClientInfo, ForUser};

/// A local provider and the URLs that mean it.
#[derive(Clone)]
pub(super) struct Local {
    base: Url,
    /// The path of `base` without its last slash.
    prefix: String,
    router: Router,
    token_status: Option<Arc<dyn TokenStatus>>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local({})", self.base)
    }
}

impl Local {
    pub(super) fn new(base: &Url, router: Router) -> Self {
        Self {
            base: base.clone(),
            prefix: base.path().trim_end_matches('/').to_owned(),
            router,
            token_status: None,
        }
    }

    pub(super) fn with_token_status(self, token_status: Arc<dyn TokenStatus>) -> Self {
        Self {
            token_status: Some(token_status),
            ..self
        }
    }

    pub(super) fn token_status(&self) -> Option<Arc<dyn TokenStatus>> {
        self.token_status.clone()
    }

    pub(super) fn same_base(&self, other: &Self) -> bool {
        self.base.origin() == other.base.origin() && self.prefix == other.prefix
    }

    pub(super) fn depth(&self) -> usize {
        self.prefix.len()
    }

    /// Whether `url` has this origin and a path at or below the base's.
    pub(super) fn covers(&self, url: &Url) -> bool {
        url.origin() == self.base.origin() && self.below(url).is_some()
    }

    fn below<'a>(&self, url: &'a Url) -> Option<&'a str> {
        url.path()
            .strip_prefix(self.prefix.as_str())
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(super) async fn send(
        self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
        client: Option<IpAddr>,
    ) -> Result<Answer, OutboundError> {
        let path = self.below(url).filter(|path| !path.is_empty());
        let mut target = path.unwrap_or("/").to_owned();
        if let Some(query) = url.query() {
            target.push('?');
            target.push_str(query);
        }
        if let Ok(host) = HeaderValue::from_str(url.authority()) {
            headers.insert(header::HOST, host);
        }
        let mut request = local_request(method, &target, headers, body)?;
        request.extensions_mut().insert(ClientInfo {
            // Never this machine's: anybody may stand behind a question, so what
            // is open to some addresses alone must not be open to all of them.
            addr: SocketAddr::from((client.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0)),
            secure: self.base.scheme() == "https",
        });
        let response = match self.router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_MAX)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    OutboundError::TooLong
                } else {
                    OutboundError::Unreachable(error.to_string())
                }
            })?;
        Ok(Answer {
            user: head.extensions.get::<ForUser>().map(|ForUser(id)| *id),
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }
}
