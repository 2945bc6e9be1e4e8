//! The contract between the gateway and a filter.

mod decoder;
mod explanation;
mod mcp_call;
mod partitions;
mod protected_resource;
mod response;

use std::any::Any;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, Uri};
use pingora::http::{RequestHeader, ResponseHeader};
use smallvec::SmallVec;
use uuid::Uuid;

use doorward_core::model::audit::PendingAudit;
use doorward_core::model::login::{LoginQuery, StoredLogin};
use doorward_core::model::route::Route;
use doorward_core::model::service::Service;
use doorward_core::model::token::AccessToken;
use doorward_expr::{Response, Scope, Value};
use doorward_net::http::handshake::{ClientCertificate, Handshake};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;

use crate::consumers::Caller;
use crate::identity::Credential;
use crate::record::RequestRecord;
pub use decoder::{BodyDecoder, Malformed};
pub use explanation::{Code, FilterExplanation};
pub use mcp_call::McpCall;
pub use partitions::{BucketReport, HotPartition, PartitionReport, Partitioned};
pub use protected_resource::ProtectedResource;
pub use response::{BodyFilter, ResponseCache, ResponseFlow};

/// What clients are told whose body is longer than [`Exchange::body_limit`].
pub const TOO_LARGE: &str = "Request size limit exceeded";

/// What a filter decided about a request.
#[derive(Debug)]
pub enum Flow {
    /// On to the next filter, or to the upstream.
    Continue,
    /// Answer now; later filters and the upstream never see the request.
    Respond(Reply),
}

/// A filter's decision, or that it has to wait for something first.
#[derive(Debug)]
pub enum Verdict {
    /// Decided without waiting: the path of every request that repeats.
    Now(Flow),
    /// [`Filter::on_request_slow`] must be awaited.
    Wait,
}

