//! What is known of one request on its way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, Version};
use parking_lot::Mutex;
use pingora::http::RequestHeader;

use super::admit;
use super::answer::Additions;
use super::attempt::Attempts;
use super::chain::Link;
use super::edge::error_pages::ErrorPages;
use super::forward::ForwardedRequest;
use super::forward_auth::dialect::Dialect;
use super::handler::HandlerContext;
use super::head;
use super::log_phase::trail::TrailState;
use super::own_headers::OwnHeaders;
use super::responses::body_filters::BodyFilters;
use super::settings::Settings;
use super::snapshot::{LiveRoute, LiveService, Snapshot};
use super::stopping::Stopping;
use super::tries::Tries;
use doorward_net::http::session::Session;
use doorward_net::http::upload::Upload;
use doorward_net::telemetry::connections::Connection;
use doorward_net::telemetry::metrics::InFlight;
use doorward_plugin_api::filter::Exchange;

/// What is known of one request while it passes.
pub struct Ctx {
    pub(super) started: Instant,
    pub(super) route: Option<Arc<LiveRoute>>,
    /// The way through route files, if no entity route took the request.
    pub(super) journey: Option<Box<HandlerContext>>,
    pub(super) matched: usize,
    /// The filters, where they are not the route's.
    pub(super) chain: Option<Box<[Link]>>,
    /// The normalised path, where it is not the one that was sent.
    pub(super) path: Option<Box<str>>,
    pub(super) exchange: Exchange,
    pub(super) request_id: Option<HeaderValue>,
    /// `Strict-Transport-Security` of the answer, if it has one.
    pub(super) hsts: Option<HeaderValue>,
    /// Pages for answers that the gateway makes itself.
    pub(super) pages: Option<&'static ErrorPages>,
    /// Which of its own headers the gateway shows.
    pub(super) shown: OwnHeaders,
    /// Whether answers may be compressed.
    pub(super) compresses: bool,
    /// Whether the whole body was read beforehand.
    pub(super) gathered: bool,
    /// Whether this try's upstream has got what replaces the client's body.
    pub(super) substituted: bool,
    /// Bytes of the client's body in this try, where a filter limits them.
    pub(super) body_received: u64,
    pub(super) tries: Tries,
    pub(super) attempts: Attempts,
    /// The method of the last try: filters and handlers may ask for another one than
    /// the client did.
    pub(super) sent_method: Option<Method>,
    pub(super) upstream_started: Option<Instant>,
    pub(super) upstream_time: Option<Duration>,
    /// So many interim answers have come from upstreams.
    pub(super) interim: u8,
    /// Whether the client's connection was to stay open when the request began.
    pub(super) keep: bool,
    /// Whether the worker has been told to stop; set when the request begins.
    pub(super) stopping: Option<Stopping>,
    /// The version of HTTP that the client speaks.
    pub(super) version: Version,
    /// Whether the gateway gave an answer in the place of one that failed.
    pub(super) answered: bool,
    /// The client's connection; set when the request begins.
    pub(super) connection: Option<Arc<Connection>>,
    /// Counts this request until it is dropped.
    pub(super) in_flight: Option<InFlight>,
    /// The connection of a try with a long body.
    pub(super) upload: Option<Arc<Upload>>,
    /// What filters that observe will be told, where there are any.
    pub(super) trail: TrailState,
    /// What the body of the answer goes through.
    pub(super) body_filters: BodyFilters,
    /// How a proxy asks whether a request may pass, if one does.
    pub(super) dialect: Option<Dialect>,
    /// Whether another answer was written in the place of the upstream's.
    pub(super) diverted: bool,
    /// The head as the filters left it, where the request was decided before the
    /// engine has read it.
    pub(super) decided: Option<Box<RequestHeader>>,
}

/// A request that has found its route and has passed its filters.
pub(super) struct DecidedRequest(pub(super) Box<Ctx>);

/// A decided request in the head of its stream, until the engine takes it there.
#[derive(Clone)]
struct DecidedStream(Arc<Mutex<Option<Box<Ctx>>>>);

impl DecidedRequest {
    /// Puts it into the head of its stream of HTTP/2: the engine keeps nothing else for
    /// one.
    pub(super) fn put(self, head: &mut RequestHeader) {
        let decided = DecidedStream(Arc::new(Mutex::new(Some(self.0))));
        let send_end_stream = head.send_end_stream();
        let mut parts = head::take_request(head);
        parts.extensions.insert(decided);
        head::put_request(head, parts, send_end_stream);
    }

