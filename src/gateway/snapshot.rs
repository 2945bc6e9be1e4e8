//! The immutable picture that requests run on, compiled from the entities.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use http::{HeaderName, HeaderValue};
use uuid::Uuid;

use super::balance::Balancer;
use super::balance::roster::Roster;
use super::certificates::Certificates;
use super::chain::{Chains, Link, Place, Scoped};
use super::choose::Protocols;
use super::entities::{Entities, Entity, Record};
use super::router::Router;
use super::router::groups::Groups;
use super::upstream::Peers;
use crate::clock;
use crate::filter::Filter;
use crate::model::plugin::Plugin;
use crate::model::route::{PathHandling, Route};
use crate::model::service::{Protocol, Service};
use crate::plugins::{self, Parts};
use crate::telemetry::traffic::{RouteTraffic, Traffic};

/// What compiling needs besides the entities.
pub struct Workshop {
    /// For plugins.
    pub parts: Parts,
    /// Upstreams inside this process, by the `host` of services with
    /// `protocol: internal`.
    pub internals: HashMap<&'static str, axum::Router>,
    /// Where routes find their counters.
    pub traffic: Arc<Traffic>,
}

/// Why entities can't become a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {id}: {field}: {message}")]
pub struct CompileError {
    /// Plural of the entity's kind.
    pub kind: &'static str,
    /// The entity at fault.
    pub id: Uuid,
    /// Dotted path of the field at fault.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// One configuration, compiled. Requests hold the snapshot they began with.
#[derive(Default)]
pub struct Snapshot {
    /// Finds a request's route.
    pub router: Router,
    /// The routes, at the positions that the router answers.
    pub routes: Vec<Arc<LiveRoute>>,
    /// The balancers of all upstreams.
    pub balancers: Roster,
    /// Certificates by server name and by identifier.
    pub certificates: Arc<Certificates>,
    services: HashMap<Uuid, Arc<LiveService>, RandomState>,
    filters: HashMap<Uuid, Built, RandomState>,
}

/// A filter and the record that it was built from.
struct Built {
    record: Arc<Record<Plugin>>,
    filter: Arc<dyn Filter>,
}

/// A route with everything resolved that can be resolved beforehand.
pub struct LiveRoute {
    /// Name, or the id of a route without one.
    pub label: Box<str>,
    /// The service it belongs to.
    pub service: Option<Arc<LiveService>>,
    /// Where plugins look for it.
    pub place: Place,
    /// Filters in the order in which they run.
    pub filters: Box<[Link]>,
    /// Plugins of consumers, if any can apply here.
    pub scoped: Option<Arc<Scoped>>,
    /// Headers that filters vouch for and clients may not send.
    pub owned_headers: Box<[HeaderName]>,
    /// Whether the matched prefix is cut off.
    pub strip_path: bool,
    /// Whether the client's Host header is kept.
    pub preserve_host: bool,
    /// Whether paths are joined the `v1` way.
    pub v1_paths: bool,
    /// The protocols that it is for.
    pub protocols: Protocols,
    /// The groups of its paths, if its upstream hashes what they match.
    pub groups: Option<Groups>,
    /// Its counters.
    pub traffic: Arc<RouteTraffic>,
}

/// A service with everything resolved that can be resolved beforehand.
pub struct LiveService {
    record: Arc<Record<Service>>,
    /// Name, or the id of a service without one.
    pub label: Box<str>,
    /// Where requests go.
    pub upstream: Upstream,
    /// The service's path.
    pub path: Option<Box<str>>,
    /// Host header for the upstream.
    pub host: HeaderValue,
    /// Whether the upstream is spoken to over TLS.
    pub tls: bool,
    /// Further tries after the first.
    pub retries: usize,
}

/// Where requests go.
pub enum Upstream {
    /// Over the network.
    Peers(Arc<Peers>),
    /// Over the network, to a target of an upstream; how it is spoken to.
    Balanced(Arc<Balancer>, Arc<Peers>),
    /// A router in this process.
    Internal(axum::Router),
}

impl Snapshot {
    /// Compiles `entities`. What `previous` holds and has not changed is kept:
    /// filters with their counters and caches, resolved addresses, compiled
    /// expressions.
    ///
    /// # Errors
    /// [`CompileError`] for the first entity that can't be compiled.
    pub fn compile(
        entities: &Entities,
        workshop: &Workshop,
        previous: Option<&Snapshot>,
    ) -> Result<Self, CompileError> {
        let certificates =
            Certificates::compile(entities, previous.map(|snapshot| &snapshot.certificates))?;
        let filters = build_filters(entities, workshop, previous)?;
        let before = previous.map(|snapshot| &snapshot.balancers);
        let balancers = Roster::new(entities, before, clock::monotonic_ns());
        let services = build_services(entities, &balancers, workshop, previous)?;
        let enabled = entities.plugins.iter().filter_map(|record| {
            let built = filters.get(&record.value.id)?;
            Some(Link::new(built.record.clone(), built.filter.clone()))
        });
        let chains = Chains::of(enabled);
        let records: Vec<&Arc<Record<Route>>> = entities
            .routes
            .iter()
            .filter(|route| is_live(entities, &route.value))
            .collect();
        let router = Router::build(
            records.iter().map(|record| &record.value),
            previous.map(|snapshot| &snapshot.router),
        )
        .map_err(|error| CompileError {
            kind: Route::KIND.plural(),
            id: records[error.route].value.id,
            field: error.field,
            message: error.message,
        })?;
        let routes = records
            .iter()
            .map(|record| Arc::new(live_route(&record.value, &services, &chains, workshop)))
            .collect();
        Ok(Self {
            router,
            routes,
            balancers,
            certificates,
            services,
            filters,
        })
    }
}

/// Whether requests can reach `route`: a disabled service takes its routes
/// out of the router.
fn is_live(entities: &Entities, route: &Route) -> bool {
    let service = route.service.and_then(|s| entities.services.get(s.id));
    service.is_none_or(|service| service.value.enabled)
}

fn build_filters(
    entities: &Entities,
    workshop: &Workshop,
    previous: Option<&Snapshot>,
) -> Result<HashMap<Uuid, Built, RandomState>, CompileError> {
    let mut filters = HashMap::default();
    for record in entities.plugins.iter().filter(|p| p.value.enabled) {
        let plugin = &record.value;
        let kept = previous
            .and_then(|snapshot| snapshot.filters.get(&plugin.id))
            .filter(|built| same_filter(&built.record, record));
        let filter = match kept {
            Some(built) => built.filter.clone(),
            None => build_filter(plugin, &workshop.parts)?,
        };
        let record = record.clone();
        filters.insert(plugin.id, Built { record, filter });
    }
    Ok(filters)
}

fn same_filter(old: &Arc<Record<Plugin>>, new: &Arc<Record<Plugin>>) -> bool {
    Arc::ptr_eq(old, new)
        || (old.value.name == new.value.name && old.value.config == new.value.config)
}

fn build_filter(plugin: &Plugin, parts: &Parts) -> Result<Arc<dyn Filter>, CompileError> {
    let error = |field: String, message: String| CompileError {
        kind: Plugin::KIND.plural(),
        id: plugin.id,
        field,
        message,
    };
    let kind = plugins::kind(&plugin.name).ok_or_else(|| {
        let message = format!(
            "plugin '{}' not enabled; add it to the 'plugins' configuration property",
            plugin.name
        );
        error("name".to_owned(), message)
    })?;
    let filter = (kind.build)(&plugin.config, parts)
        .map_err(|e| error(format!("config.{}", e.field), e.message))?;
    for warning in filter.warnings() {
        tracing::warn!(plugin = %plugin.name, id = %plugin.id, "{warning}");
    }
    Ok(filter)
}

fn build_services(
    entities: &Entities,
    balancers: &Roster,
    workshop: &Workshop,
    previous: Option<&Snapshot>,
) -> Result<HashMap<Uuid, Arc<LiveService>, RandomState>, CompileError> {
    let mut services = HashMap::default();
    for record in entities.services.iter() {
        let id = record.value.id;
        let balancer = balancer(entities, balancers, &record.value);
        let kept = previous
            .and_then(|snapshot| snapshot.services.get(&id))
            .filter(|live| Arc::ptr_eq(&live.record, record) || live.record == *record)
            .filter(|live| live.is_balanced_by(balancer));
        let live = match kept {
            Some(live) => live.clone(),
            None => Arc::new(live_service(record, balancer, workshop)?),
        };
        services.insert(id, live);
    }
    Ok(services)
}

/// The balancer of the upstream that the service's host names, if it names one.
fn balancer<'a>(
    entities: &Entities,
    balancers: &'a Roster,
    service: &Service,
) -> Option<&'a Arc<Balancer>> {
    if service.protocol == Protocol::Internal {
        return None;
    }
    let upstream = entities.upstreams.by_key(&service.host)?;
    balancers.get(upstream.value.id)
}

