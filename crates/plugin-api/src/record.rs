//! What is known of a request that is over, for filters that observe.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Version};
use uuid::Uuid;

use doorward_core::model::consumer::Consumer;
use doorward_core::model::route::Route;
use doorward_core::model::service::Service;

use crate::filter::Exchange;
use doorward_core::calls::Call;
use doorward_net::http::authority;

/// A request that is over: answered, refused, failed, or left by its client.
#[derive(Debug)]
pub struct RequestRecord<'a> {
    /// What the client asked for.
    pub request: RequestFacts<'a>,
    /// What the upstream was asked and what it said.
    pub upstream: UpstreamFacts<'a>,
    /// What the client got.
    pub response: ResponseFacts<'a>,
    /// Where the time went.
    pub latencies: Latencies,
    /// The filters that had to wait, in the order in which they ran.
    pub waits: &'a [Wait],
    /// What filters have found out.
    pub exchange: &'a Exchange,
    /// The route, if an entity's route took the request.
    pub route: Option<&'a Route>,
    /// The service, if the request has one.
    pub service: Option<&'a Service>,
    /// Milliseconds since the epoch when the request came.
    pub started_ms: i64,
    /// Names of headers, cookies and parameters in which filters of the route
    /// expect secrets.
    pub secret_fields: &'a [Box<str>],
}

/// A request as the client sent it.
#[derive(Debug)]
pub struct RequestFacts<'a> {
    /// The identifier that the gateway gave it.
    pub id: Option<&'a str>,
    /// The method.
    pub method: &'a Method,
    /// The path with its query, as it was sent.
    pub target: &'a str,
    /// The host that was asked for, with its port if one was named: as it was sent.
    pub authority: &'a str,
    /// The port of the listener.
    pub port: u16,
    /// Whether the client used TLS, itself or with a trusted proxy in front.
    pub secure: bool,
    /// The version of HTTP.
    pub version: Version,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Bytes of the request line and the body.
    pub line_and_body: u64,
    /// The connection's TLS, if it has any.
    pub tls: Option<TlsFacts<'a>>,
}

/// The TLS of a client's connection.
#[derive(Debug, Clone, Copy)]
pub struct TlsFacts<'a> {
    /// As `TLSv1.3`.
    pub version: &'a str,
    /// The cipher suite.
    pub cipher: &'a str,
    /// Whether a certificate of the client was verified.
    pub client_verified: bool,
}

/// What became of a request at its upstream.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpstreamFacts<'a> {
    /// The path with its query, as it was sent on; empty: nothing was sent.
    pub uri: &'a str,
    /// The status of the upstream's answer.
    pub status: Option<u16>,
    /// Each try; `None`: no peer was looked for.
    pub tries: Option<&'a [Try]>,
    /// Whether the client got the upstream's answer, and not the gateway's own.
    pub answered: bool,
}

/// Whom a request waited for inside the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiter {
    /// A filter, as operators know it: the name of its plugin, or what a route file
    /// calls it.
    Filter(Box<str>),
    /// The upstream inside the process, such as the identity provider.
    Upstream,
}

/// Somebody inside the process who had to wait: a filter before it decided, or an
/// upstream before it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Who waited.
    pub waiter: Waiter,
    /// How long after the request came it began.
    pub after: Duration,
    /// How long it took.
    pub took: Duration,
    /// What it has asked of others and of the store meanwhile; each counts from the beginning of the
    /// wait.
    pub calls: Vec<Call>,
}

/// A try at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Try {
    /// The peer.
    pub address: SocketAddr,
    /// Milliseconds since the epoch when a peer was looked for.
    pub started_ms: i64,
    /// How long that took.
    pub choice: Duration,
    /// The status that the failure of the try stands for.
    pub failure: Option<u16>,
}

/// What the client got.
#[derive(Debug, Clone, Copy)]
pub struct ResponseFacts<'a> {
    /// The status; 499: the client left before an answer.
    pub status: u16,
    /// The headers, if there was an answer.
    pub headers: Option<&'a HeaderMap>,
    /// Bytes of the body.
    pub body: u64,
}

/// Bytes of `HTTP/1.1 200 OK` with both line ends around the fields.
const STATUS_LINE: u64 = 19;

impl<'a> RequestFacts<'a> {
    /// The host that was asked for, without its port; empty: none that could be one. It
    /// is read here, since most of those who observe do not ask.
    pub fn host(&self) -> &'a str {
        authority::split(self.authority).map_or("", |(host, _)| host)
    }

    /// Bytes of head and body, as HTTP/1 writes them.
    pub fn size(&self) -> u64 {
        self.line_and_body + fields_size(self.headers)
    }
}

impl ResponseFacts<'_> {
    /// Bytes of head and body, as HTTP/1 writes them.
    pub fn size(&self) -> u64 {
        let head = |headers| fields_size(headers) + STATUS_LINE;
        self.body + self.headers.map_or(0, head)
    }
}

/// Bytes of the fields of a head.
fn fields_size(headers: &HeaderMap) -> u64 {
    let fields = headers.iter();
    let sizes = fields.map(|(name, value)| name.as_str().len() + value.len() + 4);
    sizes.sum::<usize>() as u64
}

/// Where the time of a request went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    /// The whole request.
    pub request: Duration,
    /// Until the upstream was asked; the whole request, if none was.
    pub gateway: Duration,
    /// From then to the head of the upstream's answer.
    pub upstream: Option<Duration>,
    /// From then to the end.
    pub receive: Duration,
}

impl RequestRecord<'_> {
    /// The consumer, if the request has one.
    pub fn consumer(&self) -> Option<&Consumer> {
        self.exchange.consumer.as_deref().map(|caller| &**caller)
    }

    /// The credential that the request proved itself by.
    pub fn credential(&self) -> Option<Uuid> {
        self.exchange.credential.as_ref().map(|one| one.id)
    }

    /// The identifier that `correlation-id` gave it.
    pub fn correlation_id(&self) -> Option<&str> {
        let id = self.exchange.correlation_id.as_ref();
        id.and_then(|id: &HeaderValue| id.to_str().ok())
    }
}
