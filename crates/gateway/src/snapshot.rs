//! The immutable picture that requests run on, compiled from the entities.

mod filters;
mod route;
mod service;
mod slots;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use uuid::Uuid;

use super::balance::registry::BalancerRegistry;
use super::certificates::Certificates;
use super::chain::{Chains, Link};
use super::entities::{Entities, Entity, Origin};
use super::handler::Routes;
use super::resolve::Resolver;
use super::resource_metadata::ResourceMetadata;
use super::router::{Layers, Match, Query, RouteError};
use doorward_core::clock;
use doorward_core::model::route::Route;
use doorward_net::telemetry::traffic::Traffic;
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::Filter;
use filters::Filters;
use service::Services;

pub(super) use filters::check as check_plugin;
pub use route::LiveRoute;
pub use service::{LiveService, Upstream};
pub use slots::Slots;

/// What compiling needs besides the entities.
pub struct CompileContext {
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
    /// The route to the identity provider where nothing else leads there.
    pub mount: Option<Arc<Routes>>,
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
    pub router: Arc<Layers>,
    /// The routes, at the positions that the router answers.
    pub routes: Slots,
    /// The balancers of all upstreams.
    pub balancers: Arc<BalancerRegistry>,
    /// Certificates by server name and by identifier.
    pub certificates: Arc<Certificates>,
    /// The route files, which are asked when no route matches.
    pub files: Arc<Routes>,
    mount: Option<Arc<Routes>>,
    /// How many services are the identity provider.
    providers: usize,
    /// Filters that give browsers cookies of their own.
    pub cookie_givers: Arc<[Arc<dyn Filter>]>,
    /// The metadata of the resources that filters protect.
    pub resource_metadata: Arc<ResourceMetadata>,
    /// Filters that see the answers to requests that no route takes.
    pub everywhere: Box<[Link]>,
    /// Filters that are told of requests that no route takes.
    pub observers: Arc<[Link]>,
    services: Services,
    filters: Filters,
    chains: Chains,
    /// What it was compiled from.
    entities: Entities,
}