impl LiveService {
    fn is_balanced_by(&self, balancer: Option<&Arc<Balancer>>) -> bool {
        match (&self.upstream, balancer) {
            (Upstream::Balanced(own, _), Some(balancer)) => Arc::ptr_eq(own, balancer),
            (Upstream::Balanced(..), None) | (_, Some(_)) => false,
            (_, None) => true,
        }
    }
}

fn live_service(
    record: &Arc<Record<Service>>,
    balancer: Option<&Arc<Balancer>>,
    workshop: &Workshop,
) -> Result<LiveService, CompileError> {
    let service = &record.value;
    let error = |field: &str, message: String| CompileError {
        kind: Service::KIND.plural(),
        id: service.id,
        field: field.to_owned(),
        message,
    };
    let upstream = if service.protocol == Protocol::Internal {
        let router = workshop.internals.get(service.host.as_str());
        Upstream::Internal(router.cloned().ok_or_else(|| {
            let mut known: Vec<_> = workshop.internals.keys().copied().collect();
            known.sort_unstable();
            error("host", format!("expected one of: {}", known.join(", ")))
        })?)
    } else {
        let peers = Peers::new(service);
        match balancer {
            Some(balancer) => Upstream::Balanced(balancer.clone(), peers),
            None => Upstream::Peers(peers),
        }
    };
    Ok(LiveService {
        record: record.clone(),
        label: label(service.name.as_deref(), service.id),
        upstream,
        path: service.path.as_deref().map(Box::from),
        host: HeaderValue::from_str(&host_header(service))
            .map_err(|_| error("host", format!("invalid value: {}", service.host)))?,
        tls: matches!(service.protocol, Protocol::Https | Protocol::Grpcs),
        retries: usize::from(service.retries),
    })
}

