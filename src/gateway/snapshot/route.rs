//! Routes as requests meet them.

use std::sync::Arc;

use http::HeaderName;
use uuid::Uuid;

use super::filters::{Filters, Replaced};
use super::service::{LiveService, Services, Upstream};
use super::{Snapshot, Workshop, label};
use crate::gateway::chain::{Chains, Link, Place, Scoped};
use crate::gateway::choose::Protocols;
use crate::gateway::entities::Record;
use crate::gateway::router::groups::Groups;
use crate::model::route::{PathHandling, Route};
use crate::telemetry::traffic::RouteTraffic;

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
    /// Plugins of consumers, if any can apply here.
    pub scoped: Option<Arc<Scoped>>,
    /// Headers that filters vouch for and clients may not send.
    pub owned_headers: Box<[HeaderName]>,
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
    /// The groups of its paths, if its upstream hashes what they match.
    pub groups: Option<Groups>,
    /// Its counters.
    pub traffic: Arc<RouteTraffic>,
}

/// What routes are made of besides their records.
pub(super) struct Parts<'a> {
    pub(super) services: &'a Services,
    pub(super) filters: &'a Arc<Filters>,
    pub(super) chains: &'a Chains,
    pub(super) workshop: &'a Workshop,
}

impl LiveRoute {
    /// The route's record.
    pub fn record(&self) -> &Record<Route> {
        &self.record
    }

    /// Whether it was made from this very record.
    pub(super) fn is_of(&self, record: &Arc<Record<Route>>) -> bool {
        Arc::ptr_eq(&self.record, record)
    }

    /// The id of the route.
    pub fn id(&self) -> Uuid {
        self.record.value.id
    }
}

/// The routes of `records`, which ascend by id; what has not changed since
/// `previous` is kept.
pub(super) fn build(
    records: &[&Arc<Record<Route>>],
    parts: &Parts<'_>,
    previous: Option<&Snapshot>,
) -> Vec<Arc<LiveRoute>> {
    let Some(previous) = previous else {
        return records.iter().map(|record| live(record, parts)).collect();
    };
    let replaced = Replaced::between(&previous.filters, parts.filters);
    let same_services = std::ptr::eq(parts.services, &*previous.services);
    let mut olds = previous.routes.iter().peekable();
    let keep_or_make = |record: &&Arc<Record<Route>>| {
        while olds.next_if(|old| old.id() < record.value.id).is_some() {}
        let same = olds.peek().filter(|old| {
            Arc::ptr_eq(&old.record, record)
                && (same_services || has_service(old, parts.services))
                && !replaced.concern(old)
        });
        match same {
            Some(old) => Arc::clone(old),
            None => live(record, parts),
        }
    };
    records.iter().map(keep_or_make).collect()
}

fn has_service(route: &LiveRoute, services: &Services) -> bool {
    let now = route
        .record
        .value
        .service
        .and_then(|to| services.get(&to.id));
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
    let service = place.service.and_then(|id| parts.services.get(&id));
    let service = service.cloned();
    let chain = parts.chains.chain(place);
    let label = label(route.name.as_deref(), route.id);
    let service_label = service.as_ref().map_or("", |service| &service.label);
    Arc::new(LiveRoute {
        record: record.clone(),
        traffic: parts.workshop.traffic.route(service_label, &label),
        label,
        groups: groups(route, service.as_deref()),
        service,
        place,
        filters: chain.links,
        scoped: chain.scoped,
        owned_headers: chain.owned_headers,
        strip_path: route.strip_path,
        gathers_body: route.request_buffering,
        sends_at_once: !route.response_buffering,
        preserve_host: route.preserve_host,
        v1_paths: route.path_handling == PathHandling::V1,
        protocols: Protocols::of(route),
    })
}

/// The groups of the route's paths, where the upstream hashes by them.
fn groups(route: &Route, service: Option<&LiveService>) -> Option<Groups> {
    let wanted = service.is_some_and(|service| match &service.upstream {
        Upstream::Balanced(balancer, _) => balancer.wants_captures(),
        _ => false,
    });
    wanted.then(|| Groups::of(route))
}