/// A running filter. Built from a plugin's configuration when a snapshot is
/// compiled, shared by all requests, kept across snapshots while its
/// configuration is unchanged.
#[async_trait]
pub trait Filter: Send + Sync + 'static {
    /// Decides on the request. Must not block and should not allocate; what
    /// has to wait returns [`Verdict::Wait`].
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict;

    /// Decides on the request after `on_request` returned [`Verdict::Wait`].
    async fn on_request_slow(&self, _session: &mut Session, _exchange: &mut Exchange) -> Flow {
        Flow::Continue
    }

    /// What it would decide on a request of which only the head is known, for
    /// an operator who asks. Nothing is counted, spent, begun or ended by that;
    /// where a decision would take such a thing, it is said so. What it learns of
    /// the request is in `exchange` for the filters behind it. `None`: it can't be
    /// told.
    async fn explain(
        &self,
        _request: &RequestHeader,
        _exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        None
    }

    /// Whether the request's body must be in [`Exchange::body`] before the
    /// filter decides. A longer body than is held there is answered with 413.
    fn needs_body(&self) -> bool {
        false
    }

    /// Whether the body of this request must be there. The gateway asks this one;
    /// filters that look at every body write [`Filter::needs_body`] alone.
    fn wants_body(&self, _request: &RequestHeader, _exchange: &Exchange) -> bool {
        self.needs_body()
    }

    /// Whether [`Filter::on_upstream_response`] has anything to do.
    fn sees_responses(&self) -> bool {
        false
    }

    /// Whether it has anything to do with what an upstream answers to this request. The
    /// gateway asks this one; filters that see every answer write
    /// [`Filter::sees_responses`] alone.
    fn sees_response(&self, _exchange: &Exchange) -> bool {
        self.sees_responses()
    }

    /// Decides on the answer of an upstream on an entity's route, as it came: before
    /// anybody has changed its head. The filter that runs last is asked first.
    /// It is also asked about what a filter has stored ([`Exchange::stored`]).
    ///
    /// Whoever changes the length of the body says so by removing
    /// `Content-Length`.
    async fn on_upstream_response(
        &self,
        _request: &RequestHeader,
        _exchange: &mut Exchange,
        _response: &mut ResponseHeader,
    ) -> ResponseFlow {
        ResponseFlow::Continue
    }

    /// Whether it looks at [`Exchange::route_context`], which other routes do
    /// without.
    fn needs_route(&self) -> bool {
        false
    }

    /// Whether it may give a request an absolute target, and so say where the
    /// request goes.
    fn may_rebase(&self) -> bool {
        false
    }

    /// Changes the request as the upstream will see it.
    ///
    /// Runs after hop-by-hop headers are gone, so what it sets can't be
    /// nominated away by the client's `Connection` header.
    fn on_upstream_request(&self, _exchange: &Exchange, _request: &mut UpstreamRequest<'_>) {}

    /// Changes the response head on its way to the client.
    fn on_response(&self, _exchange: &Exchange, _response: &mut ResponseHeader) {}

    /// Whether it looks for anything in the finished head of an answer or in
    /// [`Exchange::response_headers`], or changes the head. A filter that only removes
    /// doubles of its own fields may say no. Where every filter of a route says no and
    /// none observes, what filters have queued goes to the client past the head: a place
    /// in its map costs more than all else of a field.
    fn reads_heads(&self) -> bool {
        true
    }

    /// Changes the response head, knowing the request as filters left it. The
    /// gateway calls this one; filters that need no request write
    /// [`Filter::on_response`] alone.
    fn on_response_to(
        &self,
        _request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        self.on_response(exchange, response);
    }

    /// Does what has to be done before an answer goes that the gateway makes itself on
    /// an entity's route, such as to store what the answer promises. It is asked where
    /// the filter sees the answers of upstreams too ([`Filter::sees_responses`]), before
    /// any filter changes the head.
    async fn before_own_response(
        &self,
        _request: &RequestHeader,
        _exchange: &mut Exchange,
        _response: &ResponseHeader,
    ) {
    }

    /// Changes the head of an answer that the gateway makes itself on an entity's
    /// route: a refusal, or the failure of an upstream. An earlier filter may have
    /// answered before this one saw the request.
    fn on_own_response(
        &self,
        _request: &RequestHeader,
        _exchange: &Exchange,
        _response: &mut ResponseHeader,
    ) {
    }

    /// Changes the body of an answer that the gateway makes itself, where the filter
    /// sees the answers of upstreams too ([`Filter::sees_responses`]), and removes from
    /// the head what is about the old one. `None`: it stays. Its length is the
    /// gateway's to announce.
    fn on_own_body(
        &self,
        _exchange: &Exchange,
        _response: &mut ResponseHeader,
        _body: &Bytes,
    ) -> Option<Bytes> {
        None
    }

    /// Whether the filter wants to know of requests that are over
    /// ([`Filter::on_end`]). Other routes collect nothing for that.
    fn observes(&self) -> bool {
        false
    }

    /// Whether a filter that observes wants to know of this request, of which
    /// `exchange` has what filters have found out. Nothing is put together for one of
    /// which nobody wants to know. It is asked once the filters have decided: a no is final.
    fn observes_request(&self, _: &Exchange) -> bool {
        self.observes()
    }

    /// A request of its routes is over: answered, refused, failed, or left by its
    /// client. A filter of everything is also told of requests that no route took.
    /// It may not have seen the request before. Must not wait; what takes time goes
    /// into a queue.
    fn on_end(&self, _record: &RequestRecord<'_>) {}

    /// Names of headers, cookies and parameters in which it expects secrets:
    /// records of requests leave their values out.
    fn secret_fields(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Names of the request headers that this filter vouches for: client-sent
    /// copies of them (in any case, `_` for `-`) never reach an upstream.
    fn owned_headers(&self) -> &[HeaderName] {
        &[]
    }

    /// Whether the filter gives browsers cookies that are for itself alone.
    fn gives_cookies(&self) -> bool {
        false
    }

    /// Whether a cookie is such a one: no upstream gets it, on whatever route.
    fn owns_cookie(&self, _name: &str, _value: &str) -> bool {
        false
    }

    /// Whether the filter gives cookies of this name on its routes: no upstream
    /// behind it sets one.
    fn names_cookie(&self, _name: &[u8]) -> bool {
        false
    }

    /// The partitions that the filter counts, if it counts by partition.
    fn partitioned(&self) -> Option<&dyn Partitioned> {
        None
    }

    /// The answers that the filter stores, if it stores any.
    fn response_cache(&self) -> Option<&dyn ResponseCache> {
        None
    }

    /// The resource that the filter protects, if clients can find out about it: by
    /// its own address, and then by others that it has.
    fn protected_resource(&self) -> &[ProtectedResource] {
        &[]
    }

    /// The issuers of the OpenID providers whose metadata it goes by.
    fn discovered_issuers(&self) -> Vec<String> {
        Vec::new()
    }

    /// The sessions of users that the filter keeps, if it keeps any.
    fn session_keeper(&self) -> Option<&dyn SessionKeeper> {
        None
    }

    /// What an operator should know and that is not an error: settings without
    /// effect, for instance. Logged once when the filter is built.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A filter that keeps sessions of users, as operators see them.
#[async_trait]
pub trait SessionKeeper: Send + Sync {
    /// The sessions that it keeps in a storage of its own, and whether these are
    /// all; nothing, if it keeps none there or the storage can't list them. Those
    /// of the process's own store are not among them.
    ///
    /// # Errors
    /// [`SessionsUnavailable`].
    async fn list(&self) -> Result<Option<(Vec<StoredLogin>, bool)>, SessionsUnavailable>;

    /// Ends sessions that began no later than `now_ms`, those of the process's
    /// own store and those that only browsers hold among them. How many there
    /// were of which is known. The record of the act goes with the first write.
    ///
    /// # Errors
    /// [`SessionsUnavailable`]: some may go on.
    async fn end(
        &self,
        which: &LoginQuery,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<usize, SessionsUnavailable>;
}

/// The storage of sessions gives no answer, or takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the storage of sessions does not answer")]
pub struct SessionsUnavailable;

/// What an answer must not outlast: the session or the token of its request.
pub trait SessionLiveness: std::fmt::Debug + Send + Sync {
    /// Whether it is over. Asked again and again; must not block.
    fn is_over(&self) -> bool;
}

/// What is known about one request while it passes, shared by its filters.
#[derive(Debug)]
pub struct Exchange {
    /// The client's address: the TCP peer, or what a trusted proxy vouched for.
    pub client: SocketAddr,
    /// The names of the request's headers that the client did not send in lower case,
    /// where an expression may ask for them.
    pub sent_names: Box<[Box<str>]>,
    /// The address that the client's connection came in by, where an
    /// expression may ask for it.
    pub local: Option<SocketAddr>,
    /// The id of the exchange, where an expression may ask for it.
    pub transaction: Option<HeaderValue>,
    /// The identifier that `correlation-id` gave the request.
    pub correlation_id: Option<HeaderValue>,
    /// Whether the client (or the trusted proxy in front) used TLS.
    pub secure: bool,
    /// Whether the peer is a trusted proxy, whose `X-Forwarded-*` are believed.
    pub trusted: bool,
    /// What the TLS handshake of the connection has settled.
    pub handshake: Option<Arc<Handshake>>,
    /// Whom the request comes from, once an authentication filter knows.
    pub consumer: Option<Arc<Caller>>,
    /// What it has proved that by, if not by a token.
    pub credential: Option<Arc<Credential>>,
    /// The signature of the token that the credential has signed: many users may
    /// share such a credential, and their tokens tell them apart.
    pub token_signature: Option<Vec<u8>>,
    /// Whether the credential has signed the request itself, so that each one
    /// carries another signature.
    pub is_signed: bool,
    /// Groups that somebody else than the consumer's records vouches for.
    pub authenticated_groups: Option<Box<[Box<str>]>>,
    /// The verified access token, once an authentication filter found one.
    pub token: Option<Arc<AccessToken>>,
    /// Whether the token came in the query, where it must not be logged
    /// and makes the answer private (RFC 6750 §2.3).
    pub token_in_query: bool,
    /// The id of the route that the request came by, if it has one.
    pub route: Option<Uuid>,
    /// The id of the route's service, if it has one.
    pub service: Option<Uuid>,
    /// What the route knows of the request, where a filter of it wants to know
    /// ([`Filter::needs_route`]).
    pub route_context: Option<Box<RouteContext>>,
    /// What filters remember of the request: each finds its own by its type.
    pub notes: SmallVec<[Box<dyn Any + Send + Sync>; 2]>,
    /// The request body, if a filter had to read it: at most 64 KiB, where the filter
    /// has no limit of its own and sends it on as the replacement.
    pub body: Option<Bytes>,
    /// Bytes of the longest body that may come, where a filter sets a limit and
    /// the head of the request does not tell: more is answered with 413.
    pub body_limit: Option<u64>,
    /// The request as the client sent it, once a filter changed its method or
    /// its target; see [`Exchange::keep_original`].
    pub original: Option<Box<Original>>,
    /// Host and port of the upstream that was asked, where the request's target
    /// named them.
    pub upstream: Option<Authority>,
    /// What upstreams get in place of the client's body, if a filter said so;
    /// empty: none. Its length and framing are the gateway's to announce.
    pub replacement: Option<Bytes>,
    /// What the request's body goes through on its way to the upstream, if a filter
    /// said so. Its framing is the gateway's to announce.
    pub decoder: Option<Box<dyn BodyDecoder>>,
    /// Whether the upstream gets the path whole, also where the route cuts off what
    /// it has matched.
    pub whole_path: bool,
    /// Whether a filter answers with what an upstream has said before: other
    /// filters take it for an upstream's answer.
    pub stored: bool,
    /// Whether only the end of the connection ends the upstream's answer: nobody can
    /// tell whether it is whole.
    pub unframed: bool,
    /// Headers for the response, set by filters (for instance rate limits).
    pub response_headers: Vec<(HeaderName, HeaderValue)>,
    /// Request headers that the gateway writes for every upstream (`Host`,
    /// `X-Forwarded-*`) and that a filter has given in their place; without a
    /// value the upstream gets none. Filters write them when the gateway has.
    pub in_place: Vec<(HeaderName, Option<HeaderValue>)>,
    /// Request headers that a filter has vouched for while it decided; it
    /// writes them when the upstream's request is made, over any others.
    pub vouched: Vec<(HeaderName, HeaderValue)>,
    /// Values that filters have given names to, for expressions behind them:
    /// `attributes`.
    pub attributes: Vec<(Box<str>, Value<'static>)>,
    /// What the answer must not outlast, if a filter said so.
    pub lasting: Option<Arc<dyn SessionLiveness>>,
    /// The events that the client awaits, if a filter said so: the upstream may be
    /// silent for longer than its read timeout says.
    pub awaits_events: Option<AwaitedEvents>,
    /// The call of the Model Context Protocol that the request makes, for the log.
    pub mcp_call: Option<Arc<McpCall>>,
    /// Distinct code of a refusal, for log and metrics (`token_expired`, …).
    pub refusal: Option<Cow<'static, str>>,
}

/// Why a client awaits events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEvents {
    /// They lead to the answer of one call.
    OfCall,
    /// They are all that there is, for as long as both sides like.
    OfSubscription,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            client: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            sent_names: Box::default(),
            local: None,
            transaction: None,
            correlation_id: None,
            secure: false,
            trusted: false,
            handshake: None,
            consumer: None,
            credential: None,
            token_signature: None,
            is_signed: false,
            authenticated_groups: None,
            token: None,
            token_in_query: false,
            route: None,
            service: None,
            route_context: None,
            notes: SmallVec::new(),
            body: None,
            body_limit: None,
            original: None,
            upstream: None,
            replacement: None,
            decoder: None,
            whole_path: false,
            stored: false,
            unframed: false,
            response_headers: Vec::new(),
            in_place: Vec::new(),
            vouched: Vec::new(),
            attributes: Vec::new(),
            lasting: None,
            awaits_events: None,
            mcp_call: None,
            refusal: None,
        }
    }
}

/// The records that a request was routed by.
pub trait RouteRecords: Send + Sync {
    /// The route.
    fn route(&self) -> &Route;

    /// Its service, if it has one.
    fn service(&self) -> Option<&Service>;
}

impl std::fmt::Debug for dyn RouteRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RouteRecords")
            .field(&self.route().id)
            .finish()
    }
}

