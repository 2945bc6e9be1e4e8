//! The running filters, and where they changed.

use std::collections::HashSet;
use std::sync::Arc;

use ahash::RandomState;
use uuid::Uuid;

use super::{CompileContext, CompileError, LiveRoute, Snapshot};
use crate::chain::{Chains, Link};
use crate::copy_on_write_map::CopyOnWriteMap;
use crate::entities::{Entities, Entity as _, Origin, Record};
use crate::resource_metadata::ResourceMetadata;
use crate::vaults::{self, Vaults};
use doorward_core::model::plugin::Plugin;
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::Filter;
use doorward_plugins as plugins;

/// The filters of the enabled plugins, by the plugins' ids.
pub(super) type Filters = CopyOnWriteMap<Arc<Built>>;

/// A filter and the record that it was built from.
pub(super) struct Built {
    pub(super) record: Arc<Record<Plugin>>,
    pub(super) filter: Arc<dyn Filter>,
}

impl Built {
    fn link(&self) -> Link {
        Link::new(self.record.clone(), self.filter.clone())
    }
}

/// The filters of `entities`; what has not changed since `previous` is kept.
pub(super) fn build(
    entities: &Entities,
    context: &CompileContext,
    previous: Option<&Snapshot>,
) -> Result<Filters, CompileError> {
    let mut filters = previous.map_or_else(Filters::default, |one| one.filters.clone());
    let before = &previous
        .unwrap_or_else(|| Snapshot::empty())
        .entities
        .plugins;
    let vaults = Vaults::of(entities);
    let mut changed = entities.plugins.changed_since(before);
    let other = vaults::differ(&entities.vaults, previous.map(|one| &one.entities));
    if other {
        let plugins = entities.plugins.iter().filter(|record| uses_vaults(record));
        changed.extend(plugins.map(|record| record.value.id));
    }
    for id in changed {
        let record = entities.plugins.get(id).filter(|p| p.value.enabled);
        let Some(record) = record else {
            filters.remove(id);
            continue;
        };
        let kept = filters.get(id);
        let kept = kept.filter(|built| same_filter(&built.record, record));
        let kept = kept.filter(|_| !(other && uses_vaults(record)));
        let filter = match kept {
            Some(built) => built.filter.clone(),
            None => {
                let filter = build_filter(&record.value, &context.parts, &vaults)?;
                warn(record, &*filter);
                filter
            }
        };
        let record = record.clone();
        filters.put(id, Arc::new(Built { record, filter }));
    }
    Ok(filters)
}

fn uses_vaults(record: &Record<Plugin>) -> bool {
    record.value.config.values().any(vaults::refers)
}

fn same_filter(old: &Arc<Record<Plugin>>, new: &Arc<Record<Plugin>>) -> bool {
    Arc::ptr_eq(old, new)
        || (old.value.name == new.value.name && old.value.config == new.value.config)
}

/// Whether the filter of an enabled plugin can be built.
///
/// # Errors
/// What is wrong with the plugin.
pub(crate) fn check(
    plugin: &Plugin,
    parts: &Parts,
    entities: &Entities,
) -> Result<(), CompileError> {
    if plugin.enabled {
        build_filter(plugin, parts, &Vaults::of(entities))?;
    }
    Ok(())
}

fn build_filter(
    plugin: &Plugin,
    parts: &Parts,
    vaults: &Vaults,
) -> Result<Arc<dyn Filter>, CompileError> {
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
    let resolved = vaults.resolved((kind.schema)(), &plugin.config);
    let resolved =
        resolved.map_err(|(field, message)| error(format!("config.{field}"), message))?;
    let config = resolved.as_ref().unwrap_or(&plugin.config);
    (kind.build)(config, &parts.scoped(&plugin.id.to_string()))
        .map_err(|e| error(format!("config.{}", e.field), e.message))
}

/// Tells the warnings of a plugin of the store. Those of a file are told with its line
/// (`Snapshot::declared_filters`).
fn warn(record: &Record<Plugin>, filter: &dyn Filter) {
    if record.origin != Origin::Store {
        return;
    }
    let plugin = &record.value;
    for warning in filter.warnings() {
        tracing::warn!(plugin = %plugin.name, id = %plugin.id, "{warning}");
    }
}