    /// Takes it out of the head of its stream.
    pub(super) fn take(head: &RequestHeader) -> Option<Self> {
        let DecidedStream(decided) = head.extensions.get()?;
        decided.lock().take().map(Self)
    }
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Ctx {
    /// Whether the client speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.version == Version::HTTP_2
    }

    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            route: None,
            journey: None,
            matched: 0,
            chain: None,
            path: None,
            exchange: Exchange::default(),
            request_id: None,
            hsts: None,
            pages: None,
            shown: OwnHeaders::default(),
            compresses: false,
            gathered: false,
            substituted: false,
            body_received: 0,
            tries: Tries::default(),
            attempts: Attempts::default(),
            sent_method: None,
            upstream_started: None,
            upstream_time: None,
            interim: 0,
            keep: false,
            stopping: None,
            version: Version::HTTP_11,
            answered: false,
            connection: None,
            in_flight: None,
            upload: None,
            trail: TrailState::Off,
            body_filters: BodyFilters::default(),
            dialect: None,
            diverted: false,
            decided: None,
        }
    }

    pub(super) fn path<'a>(&'a self, request: &'a RequestHeader) -> &'a str {
        match &self.path {
            Some(path) => path,
            None => match &self.exchange.original {
                Some(original) => original.uri.path(),
                None => request.uri.path(),
            },
        }
    }

    /// The path of the client's request as it was sent, where a filter may have
    /// put another one in its place.
    fn client_path(&self) -> Option<&str> {
        let original = self.exchange.original.as_ref()?;
        Some(original.uri.path())
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        whole_millis(self.started.elapsed())
    }

    /// Tells filters and expressions where the request came in, and what it
    /// is called.
    pub(super) fn introduce(&mut self, session: &Session) {
        self.exchange.local = session.server_addr().and_then(|a| a.as_inet().copied());
        self.exchange.transaction.clone_from(&self.request_id);
    }

    /// The filters of the request, in the order in which they run.
    pub(super) fn filters(&self) -> &[Link] {
        let of_route = self.route.as_ref().map(|route| &*route.filters);
        self.chain.as_deref().or(of_route).unwrap_or_default()
    }

    /// Has the filters of everything see the answer to a request that no route takes.
    pub(super) fn answer_without_route(&mut self, snapshot: &Snapshot) {
        if !snapshot.everywhere.is_empty() {
            self.chain = Some(snapshot.everywhere.clone());
        }
    }

    /// Whether anybody looks at the head of the answer when it is finished, or adds to it.
    pub(super) fn reads_heads(&self) -> bool {
        self.compresses
            || self.hsts.is_some()
            || !self.trail.is_off()
            || self.route.as_ref().is_none_or(|route| route.reads_heads)
    }

    /// Whether anybody but the gateway may change its heads.
    pub(super) fn has_filters(&self) -> bool {
        self.journey.is_some() || !self.filters().is_empty()
    }

    pub(super) fn service(&self) -> Option<&Arc<LiveService>> {
        match (&self.route, &self.journey) {
            (Some(route), _) => route.service.as_ref(),
            (None, Some(journey)) => journey.destination.as_ref(),
            (None, None) => None,
        }
    }

    /// What the gateway adds to answers that it makes itself.
    pub(super) fn additions(&self) -> Additions<'_> {
        Additions {
            headers: &self.exchange.response_headers,
            request_id: self.request_id.as_ref(),
            latency_ms: self.elapsed_ms(),
            upstream_ms: self.upstream_started.map(|s| whole_millis(s.elapsed())),
            hsts: self.hsts.as_ref(),
            pages: self.pages,
            shown: self.shown,
        }
    }

    pub(super) fn origin<'a>(
        &'a self,
        connection: &'a Connection,
        path: &'a str,
        service: &'a LiveService,
        settings: &'a Settings,
    ) -> ForwardedRequest<'a> {
        let (peer, client) = (connection.peer, self.exchange.client);
        let secure = self.exchange.secure;
        let [plain, tls] = &settings.port_texts;
        ForwardedRequest {
            path,
            client_path: self.client_path(),
            matched: self.matched,
            peer: &connection.peer_text,
            direct: peer == client,
            client: client.ip(),
            trusted: admit::is_trusted(peer.ip(), &settings.trusted),
            secure,
            version: self.version,
            port: if secure { tls } else { plain },
            request_id: self.request_id.as_ref(),
            asked: self
                .journey
                .as_ref()
                .and_then(|journey| journey.host.as_ref()),
            host: self
                .attempts
                .authority(service.tls)
                .unwrap_or(&service.host),
        }
    }
}