fn host_header(service: &Service) -> String {
    let default_port = match service.protocol {
        Protocol::Https | Protocol::Grpcs => 443,
        Protocol::Http | Protocol::Grpc | Protocol::Internal => 80,
    };
    if service.port == default_port {
        service.host.clone()
    } else {
        format!("{}:{}", service.host, service.port)
    }
}

fn label(name: Option<&str>, id: Uuid) -> Box<str> {
    name.map_or_else(|| id.to_string().into(), Box::from)
}

fn live_route(
    route: &Route,
    services: &HashMap<Uuid, Arc<LiveService>, RandomState>,
    chains: &Chains,
    workshop: &Workshop,
) -> LiveRoute {
    let place = Place {
        route: route.id,
        service: route.service.map(|s| s.id),
    };
    let service = place.service.and_then(|id| services.get(&id)).cloned();
    let chain = chains.chain(place);
    let label = label(route.name.as_deref(), route.id);
    let service_label = service.as_ref().map_or("", |service| &service.label);
    LiveRoute {
        traffic: workshop.traffic.route(service_label, &label),
        label,
        groups: groups(route, service.as_deref()),
        service,
        place,
        filters: chain.links,
        scoped: chain.scoped,
        owned_headers: chain.owned_headers,
        strip_path: route.strip_path,
        preserve_host: route.preserve_host,
        v1_paths: route.path_handling == PathHandling::V1,
        protocols: Protocols::of(route),
    }
}

/// The groups of the route's paths, where the upstream hashes by them.
fn groups(route: &Route, service: Option<&LiveService>) -> Option<Groups> {
    let wanted = service.is_some_and(|service| match &service.upstream {
        Upstream::Balanced(balancer, _) => balancer.wants_captures(),
        _ => false,
    });
    wanted.then(|| Groups::of(route))
}