/// What has changed among filters since `previous`.
pub(super) fn changed(filters: &Filters, previous: Option<&Snapshot>) -> Vec<Uuid> {
    let before = &previous.unwrap_or_else(|| Snapshot::empty()).filters;
    filters.changed_since(before, Arc::ptr_eq)
}

/// The chains of these filters, of which `changed` are others than in `previous`.
pub(super) fn chains(filters: &Filters, changed: &[Uuid], previous: Option<&Snapshot>) -> Chains {
    let Some(previous) = previous else {
        return Chains::of(filters.iter().map(|(_, built)| built.link()));
    };
    let mut chains = previous.chains.clone();
    let mut scoped = false;
    for id in changed {
        let (old, new) = (previous.filters.get(*id), filters.get(*id));
        if let Some(old) = old {
            if old.record.value.is_of_callers() {
                scoped = true;
            } else {
                chains.remove(&old.record.value);
            }
        }
        if let Some(new) = new {
            if new.record.value.is_of_callers() {
                scoped = true;
            } else {
                chains.add(new.link());
            }
        }
    }
    if scoped {
        chains.replace_scoped(filters.iter().map(|(_, built)| built.link()));
    }
    chains
}

/// The filters that give browsers cookies of their own.
pub(super) fn cookie_givers(
    filters: &Filters,
    changed: &[Uuid],
    previous: Option<&Snapshot>,
) -> Arc<[Arc<dyn Filter>]> {
    let gives = |filter: &dyn Filter| filter.gives_cookies();
    if let Some(previous) = unchanged(filters, changed, previous, gives) {
        return previous.cookie_givers.clone();
    }
    let all = filters.iter().map(|(_, built)| &built.filter);
    all.filter(|filter| filter.gives_cookies())
        .cloned()
        .collect()
}

/// The snapshot before this one, if no filter came, went or changed that `concerns`
/// what is to be worked out.
fn unchanged<'a>(
    filters: &Filters,
    changed: &[Uuid],
    previous: Option<&'a Snapshot>,
    concerns: impl Fn(&dyn Filter) -> bool,
) -> Option<&'a Snapshot> {
    let previous = previous?;
    let concerned = |filters: &Filters, id: Uuid| {
        let built = filters.get(id);
        built.is_some_and(|built| concerns(&*built.filter))
    };
    let mut ids = changed.iter();
    let touched = ids.any(|id| concerned(filters, *id) || concerned(&previous.filters, *id));
    (!touched).then_some(previous)
}

/// The metadata of the resources that filters protect.
pub(super) fn resource_metadata(
    filters: &Filters,
    changed: &[Uuid],
    previous: Option<&Snapshot>,
) -> Arc<ResourceMetadata> {
    let protects = |filter: &dyn Filter| !filter.protected_resource().is_empty();
    if let Some(previous) = unchanged(filters, changed, previous, protects) {
        return previous.resource_metadata.clone();
    }
    let all = filters.iter().map(|(_, built)| &built.filter);
    ResourceMetadata::of(all.map(|filter| filter.protected_resource()))
}

/// What a plugin is attached to: a service, a route.
pub(super) type Place = (Option<Uuid>, Option<Uuid>);

/// Where plugins came, went or changed.
#[derive(Default)]
pub(super) struct Replaced {
    places: HashSet<Place, RandomState>,
    /// Whether one of them was for a consumer or a group.
    scoped: bool,
}

impl Replaced {
    /// From the filters of `previous` to these, of which `changed` are others.
    pub(super) fn between(previous: &Snapshot, filters: &Filters, changed: &[Uuid]) -> Self {
        let mut replaced = Self::default();
        for id in changed {
            for built in [previous.filters.get(*id), filters.get(*id)] {
                built
                    .into_iter()
                    .for_each(|one| replaced.add(&one.record.value));
            }
        }
        replaced
    }

    fn add(&mut self, plugin: &Plugin) {
        let (service, route) = (plugin.service.map(|s| s.id), plugin.route.map(|r| r.id));
        // Those of consumers and groups are looked for by the narrower of the two.
        let scoped = plugin.is_of_callers();
        let service = service.filter(|_| !(scoped && route.is_some()));
        self.places.insert((service, route));
        self.scoped |= scoped;
    }

    /// The places of routes that may have other filters now: services and routes;
    /// `None`: all routes may.
    pub(super) fn places(&self) -> Option<&HashSet<Place, RandomState>> {
        let all = self.scoped || self.places.contains(&(None, None));
        (!all).then_some(&self.places)
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
