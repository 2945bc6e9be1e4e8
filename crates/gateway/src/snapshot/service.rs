//! Services as requests meet them.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv6Addr;
use std::sync::Arc;

use http::HeaderValue;
use uuid::Uuid;

use super::{CompileContext, CompileError, Snapshot, label};
use crate::balance::Balancer;
use crate::balance::registry::BalancerRegistry;
use crate::copy_on_write_map::CopyOnWriteMap;
use crate::entities::{Entities, Entity as _, Origin, Record};
use crate::forward_auth;
use crate::mount::PROVIDER;
use crate::peer::{DialError, Dialer, UpstreamCredentials};
use crate::resolve::Resolver;
use crate::upstream::Peers;
use doorward_core::model::service::{Protocol, Service};

/// Services by their ids.
pub(super) type Services = CopyOnWriteMap<Arc<LiveService>>;

/// A service with everything resolved that can be resolved beforehand.
pub struct LiveService {
    record: Arc<Record<Service>>,
    /// Name, or the id of a service without one.
    pub label: Box<str>,
    credentials: UpstreamCredentials,
    /// Where requests go.
    pub upstream: Upstream,
    /// How they get there; none inside the process.
    pub dialer: Option<Dialer>,
    /// The service's path.
    pub path: Option<Box<str>>,
    /// Host header for the upstream.
    pub host: HeaderValue,
    /// Whether the upstream is spoken to over TLS.
    pub tls: bool,
    /// Further tries after the first.
    pub retries: usize,
    /// Whether it tells other proxies whether requests may pass.
    pub is_forward_auth: bool,
}

/// Where requests go.
pub enum Upstream {
    /// Over the network.
    Peers(Arc<Peers>),
    /// Over the network, to a target of an upstream; who resolves its name.
    Balanced(Arc<Balancer>, Arc<Resolver>),
    /// A router in this process.
    Internal(axum::Router),
}

/// The services of `entities`, and how many of them are the identity provider; what
/// has not changed since `previous` is kept.
pub(super) fn build(
    entities: &Entities,
    balancers: &Arc<BalancerRegistry>,
    context: &CompileContext,
    previous: Option<&Snapshot>,
) -> Result<(Services, usize), CompileError> {
    let mut providers = previous.map_or(0, |one| one.providers);
    let mut services = previous.map_or_else(Services::default, |one| one.services.clone());
    for id in touched(entities, balancers, previous) {
        if services.get(id).is_some_and(|live| live.is_provider()) {
            providers = providers.saturating_sub(1);
        }
        let Some(record) = entities.services.get(id) else {
            services.remove(id);
            continue;
        };
        providers += usize::from(is_provider(&record.value));
        let balancer = balancer(entities, balancers, &record.value);
        let upstream = balancer.map(|balancer| balancer.upstream());
        let credentials = UpstreamCredentials::of(&record.value, upstream, entities)
            .map_err(|e| undialable(id, e))?;
        let is_kept = services.get(id).is_some_and(|live| {
            (Arc::ptr_eq(&live.record, record) || live.record == *record)
                && live.is_balanced_by(balancer)
                && live.credentials.is_same(&credentials)
        });
        if !is_kept {
            let live = live_service(record, balancer, credentials, context)?;
            services.put(id, Arc::new(live));
        }
    }
    Ok((services, providers))
}

fn is_provider(service: &Service) -> bool {
    service.protocol == Protocol::Internal && service.host == PROVIDER
}

/// The services that may be others than in `previous`: their records, the balancers
/// of their hosts, or the certificates that they or their upstreams name.
fn touched(
    entities: &Entities,
    balancers: &Arc<BalancerRegistry>,
    previous: Option<&Snapshot>,
) -> BTreeSet<Uuid> {
    let previous = previous.unwrap_or_else(|| Snapshot::empty());
    let before = &previous.entities;
    let mut ids: BTreeSet<Uuid> = BTreeSet::new();
    ids.extend(entities.services.changed_since(&before.services));
    let mut upstreams: BTreeSet<Uuid> = BTreeSet::new();
    upstreams.extend(entities.upstreams.changed_since(&before.upstreams));
    upstreams.extend(balancers.changed_since(&previous.balancers));
    for id in entities.certificates.changed_since(&before.certificates) {
        let field = "client_certificate";
        let services = entities.services.referring(field, id, None);
        ids.extend(services.map(|record| record.value.id));
        let shown = entities.upstreams.referring(field, id, None);
        upstreams.extend(shown.map(|record| record.value.id));
    }
    for id in entities
        .ca_certificates
        .changed_since(&before.ca_certificates)
    {
        let services = entities.services.referring("ca_certificates", id, None);
        ids.extend(services.map(|record| record.value.id));
    }
    for id in upstreams {
        let names = [entities.upstreams.get(id), before.upstreams.get(id)];
        for upstream in names.into_iter().flatten() {
            let services = entities.services.with_text("host", &upstream.value.name);
            ids.extend(services.map(|record| record.value.id));
        }
    }
    ids
}

