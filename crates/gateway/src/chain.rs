//! Which filters a request meets, and in which order (gateway-admin-api §6).
//!
//! What does not depend on the consumer is fixed for each route when the
//! snapshot is compiled. Plugins of a consumer and of its groups are looked at once
//! authentication has found it, and only on routes that have any.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ahash::RandomState;
use http::HeaderName;
use uuid::Uuid;

use super::copy_on_write_map::CopyOnWriteMap;
use super::entities::Record;
use doorward_core::model::plugin::Plugin;
use doorward_plugin_api::consumers::Caller;
use doorward_plugin_api::filter::Filter;
use doorward_plugins as plugins;

/// A filter at its place in a chain.
#[derive(Clone)]
pub struct Link {
    /// What runs.
    pub filter: Arc<dyn Filter>,
    /// The plugin that it was built from.
    pub record: Arc<Record<Plugin>>,
    /// Higher runs first.
    priority: i32,
    /// Of one kind the lowest runs.
    rank: u8,
}

impl Link {
    /// Whether `plugin` says as much about where it applies as this one.
    pub(super) fn is_level_with(&self, plugin: &Plugin) -> bool {
        self.rank == rank(plugin)
    }

    /// The filter of the plugin `record`.
    pub(super) fn new(record: Arc<Record<Plugin>>, filter: Arc<dyn Filter>) -> Self {
        let kind = plugins::kind(&record.value.name);
        Self {
            filter,
            priority: kind.map_or(0, |kind| kind.priority),
            rank: rank(&record.value),
            record,
        }
    }

    fn name(&self) -> &str {
        &self.record.value.name
    }

    fn applies(&self, place: Place) -> bool {
        applies(&self.record.value, place)
    }

    /// Higher runs first.
    pub(super) fn priority(&self) -> i32 {
        self.priority
    }
}

/// Whether `plugin` is for the route at `place`, whatever the consumer.
pub(super) fn applies(plugin: &Plugin, place: Place) -> bool {
    let for_route = plugin.route.is_none_or(|route| route.id == place.route);
    let for_service = plugin.service.map(|service| service.id);
    for_route && (for_service.is_none() || for_service == place.service)
}

/// The more is said about where a plugin applies, the lower.
fn rank(plugin: &Plugin) -> u8 {
    let (route, service) = (plugin.route.is_some(), plugin.service.is_some());
    let group = plugin.consumer_group.is_some();
    match (route, service, plugin.consumer.is_some(), group) {
        (true, true, true, _) => 0,
        (true, true, false, true) => 1,
        (true, false, true, _) => 2,
        (false, true, true, _) => 3,
        (true, false, false, true) => 4,
        (false, true, false, true) => 5,
        (true, true, false, false) => 6,
        (false, false, true, _) => 7,
        (false, false, false, true) => 8,
        (true, false, false, false) => 9,
        (false, true, false, false) => 10,
        (false, false, false, false) => 11,
    }
}

/// Of each kind the link of the lowest rank, in the order in which they run. Of those
/// of the same rank the first one counts.
fn chosen(mut links: Vec<&Link>) -> Vec<&Link> {
    links.sort_by(|a, b| {
        let by_priority = b.priority.cmp(&a.priority);
        by_priority
            .then_with(|| a.name().cmp(b.name()))
            .then(a.rank.cmp(&b.rank))
    });
    links.dedup_by(|a, b| a.name() == b.name());
    links
}

/// A route, for the question which plugins apply to it.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The route.
    pub route: Uuid,
    /// Its service.
    pub service: Option<Uuid>,
}

/// The enabled plugins, by where they apply. A clone shares everything; a change
/// of a plugin of one route or service costs no more than that place.
#[derive(Clone, Default)]
pub(super) struct Chains {
    /// Those of a route and everybody, by the route.
    of_routes: CopyOnWriteMap<Arc<[Link]>>,
    /// Those of a service and neither route nor consumer, by the service.
    of_services: CopyOnWriteMap<Arc<[Link]>>,
    /// Those of everything.
    of_all: Arc<[Link]>,
    scoped: Arc<Scoped>,
}

