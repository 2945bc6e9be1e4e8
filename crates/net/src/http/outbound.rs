//! The outbound HTTP client: discovery, key sets, token endpoints.
//!
//! A request to a provider goes over the network, or, when the provider lives
//! in this process, straight into its `Router`: same request, same answer, no
//! socket. Redirects are never followed, answers above [`BODY_MAX`] are
//! refused, and no proxy is taken from the environment.

mod allow;
mod client_certificates;
mod grpc;
mod local;
mod proxy;
mod ssrf_guard;
#[cfg(test)]
mod tests;
mod token_status;
mod trust;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use serde::de::DeserializeOwned;
use url::Url;
use uuid::Uuid;

use doorward_core::calls::{Callee, Note};
use local::Local;

pub use allow::{Allow, AllowError};
pub use client_certificates::{ClientIdentities, ClientIdentity};
pub use grpc::GrpcError;
pub use proxy::{Proxies, ProxyId};
pub use ssrf_guard::{Authorities, AuthorityError, Bounds, ChosenBy, GuardedClient};
pub use token_status::{StatusUnavailable, TokenStatus};
pub use trust::TrustId;

/// The longest answer that is read, in bytes.
pub const BODY_MAX: usize = 1024 * 1024;
/// For how long a connection may wait for its next request. Many servers end
/// theirs after 5 s, and what is sent at that moment is lost: a code or a refresh
/// token is not sent twice.
const IDLE: Duration = Duration::from_secs(3);

/// How to talk to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether its certificate is checked.
    pub verify: bool,
    /// The protocol version.
    pub version: Version,
    /// Whether connections are kept for later requests.
    pub keepalive: bool,
    /// From the first connection attempt to the last byte of the answer.
    pub timeout: Duration,
    /// The address of the client that is spoken for, if there is one. A provider
    /// in this process takes it for the sender's, others are not told.
    pub on_behalf_of: Option<IpAddr>,
    /// The proxies on the way, of [`Outbound::via`]; `None`: there are none.
    pub via: Option<ProxyId>,
    /// The certificate that is shown to a server that asks for one, of
    /// [`Outbound::publish_identities`].
    pub shows: Option<Uuid>,
    /// The authorities that vouch for the server, of [`Outbound::trust`];
    /// `None`: those of the system, and the operator's.
    pub trusts: Option<TrustId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: true,
            version: Version::Http1,
            keepalive: true,
            timeout: Duration::from_secs(10),
            on_behalf_of: None,
            via: None,
            shows: None,
            trusts: None,
        }
    }
}

/// HTTP versions of outbound requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.1, also where a configuration asks for 1.0.
    #[default]
    Http1,
    /// HTTP/2 where the provider offers it by ALPN.
    Http2,
    /// HTTP/2 from the first byte, also without TLS (RFC 9113 §3.3).
    Http2Only,
}

/// A provider's whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, at most [`BODY_MAX`] bytes.
    pub body: Bytes,
    /// The user whom the tokens in it are for, where the provider in this process
    /// has said so.
    pub user: Option<Uuid>,
}

/// Why a provider gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The URL is none that can be requested.
    #[error("not an http or https URL")]
    Url,
    /// The client can't be set up, for instance for lack of root certificates.
    #[error("can't set up the client: {0}")]
    Client(String),
    /// There is no certificate of this name to be shown.
    #[error("there is no certificate {0}")]
    NoCertificate(Uuid),
    /// There is no authority of this name that could vouch for the server.
    #[error("there is no CA certificate {0}")]
    NoAuthority(Uuid),
    /// No connection, or it broke.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// The answer was not complete in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The answer is longer than is read.
    #[error("answer is too long")]
    TooLong,
    /// Another status than the wanted one.
    #[error("answered with status {0}")]
    Status(StatusCode),
    /// A stranger chose an address that is not public, or http.
    #[error("not an address that others may choose (identity.outbound.allow)")]
    Forbidden,
    /// The body is not the JSON that was asked for.
    #[error("answered with something else than the expected JSON: {0}")]
    Json(serde_json::Error),
}