impl Snapshot {
    /// Nothing at all: what the first snapshot is compared with. Made once, since it
    /// is hundreds of empty parts.
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<Snapshot> = LazyLock::new(Snapshot::default);
        &EMPTY
    }

    /// What it was compiled from.
    pub fn entities(&self) -> &Entities {
        &self.entities
    }

    /// Compiles `entities`. What `previous` holds and has not changed is kept:
    /// filters with their counters and caches, resolved addresses, compiled
    /// expressions. A change costs work for what it touches only.
    ///
    /// # Errors
    /// [`CompileError`] for the first entity that can't be compiled.
    pub fn compile(
        entities: &Entities,
        context: &CompileContext,
        previous: Option<&Snapshot>,
    ) -> Result<Self, CompileError> {
        let certificates =
            Certificates::compile(entities, previous.map(|snapshot| &snapshot.certificates))?;
        let filters = filters::build(entities, context, previous)?;
        let changed_filters = filters::changed(&filters, previous);
        let balancers = balancers(entities, previous);
        let (services, providers) = service::build(entities, &balancers, context, previous)?;
        let chains = filters::chains(&filters, &changed_filters, previous);
        let parts = route::Parts {
            services: &services,
            filters: &filters,
            changed_filters: &changed_filters,
            chains: &chains,
            context,
        };
        let route::Routes { slots, touched } = route::build(entities, &parts, previous);
        let router = router(&slots, &touched, previous)?;
        Ok(Self {
            cookie_givers: filters::cookie_givers(&filters, &changed_filters, previous),
            resource_metadata: filters::resource_metadata(&filters, &changed_filters, previous),
            router,
            routes: slots,
            balancers,
            certificates,
            files: previous.map_or_else(Arc::default, |snapshot| snapshot.files.clone()),
            // Once taken away it does not come back: the service that led there may
            // have had guards.
            mount: match previous {
                Some(previous) => previous.mounted().cloned(),
                None => context.mount.clone(),
            },
            providers,
            everywhere: chains.everywhere(),
            observers: chains.observers(),
            services,
            filters,
            chains,
            entities: entities.clone(),
        })
    }

    /// The route of a request, or `None`.
    pub fn find(&self, query: &Query<'_>) -> Option<(Match, &Arc<LiveRoute>)> {
        let at = |position| Some(&self.routes.get(position)?.record().value);
        let found = self.router.find(query, at)?;
        Some((found, self.routes.get(found.route)?))
    }

    /// The route to the identity provider, if nothing that an operator has declared
    /// leads there: asked last of all.
    pub fn mounted(&self) -> Option<&Arc<Routes>> {
        let leads = self.providers > 0 || self.files.may_lead_to_provider();
        self.mount.as_ref().filter(|_| !leads)
    }

    /// The same with one router of all routes; `None`: it has one already.
    ///
    /// # Errors
    /// [`CompileError`] for the first route that can't be compiled.
    pub fn compacted(&self) -> Result<Option<Self>, CompileError> {
        if !self.router.are_two() {
            return Ok(None);
        }
        let router = whole_router(&self.routes, &self.router)?;
        let router = Arc::new(router);
        Ok(Some(Self {
            router,
            ..self.clone()
        }))
    }

    /// The same with other route files.
    pub fn with_files(&self, files: Arc<Routes>) -> Self {
        let mut next = Self {
            files,
            ..self.clone()
        };
        next.mount = next.mounted().cloned();
        next
    }

    /// The running filter of a plugin.
    pub fn filter(&self, plugin: Uuid) -> Option<&Arc<dyn Filter>> {
        self.filters.get(plugin).map(|built| &built.filter)
    }

    /// The running filters of plugins.
    pub fn filters(&self) -> impl Iterator<Item = &Arc<dyn Filter>> {
        self.filters.iter().map(|(_, built)| &built.filter)
    }

    /// The running filters of plugins that files declare, by the plugins' ids.
    pub fn declared_filters(&self) -> impl Iterator<Item = (Uuid, &Arc<dyn Filter>)> {
        let declared = self
            .filters
            .iter()
            .filter(|(_, built)| matches!(built.record.origin, Origin::File(_)));
        declared.map(|(_, built)| (built.record.value.id, &built.filter))
    }

    /// The routes of this snapshot that `next` has not taken over; both were
    /// compiled from the same entities' successive states.
    pub fn routes_gone_in(&self, next: &Snapshot) -> Vec<Arc<LiveRoute>> {
        self.routes.gone_in(&next.routes)
    }
}

fn balancers(entities: &Entities, previous: Option<&Snapshot>) -> Arc<BalancerRegistry> {
    if let Some(previous) = previous
        && entities.upstreams.is_same(&previous.entities.upstreams)
        && entities.targets.is_same(&previous.entities.targets)
    {
        return previous.balancers.clone();
    }
    let before = previous.map(|snapshot| (&*snapshot.balancers, &snapshot.entities));
    Arc::new(BalancerRegistry::new(
        entities,
        before,
        clock::monotonic_ns(),
    ))
}

/// The router of these routes, of which those at `touched` have come, gone or
/// changed since `previous`.
fn router(
    routes: &Slots,
    touched: &[usize],
    previous: Option<&Snapshot>,
) -> Result<Arc<Layers>, CompileError> {
    let Some(previous) = previous else {
        return whole_router(routes, &Layers::default()).map(Arc::new);
    };
    if touched.is_empty() {
        return Ok(previous.router.clone());
    }
    let at = |position| Some(&routes.get(position)?.record().value);
    let changed = previous.router.change(touched, at);
    let router = match changed.map_err(|error| uncompilable(routes, error))? {
        Some(router) => router,
        None => whole_router(routes, &previous.router)?,
    };
    Ok(Arc::new(router))
}

fn whole_router(routes: &Slots, previous: &Layers) -> Result<Layers, CompileError> {
    let all = routes.iter();
    let all = all.map(|(position, route)| (position, &route.record().value));
    Layers::build(all, previous).map_err(|error| uncompilable(routes, error))
}

fn uncompilable(routes: &Slots, error: RouteError) -> CompileError {
    CompileError {
        kind: Route::KIND.plural(),
        id: routes
            .get(error.route)
            .map_or_else(Uuid::nil, |route| route.id()),
        field: error.field,
        message: error.message,
    }
}

fn label(name: Option<&str>, id: Uuid) -> Box<str> {
    name.map_or_else(|| id.to_string().into(), Box::from)
}

#[cfg(test)]
mod tests;