/// Where a plugin of everybody is listed.
enum List {
    Route(Uuid),
    Service(Uuid),
    All,
}

impl List {
    fn of(plugin: &Plugin) -> Self {
        match (plugin.route, plugin.service) {
            (Some(route), _) => Self::Route(route.id),
            (None, Some(service)) => Self::Service(service.id),
            (None, None) => Self::All,
        }
    }
}

/// The enabled plugins of consumers and of their groups.
#[derive(Default)]
pub struct Scoped {
    by_consumer: HashMap<Uuid, Vec<Link>, RandomState>,
    by_group: HashMap<Uuid, Vec<Link>, RandomState>,
    /// Whether one of them is for all routes.
    everywhere: bool,
    routes: HashSet<Uuid, RandomState>,
    services: HashSet<Uuid, RandomState>,
}

/// The chain of a route.
pub(super) struct Chain {
    /// In the order in which they run.
    pub(super) links: Box<[Link]>,
    /// Plugins of consumers and groups, if any can apply to the route.
    pub(super) scoped: Option<Arc<Scoped>>,
    /// Headers that filters vouch for and clients may not send.
    pub(super) owned_headers: Box<[HeaderName]>,
    /// Whether a filter wants to know what the route knows of a request.
    pub(super) needs_route: bool,
    /// Whether a filter looks at the heads of answers when they are finished.
    pub(super) reads_heads: bool,
    /// Whether a filter wants to know of requests that are over.
    pub(super) observed: bool,
    /// Where filters expect secrets, if a filter observes.
    pub(super) secret_fields: Box<[Box<str>]>,
}

impl Chains {
    /// All links, each of which belongs to an enabled plugin.
    pub(super) fn of(links: impl Iterator<Item = Link>) -> Self {
        let mut chains = Self::default();
        let (of_callers, others): (Vec<Link>, Vec<Link>) =
            links.partition(|link| link.record.value.is_of_callers());
        others.into_iter().for_each(|link| chains.add(link));
        chains.replace_scoped(of_callers.into_iter());
        chains
    }

    /// Adds the link of a plugin of everybody.
    pub(super) fn add(&mut self, link: Link) {
        self.relist(&List::of(&link.record.value), |links| {
            // So that every compilation chooses the same.
            let id = link.record.value.id;
            let at = links.partition_point(|other| other.record.value.id < id);
            links.insert(at, link.clone());
        });
    }

    /// Takes out the link of a plugin of everybody.
    pub(super) fn remove(&mut self, plugin: &Plugin) {
        self.relist(&List::of(plugin), |links| {
            links.retain(|link| link.record.value.id != plugin.id);
        });
    }

    /// Puts these links, as far as they are of consumers or groups, in the place of all
    /// such links.
    pub(super) fn replace_scoped(&mut self, links: impl Iterator<Item = Link>) {
        let mut scoped = Scoped::default();
        for link in links {
            scoped.add(link);
        }
        self.scoped = Arc::new(scoped);
    }

    fn relist(&mut self, list: &List, change: impl FnOnce(&mut Vec<Link>)) {
        let (of_some, id) = match list {
            List::Route(id) => (&mut self.of_routes, *id),
            List::Service(id) => (&mut self.of_services, *id),
            List::All => {
                let mut links = self.of_all.to_vec();
                change(&mut links);
                self.of_all = links.into();
                return;
            }
        };
        let mut links = of_some
            .get(id)
            .map_or_else(Vec::new, |links| links.to_vec());
        change(&mut links);
        if links.is_empty() {
            drop(of_some.remove(id))
        } else {
            drop(of_some.put(id, links.into()))
        }
    }

