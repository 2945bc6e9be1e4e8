//! What goes on for the balancers besides requests: probes of their endpoints
//! and look-ups of their targets' names.
//!
//! One task for each upstream that needs any. A change of the configuration
//! gives the task the new balancer; its schedule goes on. Away from the proxy
//! workers, and bounded: look-ups and probes of all upstreams by a number at
//! once, an upstream's probes by its `concurrency` too.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use uuid::Uuid;

use super::balancer::Balancer;
use super::health_checker::{CheckedUpstream, HealthChecker, Resources};
use super::member::Names;
use super::probe::Prober;
use super::registry::BalancerRegistry;
use crate::entities::Table;
use crate::snapshot::Snapshot;
use doorward_core::model::certificate::Certificate;

/// Most look-ups of all upstreams at once.
const LOOKUPS: usize = 64;
/// Time until a task that ended by mistake is started again.
const REST: Duration = Duration::from_secs(1);

/// Runs the health checkers of the snapshot in force, until it is dropped.
pub struct BackgroundTasks {
    live: Arc<ArcSwap<Snapshot>>,
    resources: Resources,
    running: HashMap<Uuid, RunningChecker>,
    checkers: JoinSet<()>,
}

/// The task that checks an upstream, and the channel that gives it a new balancer.
struct RunningChecker {
    checked: watch::Sender<CheckedUpstream>,
    task: AbortHandle,
}

/// The parts of a snapshot that decide which upstreams are checked, and how.
struct CheckedUpstreams {
    balancers: Arc<BalancerRegistry>,
    certificates: Table<Certificate>,
}

impl CheckedUpstreams {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            balancers: snapshot.balancers.clone(),
            certificates: snapshot.entities().certificates.clone(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.balancers, &other.balancers)
            && self.certificates.is_same(&other.certificates)
    }
}

impl Drop for RunningChecker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BackgroundTasks {
    /// Tasks for the snapshots in `live`. Probes over TLS trust the
    /// authorities in the file `ca`, without one those of the system.
    pub fn new(live: Arc<ArcSwap<Snapshot>>, names: Arc<dyn Names>, ca: Option<&Path>) -> Self {
        let resources = Resources {
            names,
            prober: Prober::new(ca),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        };
        Self {
            live,
            resources,
            running: HashMap::new(),
            checkers: JoinSet::new(),
        }
    }

    /// Works until `changes`, which tells of each new snapshot, is closed.
    pub async fn run(mut self, mut changes: watch::Receiver<()>) {
        let mut seen = self.look();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if seen.is_same(&CheckedUpstreams::of(&self.live.load())) {
                        continue;
                    }
                }
                Some(ended) = self.checkers.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        tracing::error!("care for an upstream panicked: it begins anew");
                        // What panics again and again takes no whole core.
                        tokio::time::sleep(REST).await;
                    }
                }
            }
            seen = self.look();
        }
    }

    fn look(&mut self) -> CheckedUpstreams {
        let snapshot = self.live.load_full();
        self.running.retain(|id, running| {
            let balancer = snapshot.balancers.get(*id);
            !running.task.is_finished() && balancer.is_some_and(|balancer| balancer.needs_care())
        });
        for balancer in snapshot.balancers.iter().filter(|b| b.needs_care()) {
            let certificates = &snapshot.entities().certificates;
            let shown = balancer.upstream.client_certificate;
            let checked = CheckedUpstream {
                balancer: balancer.clone(),
                certificate: shown.and_then(|shown| certificates.get(shown.id).cloned()),
            };
            match self.running.get(&balancer.upstream.id) {
                Some(running) => {
                    running.checked.send_if_modified(|current| {
                        let news = !current.is_same(&checked);
                        *current = checked;
                        news
                    });
                }
                None => self.begin(checked),
            }
        }
        CheckedUpstreams::of(&snapshot)
    }

    fn begin(&mut self, checked: CheckedUpstream) {
        let id = checked.balancer.upstream.id;
        let (sender, receiver) = watch::channel(checked);
        let checker = HealthChecker::new(receiver, self.resources.clone());
        let running = RunningChecker {
            checked: sender,
            task: self.checkers.spawn(checker.run()),
        };
        self.running.insert(id, running);
    }
}

impl Balancer {
    fn needs_care(&self) -> bool {
        self.is_probed() || self.members.iter().any(|member| member.is_name())
    }

    /// Whether any of its endpoints may be probed.
    pub(super) fn is_probed(&self) -> bool {
        let active = &self.upstream.healthchecks.active;
        active.healthy.interval > 0.0 || active.unhealthy.interval > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::tests::health_checks::Script;
    use crate::balance::tests::upstream;
    use crate::entities::{Entities, Origin, Record};
    use serde_json::json;

    #[tokio::test]
    async fn a_task_that_ended_is_started_again() {
        let record = upstream(json!({"healthchecks": {"active": {"healthy": {"interval": 9}}}}));
        let id = record.id;
        let mut entities = Entities::default();
        let record = Record::new(record, &serde_json::Map::new(), Origin::Store);
        entities.upstreams.put(Arc::new(record));
        let mut snapshot = Snapshot::default();
        snapshot.balancers = Arc::new(BalancerRegistry::new(&entities, None, 0));
        let live = Arc::new(ArcSwap::from_pointee(snapshot));
        let mut keeper = BackgroundTasks::new(live, Arc::new(Script::default()), None);
        keeper.look();
        keeper.running[&id].task.abort();
        keeper.checkers.join_next().await;
        assert!(keeper.running[&id].task.is_finished());
        keeper.look();
        assert!(!keeper.running[&id].task.is_finished());
    }
}
