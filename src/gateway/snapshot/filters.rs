//! The running filters, and where they changed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ahash::RandomState;
use uuid::Uuid;

use super::{CompileError, LiveRoute, Snapshot, Workshop};
use crate::filter::Filter;
use crate::gateway::chain::{Chains, Link};
use crate::gateway::entities::{Entities, Entity as _, Record};
use crate::model::plugin::Plugin;
use crate::plugins::{self, Parts};

/// The filters of the enabled plugins, by the plugins' ids.
pub(super) type Filters = HashMap<Uuid, Built, RandomState>;

/// A filter and the record that it was built from.
pub(super) struct Built {
    pub(super) record: Arc<Record<Plugin>>,
    pub(super) filter: Arc<dyn Filter>,
}

/// The filters of `entities`; what has not changed since `previous` is kept.
pub(super) fn build(
    entities: &Entities,
    workshop: &Workshop,
    previous: Option<&Snapshot>,
) -> Result<Arc<Filters>, CompileError> {
    if let Some(previous) = previous
        && entities.plugins.is_same(&previous.entities.plugins)
    {
        return Ok(previous.filters.clone());
    }
    let mut filters = Filters::default();
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
    Ok(Arc::new(filters))
}

fn same_filter(old: &Arc<Record<Plugin>>, new: &Arc<Record<Plugin>>) -> bool {
    Arc::ptr_eq(old, new)
        || (old.value.name == new.value.name && old.value.config == new.value.config)
}

/// Whether the filter of an enabled plugin can be built.
///
/// # Errors
/// What is wrong with the plugin.
pub(in crate::gateway) fn check(plugin: &Plugin, parts: &Parts) -> Result<(), CompileError> {
    if plugin.enabled {
        build_filter(plugin, parts)?;
    }
    Ok(())
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
    let filter = (kind.build)(&plugin.config, &parts.scoped(&plugin.id.to_string()))
        .map_err(|e| error(format!("config.{}", e.field), e.message))?;
    for warning in filter.warnings() {
        tracing::warn!(plugin = %plugin.name, id = %plugin.id, "{warning}");
    }
    Ok(filter)
}

/// The chains of these filters; those of `previous` if they are the same.
pub(super) fn chains(
    entities: &Entities,
    filters: &Arc<Filters>,
    previous: Option<&Snapshot>,
) -> Arc<Chains> {
    if let Some(previous) = previous
        && Arc::ptr_eq(filters, &previous.filters)
    {
        return previous.chains.clone();
    }
    // In the order of the table, so that every compilation chooses the same.
    let enabled = entities.plugins.iter().filter_map(|record| {
        let built = filters.get(&record.value.id)?;
        Some(Link::new(built.record.clone(), built.filter.clone()))
    });
    Arc::new(Chains::of(enabled))
}

/// What a plugin is attached to: a service, a route.
type Place = (Option<Uuid>, Option<Uuid>);

/// Where plugins came, went or changed.
#[derive(Default)]
pub(super) struct Replaced {
    places: HashSet<Place, RandomState>,
    /// Whether one of them was for a consumer.
    scoped: bool,
}

impl Replaced {
    /// From one state of the filters to another.
    pub(super) fn between(old: &Arc<Filters>, new: &Arc<Filters>) -> Self {
        let mut replaced = Self::default();
        if Arc::ptr_eq(old, new) {
            return replaced;
        }
        let differ = |a: &Built, b: &Built| {
            !Arc::ptr_eq(&a.record, &b.record) || !Arc::ptr_eq(&a.filter, &b.filter)
        };
        for (these, those) in [(new, old), (old, new)] {
            for (id, built) in these.iter() {
                if those.get(id).is_none_or(|other| differ(built, other)) {
                    replaced.add(&built.record.value);
                }
            }
        }
        replaced
    }

    fn add(&mut self, plugin: &Plugin) {
        let (service, route) = (plugin.service.map(|s| s.id), plugin.route.map(|r| r.id));
        // Those of consumers are looked for by the narrower of the two.
        let scoped = plugin.consumer.is_some();
        let service = service.filter(|_| !(scoped && route.is_some()));
        self.places.insert((service, route));
        self.scoped |= scoped;
    }

    /// Whether the filters of `route` may be other ones.
    pub(super) fn concern(&self, route: &LiveRoute) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let (service, id) = (route.place.service, Some(route.place.route));
        let places = [(service, id), (None, id), (service, None), (None, None)];
        (self.scoped && route.scoped.is_some())
            || places.iter().any(|place| self.places.contains(place))
    }
}