/// Sends requests to providers: over the network, or to the one in this process.
#[derive(Debug, Default)]
pub struct Outbound {
    locals: ArcSwap<Vec<Local>>,
    clients: [OnceLock<Result<reqwest::Client, String>>; Transport::COUNT],
    proxied: proxy::ProxyPool,
    certificates: client_certificates::ClientCertificates,
    trust: trust::Trust,
}

impl Outbound {
    /// A client that knows no local provider yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, where these authorities vouch for servers besides those of the
    /// system.
    pub fn trusting(authorities: Authorities) -> Self {
        Self {
            trust: trust::Trust::besides(authorities),
            ..Self::default()
        }
    }

    /// From now on, requests to URLs at or below `base_url` go to `router`,
    /// which sees their path without the path of `base_url`. Replaces an
    /// earlier registration of the same URL.
    pub fn register_local(&self, base_url: &Url, router: Router) {
        self.register(Local::new(base_url, router));
    }

    /// As [`Self::register_local`], for a provider that tells at once when a
    /// token of it has ended.
    pub fn register_provider(
        &self,
        base_url: &Url,
        router: Router,
        token_status: Arc<dyn TokenStatus>,
    ) {
        self.register(Local::new(base_url, router).with_token_status(token_status));
    }

    fn register(&self, local: Local) {
        self.locals.rcu(|locals| {
            let mut locals: Vec<Local> = locals
                .iter()
                .filter(|known| !known.same_base(&local))
                .cloned()
                .collect();
            locals.push(local.clone());
            // The most specific base first.
            locals.sort_by_key(|known| std::cmp::Reverse(known.depth()));
            locals
        });
    }

    /// Whether requests to `url` stay in this process.
    pub fn is_local(&self, url: &Url) -> bool {
        self.locals.load().iter().any(|local| local.covers(url))
    }

    /// Tells when tokens end that are issued at `url`, if that is in this
    /// process.
    pub fn token_status(&self, url: &Url) -> Option<Arc<dyn TokenStatus>> {
        let locals = self.locals.load();
        let local = locals.iter().find(|local| local.covers(url))?;
        local.token_status()
    }

    /// Fetches a JSON document.
    ///
    /// # Errors
    /// [`OutboundError`]; every status but 200 is [`OutboundError::Status`].
    pub async fn get_json<T: DeserializeOwned>(
        &self,
        url: &Url,
        options: Options,
    ) -> Result<T, OutboundError> {
        let answer = self.get(url, HeaderMap::new(), options).await?;
        if answer.status != StatusCode::OK {
            return Err(OutboundError::Status(answer.status));
        }
        serde_json::from_slice(&answer.body).map_err(OutboundError::Json)
    }

    /// Fetches a document, with extra request `headers`.
    ///
    /// # Errors
    /// [`OutboundError`], but never for a status.
    pub async fn get(
        &self,
        url: &Url,
        headers: HeaderMap,
        options: Options,
    ) -> Result<Answer, OutboundError> {
        self.request(Method::GET, url, headers, Bytes::new(), options)
            .await
    }

