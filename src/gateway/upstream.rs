//! The peers of a service: addresses resolved and refreshed, timeouts set.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use pingora::upstreams::peer::HttpPeer;
use tokio::sync::Mutex;

use super::balance::endpoint::Endpoint;
use crate::model::service::{Protocol, Service};

/// How long an answer of the resolver is used before it is asked again.
const REFRESH: Duration = Duration::from_secs(30);
/// How long a failure to resolve a host is not tried again.
const FAILURE_KEPT: Duration = Duration::from_secs(1);
/// Upstream connections are closed after this much idleness: below what
/// common servers allow, so that we are the side that closes.
const IDLE: Duration = Duration::from_secs(50);

/// The host of a service could not be resolved.
#[derive(Debug, thiserror::Error)]
#[error("name resolution failed for {host}")]
pub struct ResolveError {
    host: String,
}

/// The addresses of one service and how they are spoken to.
#[derive(Debug)]
pub struct Peers {
    host: Box<str>,
    port: u16,
    template: HttpPeer,
    fixed: Option<SocketAddr>,
    resolved: ArcSwapOption<Resolved>,
    /// Held by the one caller that waits for a first answer; when that failed.
    resolving: Mutex<Option<Instant>>,
    refreshing: AtomicBool,
    next: AtomicUsize,
    this: Weak<Peers>,
}

#[derive(Debug)]
struct Resolved {
    addresses: Box<[SocketAddr]>,
    at: Instant,
}

impl Peers {
    /// The peers of `service`, which is not an internal one.
    pub fn new(service: &Service) -> Arc<Self> {
        let host = service.host.trim_start_matches('[').trim_end_matches(']');
        let fixed = host
            .parse()
            .ok()
            .map(|ip| SocketAddr::new(ip, service.port));
        Arc::new_cyclic(|this| Self {
            host: host.into(),
            port: service.port,
            template: template(service, host),
            fixed,
            resolved: ArcSwapOption::empty(),
            resolving: Mutex::new(None),
            refreshing: AtomicBool::new(false),
            next: AtomicUsize::new(0),
            this: this.clone(),
        })
    }

    /// The peer for the next try.
    ///
    /// # Errors
    /// [`ResolveError`] if the host has no address.
    pub async fn pick(&self) -> Result<Box<HttpPeer>, ResolveError> {
        let address = match self.fixed {
            Some(address) => address,
            None => self.pick_resolved().await?,
        };
        let mut peer = Box::new(self.template.clone());
        peer._address = address.into();
        Ok(peer)
    }

    /// The peer for a target of an upstream.
    ///
    /// # Errors
    /// [`ResolveError`] if the host has no address.
    pub async fn at(&self, endpoint: &Endpoint) -> Result<Box<HttpPeer>, ResolveError> {
        let address = match endpoint.address() {
            Some(address) => address,
            None => {
                self.resolve(endpoint.host(), endpoint.port())
                    .await?
                    .addresses[0]
            }
        };
        let mut peer = Box::new(self.template.clone());
        peer._address = address.into();
        peer.sni = endpoint.server_name().to_owned();
        Ok(peer)
    }

    async fn pick_resolved(&self) -> Result<SocketAddr, ResolveError> {
        let resolved = match self.resolved.load_full() {
            Some(resolved) => {
                if resolved.at.elapsed() > REFRESH {
                    self.refresh_in_background();
                }
                resolved
            }
            None => self.resolve_first().await?,
        };
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(resolved.addresses[turn % resolved.addresses.len()])
    }

    async fn resolve_first(&self) -> Result<Arc<Resolved>, ResolveError> {
        let mut failed = self.resolving.lock().await;
        if let Some(resolved) = self.resolved.load_full() {
            return Ok(resolved);
        }
        // Those who waited for a look-up share its failure as well.
        if failed.is_some_and(|at| at.elapsed() < FAILURE_KEPT) {
            return Err(self.error());
        }
        match self.resolve(&self.host, self.port).await {
            Ok(resolved) => {
                self.resolved.store(Some(resolved.clone()));
                Ok(resolved)
            }
            Err(error) => {
                *failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    /// An expired answer is used while a new one is fetched: a slow or dead
    /// resolver never stops requests to addresses that work.
    fn refresh_in_background(&self) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        tokio::spawn(async move {
            match this.resolve(&this.host, this.port).await {
                Ok(resolved) => this.resolved.store(Some(resolved)),
                Err(error) => {
                    tracing::warn!(host = %this.host, %error, "keeping the last addresses");
                    let kept = this.resolved.load_full().map(|old| {
                        Arc::new(Resolved {
                            addresses: old.addresses.clone(),
                            at: Instant::now(),
                        })
                    });
                    this.resolved.store(kept);
                }
            }
            this.refreshing.store(false, Ordering::Release);
        });
    }

    fn error(&self) -> ResolveError {
        ResolveError {
            host: self.host.to_string(),
        }
    }

    async fn resolve(&self, host: &str, port: u16) -> Result<Arc<Resolved>, ResolveError> {
        let error = || self.error();
        let limit = self.template.options.connection_timeout;
        let lookup = tokio::net::lookup_host((host, port));
        let found = match limit {
            Some(limit) => tokio::time::timeout(limit, lookup)
                .await
                .map_err(|_| error())?,
            None => lookup.await,
        };
        let addresses = prefer_v4(found.map_err(|_| error())?.collect());
        if addresses.is_empty() {
            return Err(error());
        }
        Ok(Arc::new(Resolved {
            addresses: addresses.into(),
            at: Instant::now(),
        }))
    }
}

/// IPv4 addresses if there are any: a host with both is commonly reachable
/// over the first only, and a dead address costs a try.
fn prefer_v4(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses.dedup();
    addresses
}

fn template(service: &Service, host: &str) -> HttpPeer {
    let tls = matches!(service.protocol, Protocol::Https | Protocol::Grpcs);
    let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), service.port);
    // The server name is always set: an empty one switches verification off.
    let mut peer = HttpPeer::new(nowhere, tls, host.to_owned());
    let millis = |ms| Some(Duration::from_millis(ms));
    let options = &mut peer.options;
    options.connection_timeout = millis(service.connect_timeout);
    options.total_connection_timeout = millis(service.connect_timeout);
    options.read_timeout = millis(service.read_timeout);
    options.write_timeout = millis(service.write_timeout);
    options.idle_timeout = Some(IDLE);
    let verify = service.tls_verify.unwrap_or(true);
    options.verify_cert = verify;
    options.verify_hostname = verify;
    peer
}
