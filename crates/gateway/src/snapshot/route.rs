//! Routes as requests meet them.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderName;
use uuid::Uuid;

use super::filters::{Filters, Replaced};
use super::service::{LiveService, Services, Upstream};
use super::slots::Slots;
use super::{CompileContext, Snapshot, label};
use crate::chain::{Chains, Link, Place, Scoped};
use crate::choose::Protocols;
use crate::entities::{Entities, Record};
use crate::router::groups::Groups;
use doorward_core::model::route::{PathHandling, Route};
use doorward_core::model::service::Service;
use doorward_net::telemetry::traffic::RouteTraffic;
use doorward_plugin_api::filter::RouteRecords;

/// A route with everything resolved that can be resolved beforehand.
pub struct LiveRoute {
    pub(super) record: Arc<Record<Route>>,
    /// Name, or the id of a route without one.
    pub label: Box<str>,
    /// The service it belongs to.
    pub service: Option<Arc<LiveService>>,
    /// Where plugins look for it.
    pub place: Place,
    /// Filters in the order in which they run.
    pub filters: Box<[Link]>,
    /// Plugins of consumers and groups, if any can apply here.
    pub scoped: Option<Arc<Scoped>>,
    /// Headers that filters vouch for and clients may not send.
    pub owned_headers: Box<[HeaderName]>,
    /// Whether a filter looks at the heads of answers when they are finished.
    pub reads_heads: bool,
    /// Whether a filter wants to know of requests that are over.
    pub observed: bool,
    /// Where filters expect secrets, if a filter observes.
    pub secret_fields: Box<[Box<str>]>,
    /// Whether the matched prefix is cut off.
    pub strip_path: bool,
    /// Whether short bodies are read before a peer is chosen.
    pub gathers_body: bool,
    /// Whether what comes of an answer goes on at once.
    pub sends_at_once: bool,
    /// Whether the client's Host header is kept.
    pub preserve_host: bool,
    /// Whether paths are joined the `v1` way.
    pub v1_paths: bool,
    /// The protocols that it is for.
    pub protocols: Protocols,
    /// The groups of its paths, if its upstream hashes what they match, or a
    /// filter wants to know.
    pub groups: Option<Groups>,
    /// Whether a filter wants to know what the route knows of a request.
    pub tells_filters: bool,
    /// Its counters.
    pub traffic: Arc<RouteTraffic>,
}

/// What routes are made of besides their records.
pub(super) struct Parts<'a> {
    pub(super) services: &'a Services,
    pub(super) filters: &'a Filters,
    /// The filters that are others than before.
    pub(super) changed_filters: &'a [Uuid],
    pub(super) chains: &'a Chains,
    pub(super) context: &'a CompileContext,
}

/// Routes, and what of them the router has to learn.
pub(super) struct Routes {
    pub(super) slots: Slots,
    /// The positions whose routes have come, gone or changed.
    pub(super) touched: Vec<usize>,
}

impl LiveRoute {
    /// The route's record.
    pub fn record(&self) -> &Record<Route> {
        &self.record
    }

    /// The id of the route.
    pub fn id(&self) -> Uuid {
        self.record.value.id
    }

    /// Whether proxies ask here about requests of their own.
    pub(crate) fn is_forward_auth(&self) -> bool {
        let service = self.service.as_ref();
        service.is_some_and(|service| service.is_forward_auth)
    }
}

impl RouteRecords for LiveRoute {
    fn route(&self) -> &Route {
        &self.record.value
    }

    fn service(&self) -> Option<&Service> {
        let service = self.service.as_ref()?;
        Some(&service.record().value)
    }
}

