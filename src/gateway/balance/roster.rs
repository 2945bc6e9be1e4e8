//! The balancers of one snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use uuid::Uuid;

use super::balancer::Balancer;
use crate::gateway::entities::{Entities, Record};
use crate::model::target::Target;
use crate::model::upstream::Upstream;
use crate::telemetry::targets::TargetNumbers;

/// A balancer for each upstream.
#[derive(Debug, Default)]
pub struct Roster {
    by_id: HashMap<Uuid, Seat, RandomState>,
}

/// A balancer and the records that it was made of.
#[derive(Debug)]
struct Seat {
    upstream: Arc<Record<Upstream>>,
    targets: Box<[Arc<Record<Target>>]>,
    balancer: Arc<Balancer>,
}

impl Roster {
    /// The balancers of all upstreams. One whose records are those of
    /// `previous` is kept; of the others the endpoints' states are.
    pub fn new(entities: &Entities, previous: Option<&Roster>, now_ns: u64) -> Self {
        let seat = |upstream: &Arc<Record<Upstream>>| {
            let id = upstream.value.id;
            let targets = targets(entities, id);
            let old = previous.and_then(|roster| roster.by_id.get(&id));
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
            let seat = Seat {
                upstream,
                targets,
                balancer,
            };
            (id, seat)
        };
        Self {
            by_id: entities.upstreams.iter().map(seat).collect(),
        }
    }

    /// The balancer of the upstream with this id.
    pub fn get(&self, id: Uuid) -> Option<&Arc<Balancer>> {
        self.by_id.get(&id).map(|seat| &seat.balancer)
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
        self.by_id.values().map(|seat| &seat.balancer)
    }
}

impl Seat {
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