/// The balancer of the upstream that the service's host names, if it names one.
fn balancer<'a>(
    entities: &Entities,
    balancers: &'a BalancerRegistry,
    service: &Service,
) -> Option<&'a Arc<Balancer>> {
    if service.protocol == Protocol::Internal {
        return None;
    }
    let upstream = entities.upstreams.by_key(&service.host)?;
    balancers.get(upstream.value.id)
}

impl LiveService {
    /// The service's record.
    pub fn record(&self) -> &Record<Service> {
        &self.record
    }

    /// The service of `record`, whose host names one of the routers of this
    /// process, the upstream of `balancer`, or else a host; `verify` is for
    /// [`Dialer::new`].
    ///
    /// # Errors
    /// [`DialError`] with what of the record can't be used.
    pub(crate) fn make(
        record: Arc<Record<Service>>,
        balancer: Option<&Arc<Balancer>>,
        credentials: UpstreamCredentials,
        internals: &HashMap<&'static str, axum::Router>,
        resolver: &Arc<Resolver>,
        verify: bool,
    ) -> Result<Self, DialError> {
        let service = &record.value;
        let error = |field, message| DialError { field, message };
        let upstream = if service.protocol == Protocol::Internal {
            let router = internals.get(service.host.as_str());
            Upstream::Internal(router.cloned().ok_or_else(|| {
                let mut known: Vec<_> = internals.keys().copied().collect();
                known.sort_unstable();
                error("host", format!("expected one of: {}", known.join(", ")))
            })?)
        } else {
            let peers = || Peers::new(resolver.name(&service.host), service.port);
            match (balancer, &service.socket) {
                (Some(balancer), None) => Upstream::Balanced(balancer.clone(), resolver.clone()),
                (None, None) => Upstream::Peers(Arc::new(peers())),
                (balancer, Some(_)) => {
                    check_socket(&record.origin, balancer.is_some())
                        .map_err(|message| error("socket", message.to_owned()))?;
                    Upstream::Peers(Arc::new(peers().behind_socket()))
                }
            }
        };
        let dialer = match service.protocol {
            Protocol::Internal => None,
            _ => Some(Dialer::new(service, &credentials, verify)?),
        };
        let host = HeaderValue::from_str(&host_header(service))
            .map_err(|_| error("host", format!("invalid value: {}", service.host)))?;
        Ok(Self {
            credentials,
            dialer,
            label: label(service.name.as_deref(), service.id),
            upstream,
            path: service.path.as_deref().map(Box::from),
            host,
            tls: matches!(service.protocol, Protocol::Https | Protocol::Grpcs),
            retries: usize::from(service.retries),
            is_forward_auth: service.protocol == Protocol::Internal
                && service.host == forward_auth::NAME,
            record,
        })
    }

    fn is_provider(&self) -> bool {
        is_provider(&self.record.value)
    }

    fn is_balanced_by(&self, balancer: Option<&Arc<Balancer>>) -> bool {
        match (&self.upstream, balancer) {
            (Upstream::Balanced(own, _), Some(balancer)) => Arc::ptr_eq(own, balancer),
            (Upstream::Balanced(..), None) | (_, Some(_)) => false,
            (_, None) => true,
        }
    }
}

/// Whether a service may name a socket. Whoever writes the files of this machine may
/// name what lies beside them; the Admin API must not lead to other programs' sockets.
fn check_socket(origin: &Origin, is_balanced: bool) -> Result<(), &'static str> {
    if *origin == Origin::Store {
        return Err("only files may name a socket of the machine");
    }
    if is_balanced {
        return Err("host is the name of an upstream, whose targets have addresses");
    }
    Ok(())
}

fn undialable(id: Uuid, error: DialError) -> CompileError {
    CompileError {
        kind: Service::KIND.plural(),
        id,
        field: error.field.to_owned(),
        message: error.message,
    }
}

fn live_service(
    record: &Arc<Record<Service>>,
    balancer: Option<&Arc<Balancer>>,
    credentials: UpstreamCredentials,
    context: &CompileContext,
) -> Result<LiveService, CompileError> {
    let made = LiveService::make(
        record.clone(),
        balancer,
        credentials,
        &context.internals,
        &context.resolver,
        context.upstream_verify,
    );
    made.map_err(|error| undialable(record.value.id, error))
}

fn host_header(service: &Service) -> String {
    let default_port = match service.protocol {
        Protocol::Https | Protocol::Grpcs => 443,
        Protocol::Http | Protocol::Grpc | Protocol::Internal => 80,
    };
    // RFC 3986 §3.2.2.
    let host = match service.host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => service.host.clone(),
    };
    if service.port == default_port {
        host
    } else {
        format!("{host}:{}", service.port)
    }
}