    /// The chain of the route at `place`.
    pub(super) fn chain(&self, place: Place) -> Chain {
        let of_route = self.of_routes.get(place.route);
        let of_service = place.service.and_then(|id| self.of_services.get(id));
        let lists = [of_route, of_service, Some(&self.of_all)];
        let candidates = lists.into_iter().flatten().flat_map(|links| links.iter());
        let candidates = candidates.filter(|link| link.applies(place)).collect();
        let links: Box<[Link]> = chosen(candidates).into_iter().cloned().collect();
        let scoped = self.scoped.reaches(place).then(|| self.scoped.clone());
        let of_callers = scoped.iter().flat_map(|scoped| scoped.links());
        let all: Vec<&Link> = links.iter().chain(of_callers).collect();
        let owned = all.iter().flat_map(|link| link.filter.owned_headers());
        let mut owned: Vec<HeaderName> = owned.cloned().collect();
        owned.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        owned.dedup();
        let needs_route = all.iter().any(|link| link.filter.needs_route());
        let reads_heads = all.iter().any(|link| link.filter.reads_heads());
        let observed = all.iter().any(|link| link.filter.observes());
        let secret_fields = if observed {
            let fields = all.iter().flat_map(|link| link.filter.secret_fields());
            fields.map(Box::from).collect()
        } else {
            Box::default()
        };
        Chain {
            needs_route,
            reads_heads,
            observed,
            secret_fields,
            links,
            scoped,
            owned_headers: owned.into(),
        }
    }

    /// The plugins of everything: they see the answers to requests that no route takes.
    pub(super) fn everywhere(&self) -> Box<[Link]> {
        let all = chosen(self.of_all.iter().collect());
        all.into_iter().cloned().collect()
    }

    /// The plugins of everything that want to know of requests that are over: they
    /// are told of those that no route takes, too.
    pub(super) fn observers(&self) -> Arc<[Link]> {
        let all = self.of_all.iter();
        let observing = all.filter(|link| link.filter.observes()).collect();
        chosen(observing).into_iter().cloned().collect()
    }
}

impl Scoped {
    /// Adds the link of a plugin of a consumer or of a group.
    fn add(&mut self, link: Link) {
        let plugin = &link.record.value;
        let of_caller = match (plugin.consumer, plugin.consumer_group) {
            (Some(consumer), _) => self.by_consumer.entry(consumer.id),
            (None, Some(group)) => self.by_group.entry(group.id),
            (None, None) => return,
        };
        match (plugin.route, plugin.service) {
            (Some(route), _) => drop(self.routes.insert(route.id)),
            (None, Some(service)) => drop(self.services.insert(service.id)),
            (None, None) => self.everywhere = true,
        }
        of_caller.or_default().push(link);
    }

    fn reaches(&self, place: Place) -> bool {
        self.everywhere
            || self.routes.contains(&place.route)
            || place.service.is_some_and(|id| self.services.contains(&id))
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        let of_consumers = self.by_consumer.values();
        of_consumers.chain(self.by_group.values()).flatten()
    }

    /// The links of a caller: its own, then those of its groups in their order.
    fn of<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a Link> {
        let own = self.by_consumer.get(&caller.id).into_iter();
        let groups = caller.consumer_groups().iter();
        let of_groups = groups.filter_map(|group| self.by_group.get(group));
        own.chain(of_groups).flatten()
    }

    /// The chain of a request on the route at `place` that turned out to come
    /// from `caller`, or from nobody, when the first `done` links of `current` had run; `base` is
    /// the chain of requests of nobody. `None`: `current` stays.
    pub(super) fn chain(
        &self,
        place: Place,
        caller: Option<&Caller>,
        base: &[Link],
        (current, done): (&[Link], usize),
    ) -> Option<Box<[Link]>> {
        let ran = current.get(..done)?;
        let has_run = |link: &Link| ran.iter().any(|other| other.name() == link.name());
        let now = ran.last().map_or(i32::MAX, |link| link.priority);
        // Who has had a turn has had it: authentication itself, above all.
        let in_time = |link: &&Link| link.applies(place) && link.priority <= now && !has_run(link);
        let of_caller = caller.into_iter().flat_map(|caller| self.of(caller));
        let own: Vec<&Link> = of_caller.filter(in_time).collect();
        if own.is_empty() && std::ptr::eq(base, current) {
            return None;
        }
        let ahead = base.iter().filter(|link| !has_run(link));
        let rest = chosen(ahead.chain(own).collect());
        Some(ran.iter().chain(rest).cloned().collect())
    }
}

#[cfg(test)]
#[path = "chain/tests.rs"]
mod tests;
