//! Asks for the records of a name and makes addresses of them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use hickory_resolver::TokioResolver;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{RData, RecordType};

use super::Endpoint;
use super::config::{DnsConfig, RecordKind};
use super::system::{self, System};

/// Most addresses of one name.
const ENDPOINTS_MAX: usize = 256;
/// Most hosts that SRV records of one name lead to.
const SRV_MAX: usize = 64;
/// How long addresses of the hosts file are used before it is looked at again.
const HOSTS_TTL: Duration = Duration::from_secs(5);
/// Longest time that any answer is used.
const TTL_MAX: Duration = Duration::from_secs(86_400);
/// How long the other kinds of records are waited for once one has arrived:
/// some servers leave questions that they don't like unanswered.
const GRACE: Duration = Duration::from_millis(500);
/// Longest time for everything about one name.
const LOOKUP_MAX: Duration = Duration::from_secs(15);

/// The addresses of a name.
#[derive(Debug)]
pub(super) struct ResolvedAddresses {
    /// In order of priority; not empty.
    pub(super) endpoints: Vec<Endpoint>,
    /// How long they may be used.
    pub(super) ttl: Duration,
}

/// Why there are none.
#[derive(Debug)]
pub(super) enum Failure {
    /// The servers say so; for how long.
    NotFound(Duration),
    /// The servers don't say.
    Failed(String),
}

/// The records of one kind.
struct Records<T> {
    list: Vec<T>,
    until: Instant,
}

/// What a name's records came to so far.
#[derive(Default)]
struct Gathered {
    addresses: Vec<IpAddr>,
    services: Vec<(u16, u16, u16, String)>,
    until: Option<Instant>,
    negative: Option<Duration>,
    failed: Option<String>,
    srv_failed: bool,
}

/// Looks names up, nothing else.
pub(super) struct Engine {
    config: DnsConfig,
    system: ArcSwap<System>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(config: &DnsConfig) -> Self {
        Self {
            config: config.clone(),
            system: ArcSwap::from_pointee(System::read(config)),
        }
    }

    /// The system's files as they are now.
    fn system(&self) -> Arc<System> {
        let system = self.system.load_full();
        if system.stamp == system::stamp(&self.config) {
            return system;
        }
        let system = Arc::new(System::read(&self.config));
        self.system.store(system.clone());
        system
    }

    /// The addresses of `host`. `had_ports`: its last answer was made of SRV
    /// records; without an answer about those, mere addresses won't do.
    pub(super) async fn lookup(
        &self,
        host: &str,
        had_ports: bool,
    ) -> Result<ResolvedAddresses, Failure> {
        let search = self.search(host, had_ports);
        tokio::time::timeout(LOOKUP_MAX, search)
            .await
            .unwrap_or_else(|_| Err(Failure::Failed("no answer in time".to_owned())))
    }

    async fn search(&self, host: &str, had_ports: bool) -> Result<ResolvedAddresses, Failure> {
        let system = self.system();
        if let Some(addresses) = system.hosts.get(host.trim_end_matches('.')) {
            let endpoints = plain(addresses);
            return Ok(found(endpoints, HOSTS_TTL));
        }
        let Some(client) = &system.client else {
            return Err(Failure::Failed("no usable name server".to_owned()));
        };
        let (mut failed, mut negative) = (None, None);
        for name in system.candidates(host) {
            let gathered = self.ask(client, &name).await;
            match self.judge(&system, client, gathered, had_ports).await {
                Ok(found) => return Ok(found),
                Err(Failure::NotFound(ttl)) => {
                    negative = Some(negative.map_or(ttl, |n: Duration| n.min(ttl)));
                }
                Err(Failure::Failed(reason)) => failed = failed.or(Some(reason)),
            }
        }
        Err(match failed {
            Some(reason) => Failure::Failed(reason),
            None => Failure::NotFound(negative.unwrap_or(TTL_MAX)),
        })
    }

    /// Asks for all kinds of records of one full name at once.
    async fn ask(&self, client: &TokioResolver, name: &str) -> Gathered {
        let mut pending: FuturesUnordered<_> = self
            .config
            .order
            .iter()
            .map(|&kind| async move { (kind, client.lookup(name, record_type(kind)).await) })
            .collect();
        let mut gathered = Gathered::default();
        let mut patience = None;
        loop {
            let next = match patience {
                None => pending.next().await,
                Some(until) => match tokio::time::timeout_at(until, pending.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        gathered.srv_failed |= gathered.services.is_empty();
                        return gathered;
                    }
                },
            };
            let Some((kind, result)) = next else {
                return gathered;
            };
            gathered.take(kind, result);
            let any = !gathered.addresses.is_empty() || !gathered.services.is_empty();
            if any && patience.is_none() {
                patience = Some(tokio::time::Instant::now() + GRACE);
            }
        }
    }

    async fn judge(
        &self,
        system: &System,
        client: &TokioResolver,
        gathered: Gathered,
        had_ports: bool,
    ) -> Result<ResolvedAddresses, Failure> {
        let srv_first = self.config.order.first() == Some(&RecordKind::Srv);
        let services = !gathered.services.is_empty();
        if services && (srv_first || gathered.addresses.is_empty()) {
            return follow(system, client, &self.config.order, gathered).await;
        }
        if had_ports && srv_first && gathered.srv_failed {
            let reason = "no answer about SRV records".to_owned();
            return Err(Failure::Failed(reason));
        }
        if gathered.addresses.is_empty() {
            return Err(match gathered.failed {
                Some(reason) => Failure::Failed(reason),
                None => Failure::NotFound(gathered.negative.unwrap_or(Duration::from_secs(1))),
            });
        }
        Ok(found(plain(&gathered.addresses), gathered.ttl()))
    }
}

