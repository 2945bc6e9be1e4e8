//! The immutable picture that requests run on, compiled from the entities.

mod filters;
mod route;
mod service;

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::balance::roster::Roster;
use super::certificates::Certificates;
use super::chain::Chains;
use super::entities::{Entities, Entity, Record};
use super::handler::Routes;
use super::resolve::Resolver;
use super::router::Router;
use crate::clock;
use crate::filter::Filter;
use crate::model::route::Route;
use crate::plugins::Parts;
use crate::telemetry::traffic::Traffic;
use filters::Filters;
use service::Services;

pub(super) use filters::check as check_plugin;
pub use route::LiveRoute;
pub use service::{LiveService, Upstream};

/// What compiling needs besides the entities.
pub struct Workshop {
    /// For plugins.
    pub parts: Parts,
    /// Upstreams inside this process, by the `host` of services with
    /// `protocol: internal`.
    pub internals: HashMap<&'static str, axum::Router>,
    /// Where routes find their counters.
    pub traffic: Arc<Traffic>,
    /// Finds the addresses of hosts.
    pub resolver: Arc<Resolver>,
    /// Whether certificates of https upstreams are verified where services do
    /// not say (`tls_verify`).
    pub upstream_verify: bool,
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

/// One configuration, compiled. Requests hold what they found in it.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Finds a request's route.
    pub router: Arc<Router>,
    /// The routes, at the positions that the router answers; by ascending id.
    pub routes: Vec<Arc<LiveRoute>>,
    /// The balancers of all upstreams.
    pub balancers: Arc<Roster>,
    /// Certificates by server name and by identifier.
    pub certificates: Arc<Certificates>,
    /// The route files, which are asked when no route matches.
    pub files: Arc<Routes>,
    /// Filters that give browsers cookies of their own.
    pub cookie_givers: Arc<[Arc<dyn Filter>]>,
    services: Arc<Services>,
    filters: Arc<Filters>,
    chains: Arc<Chains>,
    /// What it was compiled from.
    entities: Entities,
}

impl Snapshot {
    /// What it was compiled from.
    pub fn entities(&self) -> &Entities {
        &self.entities
    }

    /// Compiles `entities`. What `previous` holds and has not changed is kept:
    /// filters with their counters and caches, resolved addresses, compiled
    /// expressions. A change costs a comparison for each record, and work for
    /// what it touches only.
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
        let filters = filters::build(entities, workshop, previous)?;
        let balancers = balancers(entities, previous);
        let services = service::build(entities, &balancers, workshop, previous)?;
        let records: Vec<&Arc<Record<Route>>> = entities
            .routes
            .iter()
            .filter(|route| is_live(entities, &route.value))
            .collect();
        let router = router(&records, previous)?;
        let chains = filters::chains(entities, &filters, previous);
        let parts = route::Parts {
            services: &services,
            filters: &filters,
            chains: &chains,
            workshop,
        };
        let routes = route::build(&records, &parts, previous);
        let givers = filters.values().map(|built| &built.filter);
        let givers = givers.filter(|filter| filter.gives_cookies()).cloned();
        Ok(Self {
            cookie_givers: givers.collect(),
            router,
            routes,
            balancers,
            certificates,
            files: previous.map_or_else(Arc::default, |snapshot| snapshot.files.clone()),
            services,
            filters,
            chains,
            entities: entities.clone(),
        })
    }

    /// The same with other route files.
    pub fn with_files(&self, files: Arc<Routes>) -> Self {
        Self {
            files,
            ..self.clone()
        }
    }

    /// The running filter of a plugin.
    pub fn filter(&self, plugin: Uuid) -> Option<&Arc<dyn Filter>> {
        self.filters.get(&plugin).map(|built| &built.filter)
    }

    /// The routes of this snapshot that `next` has not taken over; both were
    /// compiled from the same entities' successive states.
    pub fn routes_gone_in(&self, next: &Snapshot) -> Vec<Arc<LiveRoute>> {
        let mut others = next.routes.iter().peekable();
        let gone = self.routes.iter().filter(|route| {
            while others.next_if(|other| other.id() < route.id()).is_some() {}
            !others.peek().is_some_and(|other| Arc::ptr_eq(other, route))
        });
        gone.cloned().collect()
    }
}

fn balancers(entities: &Entities, previous: Option<&Snapshot>) -> Arc<Roster> {
    if let Some(previous) = previous
        && entities.upstreams.is_same(&previous.entities.upstreams)
        && entities.targets.is_same(&previous.entities.targets)
    {
        return previous.balancers.clone();
    }
    let before = previous.map(|snapshot| &*snapshot.balancers);
    Arc::new(Roster::new(entities, before, clock::monotonic_ns()))
}

/// The router of `records`: that of `previous` if it has the same.
fn router(
    records: &[&Arc<Record<Route>>],
    previous: Option<&Snapshot>,
) -> Result<Arc<Router>, CompileError> {
    if let Some(previous) = previous
        && previous.routes.len() == records.len()
        && (previous.routes.iter().zip(records)).all(|(old, new)| old.is_of(new))
    {
        return Ok(previous.router.clone());
    }
    let routes = records.iter().map(|record| &record.value);
    let router = Router::build(routes, previous.map(|snapshot| &*snapshot.router));
    router.map(Arc::new).map_err(|error| CompileError {
        kind: Route::KIND.plural(),
        id: records[error.route].value.id,
        field: error.field,
        message: error.message,
    })
}

/// Whether requests can reach `route`: a disabled service takes its routes
/// out of the router.
fn is_live(entities: &Entities, route: &Route) -> bool {
    let service = route.service.and_then(|s| entities.services.get(s.id));
    service.is_none_or(|service| service.value.enabled)
}

fn label(name: Option<&str>, id: Uuid) -> Box<str> {
    name.map_or_else(|| id.to_string().into(), Box::from)
}

#[cfg(test)]
mod tests;
