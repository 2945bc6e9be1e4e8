//! Names become addresses: with the records' time to live, refreshed before
//! they expire, kept for a while when no server answers.
//!
//! A [`Name`] is a handle that a service or a target keeps; [`Name::answer`]
//! costs one atomic load while the answer is fresh. Handles to one host share
//! an entry, and the entry goes with its last handle: what is held is bounded
//! by what is configured.

mod config;
mod flight;
mod lookup;
mod system;
mod targets;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ahash::RandomState;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use config::{DnsConfig, RecordKind};
use lookup::Engine;
pub use targets::TargetNames;

use doorward_net::telemetry::upstreams::DnsMetrics;

/// How long a request waits for a new answer in place of one that has just
/// expired. After that the old one is used, if it may be.
const STALE_WAIT: Duration = Duration::from_secs(1);

/// One address of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Lower ones are used before higher ones (RFC 2782); 0 without SRV.
    pub priority: u16,
    /// The address.
    pub ip: IpAddr,
    /// The port that an SRV record names.
    pub port: Option<u16>,
    /// Its share among those of its priority, at least 1; 1 without SRV.
    pub weight: u16,
    /// The host that an SRV record names.
    pub name: Option<Arc<str>>,
}

impl Endpoint {
    /// Where to connect; `port` is for an answer without ports.
    pub fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(port))
    }
}

/// Why a host has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The servers say that there is none.
    #[error("name resolution failed for {host}: no such name, or no address")]
    NotFound {
        /// The host.
        host: Box<str>,
    },
    /// The servers don't say.
    #[error("name resolution failed for {host}: {reason}")]
    Failed {
        /// The host.
        host: Box<str>,
        /// What went wrong.
        reason: Box<str>,
    },
}

/// Resolves names; one for the process.
#[derive(Debug)]
pub struct Resolver {
    engine: Engine,
    limits: Limits,
    metrics: DnsMetrics,
    /// Where look-ups run, so that they outlive the worker that asked.
    runtime: Option<Handle>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    by_host: std::collections::HashMap<Box<str>, Weak<Name>, RandomState>,
    /// At this size, entries that nobody holds are swept out.
    sweep_at: usize,
}

/// The settings that concern time.
#[derive(Debug, Clone, Copy)]
struct Limits {
    valid: Option<Duration>,
    stale: Duration,
    not_found: Duration,
    error: Duration,
}

/// A host and what is known of its addresses.
#[derive(Debug)]
pub struct Name {
    host: Box<str>,
    state: ArcSwapOption<State>,
    /// Held by whoever goes from one state to the next.
    changing: Mutex<()>,
    in_flight: AtomicBool,
    landed: watch::Sender<()>,
    resolver: Weak<Resolver>,
}

#[derive(Debug, Clone)]
struct State {
    outcome: Result<Arc<[Endpoint]>, ResolveError>,
    /// From here on a new answer is fetched in the background; `None`: never.
    refresh_at: Option<Instant>,
    /// From here on a new answer is waited for.
    expires: Instant,
    /// When the records expired that are used for lack of newer ones.
    stale_since: Option<Instant>,
}

impl Resolver {
    /// A resolver as `config` says. Look-ups run on the runtime that this is
    /// called in, or where they are asked for.
    pub fn new(config: &DnsConfig, metrics: DnsMetrics) -> Arc<Self> {
        let seconds = |n: u32| Duration::from_secs(n.into());
        Arc::new(Self {
            engine: Engine::new(config),
            limits: Limits {
                valid: config.valid_ttl.map(|n| seconds(n.max(1))),
                stale: seconds(config.stale_ttl),
                not_found: seconds(config.not_found_ttl.max(1)),
                error: seconds(config.error_ttl.max(1)),
            },
            metrics,
            runtime: Handle::try_current().ok(),
            names: Mutex::default(),
        })
    }

    /// The handle to `host`, an address (in brackets or not) or a name.
    pub fn name(self: &Arc<Self>, host: &str) -> Arc<Name> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = host.to_ascii_lowercase();
        let mut names = self.names.lock();
        if let Some(name) = names.by_host.get(&*host).and_then(Weak::upgrade) {
            return name;
        }
        if names.by_host.len() >= names.sweep_at {
            names.by_host.retain(|_, name| name.strong_count() > 0);
            names.sweep_at = names.by_host.len() * 2 + 64;
        }
        let name = Arc::new(match host.parse() {
            Ok(ip) => Name::fixed(&host, ip),
            Err(_) => Name {
                host: host.as_str().into(),
                state: ArcSwapOption::empty(),
                changing: Mutex::default(),
                in_flight: AtomicBool::new(false),
                landed: watch::Sender::new(()),
                resolver: Arc::downgrade(self),
            },
        });
        names.by_host.insert(host.into(), Arc::downgrade(&name));
        name
    }
}

impl Name {
    fn fixed(host: &str, ip: IpAddr) -> Self {
        let endpoint = Endpoint {
            priority: 0,
            ip,
            port: None,
            weight: 1,
            name: None,
        };
        Self {
            host: host.into(),
            state: ArcSwapOption::from_pointee(State {
                outcome: Ok(Arc::from([endpoint])),
                refresh_at: None,
                expires: Instant::now(),
                stale_since: None,
            }),
            changing: Mutex::default(),
            in_flight: AtomicBool::new(false),
            landed: watch::Sender::new(()),
            resolver: Weak::new(),
        }
    }

    /// The host as it was configured, in lower case.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What is known now, without waiting and without asking: `None` before
    /// the first answer. The same slice again means that nothing changed.
    pub fn known(&self) -> Option<Result<Arc<[Endpoint]>, ResolveError>> {
        self.state
            .load()
            .as_ref()
            .map(|state| state.outcome.clone())
    }

    /// The addresses, in order of priority, never empty. Waits for the first
    /// answer at most for `limit`, for one in place of an expired one a second.
    ///
    /// # Errors
    /// [`ResolveError`]; it is remembered for a while.
    pub async fn answer(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<Arc<[Endpoint]>, ResolveError> {
        {
            let state = self.state.load();
            if let Some(state) = &*state {
                let Some(refresh_at) = state.refresh_at else {
                    return state.outcome.clone();
                };
                let now = Instant::now();
                if now < refresh_at {
                    return state.outcome.clone();
                }
                if now < state.expires || state.stale_since.is_some() {
                    self.take_off();
                    return state.outcome.clone();
                }
            }
        }
        self.wait(limit).await
    }
}