/// The routes of `entities` that requests can reach; what has not changed since
/// `previous` is kept.
pub(super) fn build(entities: &Entities, parts: &Parts<'_>, previous: Option<&Snapshot>) -> Routes {
    let previous = previous.unwrap_or_else(|| Snapshot::empty());
    let replaced = Replaced::between(previous, parts.filters, parts.changed_filters);
    let mut routes = Routes {
        slots: previous.routes.clone(),
        touched: Vec::new(),
    };
    for id in concerned(entities, parts, previous, &replaced) {
        let record = entities
            .routes
            .get(id)
            .filter(|route| is_live(entities, &route.value));
        let Some(record) = record else {
            routes.touched.extend(routes.slots.remove(id));
            continue;
        };
        let old = routes.slots.by_id(id).map(|(_, old)| old);
        let same_record = old.is_some_and(|old| Arc::ptr_eq(&old.record, record));
        let kept = old.filter(|old| {
            same_record && has_service(old, parts.services) && !replaced.concern(old)
        });
        if kept.is_some() {
            continue;
        }
        let position = routes.slots.put(live(record, parts));
        if !same_record {
            routes.touched.push(position);
        }
    }
    routes
}

/// The routes that may be others than in `previous`, each once.
fn concerned(
    entities: &Entities,
    parts: &Parts<'_>,
    previous: &Snapshot,
    replaced: &Replaced,
) -> BTreeSet<Uuid> {
    let ids = entities.routes.changed_since(&previous.entities.routes);
    let mut ids: BTreeSet<Uuid> = ids.into_iter().collect();
    let of_service = |service: Uuid| {
        let routes = entities.routes.referring("service", service, None);
        routes.map(|record| record.value.id)
    };
    let services = parts
        .services
        .changed_since(&previous.services, Arc::ptr_eq);
    ids.extend(services.into_iter().flat_map(of_service));
    match replaced.places() {
        None => ids.extend(entities.routes.iter().map(|record| record.value.id)),
        Some(places) => {
            for (service, route) in places {
                match (service, route) {
                    (_, Some(route)) => drop(ids.insert(*route)),
                    (Some(service), None) => ids.extend(of_service(*service)),
                    (None, None) => {}
                }
            }
        }
    }
    ids
}

/// Whether requests can reach `route`: a disabled service takes its routes
/// out of the router.
fn is_live(entities: &Entities, route: &Route) -> bool {
    let service = route.service.and_then(|s| entities.services.get(s.id));
    service.is_none_or(|service| service.value.enabled)
}

fn has_service(route: &LiveRoute, services: &Services) -> bool {
    let now = route
        .record
        .value
        .service
        .and_then(|to| services.get(to.id));
    match (&route.service, now) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        (None, None) => true,
        _ => false,
    }
}

fn live(record: &Arc<Record<Route>>, parts: &Parts<'_>) -> Arc<LiveRoute> {
    let route = &record.value;
    let place = Place {
        route: route.id,
        service: route.service.map(|s| s.id),
    };
    let service = place.service.and_then(|id| parts.services.get(id));
    let service = service.cloned();
    let chain = parts.chains.chain(place);
    let label = label(route.name.as_deref(), route.id);
    let service_label = service.as_ref().map_or("", |service| &service.label);
    Arc::new(LiveRoute {
        record: record.clone(),
        traffic: parts.context.traffic.route(service_label, &label),
        label,
        groups: groups(route, service.as_deref(), chain.needs_route),
        tells_filters: chain.needs_route,
        service,
        place,
        filters: chain.links,
        scoped: chain.scoped,
        owned_headers: chain.owned_headers,
        reads_heads: chain.reads_heads,
        observed: chain.observed,
        secret_fields: chain.secret_fields,
        strip_path: route.strip_path,
        gathers_body: route.request_buffering,
        sends_at_once: !route.response_buffering,
        preserve_host: route.preserve_host,
        v1_paths: route.path_handling == PathHandling::V1,
        protocols: Protocols::of(route),
    })
}

/// The groups of the route's paths, where the upstream hashes by them or a filter
/// needs them.
fn groups(route: &Route, service: Option<&LiveService>, needed: bool) -> Option<Groups> {
    let hashed = service.is_some_and(|service| match &service.upstream {
        Upstream::Balanced(balancer, _) => balancer.wants_captures(),
        _ => false,
    });
    (hashed || needed).then(|| Groups::of(route))
}