/// What a route knows of a request that it has matched.
#[derive(Debug, Clone, Default)]
pub struct RouteContext {
    /// Its records; nothing in tests of filters by themselves.
    pub records: Option<Arc<dyn RouteRecords>>,
    /// What the groups of the route's path have matched, by number and by name.
    pub captures: Vec<(Box<str>, Box<str>)>,
    /// Headers that filters of the route vouch for: what a client has sent under
    /// such a name is not to be believed.
    pub owned_headers: Box<[HeaderName]>,
}

/// What a request asked for before filters changed it.
#[derive(Debug, Clone)]
pub struct Original {
    /// Its method.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
}

impl Exchange {
    /// Remembers what `request` asks for. Filters that are about to change its
    /// method or target call this before; the first call counts.
    pub fn keep_original(&mut self, request: &RequestHeader) {
        self.original.get_or_insert_with(|| {
            Box::new(Original {
                method: request.method.clone(),
                uri: request.uri.clone(),
            })
        });
    }

    /// The server name of the connection's TLS handshake: lower case, without
    /// a final dot. Nothing without TLS, or if the client named none.
    pub fn server_name(&self) -> Option<&str> {
        self.handshake.as_ref()?.server_name.as_deref()
    }

    /// What expressions may look at of `request`, as it is now, and of what is
    /// known about it.
    pub fn scope<'a>(&'a self, request: &'a Parts) -> Scope<'a> {
        Scope {
            sent: &self.sent_names,
            local: self.local,
            transaction: self.transaction.as_ref().and_then(|id| id.to_str().ok()),
            secure: self.secure,
            certificate: self.client_certificate(),
            token: self.token.as_deref(),
            original: self.original.as_deref().map(|original| &original.uri),
            attributes: &self.attributes,
            body: self.replacement.as_deref().or(self.body.as_deref()),
            ..Scope::new(request, self.client)
        }
    }

    /// What expressions may look at once the head of the answer is known.
    pub fn scope_with_response<'a>(
        &'a self,
        request: &'a Parts,
        response: &'a ResponseHeader,
    ) -> Scope<'a> {
        Scope {
            response: Some(Response {
                status: response.status,
                reason: response.get_reason_phrase(),
                headers: &response.headers,
            }),
            ..self.scope(request)
        }
    }

    /// The certificate that the client showed and that was verified.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.handshake.as_ref()?.client_certificate.as_ref()
    }
}
