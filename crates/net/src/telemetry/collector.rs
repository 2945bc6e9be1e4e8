//! Collectors of OpenTelemetry: a message goes to one over OTLP/HTTP with protocol
//! buffers, or over OTLP/gRPC (OTLP specification §OTLP/gRPC, §OTLP/HTTP).
//!
//! The scheme of the address says which: `http` and `https`, or `grpc` and `grpcs`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use url::Url;

use crate::http::outbound::{GrpcError, Options, Outbound, OutboundError};

/// The port of collectors where an address of gRPC names none.
const GRPC_PORT: u16 = 4317;

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Numbers.
    Metrics,
    /// Spans.
    Traces,
    /// Records.
    Logs,
}

impl Signal {
    /// The method of gRPC that takes it.
    fn method(self) -> &'static str {
        match self {
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// Whether an answer, an `Export…ServiceResponse`, says that some entries were
    /// refused. One that is no such message says nothing.
    fn refuses_some(self, answer: &[u8]) -> bool {
        let refused = match self {
            Self::Metrics => ExportMetricsServiceResponse::decode(answer)
                .map(|answer| answer.partial_success.map(|part| part.rejected_data_points)),
            Self::Traces => ExportTraceServiceResponse::decode(answer)
                .map(|answer| answer.partial_success.map(|part| part.rejected_spans)),
            Self::Logs => ExportLogsServiceResponse::decode(answer)
                .map(|answer| answer.partial_success.map(|part| part.rejected_log_records)),
        };
        refused.is_ok_and(|count| count.unwrap_or_default() != 0)
    }
}

/// How a message is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Grpc,
}

/// The address of a collector.
#[derive(Clone, Debug)]
pub struct Endpoint {
    signal: Signal,
    protocol: Protocol,
    /// What is asked: http or https.
    url: Url,
}

/// Why a text is no address of a collector.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is no URL of a known scheme.
    #[error("expected an address with the scheme http, https, grpc or grpcs")]
    Scheme,
    /// An address of gRPC has a path or a query of its own.
    #[error("an address of gRPC has no path: expected one such as grpc://127.0.0.1:4317")]
    Path,
}

impl Endpoint {
    /// The address in `text`, to which `signal` is sent. Its fragment does not count.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn parse(text: &str, signal: Signal) -> Result<Self, EndpointError> {
        let mut url = Url::parse(text).map_err(|_| EndpointError::Scheme)?;
        url.set_fragment(None);
        let scheme = match url.scheme() {
            "http" | "https" => {
                return Ok(Self {
                    signal,
                    protocol: Protocol::Http,
                    url,
                });
            }
            "grpc" => "http",
            "grpcs" => "https",
            _ => return Err(EndpointError::Scheme),
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(EndpointError::Path);
        }
        let port = url.port().unwrap_or(GRPC_PORT);
        let rest = url.as_str().split_once(':').map_or("", |(_, rest)| rest);
        let mut url = Url::parse(&format!("{scheme}:{rest}")).map_err(|_| EndpointError::Scheme)?;
        url.set_port(Some(port))
            .map_err(|()| EndpointError::Scheme)?;
        url.set_path(signal.method());
        Ok(Self {
            signal,
            protocol: Protocol::Grpc,
            url,
        })
    }

    /// Whether the address names a place of its server, as one of gRPC does by itself.
    pub fn has_path(&self) -> bool {
        self.url.path() != "/"
    }

    /// Takes user and password out of the address: the header that says the same.
    pub fn take_credentials(&mut self) -> Option<HeaderValue> {
        let header = crate::http::basic::of_url(&self.url);
        // It is in a header now.
        let _ = (self.url.set_username(""), self.url.set_password(None));
        header
    }

    /// Whether the address holds a name or a password.
    pub fn has_credentials(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    /// The collector as it is named in logs: without a path, which may hold a key.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

/// A collector that messages can be sent to.
#[derive(Clone, Debug)]
pub struct Collector {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Headers of each request, or metadata of each call.
    pub headers: HeaderMap,
    /// From the first attempt at a connection to the end of the answer.
    pub timeout: Duration,
}

/// Why a collector did not take a message. Its words are not repeated, nor is its
/// address.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// It could not be asked.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// A call of gRPC failed.
    #[error(transparent)]
    Grpc(#[from] GrpcError),
    /// It took a part of the message only.
    #[error("it refused some of what was sent")]
    Partial,
}

impl Collector {
    /// Sends a message, an `Export…ServiceRequest`.
    ///
    /// # Errors
    /// [`CollectorError`]. A message that was refused in part is one, and is not to be
    /// sent again (OTLP specification §Partial Success).
    pub async fn export(
        &self,
        outbound: &Outbound,
        message: Vec<u8>,
    ) -> Result<(), CollectorError> {
        let options = Options {
            timeout: self.timeout,
            ..Options::default()
        };
        let (url, mut headers) = (&self.endpoint.url, self.headers.clone());
        let answer = match self.endpoint.protocol {
            Protocol::Grpc => outbound.call(url, headers, &message, options).await?,
            Protocol::Http => {
                let kind = HeaderValue::from_static("application/x-protobuf");
                headers.insert(header::CONTENT_TYPE, kind.clone());
                headers.insert(header::ACCEPT, kind);
                let body = Bytes::from(message);
                let sent = outbound.request(Method::POST, url, headers, body, options);
                let answer = sent.await?;
                if !answer.status.is_success() {
                    return Err(OutboundError::Status(answer.status).into());
                }
                answer.body
            }
        };
        if self.endpoint.signal.refuses_some(&answer) {
            return Err(CollectorError::Partial);
        }
        Ok(())
    }
}

/// Headers that say how a request is framed and what is in it: nobody may set them.
pub const OWN_HEADERS: [HeaderName; 9] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::TE,
    header::CONNECTION,
    header::UPGRADE,
    header::HOST,
    header::ACCEPT,
];

#[cfg(test)]
mod tests;
