//! Requests to addresses that somebody else chose.
//!
//! Who may register a client, or send a request, can make the provider fetch
//! keys and documents from an address. Inside the operator's network that
//! would be a way in, so what strangers name is reached over https and at
//! public addresses only, unless the operator allows more. The address that is
//! checked is the one that is connected to: a name that changes its mind
//! between check and connection gains nothing.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;
use url::Url;

use super::allow::Allow;
use super::{Answer, OutboundError, chain, form_body, read_answer, unreachable};

/// Requests under way at once to addresses that the operator chose, and as many
/// to those of strangers: theirs may never answer, and must not keep the others
/// waiting.
const AT_ONCE: usize = 64;

/// Who chose an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChosenBy {
    /// Whoever runs this: it may be any http or https address.
    Operator,
    /// Anybody: a client that registered itself, a request.
    Stranger,
}

impl ChosenBy {
    fn index(self) -> usize {
        match self {
            Self::Operator => 0,
            Self::Stranger => 1,
        }
    }
}

/// The bounds of one request.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// From its beginning, waiting for its turn included, to the last byte of
    /// the answer.
    pub timeout: Duration,
    /// The longest answer, in bytes.
    pub body: usize,
}

impl Default for Bounds {
    /// Five seconds, 64 KiB.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            body: 64 * 1024,
        }
    }
}

/// A file with certificates of authorities can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct AuthorityError {
    file: PathBuf,
    reason: String,
}

/// Certificates of authorities that are trusted besides those of the system.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<reqwest::Certificate>);

impl Authorities {
    /// Reads the PEM file of the operator's own authorities.
    ///
    /// # Errors
    /// The file can't be read or holds no certificate.
    pub fn read(file: &Path) -> Result<Self, AuthorityError> {
        let wrong = |reason: String| AuthorityError {
            file: file.to_owned(),
            reason,
        };
        let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let all = reqwest::Certificate::from_pem_bundle(&pem);
        let all = all.map_err(|error| wrong(chain(&error)))?;
        if all.is_empty() {
            return Err(wrong("holds no certificate".to_owned()));
        }
        Ok(Self(all))
    }

    /// Adds them to those of the system.
    pub(super) fn add_to(&self, builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
        if self.0.is_empty() {
            builder
        } else {
            builder.tls_certs_merge(self.0.iter().cloned())
        }
    }
}

/// Sends requests to addresses that somebody else chose. Redirects are never
/// followed, no proxy is taken from the environment, connections are not kept.
pub struct GuardedClient {
    policy: ArcSwap<Policy>,
    /// By [`ChosenBy::index`].
    turns: [Semaphore; 2],
}

/// What is allowed, and the clients that obey it.
struct Policy {
    allow: Arc<Allow>,
    authorities: Authorities,
    /// Made when first needed: for lack of root certificates those of https
    /// may fail.
    clients: [OnceLock<Result<reqwest::Client, String>>; 4],
}

impl fmt::Debug for GuardedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardedClient")
            .field(&self.policy.load().allow)
            .finish()
    }
}

impl GuardedClient {
    /// Strangers may name public addresses and what `allow` adds to them.
    pub fn new(allow: Allow, authorities: Authorities) -> Self {
        Self {
            policy: ArcSwap::from_pointee(Policy::new(allow, authorities)),
            turns: [Semaphore::new(AT_ONCE), Semaphore::new(AT_ONCE)],
        }
    }

    /// From now on other rules hold; requests under way end under theirs.
    pub fn replace(&self, allow: Allow, authorities: Authorities) {
        self.policy.store(Arc::new(Policy::new(allow, authorities)));
    }

    /// Whether a stranger may name `url`, as far as that can be told without
    /// asking for the addresses of its host.
    pub fn admits(&self, url: &Url) -> bool {
        self.policy.load().allow.admits(url)
    }

    /// Fetches a document, with extra request `headers`.
    ///
    /// # Errors
    /// [`OutboundError`], but never for a status. Its text is for the
    /// operator: to a stranger it would say what is in the network.
    pub async fn get(
        &self,
        url: &Url,
        headers: HeaderMap,
        by: ChosenBy,
        bounds: Bounds,
    ) -> Result<Answer, OutboundError> {
        let request = (Method::GET, headers, Bytes::new());
        self.send(url, request, by, bounds).await
    }

