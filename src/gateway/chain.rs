//! Which filters a request meets, and in which order (gateway-admin-api §6).
//!
//! What does not depend on the consumer is fixed for each route when the
//! snapshot is compiled. Plugins of a consumer are looked at once
//! authentication has found it, and only on routes that have any.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ahash::RandomState;
use http::HeaderName;
use uuid::Uuid;

use super::entities::Record;
use crate::filter::Filter;
use crate::model::plugin::Plugin;
use crate::plugins;

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
    match (route, service, plugin.consumer.is_some()) {
        (true, true, true) => 0,
        (true, false, true) => 1,
        (false, true, true) => 2,
        (true, true, false) => 3,
        (false, false, true) => 4,
        (true, false, false) => 5,
        (false, true, false) => 6,
        (false, false, false) => 7,
    }
}

/// Of each kind the link of the lowest rank, in the order in which they run.
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

/// The enabled plugins, by where they apply.
#[derive(Default)]
pub(super) struct Chains {
    /// Those of no consumer, by service and route.
    by_place: HashMap<(Option<Uuid>, Option<Uuid>), Vec<Link>, RandomState>,
    scoped: Arc<Scoped>,
}

/// The enabled plugins of consumers.
#[derive(Default)]
pub struct Scoped {
    by_consumer: HashMap<Uuid, Vec<Link>, RandomState>,
    /// Whether one of them is for all routes.
    everywhere: bool,
    routes: HashSet<Uuid, RandomState>,
    services: HashSet<Uuid, RandomState>,
}

/// The chain of a route.
pub(super) struct Chain {
    /// In the order in which they run.
    pub(super) links: Box<[Link]>,
    /// Plugins of consumers, if any can apply to the route.
    pub(super) scoped: Option<Arc<Scoped>>,
    /// Headers that filters vouch for and clients may not send.
    pub(super) owned_headers: Box<[HeaderName]>,
}

impl Chains {
    /// All links, each of which belongs to an enabled plugin.
    pub(super) fn of(links: impl Iterator<Item = Link>) -> Self {
        let mut by_place: HashMap<_, Vec<Link>, RandomState> = HashMap::default();
        let mut scoped = Scoped::default();
        for link in links {
            let plugin = &link.record.value;
            let (service, route) = (plugin.service.map(|s| s.id), plugin.route.map(|r| r.id));
            match plugin.consumer {
                None => by_place.entry((service, route)).or_default().push(link),
                Some(consumer) => scoped.add(consumer.id, link),
            }
        }
        Self {
            by_place,
            scoped: Arc::new(scoped),
        }
    }

    /// The chain of the route at `place`.
    pub(super) fn chain(&self, place: Place) -> Chain {
        let mut candidates = Vec::new();
        for service in [place.service, None] {
            for route in [Some(place.route), None] {
                let here = self.by_place.get(&(service, route));
                candidates.extend(here.into_iter().flatten());
            }
            if place.service.is_none() {
                break;
            }
        }
        let links: Box<[Link]> = chosen(candidates).into_iter().cloned().collect();
        let scoped = self.scoped.reaches(place).then(|| self.scoped.clone());
        let of_consumers = scoped.iter().flat_map(|scoped| scoped.links());
        let mut owned_headers: Vec<HeaderName> = links
            .iter()
            .chain(of_consumers)
            .flat_map(|link| link.filter.owned_headers())
            .cloned()
            .collect();
        owned_headers.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        owned_headers.dedup();
        Chain {
            links,
            scoped,
            owned_headers: owned_headers.into(),
        }
    }
}

impl Scoped {
    fn add(&mut self, consumer: Uuid, link: Link) {
        let plugin = &link.record.value;
        match (plugin.route, plugin.service) {
            (Some(route), _) => drop(self.routes.insert(route.id)),
            (None, Some(service)) => drop(self.services.insert(service.id)),
            (None, None) => self.everywhere = true,
        }
        self.by_consumer.entry(consumer).or_default().push(link);
    }

    fn reaches(&self, place: Place) -> bool {
        self.everywhere
            || self.routes.contains(&place.route)
            || place.service.is_some_and(|id| self.services.contains(&id))
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.by_consumer.values().flatten()
    }

    /// The chain of a request on the route at `place` that turned out to come
    /// from `consumer` when the first `done` links of `chain` had run. `None`:
    /// the same one.
    pub(super) fn chain(
        &self,
        place: Place,
        consumer: Uuid,
        chain: &[Link],
        done: usize,
    ) -> Option<Box<[Link]>> {
        let own = self.by_consumer.get(&consumer)?;
        let (ran, ahead) = chain.split_at_checked(done)?;
        let now = ran.last().map_or(i32::MAX, |link| link.priority);
        // Who has had a turn has had it: authentication itself, above all.
        let in_time = |link: &&Link| {
            link.applies(place)
                && link.priority <= now
                && !ran.iter().any(|other| other.name() == link.name())
        };
        let own: Vec<&Link> = own.iter().filter(in_time).collect();
        if own.is_empty() {
            return None;
        }
        let rest = chosen(ahead.iter().chain(own).collect());
        Some(ran.iter().chain(rest).cloned().collect())
    }
}

#[cfg(test)]
#[path = "chain/tests.rs"]
mod tests;
