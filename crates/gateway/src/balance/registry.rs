//! The balancers of one snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::balancer::Balancer;
use crate::copy_on_write_map::CopyOnWriteMap;
use crate::entities::{Entities, Record};
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_net::telemetry::targets::TargetNumbers;

/// A balancer for each upstream.
#[derive(Debug, Default)]
pub struct BalancerRegistry {
    by_id: CopyOnWriteMap<Arc<BalancerRecord>>,
}

/// A balancer and the records that it was made of.
#[derive(Debug)]
struct BalancerRecord {
    upstream: Arc<Record<Upstream>>,
    targets: Box<[Arc<Record<Target>>]>,
    balancer: Arc<Balancer>,
}

impl BalancerRegistry {
    /// The balancers of all upstreams. One whose records are those of
    /// `previous`, with the entities that it was made of, is kept; of the others the
    /// endpoints' states are.
    pub fn new(
        entities: &Entities,
        previous: Option<(&BalancerRegistry, &Entities)>,
        now_ns: u64,
    ) -> Self {
        let none;
        let (previous, before) = if let Some(both) = previous {
            both
        } else {
            none = (Self::default(), Entities::default());
            (&none.0, &none.1)
        };
        let mut registry = Self {
            by_id: previous.by_id.clone(),
        };
        for id in touched(entities, before) {
            let Some(upstream) = entities.upstreams.get(id) else {
                registry.by_id.remove(id);
                continue;
            };
            let targets = targets(entities, id);
            let old = previous.by_id.get(id);
            let balancer = match old.filter(|old| old.is_made_of(upstream, &targets)) {
                Some(old) => old.balancer.clone(),
                None => Arc::new(Balancer::new(
                    &upstream.value,
                    targets.iter().map(|target| &target.value),
                    old.map(|old| &*old.balancer),
                    now_ns,
                )),
            };
            let upstream = upstream.clone();
            let record = BalancerRecord {
                upstream,
                targets,
                balancer,
            };
            registry.by_id.put(id, Arc::new(record));
        }
        registry
    }

    /// The upstreams that have another balancer than in `previous`, or none.
    pub fn changed_since(&self, previous: &Self) -> Vec<Uuid> {
        let same = |a: &Arc<BalancerRecord>, b: &Arc<BalancerRecord>| {
            Arc::ptr_eq(&a.balancer, &b.balancer)
        };
        self.by_id.changed_since(&previous.by_id, same)
    }

    /// The balancer of the upstream with this id.
    pub fn get(&self, id: Uuid) -> Option<&Arc<Balancer>> {
        self.by_id.get(id).map(|record| &record.balancer)
    }

    /// What metrics tell of all targets, by upstream.
    pub fn numbers(&self, now_ns: u64) -> Vec<TargetNumbers> {
        let mut all: Vec<_> = self.iter().flat_map(|b| b.numbers(now_ns)).collect();
        all.sort_by(|a, b| {
            let key = |n: &TargetNumbers| (n.upstream.clone(), n.target.clone());
            key(a).cmp(&key(b)).then_with(|| a.address.cmp(&b.address))
        });
        all
    }

    /// All balancers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Balancer>> {
        self.by_id.iter().map(|(_, record)| &record.balancer)
    }
}

impl BalancerRecord {
    fn is_made_of(
        &self,
        upstream: &Arc<Record<Upstream>>,
        targets: &[Arc<Record<Target>>],
    ) -> bool {
        Arc::ptr_eq(&self.upstream, upstream)
            && self.targets.len() == targets.len()
            && self
                .targets
                .iter()
                .zip(targets)
                .all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// The upstreams that are others than `before`, or have other targets.
fn touched(entities: &Entities, before: &Entities) -> BTreeSet<Uuid> {
    let upstreams = entities.upstreams.changed_since(&before.upstreams);
    let targets = entities.targets.changed_since(&before.targets);
    let of_target = |id: Uuid| {
        let both = [entities.targets.get(id), before.targets.get(id)];
        let both = both.into_iter().flatten();
        both.map(|target| target.value.upstream.id)
            .collect::<Vec<_>>()
    };
    let of_targets = targets.into_iter().flat_map(of_target);
    upstreams.into_iter().chain(of_targets).collect()
}

/// The targets of an upstream, oldest first.
fn targets(entities: &Entities, upstream: Uuid) -> Box<[Arc<Record<Target>>]> {
    let mut targets: Vec<_> = entities
        .targets
        .referring("upstream", upstream, None)
        .cloned()
        .collect();
    targets.sort_by(|a, b| {
        let (a, b) = (&a.value, &b.value);
        a.created_at.total_cmp(&b.created_at).then(a.id.cmp(&b.id))
    });
    targets.into()
}