    /// Posts a form, with extra request `headers`.
    ///
    /// # Errors
    /// As [`GuardedClient::get`].
    pub async fn post_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        mut headers: HeaderMap,
        by: ChosenBy,
        bounds: Bounds,
    ) -> Result<Answer, OutboundError> {
        let body = form_body(form, &mut headers);
        self.send(url, (Method::POST, headers, body), by, bounds)
            .await
    }

    /// Posts JSON, with extra request `headers`.
    ///
    /// # Errors
    /// As [`GuardedClient::get`].
    pub async fn post_json(
        &self,
        url: &Url,
        body: Bytes,
        mut headers: HeaderMap,
        by: ChosenBy,
        bounds: Bounds,
    ) -> Result<Answer, OutboundError> {
        let kind = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, kind);
        self.send(url, (Method::POST, headers, body), by, bounds)
            .await
    }

    /// Fetches a document that is wanted as JSON text.
    ///
    /// # Errors
    /// As [`GuardedClient::get`]; every status but 200 is [`OutboundError::Status`].
    pub async fn document(
        &self,
        url: &Url,
        by: ChosenBy,
        bounds: Bounds,
    ) -> Result<Bytes, OutboundError> {
        let answer = self.get(url, HeaderMap::new(), by, bounds).await?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            status => Err(OutboundError::Status(status)),
        }
    }

    async fn send(
        &self,
        url: &Url,
        (method, mut headers, body): (Method, HeaderMap, Bytes),
        by: ChosenBy,
        bounds: Bounds,
    ) -> Result<Answer, OutboundError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(OutboundError::Url);
        }
        let policy = self.policy.load_full();
        if by == ChosenBy::Stranger && !policy.allow.admits(url) {
            return Err(OutboundError::Forbidden);
        }
        headers
            .entry(header::ACCEPT)
            .or_insert(HeaderValue::from_static("application/json"));
        let exchange = async {
            // Never closed.
            let _turn = self.turns[by.index()].acquire().await;
            let client = policy.client(by, url.scheme() == "http")?;
            let request = client.request(method, url.clone()).headers(headers);
            let response = request.body(body).send().await;
            read_answer(response.map_err(unreachable)?, bounds.body).await
        };
        tokio::time::timeout(bounds.timeout, exchange)
            .await
            .unwrap_or(Err(OutboundError::Timeout(bounds.timeout)))
    }
}

impl Policy {
    fn new(allow: Allow, authorities: Authorities) -> Self {
        Self {
            allow: Arc::new(allow),
            authorities,
            clients: Default::default(),
        }
    }

    fn client(&self, by: ChosenBy, plain: bool) -> Result<&reqwest::Client, OutboundError> {
        let index = by.index() * 2 + usize::from(plain);
        self.clients[index]
            .get_or_init(|| self.build(by, plain))
            .as_ref()
            .map_err(|reason| OutboundError::Client(reason.clone()))
    }

    fn build(&self, by: ChosenBy, plain: bool) -> Result<reqwest::Client, String> {
        // `main` has done this already; a second time changes nothing.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("doorward/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(0);
        builder = if plain {
            builder.tls_certs_only([])
        } else {
            builder.tls_certs_merge(self.authorities.0.iter().cloned())
        };
        if by == ChosenBy::Stranger {
            let allow = Arc::clone(&self.allow);
            builder = builder.dns_resolver(Arc::new(AllowedResolver { allow, plain }));
        }
        builder.build().map_err(|error| chain(&error))
    }
}

/// Finds the addresses of hosts and keeps back those that are not allowed.
/// The connection is made to what it returns.
struct AllowedResolver {
    allow: Arc<Allow>,
    plain: bool,
}

impl Resolve for AllowedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (allow, plain) = (Arc::clone(&self.allow), self.plain);
        let found: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let host = name.as_str();
            let addresses = tokio::net::lookup_host((host, 0)).await?;
            let by_name = allow.admits_host(host);
            let addresses: Vec<_> = addresses
                .filter(|address| by_name || allow.admits_address(address.ip(), plain))
                .collect();
            if addresses.is_empty() {
                return Err(Box::<dyn Error + Send + Sync>::from(
                    "its addresses are not allowed (identity.outbound.allow)",
                ));
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        });
        found
    }
}
