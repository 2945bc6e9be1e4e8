//! The HTTP of the ACME client: that of all requests of this process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use url::Url;

use crate::problem::OrderError;
use doorward_core::clock::{self, Clock};
use doorward_net::http::outbound::{Options, Outbound};

/// How long an authority may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends the requests of an order.
#[derive(Clone)]
pub(crate) struct Transport {
    outbound: Arc<Outbound>,
    clock: Clock,
    last: Arc<Mutex<LastAnswer>>,
}

/// What the client library does not tell of the last answer.
#[derive(Clone, Copy, Debug, Default)]
struct LastAnswer {
    status: Option<StatusCode>,
    retry_after_ms: Option<i64>,
}

impl Transport {
    pub(crate) fn new(outbound: Arc<Outbound>, clock: Clock) -> Self {
        Self {
            outbound,
            clock,
            last: Arc::default(),
        }
    }

    /// `error` with what the last answer says: when to come back, and its status where
    /// it was no problem document.
    pub(crate) fn explain(&self, mut error: OrderError) -> OrderError {
        let last = *self.last.lock();
        let is_refusal = last.status.is_some_and(|status| !status.is_success());
        if is_refusal {
            error.retry_after_ms = last.retry_after_ms;
        }
        if let Some(status) = last.status.filter(|_| is_refusal && error.kind.is_none()) {
            error.detail = format!("{} (status {status})", error.detail);
        }
        error
    }
}

impl HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let transport = self.clone();
        Box::pin(async move { transport.send(request).await })
    }
}

impl Transport {
    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (mut parts, body) = request.into_parts();
        *self.last.lock() = LastAnswer::default();
        let url = Url::parse(&parts.uri.to_string()).map_err(|error| Error::Other(error.into()))?;
        if url.scheme() != "https" {
            return Err(Error::Str("an address that begins with https://"));
        }
        let body = body.collect().await.map(|body| body.to_bytes());
        let body = body.unwrap_or_default();
        // Chains are no JSON.
        parts
            .headers
            .insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        let options = Options {
            timeout: PATIENCE,
            // Authorities close connections while the next request is on its way, and what
            // was posted is not posted again.
            keepalive: false,
            ..Options::default()
        };
        let sent = self
            .outbound
            .request(parts.method, &url, parts.headers, body, options);
        let answer = sent.await.map_err(|error| Error::Other(error.into()))?;
        *self.last.lock() = LastAnswer {
            status: Some(answer.status),
            retry_after_ms: self.retry_after(answer.headers.get(header::RETRY_AFTER)),
        };
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response.into())
    }

    /// Milliseconds until the time that the header names (RFC 9110 §10.2.3).
    fn retry_after(&self, value: Option<&HeaderValue>) -> Option<i64> {
        let text = value?.to_str().ok()?.trim();
        let seconds = match text.parse::<u32>() {
            Ok(seconds) => i64::from(seconds),
            Err(_) => clock::http_date(text)? - self.clock.now_secs(),
        };
        Some(seconds.max(0).saturating_mul(1000))
    }
}