    /// Posts a form, with extra request `headers` (client authentication).
    ///
    /// # Errors
    /// [`OutboundError`], but never for a status: the endpoints of OAuth put
    /// their errors into the body.
    pub async fn post_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        mut headers: HeaderMap,
        options: Options,
    ) -> Result<Answer, OutboundError> {
        let body = form_body(form, &mut headers);
        self.request(Method::POST, url, headers, body, options)
            .await
    }

    /// Sends a request with this body.
    ///
    /// # Errors
    /// [`OutboundError`], but never for a status.
    pub async fn request(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
        options: Options,
    ) -> Result<Answer, OutboundError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(OutboundError::Url);
        }
        headers
            .entry(header::ACCEPT)
            .or_insert(HeaderValue::from_static("application/json"));
        let local = self
            .locals
            .load()
            .iter()
            .find(|local| local.covers(url))
            .cloned();
        let mut note = Note::begin(|| Callee::Server {
            method: method.clone(),
            url: url.origin().ascii_serialization() + url.path(),
            status: None,
        });
        let exchange = async {
            match local {
                Some(local) => {
                    let client = options.on_behalf_of;
                    local.send(method, url, headers, body, client).await
                }
                None => {
                    let response = self.respond(method, url, headers, body, options);
                    read_answer(response.await?, BODY_MAX).await
                }
            }
        };
        let answer = tokio::time::timeout(options.timeout, exchange)
            .await
            .unwrap_or(Err(OutboundError::Timeout(options.timeout)));
        note.settle(|callee| {
            if let (Callee::Server { status, .. }, Ok(answer)) = (callee, &answer) {
                *status = Some(answer.status.as_u16());
            }
        });
        answer
    }

    /// Sends a request over the network. The body of the answer is still to be read.
    async fn respond(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        options: Options,
    ) -> Result<reqwest::Response, OutboundError> {
        let transport = Transport::new(url, options);
        let client = match (options.shows, options.trusts, options.via) {
            (None, None, None) => self.client(transport)?.clone(),
            (None, None, Some(via)) => {
                (self.proxied).client((via, transport), || self.builder(transport))?
            }
            _ => self.with_client_tls(options, transport)?,
        };
        let request = client.request(method, url.clone()).headers(headers);
        request.body(body).send().await.map_err(unreachable)
    }

    fn client(&self, transport: Transport) -> Result<&reqwest::Client, OutboundError> {
        self.clients[transport.index()]
            .get_or_init(|| {
                let built = self.builder(transport).build();
                built.map_err(|error| chain(&error))
            })
            .as_ref()
            .map_err(|reason| OutboundError::Client(reason.clone()))
    }

    /// A client that trusts the system's authorities and the operator's.
    fn builder(&self, transport: Transport) -> reqwest::ClientBuilder {
        let builder = transport.builder();
        match transport.security {
            Security::Checked => self.trust.add_to(builder),
            Security::Plain | Security::Unchecked => builder,
        }
    }
}

/// The options that need a client of their own.
#[derive(Clone, Copy)]
struct Transport {
    security: Security,
    version: Version,
    keepalive: bool,
}

/// Plain connections have a client apart, so that a machine without root
/// certificates can still reach `http` providers.
#[derive(Clone, Copy)]
enum Security {
    Plain,
    Checked,
    Unchecked,
}

impl Transport {
    const COUNT: usize = 18;

    fn new(url: &Url, options: Options) -> Self {
        let security = match (url.scheme(), options.verify) {
            ("http", _) => Security::Plain,
            (_, true) => Security::Checked,
            (_, false) => Security::Unchecked,
        };
        Self {
            security,
            version: options.version,
            keepalive: options.keepalive,
        }
    }

    fn index(self) -> usize {
        (self.security as usize * 3 + self.version as usize) * 2 + usize::from(self.keepalive)
    }

    fn builder(self) -> reqwest::ClientBuilder {
        // `main` has done this already; a second time changes nothing.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("doorward/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .pool_max_idle_per_host(if self.keepalive { 16 } else { 0 })
            .pool_idle_timeout(IDLE);
        builder = match self.security {
            Security::Plain => builder.tls_certs_only([]),
            Security::Checked => builder,
            Security::Unchecked => builder.tls_danger_accept_invalid_certs(true),
        };
        match self.version {
            Version::Http1 => builder.http1_only(),
            Version::Http2 => builder,
            Version::Http2Only => builder.http2_prior_knowledge(),
        }
    }
}

/// `form` as a body; says so in `headers`.
fn form_body(form: &[(&str, &str)], headers: &mut HeaderMap) -> Bytes {
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(form).finish().into()
}

/// The whole answer, of which at most `most` bytes of body are read.
async fn read_answer(
    mut response: reqwest::Response,
    most: usize,
) -> Result<Answer, OutboundError> {
    let too_long = |length: u64| usize::try_from(length).map_or(true, |length| length > most);
    if response.content_length().is_some_and(too_long) {
        return Err(OutboundError::TooLong);
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > most {
            return Err(OutboundError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer {
        status: response.status(),
        headers: std::mem::take(response.headers_mut()),
        body: body.freeze(),
        user: None,
    })
}

fn unreachable(error: reqwest::Error) -> OutboundError {
    OutboundError::Unreachable(chain(&error.without_url()))
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The request as a local provider sees it.
fn local_request(
    method: Method,
    target: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Request<axum::body::Body>, OutboundError> {
    let mut request = Request::new(axum::body::Body::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().map_err(|_| OutboundError::Url)?;
    *request.headers_mut() = headers;
    Ok(request)
}