impl Gathered {
    fn take(&mut self, kind: RecordKind, result: Result<Lookup, NetError>) {
        match result {
            Ok(lookup) => {
                let records = records(&lookup, |data| match data {
                    RData::A(a) => Some(IpAddr::V4(a.0)),
                    RData::AAAA(a) => Some(IpAddr::V6(a.0)),
                    _ => None,
                });
                self.addresses.extend(records.list);
                let services = records_of_services(&lookup);
                self.services.extend(services.list);
                let until = records.until;
                self.until = Some(self.until.map_or(until, |known| known.min(until)));
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
                let ttl = Duration::from_secs(none.negative_ttl.unwrap_or(1).into());
                self.negative = Some(self.negative.map_or(ttl, |n| n.min(ttl)));
            }
            Err(error) => {
                self.srv_failed |= kind == RecordKind::Srv;
                self.failed = Some(error.to_string());
            }
        }
    }

    fn ttl(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| {
            // Rounded: a record of one second is not one of nearly none.
            let left = until.saturating_duration_since(Instant::now());
            Duration::from_secs((left + Duration::from_millis(500)).as_secs())
        })
    }
}

/// The addresses of the hosts that SRV records name.
async fn follow(
    system: &System,
    client: &TokioResolver,
    order: &[RecordKind],
    gathered: Gathered,
) -> Result<ResolvedAddresses, Failure> {
    let mut ttl = gathered.ttl();
    let services = gathered.services.into_iter().take(SRV_MAX);
    let hosts = services.map(|(priority, weight, port, target)| async move {
        let addresses = addresses_of(system, client, order, &target).await;
        (priority, weight, port, target, addresses)
    });
    let mut endpoints = Vec::new();
    let mut reason = None;
    for (priority, weight, port, target, addresses) in join_all(hosts).await {
        match addresses {
            Ok((addresses, left)) => {
                ttl = ttl.min(left);
                let name: Arc<str> = target.trim_end_matches('.').into();
                endpoints.extend(addresses.into_iter().map(|ip| Endpoint {
                    priority,
                    ip,
                    port: Some(port),
                    // A weight of zero still means a small share.
                    weight: weight.max(1),
                    name: Some(name.clone()),
                }));
            }
            Err(error) => reason = Some(error),
        }
    }
    match reason {
        _ if !endpoints.is_empty() => Ok(found(endpoints, ttl)),
        Some(reason) => Err(Failure::Failed(reason)),
        None => Err(Failure::NotFound(ttl)),
    }
}

async fn addresses_of(
    system: &System,
    client: &TokioResolver,
    order: &[RecordKind],
    target: &str,
) -> Result<(Vec<IpAddr>, Duration), String> {
    if let Some(known) = system.hosts.get(target.trim_end_matches('.')) {
        return Ok((known.clone(), HOSTS_TTL));
    }
    let kinds = order.iter().filter(|kind| **kind != RecordKind::Srv);
    let lookups =
        kinds.map(|&kind| async move { (kind, client.lookup(target, record_type(kind)).await) });
    let mut gathered = Gathered::default();
    for (kind, result) in join_all(lookups).await {
        gathered.take(kind, result);
    }
    let ttl = gathered.ttl();
    match gathered.failed {
        Some(reason) if gathered.addresses.is_empty() => Err(reason),
        _ => Ok((gathered.addresses, ttl)),
    }
}

fn record_type(kind: RecordKind) -> RecordType {
    match kind {
        RecordKind::A => RecordType::A,
        RecordKind::Aaaa => RecordType::AAAA,
        RecordKind::Srv => RecordType::SRV,
    }
}

fn records<T>(lookup: &Lookup, pick: impl Fn(&RData) -> Option<T>) -> Records<T> {
    let list = lookup
        .answers()
        .iter()
        .filter_map(|record| pick(&record.data));
    Records {
        list: list.take(ENDPOINTS_MAX).collect(),
        until: lookup.valid_until(),
    }
}

/// Priority, weight, port and host; a host `.` means that there is no such
/// service.
fn records_of_services(lookup: &Lookup) -> Records<(u16, u16, u16, String)> {
    records(lookup, |data| match data {
        RData::SRV(srv) if !srv.target.is_root() => Some((
            srv.priority,
            srv.weight,
            srv.port,
            srv.target.to_utf8().to_ascii_lowercase(),
        )),
        _ => None,
    })
}

fn plain(addresses: &[IpAddr]) -> Vec<Endpoint> {
    let endpoint = |&ip| Endpoint {
        priority: 0,
        ip,
        port: None,
        weight: 1,
        name: None,
    };
    addresses.iter().map(endpoint).collect()
}

/// Sorted, so that a server's shuffling is no change; without addresses that
/// there is no route to, unless there are no others.
fn found(mut endpoints: Vec<Endpoint>, ttl: Duration) -> ResolvedAddresses {
    endpoints.sort_unstable();
    endpoints.dedup();
    endpoints.truncate(ENDPOINTS_MAX);
    if endpoints.iter().any(|e| e.ip.is_ipv4()) && endpoints.iter().any(|e| e.ip.is_ipv6()) {
        let reachable = |e: &&Endpoint| system::has_route(e.ip);
        let kept: Vec<Endpoint> = endpoints.iter().filter(reachable).cloned().collect();
        if !kept.is_empty() {
            endpoints = kept;
        }
    }
    let ttl = ttl.min(TTL_MAX);
    ResolvedAddresses { endpoints, ttl }
}
